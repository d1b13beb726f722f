//! The families of gates.

use std::collections::BTreeMap;

use tidegate_api::{GateView, StatusView};

use super::{Family, Labels, Values, info};

/// Each gate has half a dozen series of its own. What those beyond use is added up as `_other`;
/// their counters are left out, for a sum would fall when one of them ends.
pub(crate) const GATES_MAX: usize = 200;

fn labels(name: &str, class: &str) -> Labels {
    vec![("gate", name.to_owned()), ("class", class.to_owned())]
}

fn counters(
    gates: &[GateView],
    (name, help): (&'static str, &'static str),
    of: fn(&GateView) -> Option<f64>,
) -> Family {
    let sample = |gate: &GateView| Some((labels(&gate.name, &gate.class), of(gate)?));
    Family {
        name,
        help,
        values: Values::Counter(gates.iter().filter_map(sample).collect()),
    }
}

fn gauges(
    (gates, others): (&[GateView], &[GateView]),
    (name, help): (&'static str, &'static str),
    of: fn(&GateView) -> Option<f64>,
) -> Family {
    let mut by_class: BTreeMap<&str, f64> = BTreeMap::new();
    for (gate, value) in others.iter().filter_map(|gate| Some((gate, of(gate)?))) {
        *by_class.entry(&gate.class).or_default() += value;
    }
    let named = gates
        .iter()
        .filter_map(|gate| Some((labels(&gate.name, &gate.class), of(gate)?)));
    let rest = by_class
        .iter()
        .map(|(class, sum)| (labels("_other", class), *sum));
    Family {
        name,
        help,
        values: Values::Gauge(named.chain(rest).collect()),
    }
}

pub(super) fn gates(status: &StatusView) -> Vec<Family> {
    let all = status.gates.split_at(status.gates.len().min(GATES_MAX));
    let (gates, _) = all;
    let place = |gate: &GateView| {
        let mut labels = labels(&gate.name, &gate.class);
        labels.push(("cgroup", gate.cgroup.clone()));
        labels
    };
    let held = |gate: &GateView| {
        let mut labels = labels(&gate.name, &gate.class);
        labels.push(("limit", gate.held.limit.name().to_owned()));
        (labels, 1.0)
    };
    let used = (
        "gate_cpu_seconds",
        "CPU that the group of the gate has used",
    );
    let periods = (
        "gate_periods",
        "Periods of its quota (or of the one on all side work) in which the gate ran",
    );
    let throttled = (
        "gate_throttled_periods",
        "Of those periods, the ones that ended in throttling",
    );
    let throttled_for = (
        "gate_throttled_seconds",
        "How long it (or all side work) was throttled by that quota, added up over CPUs",
    );
    let burst = ("gate_burst_seconds", "Saved quota that the gate used");
    vec![
        info(
            "gate_info",
            "A gate and its group",
            gates.iter().map(place).collect(),
        ),
        Family {
            name: "gate_held",
            help: "The limit that holds the gate back: 1, with its name",
            values: Values::Gauge(gates.iter().map(held).collect()),
        },
        gauges(
            all,
            ("gate_cpus", "CPUs used over the last second"),
            |gate| gate.usage_cpus,
        ),
        gauges(all, ("gate_processes", "Processes in the gate"), |gate| {
            Some(gate.processes as f64)
        }),
        gauges(
            all,
            (
                "gate_jobs",
                "Jobs that the jobserver of the gate lets it run at once",
            ),
            |gate| gate.jobs.map(f64::from),
        ),
        counters(gates, used, |gate| gate.used_seconds),
        counters(gates, periods, |gate| Some(gate.nr_periods as f64)),
        counters(gates, throttled, |gate| Some(gate.nr_throttled as f64)),
        counters(gates, throttled_for, |gate| Some(gate.throttled_seconds)),
        counters(gates, burst, |gate| Some(gate.burst_us as f64 / 1e6)),
    ]
}
