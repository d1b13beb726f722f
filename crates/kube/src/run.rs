//! All of it: a step each second, until a signal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tidegate_api::{ApiError, ErrorKind, StatusView};
use tidegate_publish::{Constants, Rule, Seen, Step, Write};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::agent::Agent;
use crate::evict::{self, Answer, Mode};
use crate::follow::Followed;
use crate::gates::{Change, Given, Wanted};
use crate::groups;
use crate::node::{self, Sampler};
use crate::policy::{self, Labels, TidegatePolicy};
use crate::resource;
use crate::tell::{Reason, Teller, shown};
use crate::terms::{self, PodTerms};

const STEP: Duration = Duration::from_secs(1);
/// A call to the API server that takes longer has failed.
const CALL_PATIENCE: Duration = Duration::from_secs(10);
/// After a write that failed, the next waits for so long.
const WRITE_PAUSE: Duration = Duration::from_secs(10);
/// At the end the key goes within this, or stays: kubelet gives a pod 30 s to end.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// How it is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// The agent's socket.
    pub socket: PathBuf,
    /// Where cgroups are mounted.
    pub cgroups: PathBuf,
    /// Whether pods are really told to move.
    pub evict: Mode,
    /// The numbers of the publishing rule.
    pub constants: Constants,
}

/// Follows the node until `ended`.
///
/// # Errors
/// No API server is configured.
pub async fn run(settings: Settings, ended: impl Future<Output = ()>) -> anyhow::Result<()> {
    let client = Client::try_default().await.context("the API server")?;
    let followed = Followed::start(&client, &settings.node);
    tokio::pin!(ended);
    tokio::select! {
        () = followed.is_listed(&client) => {}
        () = &mut ended => return Ok(()),
    }
    info!("node {}: its pods are listed", settings.node);
    let mut keeper = Keeper::new(settings, client, followed);
    let mut ticks = tokio::time::interval(STEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => keeper.step().await,
            () = &mut ended => break,
        }
    }
    keeper.leave().await;
    Ok(())
}

/// What one node's process remembers.
struct Keeper {
    settings: Settings,
    agent: Agent,
    client: Client,
    teller: Teller,
    followed: Followed,
    rule: Rule,
    sampler: Sampler,
    given: Given,
    started: Instant,
    /// The answer to our last write, until the watch has caught up with it.
    written: Option<Node>,
    writing: Option<JoinHandle<Option<Node>>>,
    write_failed: Option<Instant>,
    is_agent_there: bool,
}

impl Keeper {
    fn new(settings: Settings, client: Client, followed: Followed) -> Self {
        Keeper {
            agent: Agent::at(settings.socket.clone()),
            teller: Teller::new(client.clone(), &settings.node),
            client,
            followed,
            rule: Rule::new(settings.constants.clone()),
            sampler: Sampler::default(),
            given: Given::default(),
            started: Instant::now(),
            written: None,
            writing: None,
            write_failed: None,
            is_agent_there: true,
            settings,
        }
    }

    async fn step(&mut self) {
        let status = self.agent.status().await;
        if status.is_ok() != self.is_agent_there {
            self.is_agent_there = status.is_ok();
            match &status {
                Ok(status) => info!("agent {} answers", status.pid),
                Err(error) => warn!("{error}; after three minutes nothing is published"),
            }
        }
        let status = status.ok();
        let pods = self.followed.pods.state();
        if let Some(status) = &status {
            self.keep_gates(&pods, status).await;
        }
        self.publish(&pods, status.as_ref()).await;
    }

    /// The gates that the pods want.
    async fn keep_gates(&mut self, pods: &[Arc<Pod>], status: &StatusView) {
        let mount = groups::cpu_mount(&self.settings.cgroups);
        let found = match groups::of_pods(&mount) {
            Ok(found) => found,
            Err(error) => return warn!("{}: {error}; gates stay as they are", mount.display()),
        };
        let policies = self.followed.policies.state();
        let node = self.followed.the_node();
        let node = node.map(|node| node.labels().clone()).unwrap_or_default();
        let running = || pods.iter().filter(|pod| !resource::has_ended(pod));
        let groups = groups::by_pod(running().map(Arc::as_ref), &found);
        let mut wanted = Vec::new();
        for pod in running() {
            let pod_terms = self.terms_of(pod, &policies, &node);
            let note = pod_terms.problems.join("; ");
            self.teller.fault(pod, Reason::TermsIgnored, note);
            let group = groups.get(&pod.uid().unwrap_or_default());
            if let Some(group) = group.filter(|_| !pod_terms.terms.is_empty()) {
                wanted.push(Wanted {
                    group: group.clone(),
                    pod: shown(pod),
                    terms: pod_terms.raw(),
                });
            }
        }
        self.teller.keep(pods);
        let now_s = self.started.elapsed().as_secs();
        for (group, change) in self.given.changes(&wanted, &status.gates, now_s) {
            let whose = wanted.iter().find(|one| one.group == group);
            let shown_as = whose.map_or(group.as_str(), |one| one.pod.as_str());
            let pod = pods.iter().find(|pod| shown(pod) == shown_as);
            self.change(&group, change, shown_as, pod.map(Arc::as_ref))
                .await;
        }
    }

    /// Asks the agent for one change of a gate.
    async fn change(&mut self, group: &str, change: Change, shown_as: &str, pod: Option<&Pod>) {
        let note = match self.agent.apply(change.clone()).await {
            Ok(()) => {
                info!("{shown_as}: {change:?}");
                self.given.taken(group, &change);
                String::new()
            }
            Err(error) if is_refusal(&error) => {
                let now_s = self.started.elapsed().as_secs();
                self.given.refused(group, &change, now_s);
                // One bad term must not make a side pod neutral.
                if let Some(class) = change.only_class()
                    && let Err(error) = self.agent.apply(class).await
                {
                    warn!("{shown_as}: its class alone: {error}");
                }
                error.to_string()
            }
            // The next step asks again.
            Err(error) => return warn!("{shown_as}: {error}"),
        };
        if let Some(pod) = pod {
            self.teller.fault(pod, Reason::TermsRefused, note);
        }
    }

    fn terms_of(&self, pod: &Pod, policies: &[Arc<TidegatePolicy>], node: &Labels) -> PodTerms {
        let namespace = pod.namespace().unwrap_or_default();
        let namespace = self.followed.namespace_labels(&namespace);
        let policies = policies.iter().map(Arc::as_ref);
        let in_force = policy::in_force(policies, &namespace, node);
        terms::of_pod(pod, &in_force, &namespace)
    }

    /// One step of the rule, and what it says to do.
    async fn publish(&mut self, pods: &[Arc<Pod>], status: Option<&StatusView>) {
        self.take_written().await;
        let Some(node) = self.node() else {
            return;
        };
        // Without knowing which CPUs are shared, nothing is promised.
        let sample =
            status.and_then(|status| Some(self.sampler.take(status, node::shared_cpus()?)));
        let bound = resource::bound(pods.iter().map(Arc::as_ref));
        let step = self.rule.step(&Seen {
            time_s: self.started.elapsed().as_secs(),
            surplus_milli: sample.map(|one| one.surplus_milli),
            bound_milli: bound.milli,
            leaving_milli: bound.leaving_milli,
            standing_milli: resource::standing_milli(&node),
            is_starved: bound.pods > 0 && sample.is_some_and(|one| one.is_starved),
        });
        self.write(&step, node::standing_condition(&node));
        if step.must_evict {
            self.move_one(pods, &step, bound.milli).await;
        }
    }

    /// The node as we know it: as the watch tells, or as our last write left it where that is newer.
    fn node(&self) -> Option<Node> {
        let watched = self.followed.the_node()?;
        let version = |node: &Node| {
            node.resource_version()
                .and_then(|text| text.parse::<u64>().ok())
        };
        match &self.written {
            Some(written) if version(written) > version(&watched) => Some(written.clone()),
            _ => Some(watched.as_ref().clone()),
        }
    }

    fn write(&mut self, step: &Step, condition: Option<bool>) {
        let patch = node::patch(step, condition, Timestamp::now());
        let pauses = self
            .write_failed
            .is_some_and(|at| at.elapsed() < WRITE_PAUSE);
        // The next step sees what has become of the one on its way.
        let Some(patch) = patch.filter(|_| self.writing.is_none() && !pauses) else {
            return;
        };
        match step.write {
            Write::Keep => info!("condition {}: {}", node::CONDITION, step.is_short),
            Write::Set(milli) => info!("{}: {milli}: {}", resource::SIDE_CPU, step.because),
            Write::Delete => info!("{}: deleted: {}", resource::SIDE_CPU, step.because),
        }
        let (client, name) = (self.client.clone(), self.settings.node.clone());
        self.writing = Some(tokio::spawn(async move {
            let written = patch_status(client, &name, patch, CALL_PATIENCE).await;
            written
                .inspect_err(|error| warn!("node {name}: {error:#}; it is tried again"))
                .ok()
        }));
    }

    async fn take_written(&mut self) {
        if let Some(writing) = self.writing.take_if(|one| one.is_finished()) {
            let written = writing.await.ok().flatten();
            self.write_failed = written.is_none().then(Instant::now);
            self.written = written.or(self.written.take());
        }
    }

    async fn move_one(&mut self, pods: &[Arc<Pod>], step: &Step, bound_milli: u64) {
        let Some(pod) = evict::choose(pods.iter().map(Arc::as_ref)) else {
            return;
        };
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let mode = self.settings.evict;
        let asked = evict::evict(self.client.clone(), &namespace, &name, mode);
        let (action, note) = match tokio::time::timeout(CALL_PATIENCE, asked).await {
            Err(_) => return warn!("{namespace}/{name}: eviction: no answer"),
            Ok(Err(error)) => return warn!("{namespace}/{name}: eviction: {error}"),
            Ok(Ok(Answer::Gone)) => return,
            Ok(Ok(Answer::NotNow)) => ("Wait", "a disruption budget keeps it here for now"),
            Ok(Ok(Answer::Accepted)) if mode == Mode::DryRun => {
                ("DryRun", "it would move, were eviction enabled")
            }
            Ok(Ok(Answer::Accepted)) => ("Evict", "it moves to another node"),
        };
        let promise_milli = step.promise_milli.unwrap_or(0);
        let why = format!(
            "side work stands at its tolerance, and the node can give {promise_milli} of the {bound_milli} millicores \
             that its side pods request: {note}"
        );
        self.teller.starved(pod, action, why);
    }

    /// Nothing follows main from here on: no pod must come, and those that run stay.
    async fn leave(mut self) {
        // A patch on its way might come after ours.
        if let Some(writing) = self.writing.take() {
            let _ = tokio::time::timeout(LAST_PATIENCE, writing).await;
        }
        let (client, name) = (self.client, &self.settings.node);
        match patch_status(client, name, node::patch_of_removal(), LAST_PATIENCE).await {
            Ok(_) => info!("node {name}: {} is deleted", resource::SIDE_CPU),
            Err(error) => warn!("node {name}: {} stays: {error:#}", resource::SIDE_CPU),
        }
    }
}

/// Patches a node's status.
///
/// # Errors
/// The API server refuses, or does not answer in time.
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

/// The agent will say the same again: not one that is away, starting, leaving or busy.
fn is_refusal(error: &ApiError) -> bool {
    use ErrorKind::{Denied, NotFound, Unsupported, Usage};
    matches!(error.kind, Usage | Denied | NotFound | Unsupported)
}
