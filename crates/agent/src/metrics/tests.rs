//! What a scrape gets, and the reference of the documents.

use tidegate_api::{GateView, SchedExtView};

use super::*;
use crate::tests::check_metrics_page;

fn gate(name: &str, class: &str) -> GateView {
    GateView {
        name: name.to_owned(),
        class: class.to_owned(),
        command: Some("secret --password x".to_owned()),
        target: "pid:4711".to_owned(),
        used_seconds: Some(1.5),
        usage_cpus: Some(0.25),
        nr_throttled: 2,
        ..GateView::default()
    }
}

fn status(gates: Vec<GateView>) -> StatusView {
    let mut status = StatusView {
        headroom_ratio: 0.2,
        gates,
        ..StatusView::default()
    };
    status.totals.step_lateness = HistogramView {
        sum_seconds: 0.5,
        count: 10,
        buckets: vec![(0.001, 4), (0.1, 9)],
    };
    status.totals.writes.insert("cut".to_owned(), 3);
    status
}

fn open_metrics(status: &StatusView) -> String {
    text(status, Format::OpenMetrics)
}

#[test]
fn figures_have_base_units_and_no_command() {
    let text = open_metrics(&status(vec![gate("a\"b", "side")]));
    for line in [
        "# TYPE tidegate_gate_cpu_seconds counter",
        "tidegate_headroom_asked_ratio 0.2",
        r#"tidegate_gate_cpu_seconds_total{gate="a\"b",class="side"} 1.5"#,
        r#"tidegate_gate_throttled_periods_total{gate="a\"b",class="side"} 2.0"#,
        r#"tidegate_quota_writes_total{reason="cut"} 3.0"#,
        r#"tidegate_agent_step_lateness_seconds_bucket{le="0.1"} 9"#,
        r#"tidegate_agent_step_lateness_seconds_bucket{le="+Inf"} 10"#,
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for secret in ["password", "4711"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn gates_beyond_two_hundred_are_one_without_counters() {
    let many = (0..250).map(|nth| gate(&format!("g{nth}"), "side"));
    let text = open_metrics(&status(many.collect()));
    let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(series("tidegate_gate_cpu_seconds_total"), 200);
    assert_eq!(series("tidegate_gate_cpus"), 201);
    let others = r#"tidegate_gate_cpus{gate="_other",class="side"} 12.5"#;
    assert!(text.lines().any(|line| line == others), "{text}");
}

#[test]
fn a_caller_that_takes_plain_text_alone_gets_it() {
    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    for (accept, format) in [
        ("", Format::OpenMetrics),
        ("*/*", Format::OpenMetrics),
        (prometheus, Format::OpenMetrics),
        ("text/plain; version=0.0.4", Format::Prometheus),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
    let text = text(&status(vec![gate("a", "side")]), Format::Prometheus);
    for line in [
        "# TYPE tidegate_gate_cpu_seconds_total counter",
        r#"tidegate_gate_cpu_seconds_total{gate="a",class="side"} 1.5"#,
        "tidegate_agent_up 1.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("# EOF"), "{text}");
    let alone = text_without_agent(Format::Prometheus);
    let lines: Vec<&str> = alone.lines().skip(2).collect();
    assert_eq!(lines, ["tidegate_agent_up 0.0"]);
}

fn everything() -> StatusView {
    let mut status = status(vec![gate("a", "side")]);
    status.behind_side = Some(tidegate_api::BehindSideView::default());
    status.sched_ext = Some(SchedExtView::default());
    status.gates[0].jobs = Some(1);
    let totals = &mut status.totals;
    totals.events.insert("gate.created".to_owned(), 1);
    let delays = totals.step_lateness.clone();
    totals.run_delay.insert("main".to_owned(), delays);
    status
}

fn row(family: &Family) -> String {
    let Family { name, help, values } = family;
    let labels = match values {
        Values::Gauge(samples) | Values::Counter(samples) => samples.first().map(|one| &one.0),
        Values::Histogram(samples) => samples.first().map(|one| &one.0),
    };
    let labels = labels.unwrap_or_else(|| panic!("no sample of {name}: add one to `everything`"));
    let labels: Vec<String> = labels.iter().map(|(name, _)| format!("`{name}`")).collect();
    let (kind, suffix) = match family.kind() {
        MetricType::Counter => ("counter", "_total"),
        MetricType::Histogram => ("histogram", ""),
        _ => ("gauge", ""),
    };
    let labels = labels.join(", ");
    format!("| `{PREFIX}_{name}{suffix}` | {kind} | {labels} | {help} |\n")
}

const BEGIN: &str =
    "<!-- metrics: written by UPDATE_DOCS=1 cargo test -p tidegate-agent reference -->\n";

#[test]
fn the_reference_in_the_documents_has_every_metric() {
    let mut table = "| metric | type | labels | what it is |\n|---|---|---|---|\n".to_owned();
    table.extend(families(&everything()).iter().map(row));
    check_metrics_page(BEGIN, "<!-- end of metrics -->", &table);
}

#[test]
fn a_use_that_is_unknown_has_no_sample() {
    let unknown = |name| GateView {
        usage_cpus: None,
        used_seconds: None,
        ..gate(name, "side")
    };
    let beyond = (0..GATES_MAX).map(|nth| gate(&format!("g{nth}"), "side"));
    let mut gates: Vec<GateView> = [unknown("first")].into_iter().chain(beyond).collect();
    gates.push(unknown("last"));
    let text = open_metrics(&status(gates));
    let has = |start: &str| text.lines().any(|line| line.starts_with(start));
    for name in ["gate_cpus", "gate_cpu_seconds_total"] {
        assert!(!has(&format!("tidegate_{name}{{gate=\"first\"")), "{name}");
        assert!(has(&format!("tidegate_{name}{{gate=\"g0\"")), "{name}");
    }
    let others = r#"tidegate_gate_cpus{gate="_other",class="side"} 0.25"#;
    assert!(has(others), "the sum of what is known: {text}");
}

#[test]
fn what_waits_behind_side_work_has_a_sample_where_it_is_known() {
    let mut view = status(Vec::new());
    let has = |view: &StatusView| {
        let text = open_metrics(view);
        let mut lines = text.lines();
        lines.any(|line| line.starts_with("tidegate_behind_side_seconds_total "))
    };
    assert!(!has(&view));
    view.behind_side = Some(tidegate_api::BehindSideView::default());
    assert!(has(&view));
}
