//! Metrics, scraped by a real Prometheus over TCP.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Background, Instance, wait_for};

/// `make setup` unpacks Debian's package there.
fn prometheus() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join(".cache/prometheus/usr/bin/prometheus");
    path.exists().then_some(path)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn fetch(url: &str, headers: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-s", "--max-time", "5", url]);
    for header in headers {
        command.args(["-H", header]);
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// The value of an instant query, where it has exactly one.
fn query(port: u16, expression: &str) -> Option<f64> {
    let encoded: String = expression
        .bytes()
        .map(|byte| format!("%{byte:02x}"))
        .collect();
    let text = fetch(
        &format!("http://127.0.0.1:{port}/api/v1/query?query={encoded}"),
        &[],
    );
    let answer: Value = serde_json::from_str(&text).ok()?;
    let result = answer["data"]["result"].as_array()?;
    match result.as_slice() {
        [one] => one["value"][1].as_str()?.parse().ok(),
        _ => None,
    }
}

#[test]
fn a_prometheus_scrapes_what_status_tells() {
    let Some(instance) = Instance::new("metrics") else {
        return;
    };
    let Some(prometheus) = prometheus() else {
        eprintln!("skipped: metrics: no Prometheus here; `make setup` unpacks Debian's package");
        return;
    };
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    std::fs::create_dir_all(instance.run_dir()).unwrap();
    let config = instance.run_dir().join("tidegate.toml");
    std::fs::write(&config, format!("metrics_listen = \"{address}\"\n")).unwrap();
    let _side = instance.background(
        &["--side", "--headroom", "20%", "--name", "burn"],
        &["sh", "-c", "while :; do :; done"],
    );
    instance.gate("burn");
    let url = format!("http://{address}/metrics");
    wait_for("metrics over TCP", || fetch(&url, &[]).ends_with("# EOF\n"));
    assert!(fetch(&url, &["Host: evil.example"]).contains("not this machine"));

    let scrapes = instance.path().join("prometheus.yml");
    let job = format!(
        "{{job_name: tidegate, scrape_interval: 1s, static_configs: [{{targets: [\"{address}\"]}}]}}"
    );
    std::fs::write(&scrapes, format!("scrape_configs: [{job}]\n")).unwrap();
    let at = free_port();
    let data = instance.path().join("data");
    let words = [
        prometheus.display().to_string(),
        format!("--config.file={}", scrapes.display()),
        format!("--storage.tsdb.path={}", data.display()),
        format!("--web.listen-address=127.0.0.1:{at}"),
        "--log.level=error".to_owned(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _prometheus = Background::start(&words);
    wait_for("a scrape", || {
        query(at, "up{job=\"tidegate\"}") == Some(1.0)
    });
    wait_for("the gate's CPU", || {
        let used = query(
            at,
            "tidegate_gate_cpu_seconds_total{gate=\"burn\",class=\"side\"}",
        );
        used.is_some_and(|seconds| seconds > 0.1)
    });
    let asked = query(at, "tidegate_headroom_asked_ratio");
    assert_eq!(asked, Some(0.2));
    assert_eq!(query(at, "tidegate_guardian_alive"), Some(1.0));
    let late = query(
        at,
        "histogram_quantile(0.5, tidegate_agent_step_lateness_seconds_bucket)",
    );
    assert!(
        late.is_some_and(|seconds| seconds > 0.0 && seconds < 2.0),
        "{late:?}"
    );
    let status = instance.json(&["status"]);
    assert!(
        status["totals"]["reclaimable_cpu_seconds"]
            .as_f64()
            .unwrap()
            > 0.0,
        "{status}"
    );
}
