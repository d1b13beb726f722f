//! The agent's figures as OpenMetrics text, made of a [`StatusView`]: names in base units, labels
//! with few values, never a process or a command.

mod gates;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tidegate_api::{BehindSideView, HistogramView, StatusView};

pub(crate) use gates::GATES_MAX;
use gates::gates;

const PREFIX: &str = "tidegate";

const OPEN_METRICS: &str = "application/openmetrics-text";
const PROMETHEUS: &str = "text/plain";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    OpenMetrics,
    /// Prometheus text 0.0.4: what node_exporter reads from a file.
    Prometheus,
}

impl Format {
    /// What a caller with this `Accept` header gets: OpenMetrics, unless it names plain text alone.
    pub fn accepted(accept: &str) -> Self {
        match accept.contains(PROMETHEUS) && !accept.contains(OPEN_METRICS) {
            true => Self::Prometheus,
            false => Self::OpenMetrics,
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => OPEN_METRICS,
            Self::Prometheus => PROMETHEUS,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

type Labels = Vec<(&'static str, String)>;

enum Values {
    Gauge(Vec<(Labels, f64)>),
    Counter(Vec<(Labels, f64)>),
    Histogram(Vec<(Labels, HistogramView)>),
}

struct Family {
    name: &'static str,
    help: &'static str,
    values: Values,
}

impl Family {
    fn kind(&self) -> MetricType {
        match &self.values {
            Values::Gauge(_) => MetricType::Gauge,
            Values::Counter(_) => MetricType::Counter,
            Values::Histogram(_) => MetricType::Histogram,
        }
    }

    fn is_empty(&self) -> bool {
        match &self.values {
            Values::Gauge(samples) | Values::Counter(samples) => samples.is_empty(),
            Values::Histogram(samples) => samples.is_empty(),
        }
    }
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

fn by_class(histograms: &BTreeMap<String, HistogramView>) -> Vec<(Labels, HistogramView)> {
    let of_class = |(class, histogram): (&String, &HistogramView)| {
        (vec![("class", class.clone())], histogram.clone())
    };
    histograms.iter().map(of_class).collect()
}

fn machine(status: &StatusView) -> Vec<Family> {
    let totals = &status.totals;
    let behind_side = |name, help, of: fn(&BehindSideView) -> f64| Family {
        name,
        help,
        values: Values::Counter(
            status
                .behind_side
                .iter()
                .map(|view| (Labels::new(), of(view)))
                .collect(),
        ),
    };
    vec![
        gauge(
            "capacity_cpus",
            "CPUs less what the hypervisor took over the last second",
            status.capacity_cpus,
        ),
        gauge(
            "headroom_asked_ratio",
            "Headroom in force, of the machine",
            status.headroom_ratio,
        ),
        gauge(
            "headroom_kept_ratio",
            "Idle over the last second, of the machine",
            status.idle_kept_ratio,
        ),
        gauge(
            "tolerance_ratio",
            "What side work gets at least, of the machine",
            status.tolerance_ratio,
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
        gauge("idle_cpus", "Idle over the last second", status.idle_cpus),
        gauge(
            "side_allowance_cpus",
            "What side work may use",
            status.decision.allowance_cpus,
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
        behind_side(
            "behind_side_seconds",
            "How long work that could run stood behind side work; with BPF sensing, from Linux 6.10",
            |view| view.seconds,
        ),
        behind_side(
            "side_turns_interrupted",
            "Times that side work was interrupted because other work could run",
            |view| view.interrupted as f64,
        ),
        counter(
            "main_cpu_seconds",
            "Everything but side work and idle",
            totals.main_cpu_seconds,
        ),
        Family {
            name: "run_delay_seconds",
            help: "How long tasks of main gates (main) and without a gate (neutral) waited to run; with BPF sensing",
            values: Values::Histogram(by_class(&totals.run_delay)),
        },
    ]
}

fn agent_up(up: f64) -> Family {
    gauge("agent_up", "1 while the agent answers", up)
}

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
        agent_up(1.0),
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
        gauge(
            "policy_generation",
            "Counts the policies that were put in force since the agent started",
            status.policy_generation as f64,
        ),
        gauge(
            "policy_last_reload_success",
            "0 while the policy files, as they were last read, are refused",
            is_on(!status.policy_refused),
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
            "sched_ext_on",
            "1 while the scheduler of the engine sched_ext is in force",
            status
                .sched_ext
                .as_ref()
                .map(|sched_ext| is_on(sched_ext.on)),
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
            values: Values::Histogram(vec![(Labels::new(), totals.step_lateness.clone())]),
        },
        counter(
            "unusable_samples",
            "Samples that were impossible and left out",
            status.control.unusable_samples as f64,
        ),
        counts(
            "quota_writes",
            "Writes of quotas by reason",
            "reason",
            &totals.writes,
        ),
    ]
}

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
            if family.is_empty() {
                continue;
            }
            let mut metric = encoder.encode_descriptor(name, help, None, family.kind())?;
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
                Values::Histogram(samples) => {
                    for (labels, histogram) in samples {
                        encode_histogram(histogram, metric.encode_family(labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn encode_histogram(histogram: &HistogramView, mut metric: MetricEncoder<'_>) -> fmt::Result {
    let mut below = 0;
    // The library adds up itself, and wants the last bound without end.
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for (bound, count) in &histogram.buckets {
        buckets.push((*bound, count.saturating_sub(below)));
        below = *count;
    }
    buckets.push((f64::INFINITY, histogram.count.saturating_sub(below)));
    metric.encode_histogram::<NoLabelSet>(histogram.sum_seconds, histogram.count, &buckets, None)
}

fn families(status: &StatusView) -> Vec<Family> {
    let mut families = machine(status);
    families.extend(gates(status));
    families.extend(agent(status));
    families.extend(control_loop(status));
    families
}

pub fn text(status: &StatusView, format: Format) -> String {
    encode(families(status), format)
}

/// What a file says while no agent runs: figures of the last one would look like today's.
pub fn text_without_agent(format: Format) -> String {
    encode(vec![agent_up(0.0)], format)
}

fn encode(families: Vec<Family>, format: Format) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match format {
        Format::OpenMetrics => text::encode(&mut text, &registry),
        Format::Prometheus => prometheus_text::encode(&mut text, &registry),
    };
    text
}
