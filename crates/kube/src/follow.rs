//! The node and what is on it, as the API server tells of them.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tracing::warn;

use crate::policy::{Labels, TidegatePolicy};

#[derive(Clone, Debug, Default)]
pub struct Failures(Arc<AtomicBool>);

impl Failures {
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// What is followed. A store keeps what it knew while the API server is away.
pub struct NodeStores {
    pub pods: Store<Pod>,
    pub node: Store<Node>,
    pub namespaces: Store<Namespace>,
    pub policies: Store<TidegatePolicy>,
    pub failures: Failures,
    _watches: JoinSet<()>,
}

impl NodeStores {
    pub fn start(client: &Client, node: &str) -> Self {
        let of_node = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let the_node = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let everything = watcher::Config::default;
        let mut watches = JoinSet::new();
        let failures = Failures::default();
        let api = || client.clone();
        NodeStores {
            pods: store(&mut watches, Api::all(api()), of_node, "pods", &failures),
            node: store(
                &mut watches,
                Api::all(api()),
                the_node,
                "the node",
                &failures,
            ),
            namespaces: store(
                &mut watches,
                Api::all(api()),
                everything(),
                "namespaces",
                &failures,
            ),
            // What is published does not depend on policies.
            policies: store(
                &mut watches,
                Api::all(api()),
                everything(),
                "policies",
                &Failures::default(),
            ),
            failures,
            _watches: watches,
        }
    }

    pub fn the_node(&self) -> Option<std::sync::Arc<Node>> {
        self.node.state().into_iter().next()
    }

    /// Until everything has been listed once. Before, what is bound is not known, and a gate that a
    /// policy gave would be taken back.
    pub async fn is_listed(&self) {
        // A store's writer is never dropped, so waiting cannot fail.
        let _ = self.pods.wait_until_ready().await;
        let _ = self.node.wait_until_ready().await;
        let _ = self.namespaces.wait_until_ready().await;
        let _ = self.policies.wait_until_ready().await;
    }

    pub fn namespace_labels(&self, name: &str) -> Labels {
        let key = reflector::ObjectRef::new(name);
        self.namespaces
            .get(&key)
            .map(|one| one.labels().clone())
            .unwrap_or_default()
    }
}

/// Follows objects of one kind by a watch of its own, whose failures are noted.
pub fn store<K>(
    watches: &mut JoinSet<()>,
    api: Api<K>,
    config: watcher::Config,
    what: &'static str,
    failures: &Failures,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let (reader, writer) = reflector::store();
    let stream = watcher(api, config).default_backoff().modify(|object| {
        // Who wrote which field is most of an object, and nobody here asks.
        object.managed_fields_mut().clear();
    });
    let failures = failures.clone();
    let mut stream = Box::pin(reflector::reflector(writer, stream));
    watches.spawn(async move {
        while let Some(event) = stream.next().await {
            if let Err(error) = event {
                failures.note();
                // With its causes: the first one is no more than "service error".
                let error = anyhow::Error::from(error);
                warn!(
                    "{what}: the API server does not tell of them: {error:#}; what was known stays"
                );
            }
        }
    });
    reader
}
