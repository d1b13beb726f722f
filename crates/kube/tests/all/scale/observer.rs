//! What an observer of the whole cluster sees, second by second.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tidegate_kube::follow;
use tidegate_kube::resource;
use tokio::task::JoinSet;

const LOOK: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(600);

/// What was seen. All but the first two since the start.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Nodes that publish side CPU.
    pub publishing: usize,
    /// Nodes that have done so at some time.
    pub have_published: HashSet<String>,
    pub running: usize,
    /// Pods that a node rejected.
    pub rejected: usize,
    /// Each of them, with its node, when it was made and why.
    pub rejections: Vec<(String, String)>,
    /// Pods that are not there any more.
    pub lost: usize,
    /// How often a node was seen to publish less than what is bound there.
    pub below: usize,
    /// The longest such time. After an outage the observer's two watches come back up to 30 s
    /// apart, which is in it.
    pub longest_below: Duration,
}

pub struct Observer(Arc<Mutex<Seen>>);

impl Observer {
    pub async fn start(admin: &Client) -> Self {
        let mut watches = JoinSet::new();
        let failures = follow::Failures::default();
        let pods = follow::store(
            &mut watches,
            kube::Api::all(admin.clone()),
            watcher::Config::default(),
            "pods",
            &failures,
        );
        let nodes = follow::store(
            &mut watches,
            kube::Api::all(admin.clone()),
            watcher::Config::default(),
            "nodes",
            &failures,
        );
        let seen = Arc::new(Mutex::new(Seen::default()));
        tokio::spawn(look(watches, pods, nodes, Arc::clone(&seen)));
        Observer(seen)
    }

    pub fn seen(&self) -> Seen {
        self.0.lock().expect("no one panics with it").clone()
    }

    /// Waits for something to be so.
    pub fn until(&self, is_so: impl Fn(&Seen) -> bool, what: &str) {
        let started = Instant::now();
        while !is_so(&self.seen()) {
            assert!(started.elapsed() < PATIENCE, "not: {what}: {self}");
            std::thread::sleep(LOOK);
        }
    }
}

impl fmt::Display for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.seen();
        write!(
            f,
            "{} nodes publish, {} pods run, {} rejected, {} lost, {} times below what is bound (the longest {:.1} s)",
            seen.publishing,
            seen.running,
            seen.rejected,
            seen.lost,
            seen.below,
            seen.longest_below.as_secs_f64()
        )
    }
}

async fn look(_watches: JoinSet<()>, pods: Store<Pod>, nodes: Store<Node>, seen: Arc<Mutex<Seen>>) {
    let mut known = HashSet::new();
    let mut below_since: HashMap<String, Instant> = HashMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let pods = pods.state();
        let there: HashSet<String> = pods.iter().filter_map(|pod| pod.uid()).collect();
        let is_in = |phase: &str| {
            let of = |pod: &&Arc<Pod>| {
                pod.status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref())
                    == Some(phase)
            };
            pods.iter().filter(of).count()
        };
        let by_node = by_node(&pods);
        let nodes = nodes.state();
        let mut seen = seen.lock().expect("no one panics with it");
        seen.publishing = 0;
        for node in &nodes {
            let name = node.name_any();
            let bound_milli = by_node
                .get(&name)
                .map_or(0, |pods| resource::bound(pods.iter().copied()).milli);
            let standing_milli = resource::standing_milli(node);
            if standing_milli.is_some() {
                seen.publishing += 1;
                seen.have_published.insert(name.clone());
            }
            if standing_milli.is_some_and(|milli| milli < bound_milli) {
                let since = *below_since.entry(name).or_insert_with(|| {
                    seen.below += 1;
                    Instant::now()
                });
                seen.longest_below = seen.longest_below.max(since.elapsed());
            } else {
                below_since.remove(&name);
            }
        }
        seen.running = is_in("Running");
        seen.rejections = pods.iter().filter_map(|pod| rejection(pod)).collect();
        seen.rejected = seen.rejections.len();
        seen.lost += known.difference(&there).count();
        known = there;
    }
}

/// Of a rejected pod its node, and what is known of it.
fn rejection(pod: &Pod) -> Option<(String, String)> {
    let status = pod.status.as_ref()?;
    let is_failed = status.phase.as_deref() == Some("Failed");
    let conditions = status.conditions.iter().flatten();
    let placed = conditions.filter(|one| one.type_ == "PodScheduled");
    let placed = placed.map(|one| &one.last_transition_time).next();
    let node = pod.spec.as_ref()?.node_name.clone()?;
    let milli = resource::request_milli(pod);
    let name = pod.name_any();
    is_failed.then(|| {
        (
            node,
            format!("{name} of {milli}, placed {placed:?}: {:?}", status.reason),
        )
    })
}

fn by_node(pods: &[Arc<Pod>]) -> HashMap<String, Vec<&Pod>> {
    let mut by_node: HashMap<String, Vec<&Pod>> = HashMap::new();
    for pod in pods {
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    by_node
}
