//! Whether this process does its work: kubelet asks by HTTP, and Prometheus in figures.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The API server took the node's lease this recently. It is renewed every 10 s.
const LEASE_AGE_MAX: Duration = Duration::from_secs(35);
/// As the manifests' `timeoutSeconds`.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    renewed: Option<Instant>,
    agent: Option<String>,
    figures: Figures,
}

/// What this process did in its last step, and since it started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// `None`: nothing is published.
    pub published_milli: Option<u64>,
    pub requested_milli: u64,
    pub is_short: bool,
    pub gates: usize,
    pub evictions: u64,
}

impl Health {
    pub fn renewed(&self, at: Instant) {
        self.state().renewed = Some(at);
    }

    /// What the agent failed with in the last step.
    pub fn agent(&self, error: Option<String>) {
        self.state().agent = error;
    }

    pub fn change(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.state().figures);
    }

    /// The figures as Prometheus text.
    pub fn metrics(&self, now: Instant) -> String {
        let (figures, renewed) = {
            let state = self.state();
            (state.figures, state.renewed)
        };
        let cpus = |milli: u64| milli as f64 / 1_000.0;
        let age = renewed.map(|at| now.duration_since(at).as_secs_f64());
        let mut text = String::new();
        for (name, kind, help, value) in [
            (
                "published_cpus",
                "gauge",
                "Side CPU that the node's status promises; absent while nothing is published",
                figures.published_milli.map(cpus),
            ),
            (
                "requested_cpus",
                "gauge",
                "Side CPU that the node's pods request",
                Some(cpus(figures.requested_milli)),
            ),
            (
                "side_pressure",
                "gauge",
                "1 while the node's pods request more side CPU than main leaves",
                Some(f64::from(u8::from(figures.is_short))),
            ),
            (
                "pod_gates",
                "gauge",
                "Pods that have terms",
                Some(figures.gates as f64),
            ),
            (
                "lease_age_seconds",
                "gauge",
                "Time since the API server took the node's lease",
                age,
            ),
            (
                "evictions_total",
                "counter",
                "Pods that were told to move",
                Some(figures.evictions as f64),
            ),
        ] {
            let Some(value) = value else { continue };
            let name = format!("tidegate_kube_{name}");
            text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
        text
    }

    pub fn fault(&self, now: Instant) -> Option<String> {
        let state = self.state();
        let is_recent = |at: Instant| now.duration_since(at) < LEASE_AGE_MAX;
        if state.renewed.is_some_and(is_recent) {
            return state.agent.clone();
        }
        let seconds = LEASE_AGE_MAX.as_secs();
        Some(format!(
            "the API server has not taken the node's lease for {seconds} s"
        ))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics with it")
    }

    /// Answers each connection with 200, or with 503 and the fault.
    pub async fn serve(self, address: SocketAddr) -> anyhow::Result<()> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("{address}"))?;
        tokio::spawn(async move {
            loop {
                // Out of descriptors, most likely: kubelet asks again.
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                };
                let answer = answer(stream, self.clone());
                tokio::spawn(tokio::time::timeout(PATIENCE, answer));
            }
        });
        Ok(())
    }
}

async fn answer(mut stream: TcpStream, health: Health) -> std::io::Result<()> {
    // A request that is not read would make the close a reset.
    let _ = stream.read(&mut [0; 4096]).await?;
    let (status, body) = match health.fault(Instant::now()) {
        None => ("200 OK", "ready".to_owned()),
        Some(fault) => ("503 Service Unavailable", fault),
    };
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_prometheus_text_and_what_is_not_known_is_absent() {
        let health = Health::default();
        let start = Instant::now();
        let text = health.metrics(start);
        assert!(!text.contains("published_cpus") && !text.contains("lease_age"));
        health.renewed(start);
        health.change(|figures| {
            figures.published_milli = Some(1_500);
            figures.is_short = true;
            figures.evictions += 1;
        });
        let text = health.metrics(start + Duration::from_secs(4));
        for line in [
            "# TYPE tidegate_kube_published_cpus gauge",
            "tidegate_kube_published_cpus 1.5",
            "tidegate_kube_side_pressure 1",
            "tidegate_kube_lease_age_seconds 4",
            "tidegate_kube_evictions_total 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }

    #[tokio::test]
    async fn a_request_may_come_after_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let mut kubelet = TcpStream::connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(answer(stream, Health::default()));
        tokio::time::sleep(Duration::from_millis(50)).await;
        let asked = kubelet.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
        asked.expect("it is open");
        let mut text = String::new();
        kubelet.read_to_string(&mut text).await.expect("an answer");
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    }

    #[test]
    fn it_is_ready_while_its_lease_is_taken_and_the_agent_answers() {
        let health = Health::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(
            health
                .fault(at(0))
                .is_some_and(|fault| fault.contains("lease"))
        );
        health.renewed(at(0));
        assert_eq!(health.fault(at(10)), None);
        health.agent(Some("no socket".to_owned()));
        assert_eq!(health.fault(at(10)).as_deref(), Some("no socket"));
        health.agent(None);
        assert!(health.fault(at(35)).is_some());
    }
}
