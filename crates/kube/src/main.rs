//! `tidegate-kube`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::{CommandFactory, Parser, Subcommand};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure};
use tidegate_kube::agent::Agent;
use tidegate_kube::evict::Mode;
use tidegate_kube::policy::{self, Place, TidegatePolicy};
use tidegate_kube::run::{self, Settings};
use tidegate_kube::{control, daemonset, explain, groups, node, publish, terms};
use tidegate_publish::{Assignment, Constants};
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

const SOCKET: &str = "/run/tidegate/tidegate.sock";
/// The age of a node's lease at which its promise is withdrawn.
const LEASE_AGE_MAX: SignedDuration = SignedDuration::from_secs(60);
/// Kubelet kills a pod after 30 s.
const PODS_END: Duration = Duration::from_secs(60);

/// Tidegate on a Kubernetes node
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Give the node's pods their gates and publish its side CPU, until a signal
    Run {
        #[command(flatten)]
        node: NodeArgs,
        /// Whether starved pods are told to move
        #[arg(long, value_enum, default_value = "dry-run")]
        evict: Mode,
        /// Another number of the publishing rule, as in low_percent=25; repeat for more
        #[arg(long, value_name = "NAME=N")]
        with: Vec<Assignment>,
        /// Answer kubelet's readiness probe at this port of `POD_IP`
        #[arg(long, value_name = "PORT", requires = "pod_ip")]
        ready_port: Option<u16>,
        /// Serve `/metrics` at this port of `POD_IP`, to callers that the cluster allows
        #[arg(long, value_name = "PORT", requires = "pod_ip")]
        metrics_port: Option<u16>,
        /// By TLS, with tls.crt and tls.key of this folder
        #[arg(long, value_name = "DIR", requires = "metrics_port")]
        metrics_tls: Option<PathBuf>,
        #[arg(long, env = "POD_NAME", hide = true)]
        pod_name: Option<String>,
        #[arg(long, env = "POD_IP", hide = true)]
        pod_ip: Option<IpAddr>,
    },
    /// Why a pod runs as it does
    Explain {
        #[command(flatten)]
        node: NodeArgs,
        /// As pod:NAMESPACE/NAME
        pod: String,
    },
    /// Withdraw what dead nodes promise and report on policies, until a signal
    Control {
        #[command(flatten)]
        own: OwnArgs,
        /// How long a node's publisher may be silent before its promise is withdrawn
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        silence: u64,
        /// The key of the taint that a node loses once its agent and publisher are ready
        #[arg(long, value_name = "KEY")]
        startup_taint: Option<String>,
    },
    /// Whether the DaemonSet is ready and each of its nodes has a publisher
    Check {
        #[command(flatten)]
        own: OwnArgs,
    },
    /// End the DaemonSet and withdraw what was published, from every node: before Tidegate is
    /// uninstalled
    Remove {
        #[command(flatten)]
        own: OwnArgs,
    },
    /// Print the definition of TidegatePolicy
    Crd,
    #[command(hide = true)]
    Completions(cli::completions::Args),
    #[command(hide = true)]
    Man(cli::man::Args),
}

#[derive(clap::Args)]
struct OwnArgs {
    /// The namespace that Tidegate is installed in
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "tidegate"
    )]
    namespace: String,
}

#[derive(clap::Args)]
struct NodeArgs {
    #[command(flatten)]
    own: OwnArgs,
    /// The node's name
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: String,
    /// The agent's socket
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Where cgroups are mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    cgroups: PathBuf,
}

fn main() -> ExitCode {
    let levels: Option<Targets> = std::env::var("TIDEGATE_LOG")
        .ok()
        .and_then(|levels| levels.parse().ok());
    // The callers of the client report its errors once.
    let levels = levels.unwrap_or(
        Targets::new()
            .with_default(LevelFilter::INFO)
            .with_target("kube_client", LevelFilter::OFF),
    );
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::registry()
        .with(
            fmt::layer()
                .with_writer(std::io::stderr)
                .with_target(false)
                .with_ansi(is_terminal),
        )
        .with(levels)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = runtime
        .context("tokio")
        .and_then(|runtime| runtime.block_on(act(Cli::parse().command)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-kube: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn act(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run {
            node,
            evict,
            with,
            ready_port,
            metrics_port,
            metrics_tls,
            pod_name,
            pod_ip,
        } => {
            let settings = Settings {
                node: node.node,
                namespace: node.own.namespace,
                socket: node.socket,
                cgroups: node.cgroups,
                evict,
                constants: Constants::with(&with),
                ready: pod_ip.zip(ready_port).map(SocketAddr::from),
                metrics: pod_ip.zip(metrics_port).map(SocketAddr::from),
                metrics_tls,
                pod: pod_name,
            };
            run::run(settings, until_signal()?).await
        }
        Command::Explain { node, pod } => explain_pod(&node, &pod).await,
        Command::Control {
            own,
            silence,
            startup_taint,
        } => {
            let settings = control::Settings {
                namespace: own.namespace,
                silence: Duration::from_secs(silence),
                startup_taint,
            };
            let client = Client::try_default().await.context("the API server")?;
            control::run(client, settings, until_signal()?).await;
            Ok(())
        }
        Command::Check { own } => check(&own.namespace).await,
        Command::Remove { own } => remove(&own.namespace).await,
        Command::Crd => {
            // JSON is YAML.
            println!("{}", serde_json::to_string_pretty(&TidegatePolicy::crd())?);
            Ok(())
        }
        Command::Completions(args) => printed(cli::completions::main(&args, Cli::command())),
        Command::Man(args) => printed(cli::man::main(&args, Cli::command())),
    }
}

fn printed(done: Result<Exit, Failure>) -> anyhow::Result<()> {
    done.map(drop).map_err(|failure| anyhow!("{failure}"))
}

fn until_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

async fn explain_pod(node: &NodeArgs, asked: &str) -> anyhow::Result<()> {
    let Some((namespace, name)) = asked.strip_prefix("pod:").unwrap_or(asked).split_once('/')
    else {
        bail!("explain: {asked}: no namespace; write it as pod:NAMESPACE/NAME");
    };
    let client = Client::try_default().await.context("the API server")?;
    let pod = Api::<Pod>::namespaced(client.clone(), namespace)
        .get(name)
        .await?;
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if on != Some(&node.node) {
        let remedy = on.map_or("it waits for a node".to_owned(), |on| {
            format!("ask on node {on}")
        });
        bail!("explain: {asked}: not on node {}: {remedy}", node.node);
    }
    let the_node = Api::<Node>::all(client.clone()).get(&node.node).await?;
    let of_namespace = Api::<Namespace>::all(client.clone()).get(namespace).await?;
    let policies = Api::<TidegatePolicy>::all(client);
    let policies = policies.list(&ListParams::default()).await?.items;
    let place = Place {
        namespace: of_namespace.labels(),
        node: the_node.labels(),
        own: &node.own.namespace,
    };
    let in_force = policy::in_force(&policies, &pod, place);
    let found = groups::of_pods(&groups::cpu_mount(&node.cgroups)).context("cgroups")?;
    let groups = groups::by_pod([&pod], &found);
    let group = groups.values().next().map(String::as_str);
    let agent = match group {
        Some(group) => match Agent::at(node.socket.clone())
            .explain(format!("cgroup:{group}"))
            .await
        {
            Ok(view) => Some(view.summary),
            Err(error) => Some(error.to_string()),
        },
        None => None,
    };
    print!(
        "{}",
        explain::page(
            &pod,
            &terms::of_pod(&pod, &in_force, of_namespace.labels()),
            group,
            agent.as_deref()
        )
    );
    Ok(())
}

async fn check(namespace: &str) -> anyhow::Result<()> {
    let client = Client::try_default().await.context("the API server")?;
    let daemonsets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    let status = daemonsets
        .get(daemonset::NAME)
        .await?
        .status
        .unwrap_or_default();
    let (ready, wanted) = (status.number_ready, status.desired_number_scheduled);
    let leases = Api::<Lease>::namespaced(client, namespace);
    let leases = leases.list(&ListParams::default()).await?;
    let now = Timestamp::now();
    let is_recent = |lease: &&Lease| {
        let renewed = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.renew_time.as_ref());
        renewed.is_some_and(|renewed| now.duration_since(renewed.0) < LEASE_AGE_MAX)
    };
    let publishers = leases.items.iter().filter(is_recent).count();
    println!("of {wanted} nodes {ready} are ready, and {publishers} have a publisher");
    // A new DaemonSet has not been counted.
    if wanted == 0 || ready < wanted || publishers < usize::try_from(wanted).unwrap_or_default() {
        bail!("check: not on every node; see the pods and their logs in namespace {namespace}");
    }
    Ok(())
}

async fn remove(namespace: &str) -> anyhow::Result<()> {
    let client = Client::try_default().await.context("the API server")?;
    end_daemonset(&client, namespace).await?;
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    for one in nodes {
        let is_ours = tidegate_kube::resource::standing_milli(&one).is_some()
            || node::standing_condition(&one).is_some();
        if is_ours {
            let name = one.name_any();
            publish::patch_status(
                client.clone(),
                &name,
                node::patch_of_removal(),
                Duration::from_secs(10),
            )
            .await
            .with_context(|| format!("node {name}"))?;
            println!("node {name}: nothing is published any more");
        }
    }
    let leases = Api::<Lease>::namespaced(client, namespace);
    for lease in leases.list(&ListParams::default()).await? {
        let is_of_node = lease
            .owner_references()
            .iter()
            .any(|one| one.kind == "Node");
        if is_of_node {
            leases
                .delete(&lease.name_any(), &DeleteParams::default())
                .await?;
        }
    }
    Ok(())
}

/// Ends the publishers, which would publish again, and waits until they have lifted all limits.
async fn end_daemonset(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let daemonsets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    match daemonsets
        .delete(daemonset::NAME, &DeleteParams::background())
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        other => drop(other.context("the DaemonSet")?),
    }
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let deadline = Instant::now() + PODS_END;
    while pods
        .list(&ListParams::default())
        .await?
        .iter()
        .any(daemonset::owns)
    {
        if Instant::now() > deadline {
            // A node that is away does not end its pod.
            eprintln!("tidegate-kube: a pod of the DaemonSet has not ended within {PODS_END:?}");
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
