//! The families of gates.

use std::collections::BTreeMap;

use tidegate_api::{GateView, StatusView};

use super::{Family, Labels, Values, info};

/// Each gate has half a dozen series of its own; those beyond are added up as `_other`.
const GATES_MAX: usize = 200;

/// One row of the gates' families.
#[derive(Clone, Default)]
struct Gate {
    labels: Labels,
    used_seconds: f64,
    usage_cpus: f64,
    periods: f64,
    throttled_periods: f64,
    throttled_seconds: f64,
    burst_seconds: f64,
    processes: f64,
}

impl Gate {
    fn of(gate: &GateView) -> Self {
        Self {
            labels: vec![("gate", gate.name.clone()), ("class", gate.class.clone())],
            used_seconds: gate.used_seconds,
            usage_cpus: gate.usage_cpus,
            periods: gate.nr_periods as f64,
            throttled_periods: gate.nr_throttled as f64,
            throttled_seconds: gate.throttled_seconds,
            burst_seconds: gate.burst_usec as f64 / 1e6,
            processes: gate.processes as f64,
        }
    }

    fn add(&mut self, other: &GateView) {
        let other = Self::of(other);
        self.used_seconds += other.used_seconds;
        self.usage_cpus += other.usage_cpus;
        self.periods += other.periods;
        self.throttled_periods += other.throttled_periods;
        self.throttled_seconds += other.throttled_seconds;
        self.burst_seconds += other.burst_seconds;
        self.processes += other.processes;
    }
}

/// The gates, those beyond the first so many as one a class.
fn rows(gates: &[GateView]) -> Vec<Gate> {
    let (named, others) = gates.split_at(gates.len().min(GATES_MAX));
    let mut by_class: BTreeMap<&str, Gate> = BTreeMap::new();
    for gate in others {
        let labels = || vec![("gate", "_other".to_owned()), ("class", gate.class.clone())];
        let row = by_class.entry(&gate.class).or_insert_with(|| Gate {
            labels: labels(),
            ..Gate::default()
        });
        row.add(gate);
    }
    named
        .iter()
        .map(Gate::of)
        .chain(by_class.into_values())
        .collect()
}

pub(super) fn gates(status: &StatusView) -> Vec<Family> {
    let rows = rows(&status.gates);
    let all = |of: fn(&Gate) -> f64| {
        rows.iter()
            .map(|row| (row.labels.clone(), of(row)))
            .collect()
    };
    let gauges = |name, help, of| Family {
        name,
        help,
        values: Values::Gauge(all(of)),
    };
    let counters = |name, help, of| Family {
        name,
        help,
        values: Values::Counter(all(of)),
    };
    let place = |gate: &GateView| {
        vec![
            ("gate", gate.name.clone()),
            ("class", gate.class.clone()),
            ("cgroup", gate.cgroup.clone()),
        ]
    };
    vec![
        info(
            "gate_info",
            "A gate and its group",
            status.gates.iter().take(GATES_MAX).map(place).collect(),
        ),
        gauges("gate_cpus", "CPUs used over the last second", |row| {
            row.usage_cpus
        }),
        gauges("gate_processes", "Processes in it", |row| row.processes),
        counters("gate_cpu_seconds", "CPU that its group has used", |row| {
            row.used_seconds
        }),
        counters(
            "gate_periods",
            "Periods of the quota on it in which it ran",
            |row| row.periods,
        ),
        counters(
            "gate_throttled_periods",
            "Of those, the ones that ended in throttling",
            |row| row.throttled_periods,
        ),
        counters(
            "gate_throttled_seconds",
            "How long it was throttled, added up over CPUs",
            |row| row.throttled_seconds,
        ),
        counters("gate_burst_seconds", "Saved quota that it used", |row| {
            row.burst_seconds
        }),
    ]
}
