//! The criteria, and a figure of the simulator held against the kernel's.

use crate::figures::{Figure, Of};

/// How far apart two figures may be.
#[derive(Clone, Copy, Debug)]
pub struct Criteria {
    /// Shares: percent of the CPUs that the scenario runs on; a tick of the window where that is more.
    share_points: f64,
    /// Counts of periods: percent of the kernel's count, and one that falls on the window's edge.
    count_percent: f64,
    /// Medians and 99th percentiles of latencies, either way.
    latency_factor: f64,
    /// Below this a latency is the length of the kernel's paths, which are constants here.
    latency_floor_us: f64,
    /// Durations: percent of the kernel's.
    duration_percent: f64,
    /// From when a task was to wake to the end of its work: percent of the kernel's.
    done_percent: f64,
}

/// The fair class. Twofold latencies: more than the virtual machine differs from itself between runs (its median beside
/// messages: 255 to 411 µs).
const FAIR: Criteria = Criteria {
    share_points: 2.0,
    count_percent: 5.0,
    latency_factor: 2.0,
    latency_floor_us: 10.0,
    duration_percent: 10.0,
    done_percent: 10.0,
};

/// The ext engine: its shares are closer. A wakeup runs through BPF programs, whose way depends on what they find, while
/// each costs the same here: so messages, which are nothing but wakeups, may take 15 % less or more.
const EXT: Criteria = Criteria {
    share_points: 1.0,
    latency_floor_us: 25.0,
    duration_percent: 15.0,
    ..FAIR
};

impl Criteria {
    fn of(of: Of) -> Criteria {
        match of {
            Of::Fair => FAIR,
            Of::Ext => EXT,
        }
    }
}

/// How two figures differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// For the table.
    pub difference: String,
    /// None: shown for information.
    pub within: Option<bool>,
}

/// What a scenario was measured on.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub cpus: u32,
    pub span_ms: u64,
}

/// The tick of every machine that is asked.
const TICK_MS: f64 = 4.0;

/// Judges one figure.
pub fn judge(of: Of, name: &str, kernel: &Figure, sim: &Figure, window: Window) -> Verdict {
    let criteria = Criteria::of(of);
    let (k, s) = (kernel.value, sim.value);
    let relative = |percent: f64, slack: f64| Verdict {
        difference: if k == 0.0 {
            format!("{:+.0}", s - k)
        } else {
            format!("{:+.1} %", 100.0 * (s - k) / k)
        },
        within: Some((s - k).abs() <= (k * percent / 100.0).max(slack)),
    };
    match kernel.unit.as_str() {
        "%" => {
            let points = (s - k) / f64::from(window.cpus);
            // Where in a short window a tick falls is a boot's own.
            let tick_points = 100.0 * TICK_MS / window.span_ms as f64;
            Verdict {
                difference: format!("{points:+.2} points"),
                within: Some(points.abs() <= criteria.share_points.max(tick_points)),
            }
        }
        "count" => relative(criteria.count_percent, 1.0),
        "ms" => relative(criteria.duration_percent, 0.0),
        _ if name.contains("done_p") => Verdict {
            within: relative(criteria.done_percent, 0.0)
                .within
                .filter(|_| !name.contains("p90.")),
            ..relative(criteria.done_percent, 0.0)
        },
        _ => {
            let factor = s / k.max(0.001);
            let near = k.max(s) <= criteria.latency_floor_us
                || (1.0 / criteria.latency_factor..=criteria.latency_factor).contains(&factor);
            Verdict {
                difference: format!("x {factor:.2}"),
                within: (!name.contains("p90.")).then_some(near),
            }
        }
    }
}
