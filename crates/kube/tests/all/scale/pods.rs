//! The side pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub const NAMESPACE: &str = "scale";
/// So many are asked for at a time.
const AT_ONCE: usize = 8;
const AGAIN: Duration = Duration::from_secs(1);
const MILLI: [u32; 5] = [250, 500, 750, 1_000, 1_500];

/// Makes so many, evenly over a time. None of them would come again by itself.
pub async fn come(admin: Client, count: usize, over: Duration) {
    let began = Instant::now();
    let mut makers = JoinSet::new();
    for first in 0..AT_ONCE {
        let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
        makers.spawn(async move {
            for at in (first..count).step_by(AT_ONCE) {
                tokio::time::sleep_until(began + over * at as u32 / count as u32).await;
                make(&pods, at).await;
            }
        });
    }
    makers.join_all().await;
}

async fn make(pods: &Api<Pod>, at: usize) {
    let milli = MILLI[at % MILLI.len()];
    let pod = json!({
        "metadata": {"name": format!("side-{at}"), "annotations": {"tidegate.dev/side-cpu": format!("{milli}m")}},
        "spec": {"containers": [{"name": "c", "image": "x"}], "automountServiceAccountToken": false},
    });
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    loop {
        match pods.create(&PostParams::default(), &pod).await {
            Ok(_) => return,
            // An earlier call was heard, and its answer was not.
            Err(Error::Api(status)) if status.code == 409 => return,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}
