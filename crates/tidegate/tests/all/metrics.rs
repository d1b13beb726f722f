//! Metrics, scraped by a real Prometheus over TCP, with the dashboard and the alert rules that are
//! shipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Instance, OtherGroup, describe, or_skip, wait_for};
use crate::support_kill::processes::{kill9, signal};
use crate::support_prometheus::{
    Prometheus, dashboard_queries, fetch, free_port, packaging, program,
};

#[test]
fn a_prometheus_scrapes_what_status_tells_and_alerts() {
    let instance = or_skip!(Instance::new("metrics"));
    let prometheus = or_skip!(program("metrics", "prometheus"));
    let address = format!("127.0.0.1:{}", free_port());
    std::fs::create_dir_all(instance.run_dir()).unwrap();
    let config = instance.run_dir().join("tidegate.toml");
    std::fs::write(&config, format!("api_listen = \"{address}\"\n")).unwrap();
    let _side = instance.background(
        &["--side", "--headroom", "20%", "--name", "burn"],
        &["sh", "-c", "while :; do :; done"],
    );
    instance.gate("burn");
    let url = format!("http://{address}/metrics");
    wait_for("metrics over TCP", || fetch(&url, &[]).ends_with("# EOF\n"));
    assert!(fetch(&url, &["-H", "Host: evil.example"]).contains("not this machine"));
    // What only reads is there, without command lines; what changes something is not.
    let call = |path: &str| format!("http://{address}{path}");
    let status = fetch(&call("/v1/status"), &[]);
    assert!(
        status.contains("\"name\":\"burn\"") && !status.contains("while"),
        "{status}"
    );
    let refused = fetch(&call("/v1/stop"), &["-X", "POST"]);
    assert!(refused.contains("there is no call POST"), "{refused}");
    let plain = fetch(&url, &["-H", "Accept: text/plain"]);
    assert!(plain.contains("# TYPE tidegate_agent_cpu_seconds_total counter"));
    assert!(!plain.contains("# EOF"));

    let prometheus = Prometheus::start(&prometheus, instance.path(), &address);
    wait_for("a scrape", || {
        prometheus.value("up{job=\"tidegate\"}") == Some(1.0)
    });
    let group = provoke(&instance, &prometheus);
    wait_for("the gate's CPU", || {
        let used =
            prometheus.value("tidegate_gate_cpu_seconds_total{gate=\"burn\",class=\"side\"}");
        used.is_some_and(|seconds| seconds > 0.1)
    });
    assert_eq!(prometheus.value("tidegate_headroom_asked_ratio"), Some(0.2));
    let late =
        prometheus.value("histogram_quantile(0.5, tidegate_agent_step_lateness_seconds_bucket)");
    assert!(
        late.is_some_and(|seconds| seconds > 0.0 && seconds < 2.0),
        "{late:?}"
    );
    let status = instance.json(&["status"]);
    let reclaimable = status["totals"]["reclaimable_cpu_seconds"].as_f64();
    assert!(reclaimable.unwrap() > 0.0, "{status}");
    textfile(&instance);
    panels_have_data(&prometheus, status["sensing"] == "bpf");
    wait_for("the alerts", || {
        let firing = prometheus.firing();
        ["OutsideWriter", "GuardianGone"]
            .iter()
            .all(|name| firing.iter().any(|one| one == name))
    });
    let firing = prometheus.firing();
    for silent in ["SchedExtOff", "PolicyRejected", "SideStarved"] {
        assert!(!firing.iter().any(|one| one == silent), "{firing:?}");
    }
    instance.ok(&["unset", &group.target()]);
    refuse_and_stand_still(&instance, &prometheus, &config);
}

/// A policy with a mistake is refused; the agent stands still until its lease is over.
fn refuse_and_stand_still(instance: &Instance, prometheus: &Prometheus, config: &Path) {
    let good = std::fs::read_to_string(config).unwrap();
    let rule = "[[rule]]\nname = \"x\"\nmatch = { unit = \"x.service\" }\nterms = { weigth = 5 }\n";
    std::fs::write(config, format!("{good}\n{rule}")).unwrap();
    instance.fails(&["policy", "reload"], 2);
    let pid = instance.agent().unwrap() as i32;
    signal(pid, libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(3));
    signal(pid, libc::SIGCONT);
    wait_for("PolicyRejected and LoopLate", || {
        let firing = prometheus.firing();
        ["PolicyRejected", "LoopLate"]
            .iter()
            .all(|name| firing.iter().any(|one| one == name))
    });
    std::fs::write(config, good).unwrap();
}

/// Writes over a limit from outside, and kills the guardian as often as GuardianGone takes for more
/// than an accident.
fn provoke(instance: &Instance, prometheus: &Prometheus) -> OtherGroup {
    let count = |kind: &str| prometheus.value(&format!("tidegate_events_total{{kind=\"{kind}\"}}"));
    // An increase needs a sample from before.
    wait_for("the counts before", || {
        count("outside_write") == Some(0.0) && count("guardian.replaced") == Some(0.0)
    });
    let firing = prometheus.firing();
    let early = ["OutsideWriter", "GuardianGone"];
    assert!(
        !firing.iter().any(|one| early.contains(&one.as_str())),
        "{firing:?}"
    );
    let group = OtherGroup::of_side(instance);
    let mut killed = Vec::new();
    wait_for("an outside write and three new guardians", || {
        group.write_quota();
        let status = instance.json(&["status"]);
        let guardian = status["guardian_pid"].as_u64();
        if let Some(pid) = guardian.filter(|pid| killed.len() < 3 && !killed.contains(pid)) {
            kill9(pid as i32);
            killed.push(pid);
        }
        let events = &status["totals"]["events"];
        events["outside_write"].as_u64() >= Some(1)
            && events["guardian.replaced"].as_u64() >= Some(3)
    });
    group
}

fn textfile(instance: &Instance) {
    let file = instance.path().join("tidegate.prom");
    let path = file.display().to_string();
    instance.ok(&["metrics", "--textfile", &path]);
    check_metrics(&file);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\ntidegate_agent_up 1.0\n"), "{text}");
    assert!(instance.ok(&["metrics"]).ends_with("# EOF\n"));
}

fn check_metrics(file: &std::path::Path) {
    let promtool = or_skip!(program("textfile", "promtool"));
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]);
    let checked = check.stdin(std::fs::File::open(file).unwrap()).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", describe(&checked));
}

/// Each query of the dashboard is answered, and with data unless there may be none here.
fn panels_have_data(prometheus: &Prometheus, is_bpf: bool) {
    let may_be_empty = |query: &str| {
        query.contains("tidegate_sched_ext_") || (!is_bpf && query.contains("tidegate_run_delay_"))
    };
    let queries = dashboard_queries();
    assert!(queries.len() > 20, "{queries:?}");
    for (title, query) in queries {
        let mut answer = serde_json::Value::Null;
        // A rate needs two scrapes.
        wait_for(&format!("panel \"{title}\": {query}"), || {
            answer = prometheus.answer(&query);
            let found = answer["data"]["result"].as_array();
            let is_there = found.is_some_and(|found| !found.is_empty());
            answer["status"] != "success" || is_there || may_be_empty(&query)
        });
        assert_eq!(answer["status"], "success", "{title}: {query}: {answer}");
    }
}

#[test]
fn each_alert_fires_and_does_not_fire_in_promtools_cases() {
    let promtool = or_skip!(program("alerts", "promtool"));
    let cases = packaging("prometheus/tidegate.rules.test.yml");
    let mut command = Command::new(promtool);
    let tested = command.args(["test", "rules"]).arg(&cases).output();
    let tested = tested.unwrap();
    assert!(tested.status.success(), "{}", describe(&tested));
    // Each rule has a case.
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let rules = text(packaging("prometheus/tidegate.rules.yml"));
    let cases = text(cases);
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: Vec<&str> = alerts.collect();
    assert_eq!(alerts.len(), 7, "{alerts:?}");
    let page = text(packaging("../docs/metrics.md"));
    for alert in alerts {
        let named = cases.matches(&format!("alertname: {alert}")).count();
        assert!(named >= 2, "{alert}: {named} cases");
        let row = format!("| {alert} |");
        assert!(page.contains(&row), "docs/metrics.md: no row of {alert}");
    }
}

#[test]
fn a_textfile_says_that_no_agent_runs() {
    let instance = or_skip!(Instance::new("textfile"));
    let file = instance.path().join("tidegate.prom");
    std::fs::write(&file, "tidegate_agent_up 1\n").unwrap();
    let path = file.display().to_string();
    instance.fails(&["metrics", "--textfile", &path], 3);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.ends_with("\ntidegate_agent_up 0.0\n"), "{text}");
    check_metrics(&file);
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    let left = std::fs::read_dir(instance.path()).unwrap();
    let left = left.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with('.')
    });
    assert_eq!(left.count(), 0, "a partial file stays");
    instance.fails(&["metrics", "--textfile", "/dev/shm/tidegate.txt"], 2);
}
