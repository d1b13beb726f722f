//! `tidegate-kube` of many nodes in one process: each with its token, its watches, its rule and its
//! writes. Only the agent is missing: main is made up.

use std::f64::consts::TAU;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::AuthInfo;
use kube::{Client, Config};
use tidegate_kube::follow::NodeStores;
use tidegate_kube::node::Sample;
use tidegate_kube::publish::Publisher;
use tidegate_publish::{Assignment, Constants};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::bed::NAMESPACE;

const STEP: Duration = Duration::from_secs(1);
/// The rule sees in a minute and a half what it would see in a quarter of an hour; its writes are
/// as far apart as ever.
const SHORTER: [&str; 4] = ["warm_up_s=30", "window_s=90", "mean_s=20", "rise_gap_s=20"];

pub fn node_name(at: usize) -> String {
    format!("node-{at}")
}

/// Starts the publishers of so many nodes. When the number of their life changes, one in three
/// ends, and one in three crashes; both come again.
pub async fn start(admin: &Config, nodes: usize) -> watch::Sender<u32> {
    let (sender, receiver) = watch::channel(1);
    let began = Instant::now();
    for at in 0..nodes {
        tokio::spawn(publisher(admin.clone(), at, receiver.clone(), began));
    }
    sender
}

async fn publisher(admin: Config, at: usize, mut lives: watch::Receiver<u32>, began: Instant) {
    let name = node_name(at);
    // Nodes of a cluster do not start within one second.
    tokio::time::sleep(Duration::from_millis(20) * at as u32).await;
    loop {
        let client = client(&admin, &name).await;
        let followed = NodeStores::start(&client, &name);
        followed.is_listed().await;
        let mut publisher =
            Publisher::new(client, name.clone(), constants(), followed.failures.clone());
        let mut ticks = tokio::time::interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while at.is_multiple_of(3) || !lives.has_changed().expect("the test is there") {
            ticks.tick().await;
            if let Some(node) = followed.the_node() {
                let pods = followed.pods.state();
                let sample = sample(at, began.elapsed());
                publisher.step(&node, &pods, Some(sample)).await;
            }
        }
        lives.mark_unchanged();
        if at % 3 == 1 {
            publisher.leave().await;
        }
    }
}

fn constants() -> Constants {
    let numbers = SHORTER.map(|number| number.parse::<Assignment>().expect("a number"));
    Constants::with(&numbers)
}

/// With the token that the DaemonSet's pod on the node has.
async fn client(admin: &Config, node: &str) -> Client {
    let accounts = Client::try_from(admin.clone()).expect("a client");
    let accounts: Api<ServiceAccount> = Api::namespaced(accounts, NAMESPACE);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(node.into()),
                uid: None,
            }),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let parameters = PostParams::default();
    let token = loop {
        let asked = accounts.create_token_request("tidegate-kube", &parameters, &request);
        match asked.await.ok().and_then(|answer| answer.status) {
            Some(status) => break status.token,
            // The API server is away or busy.
            None => tokio::time::sleep(STEP).await,
        }
    };
    let mut config = admin.clone();
    config.auth_info = AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    };
    tidegate_kube::run::client(config).expect("a client")
}

/// Main swings between 2 and 9 of 16 CPUs, 20 % of which are headroom; each node in its own time.
fn sample(at: usize, time: Duration) -> Sample {
    let period_s = (120 + at * 37 % 240) as f64;
    let turns = time.as_secs_f64() / period_s + at as f64 * 0.13;
    let main_cpus = 5.5 + 3.5 * (TAU * turns).sin();
    Sample {
        surplus_milli: ((12.8 - main_cpus) * 1_000.0) as u64,
        is_starved: false,
    }
}
