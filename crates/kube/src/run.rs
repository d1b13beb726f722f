//! All of it: a step each second, until a signal.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Config, Resource, ResourceExt};
use tidegate_api::{ApiError, ErrorKind, StatusView};
use tidegate_publish::{Constants, Step};
use tracing::{info, warn};

use crate::agent::Agent;
use crate::daemonset;
use crate::evict::{self, Answer, Mode};
use crate::follow::NodeStores;
use crate::gates::{AgentAnswers, Change, PodGate};
use crate::groups;
use crate::metrics::{Callers, Metrics, Tls};
use crate::node::{self, Sampler};
use crate::policy::{self, Labels, Place, TidegatePolicy};
use crate::publish::Publisher;
use crate::ready::Health;
use crate::resize::Resizes;
use crate::resource;
use crate::tell::{Reason, Teller, shown};
use crate::terms::{self, PodTerms};

const STEP: Duration = Duration::from_secs(1);
/// The agent is asked for its gates when the pods want others, and this often: for each, it reads
/// kernel files.
const GATES_PERIOD: Duration = Duration::from_secs(10);
/// As kubelet renews its own.
const RENEW_PERIOD: Duration = Duration::from_secs(10);
/// A call to the API server that takes longer has failed.
const CALL_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Settings {
    pub node: String,
    /// Tidegate's own.
    pub namespace: String,
    pub socket: PathBuf,
    pub cgroups: PathBuf,
    pub evict: Mode,
    pub constants: Constants,
    /// Where kubelet asks whether this process is ready.
    pub ready: Option<SocketAddr>,
    /// Where Prometheus scrapes.
    pub metrics: Option<SocketAddr>,
    /// The folder of a certificate for that address.
    pub metrics_tls: Option<PathBuf>,
    /// The name of the pod that this process is in.
    pub pod: Option<String>,
}

pub async fn run(settings: Settings, ended: impl Future<Output = ()>) -> anyhow::Result<()> {
    let config = Config::infer().await.context("the API server")?;
    let client = client(config).context("the API server")?;
    let health = Health::default();
    if let Some(address) = settings.ready {
        health.clone().serve(address).await.context("readiness")?;
    }
    if let Some(address) = settings.metrics {
        let metrics = Metrics {
            client: client.clone(),
            agent: Agent::at(settings.socket.clone()),
            health: health.clone(),
            tls: settings.metrics_tls.clone().map(Tls::of),
            callers: Callers::default(),
        };
        metrics.serve(address).await.context("metrics")?;
    }
    let followed = NodeStores::start(&client, &settings.node);
    tokio::pin!(ended);
    tokio::select! {
        () = followed.is_listed() => {}
        () = &mut ended => return Ok(()),
    }
    info!("node {}: its pods are listed", settings.node);
    let mut keeper = Keeper::new(settings, client, followed, health);
    let mut ticks = tokio::time::interval(STEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => keeper.step().await,
            () = &mut ended => break,
        }
    }
    if keeper.has_successor() {
        let node = &keeper.settings.node;
        info!("node {node}: the next pod is ready; what is published stays");
    } else {
        keeper.publisher.leave().await;
    }
    Ok(())
}

/// A client that asks once. Watches, writes and evictions each have a pause of their own before
/// they try again; and to an eviction "too many requests" is a disruption budget's answer.
pub fn client(mut config: Config) -> kube::Result<Client> {
    config.default_retry = false;
    Client::try_from(config)
}

struct Keeper {
    settings: Settings,
    agent: Agent,
    client: Client,
    teller: Teller,
    followed: NodeStores,
    publisher: Publisher,
    sampler: Sampler,
    given: AgentAnswers,
    compared: Option<Comparison>,
    started: Instant,
    renewed: Option<Instant>,
    health: Health,
    resizes: Resizes,
    is_agent_there: bool,
}

impl Keeper {
    fn new(settings: Settings, client: Client, followed: NodeStores, health: Health) -> Self {
        Keeper {
            agent: Agent::at(settings.socket.clone()),
            teller: Teller::new(client.clone(), &settings.node),
            publisher: Publisher::new(
                client.clone(),
                settings.node.clone(),
                settings.constants.clone(),
                followed.failures.clone(),
            ),
            client,
            followed,
            sampler: Sampler::default(),
            given: AgentAnswers::default(),
            compared: None,
            started: Instant::now(),
            renewed: None,
            health,
            resizes: Resizes::default(),
            is_agent_there: true,
            settings,
        }
    }

    /// Whether another pod of the DaemonSet goes on in this one's place.
    fn has_successor(&self) -> bool {
        let pods = self.followed.pods.state();
        let Settings { namespace, pod, .. } = &self.settings;
        let is_there = |own| daemonset::has_other(pods.iter().map(Arc::as_ref), own, namespace);
        pod.as_deref().is_some_and(is_there)
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
        let fault = status.as_ref().err().map(ToString::to_string);
        self.health.agent(fault);
        let status = status.ok();
        let pods = self.followed.pods.state();
        self.renew_lease();
        let Settings { namespace, pod, .. } = &self.settings;
        let waits = |own| daemonset::has_older(&pods, own, namespace);
        if pod.as_deref().is_some_and(waits) {
            return;
        }
        if let Some(status) = &status {
            self.keep_gates(&pods, status).await;
        }
        self.publish(&pods, status.as_ref()).await;
    }

    /// While this process lives and reaches the API server, nobody else withdraws what it promises.
    fn renew_lease(&mut self) {
        let Some(node) = self.followed.the_node() else {
            return;
        };
        if self.renewed.is_some_and(|at| at.elapsed() < RENEW_PERIOD) {
            return;
        }
        self.renewed = Some(Instant::now());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.settings.node.clone()),
                owner_references: node.owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.settings.node.clone()),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        };
        let health = self.health.clone();
        let api = Api::<Lease>::namespaced(self.client.clone(), &self.settings.namespace);
        tokio::spawn(async move {
            let parameters = PatchParams::apply("tidegate-kube").force();
            let name = lease.name_any();
            let patch = Patch::Apply(&lease);
            let call = api.patch(&name, &parameters, &patch);
            match tokio::time::timeout(CALL_PATIENCE, call).await {
                Ok(Ok(_)) => health.renewed(Instant::now()),
                Ok(Err(error)) => warn!("lease {name}: {error}; it is tried again"),
                Err(_) => warn!("lease {name}: no answer; it is tried again"),
            }
        });
    }

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
        let now = Instant::now();
        self.resizes.follow(pods, now);
        let mut wanted = Vec::new();
        for pod in running().filter(|pod| !self.resizes.is_paused(pod, now)) {
            let pod_terms = self.terms_of(pod, &policies, &node);
            let note = pod_terms.problems.join("; ");
            self.teller.fault(pod, Reason::TermsIgnored, note);
            let group = groups.get(&pod.uid().unwrap_or_default());
            if let Some(group) = group.filter(|_| !pod_terms.terms.is_empty()) {
                wanted.push(PodGate {
                    group: group.clone(),
                    pod: shown(pod),
                    terms: pod_terms.raw(),
                });
            }
        }
        self.teller.keep(pods);
        self.health.change(|figures| figures.gates = wanted.len());
        let is_same = |last: &Comparison| last.is_still(&wanted, status);
        if self.compared.as_ref().is_some_and(is_same) {
            return;
        }
        let gates = match self.agent.gates().await {
            Ok(gates) => gates,
            Err(error) => return warn!("{error}; gates stay as they are"),
        };
        let now_s = self.started.elapsed().as_secs();
        let changes = self.given.changes(&wanted, &gates, now_s);
        // What was changed is looked at once more.
        self.compared = changes.is_empty().then(|| Comparison {
            wanted: wanted.clone(),
            uptime_seconds: status.uptime_seconds,
            at: Instant::now(),
        });
        for (group, change) in changes {
            let whose = wanted.iter().find(|one| one.group == group);
            let shown_as = whose.map_or(group.as_str(), |one| one.pod.as_str());
            let pod = pods.iter().find(|pod| shown(pod) == shown_as);
            self.change(&group, change, shown_as, pod.map(Arc::as_ref))
                .await;
        }
    }

    async fn change(&mut self, group: &str, change: Change, shown_as: &str, pod: Option<&Pod>) {
        let note = match self.agent.apply(change.clone()).await {
            Ok(bounds) => {
                info!("{shown_as}: {change:?}");
                self.given.taken(group, &change);
                if let Some(pod) = pod {
                    self.teller
                        .fault(pod, Reason::TermsBounded, bounds.join("; "));
                }
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
        let place = Place {
            namespace: &namespace,
            node,
            own: &self.settings.namespace,
        };
        let in_force = policy::in_force(policies.iter().map(Arc::as_ref), pod, place);
        terms::of_pod(pod, &in_force, &namespace)
    }

    /// One step of the rule, and the pod that must move by it.
    async fn publish(&mut self, pods: &[Arc<Pod>], status: Option<&StatusView>) {
        let Some(node) = self.followed.the_node() else {
            return;
        };
        // Without knowing which CPUs are shared, nothing is promised.
        let sample =
            status.and_then(|status| Some(self.sampler.take(status, node::shared_cpus()?)));
        let step = self.publisher.step(&node, pods, sample).await;
        self.health.change(|figures| {
            figures.published_milli = resource::standing_milli(&node);
            figures.requested_milli = resource::bound(pods.iter().map(Arc::as_ref)).milli;
            figures.is_short = step.is_short;
        });
        if step.must_evict {
            self.move_one(pods, &step).await;
        }
    }

    async fn move_one(&mut self, pods: &[Arc<Pod>], step: &Step) {
        let Some(pod) = evict::choose(pods.iter().map(Arc::as_ref)) else {
            return;
        };
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let asked = evict::evict(self.client.clone(), &namespace, &name);
        let (action, note) = match self.settings.evict {
            Mode::DryRun => ("DryRun", "it would be told to move, were eviction enabled"),
            Mode::Enabled => match tokio::time::timeout(CALL_PATIENCE, asked).await {
                Err(_) => return warn!("{namespace}/{name}: eviction: no answer"),
                Ok(Err(error)) => return warn!("{namespace}/{name}: eviction: {error}"),
                Ok(Ok(Answer::Gone)) => return,
                Ok(Ok(Answer::NotNow)) => ("Wait", "a disruption budget keeps it here for now"),
                Ok(Ok(Answer::Accepted)) => {
                    self.health.change(|figures| figures.evictions += 1);
                    ("Evict", "it moves to another node")
                }
            },
        };
        let promise_milli = step.promise_milli.unwrap_or(0);
        let bound_milli = resource::bound(pods.iter().map(Arc::as_ref)).milli;
        let why = format!(
            "side work stands at its tolerance, and the node can give {promise_milli} of the {bound_milli} millicores \
             that its side pods request: {note}"
        );
        self.teller.starved(pod, action, why);
    }
}

struct Comparison {
    wanted: Vec<PodGate>,
    /// The agent's, then: one that has run for less is another one, and may have none.
    uptime_seconds: f64,
    at: Instant,
}

impl Comparison {
    fn is_still(&self, wanted: &[PodGate], status: &StatusView) -> bool {
        self.wanted == wanted
            && self.uptime_seconds <= status.uptime_seconds
            && self.at.elapsed() < GATES_PERIOD
    }
}

/// The agent will say the same again: not one that is away, starting, leaving or busy.
fn is_refusal(error: &ApiError) -> bool {
    use ErrorKind::{Denied, NotFound, Unsupported, Usage};
    matches!(error.kind, Usage | Denied | NotFound | Unsupported)
}
