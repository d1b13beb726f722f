//! A node's side CPU in its status: a step of the rule each second, and the writes that it asks
//! for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tidegate_publish::{Constants, Observation, Rule, Step, Write};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::follow::Failures;
use crate::node::{self, Sample};
use crate::resource;

const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// After a write that failed, the next waits for so long.
const WRITE_PAUSE: Duration = Duration::from_secs(10);
/// At the end the key goes within this, or stays: kubelet gives a pod 30 s to end.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

pub struct Publisher {
    client: Client,
    name: String,
    rule: Rule,
    started: Instant,
    /// The answer to our last write, until the watch has caught up with it.
    written: Option<Node>,
    /// A write on its way, at most one. It ends with the publisher.
    writing: JoinSet<(Write, Option<Node>)>,
    write_failed: Option<Instant>,
    failures: Failures,
}

impl Publisher {
    /// Of the node with this name; nothing is written yet. `failures` are those of the watches.
    pub fn new(client: Client, name: String, constants: Constants, failures: Failures) -> Self {
        Publisher {
            client,
            name,
            rule: Rule::new(constants),
            started: Instant::now(),
            written: None,
            writing: JoinSet::new(),
            write_failed: None,
            failures,
        }
    }

    /// One second: `watched` and `pods` are the node and what is bound to it as the watches tell,
    /// `sample` what its agent says.
    pub async fn step(
        &mut self,
        watched: &Node,
        pods: &[Arc<Pod>],
        sample: Option<Sample>,
    ) -> Step {
        let has_written = self.take_written();
        let node = newest(self.written.as_ref(), watched);
        let bound = resource::bound(pods.iter().map(Arc::as_ref));
        let step = self.rule.step(&Observation {
            time_s: self.started.elapsed().as_secs(),
            surplus_milli: sample.map(|one| one.surplus_milli),
            bound_milli: bound.milli,
            leaving_milli: bound.leaving_milli,
            standing_milli: resource::standing_milli(node),
            is_allocatable: resource::is_allocatable(node),
            has_written,
            has_failed: self.failures.take(),
            is_starved: bound.pods > 0 && sample.is_some_and(|one| one.is_starved),
        });
        let condition = node::standing_condition(node);
        let standing_milli = resource::standing_milli(node);
        self.write(&step, condition, standing_milli);
        step
    }

    fn write(&mut self, step: &Step, condition: Option<bool>, standing_milli: Option<u64>) {
        let patch = node::patch(step, condition, Timestamp::now());
        let pauses = self
            .write_failed
            .is_some_and(|at| at.elapsed() < WRITE_PAUSE);
        // The next step sees what has become of the one on its way.
        let Some(patch) = patch.filter(|_| self.writing.is_empty() && !pauses) else {
            return;
        };
        match step.write {
            Write::Keep => info!("condition {}: {}", node::CONDITION, step.is_short),
            Write::Set(milli) => info!("{}: {milli}: {}", resource::SIDE_CPU, step.because),
            Write::Delete => info!("{}: deleted: {}", resource::SIDE_CPU, step.because),
        }
        let (client, name) = (self.client.clone(), self.name.clone());
        let (write, failures) = (step.write, self.failures.clone());
        self.writing.spawn(async move {
            let written = match write {
                Write::Set(milli) => {
                    let amount = write_amount(client, &name, patch, milli, standing_milli);
                    let written = tokio::time::timeout(WRITE_PATIENCE, amount).await;
                    written.context("no answer").flatten()
                }
                _ => patch_status(client, &name, patch, WRITE_PATIENCE).await,
            };
            let written = written.inspect_err(|error| {
                warn!("node {name}: {error:#}; it is tried again");
                if !is_change(error) {
                    failures.note();
                }
            });
            (write, written.ok())
        });
    }

    /// Whether a write of the key has ended.
    fn take_written(&mut self) -> bool {
        let Some(Ok((write, written))) = self.writing.try_join_next() else {
            return false;
        };
        self.write_failed = written.is_none().then(Instant::now);
        self.written = written.or(self.written.take());
        write != Write::Keep
    }

    /// Nothing follows main from here on: no pod must come, and those that run stay.
    pub async fn leave(mut self) {
        // A patch on its way might come after ours.
        let _ = tokio::time::timeout(LAST_PATIENCE, self.writing.join_next()).await;
        self.writing.abort_all();
        let (client, name) = (self.client, &self.name);
        match patch_status(client, name, node::patch_of_removal(), LAST_PATIENCE).await {
            Ok(_) => info!("node {name}: {} is deleted", resource::SIDE_CPU),
            Err(error) => warn!("node {name}: {} stays: {error:#}", resource::SIDE_CPU),
        }
    }
}

/// The node as we know it: as the watch tells, or as our last write left it where that is newer.
fn newest<'a>(written: Option<&'a Node>, watched: &'a Node) -> &'a Node {
    let version = |node: &Node| {
        node.resource_version()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match written {
        Some(written) if version(written) > version(watched) => written,
        _ => watched,
    }
}

/// Writes an amount that counts every pod which the API server knows to be bound, however far our
/// watch of them is behind; and only onto the node as it was read with them: its status is as the
/// rule saw it, and no late write of ours has changed it.
async fn write_amount(
    client: Client,
    name: &str,
    mut patch: Value,
    milli: u64,
    seen_milli: Option<u64>,
) -> anyhow::Result<Node> {
    // Without a version asked for, both answers are no older than the call.
    let on_node = ListParams::default().fields(&format!("spec.nodeName={name}"));
    let pods = Api::<Pod>::all(client.clone()).list(&on_node).await;
    let pods = pods.context("its pods")?;
    let nodes: Api<Node> = Api::all(client);
    let node = nodes.get(name).await.context("its status")?;
    let standing_milli = resource::standing_milli(&node);
    if standing_milli != seen_milli || standing_milli.is_none() && resource::is_allocatable(&node) {
        bail!(OtherState);
    }
    let bound_milli = resource::bound(&pods.items).milli;
    patch["status"]["capacity"] = json!({resource::SIDE_CPU: milli.max(bound_milli).to_string()});
    patch["metadata"] = json!({"resourceVersion": node.resource_version()});
    let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
    nodes
        .patch_status(name, &parameters, &patch)
        .await
        .context("patch of its status")
}

#[derive(Debug, thiserror::Error)]
#[error("its status is not what it was when the amount was computed")]
struct OtherState;

/// Whether a write failed since the node had changed: the API server is well.
fn is_change(error: &anyhow::Error) -> bool {
    let is_conflict =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 409);
    error.is::<OtherState>() || error.downcast_ref().is_some_and(is_conflict)
}

pub async fn patch_status(
    client: Client,
    node: &str,
    patch: Value,
    patience: Duration,
) -> anyhow::Result<Node> {
    let nodes: Api<Node> = Api::all(client);
    let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
    let call = nodes.patch_status(node, &parameters, &patch);
    tokio::time::timeout(patience, call)
        .await
        .context("no answer")?
        .context("patch of its status")
}

#[cfg(test)]
mod tests;
