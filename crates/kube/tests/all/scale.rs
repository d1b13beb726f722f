//! A thousand nodes publish and five thousand side pods are placed, through what goes wrong in a
//! cluster: `cargo xtask kube scale`.

mod audit;
mod faults;
mod fleet;
mod observer;
mod pods;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::runtime::Runtime;

use crate::bed::{Bed, bed};
use observer::Observer;

const PODS: &str = "TIDEGATE_PODS";
/// Over which they come.
const COMING: Duration = Duration::from_secs(300);
/// A phase of faults, and the quiet after it.
const PHASE: Duration = Duration::from_secs(60);
fn number(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// A runtime on a thread of its own: what is spawned goes on while a phase waits.
fn runtime() -> Arc<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = Arc::new(builder.enable_all().build().expect("a runtime"));
    let driven = Arc::clone(&runtime);
    std::thread::spawn(move || driven.block_on(std::future::pending::<()>()));
    runtime
}

async fn administrator(kubeconfig: &Path) -> Config {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .expect("a kubeconfig")
}

fn phase(name: &str, started: Instant, observer: &Observer) {
    println!("{:4} s  {name}: {observer}", started.elapsed().as_secs());
}

#[test]
#[ignore = "takes ten minutes: cargo xtask kube scale"]
fn side_pods_are_placed_and_kept_through_outages_conflicts_and_limits() {
    let started = Instant::now();
    let nodes = number(crate::bed::NODES, 6);
    let pods = number(PODS, 30);
    let bed = bed();
    bed.namespace(pods::NAMESPACE, "");
    let runtime = runtime();
    let handle = runtime.handle();
    let config = handle.block_on(administrator(bed.kubeconfig()));
    let admin = handle.block_on(async { Client::try_from(config.clone()).expect("a client") });
    let observer = handle.block_on(Observer::start(&admin));
    let lives = handle.block_on(fleet::start(&config, nodes));
    observer.until(
        |seen| seen.have_published.len() * 10 >= nodes * 9,
        "nodes publish",
    );
    phase("nodes publish", started, &observer);

    let coming = handle.spawn(pods::come(admin.clone(), pods, COMING));
    std::thread::sleep(PHASE / 2);
    bed.outage(PHASE);
    phase("the API server was away for a minute", started, &observer);
    std::thread::sleep(PHASE);
    let storm = handle.block_on(faults::storm(admin.clone(), PHASE));
    phase(&format!("other writers ({storm})"), started, &observer);
    faults::limit(bed, PHASE);
    phase("too many requests", started, &observer);
    lives.send_modify(|life| *life += 1);
    std::thread::sleep(PHASE);
    phase(
        "publishers ended or crashed, and came again",
        started,
        &observer,
    );
    handle.block_on(coming).expect("all pods are made");
    observer.until(|seen| seen.running == pods, "every pod runs");
    phase("every pod runs", started, &observer);
    std::thread::sleep(PHASE);
    phase("quiet", started, &observer);
    judge(bed, &observer, pods);
}

fn judge(bed: &Bed, observer: &Observer, pods: usize) {
    let seen = observer.seen();
    let audit = audit::read(&bed.audit());
    println!("{observer}\n{audit:#?}");
    for (node, pod) in &seen.rejections {
        println!(
            "{node} rejected {pod}; it published {:?}",
            audit.of_node(node)
        );
    }
    assert_eq!(
        (seen.rejected, seen.lost),
        (0, 0),
        "no pod is rejected or lost"
    );
    assert_eq!(seen.running, pods);
    let logged = audit.amounts.nodes();
    assert!(logged >= seen.have_published.len(), "the log has {logged}");
    assert_eq!(audit.too_soon, [""; 0], "writes of a node are 30 s apart");
    assert!(audit.too_many_requests > 0, "limits were met");
}
