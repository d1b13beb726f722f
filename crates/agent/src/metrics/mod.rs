//! The agent's figures as OpenMetrics text, made of a [`StatusView`]: names in base units, labels with few values, never a process
//! or a command.

mod gates;

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tidegate_api::{HistogramView, StatusView};

use gates::gates;

/// The media type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// What a family's samples are.
enum Values {
    Gauge(Vec<(Labels, f64)>),
    Counter(Vec<(Labels, f64)>),
    Histogram(HistogramView),
}

/// One metric.
struct Family {
    name: &'static str,
    help: &'static str,
    values: Values,
}

fn gauge(name: &'static str, help: &'static str, value: impl Into<Option<f64>>) -> Family {
    let samples = value.into().map(|value| (Labels::new(), value));
    Family {
        name,
        help,
        values: Values::Gauge(samples.into_iter().collect()),
    }
}

fn counter(name: &'static str, help: &'static str, value: f64) -> Family {
    Family {
        name,
        help,
        values: Values::Counter(vec![(Labels::new(), value)]),
    }
}

/// How often each of some few came.
fn counts(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    counts: &BTreeMap<String, u64>,
) -> Family {
    let samples = counts
        .iter()
        .map(|(value, count)| (vec![(label, value.clone())], *count as f64));
    Family {
        name,
        help,
        values: Values::Counter(samples.collect()),
    }
}

/// Always 1; the labels tell.
fn info(name: &'static str, help: &'static str, labels: Vec<Labels>) -> Family {
    let samples = labels.into_iter().map(|labels| (labels, 1.0));
    Family {
        name,
        help,
        values: Values::Gauge(samples.collect()),
    }
}

fn ratio(pct: f64) -> f64 {
    pct / 100.0
}

/// The machine.
fn machine(status: &StatusView) -> Vec<Family> {
    let totals = &status.totals;
    let harm = status.harm.as_ref().and_then(|harm| harm.harm_pct);
    let found = status.harm.as_ref().map(|harm| ratio(harm.level_pct));
    vec![
        gauge(
            "capacity_cpus",
            "CPUs less what the hypervisor took over the last second",
            status.capacity_cpus,
        ),
        gauge(
            "headroom_asked_ratio",
            "Headroom in force, of the machine",
            ratio(status.headroom_pct),
        ),
        gauge(
            "headroom_kept_ratio",
            "Idle over the last second, of the machine",
            ratio(status.idle_kept_pct),
        ),
        gauge(
            "headroom_found_ratio",
            "Headroom that was found (headroom = auto), of the machine",
            found,
        ),
        gauge(
            "tolerance_ratio",
            "What side work gets at least, of the machine",
            ratio(status.tolerance_pct),
        ),
        gauge(
            "main_cpus",
            "Everything but side work and idle over the last second",
            status.main_cpus,
        ),
        gauge(
            "side_cpus",
            "Side work over the last second",
            status.side_cpus,
        ),
        gauge(
            "side_allowance_cpus",
            "What side work may use",
            status.allowance_cpus,
        ),
        gauge(
            "harm_ratio",
            "How much longer main's work takes because side work runs",
            harm.map(ratio),
        ),
        counter(
            "side_at_tolerance_seconds",
            "Time that side work was at its tolerance",
            status.at_tolerance_seconds,
        ),
        counter(
            "reclaimable_cpu_seconds",
            "What main and the headroom left for side work",
            totals.reclaimable_cpu_seconds,
        ),
        counter(
            "reclaimed_cpu_seconds",
            "What side work used",
            totals.side_cpu_seconds,
        ),
        counter(
            "main_cpu_seconds",
            "Everything but side work and idle, while anything is limited",
            totals.main_cpu_seconds,
        ),
    ]
}

/// The agent itself.
fn agent(status: &StatusView) -> Vec<Family> {
    let totals = &status.totals;
    let is_on = |on: bool| f64::from(u8::from(on));
    let about = vec![
        ("version", status.version.clone()),
        ("engine", status.engine.clone()),
        ("sensing", status.sensing.clone()),
        ("mode", status.mode.clone()),
    ];
    vec![
        gauge("agent_up", "1 while the agent answers", 1.0),
        info(
            "agent_info",
            "Version, engine in force and sensing",
            vec![about],
        ),
        gauge(
            "agent_uptime_seconds",
            "Time since the agent started",
            status.uptime_seconds,
        ),
        counter(
            "agent_cpu_seconds",
            "CPU that the agent used",
            totals.agent_cpu_seconds,
        ),
        gauge(
            "guardian_alive",
            "1 while the guardian lives",
            is_on(status.guardian_pid.is_some()),
        ),
        gauge(
            "ext_on",
            "1 while the scheduler of the engine ext is in force",
            status.ext.as_ref().map(|ext| is_on(ext.on)),
        ),
        gauge(
            "alerts",
            "What needs a person: see `tidegate status`",
            status.alerts.len() as f64,
        ),
        counts(
            "events",
            "Events by kind: see `tidegate events`",
            "kind",
            &totals.events,
        ),
    ]
}

/// The control loop.
fn control_loop(status: &StatusView) -> Vec<Family> {
    let totals = &status.totals;
    vec![
        counter(
            "agent_steps",
            "Steps of the control loop",
            status.control.steps as f64,
        ),
        Family {
            name: "agent_step_lateness_seconds",
            help: "How late steps of the control loop began",
            values: Values::Histogram(totals.step_lateness.clone()),
        },
        counter(
            "unusable_samples",
            "Samples that were impossible and left out",
            status.control.unusable_samples as f64,
        ),
        counts(
            "knob_writes",
            "Writes of quotas by reason",
            "reason",
            &totals.writes,
        ),
    ]
}

/// All of them.
struct Families(Vec<Family>);

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} families", self.0.len())
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let Family { name, help, .. } = family;
            let kind = match &family.values {
                Values::Gauge(samples) | Values::Counter(samples) if samples.is_empty() => continue,
                Values::Gauge(_) => MetricType::Gauge,
                Values::Counter(_) => MetricType::Counter,
                Values::Histogram(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            match &family.values {
                Values::Gauge(samples) => {
                    for (labels, value) in samples {
                        ConstGauge::new(*value).encode(metric.encode_family(labels)?)?;
                    }
                }
                Values::Counter(samples) => {
                    for (labels, value) in samples {
                        ConstCounter::new(*value).encode(metric.encode_family(labels)?)?;
                    }
                }
                Values::Histogram(histogram) => {
                    let mut below = 0;
                    // The library adds up itself, and wants the last bound without end.
                    let mut buckets: Vec<(f64, u64)> = Vec::new();
                    for (bound, count) in &histogram.buckets {
                        buckets.push((*bound, count.saturating_sub(below)));
                        below = *count;
                    }
                    buckets.push((f64::INFINITY, histogram.count.saturating_sub(below)));
                    metric.encode_histogram::<NoLabelSet>(
                        histogram.sum_seconds,
                        histogram.count,
                        &buckets,
                        None,
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// The text that a scrape gets.
pub fn open_metrics(status: &StatusView) -> String {
    let mut families = machine(status);
    families.extend(gates(status));
    families.extend(agent(status));
    families.extend(control_loop(status));
    let mut registry = Registry::with_prefix("tidegate");
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use tidegate_api::GateView;

    use super::*;

    fn gate(name: &str, class: &str) -> GateView {
        GateView {
            name: name.to_owned(),
            class: class.to_owned(),
            command: Some("secret --password x".to_owned()),
            target: "pid:4711".to_owned(),
            used_seconds: 1.5,
            usage_cpus: 0.25,
            nr_throttled: 2,
            ..GateView::default()
        }
    }

    fn status(gates: Vec<GateView>) -> StatusView {
        let mut status = StatusView {
            headroom_pct: 20.0,
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

    #[test]
    fn figures_have_base_units_and_no_command() {
        let text = open_metrics(&status(vec![gate("a\"b", "side")]));
        for line in [
            "# TYPE tidegate_gate_cpu_seconds counter",
            "tidegate_headroom_asked_ratio 0.2",
            r#"tidegate_gate_cpu_seconds_total{gate="a\"b",class="side"} 1.5"#,
            r#"tidegate_gate_throttled_periods_total{gate="a\"b",class="side"} 2.0"#,
            r#"tidegate_knob_writes_total{reason="cut"} 3.0"#,
            r#"tidegate_agent_step_lateness_seconds_bucket{le="0.1"} 9"#,
            r#"tidegate_agent_step_lateness_seconds_bucket{le="+Inf"} 10"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for secret in ["password", "4711"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(!text.contains("harm_ratio"), "it is not known");
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
}
