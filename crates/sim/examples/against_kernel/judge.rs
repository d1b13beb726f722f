//! The criteria, and a figure of the simulator held against the kernel's.

use crate::figures::Figure;

/// Shares: percent of the CPUs that the scenario runs on.
pub const SHARE_POINTS: f64 = 2.0;
/// Counts of periods: percent of the kernel's count, and one that falls on the window's edge.
pub const COUNT_PERCENT: f64 = 5.0;
/// Medians and 99th percentiles of wakeup latency, either way: more than the virtual machine differs from
/// itself between runs (its median beside messages: 255 to 411 µs).
pub const LATENCY_FACTOR: f64 = 2.0;
/// Below this a latency is the length of the kernel's paths, which are constants here.
pub const LATENCY_FLOOR_US: f64 = 10.0;
/// Durations: percent of the kernel's.
pub const DURATION_PERCENT: f64 = 10.0;

/// How two figures differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// For the table.
    pub difference: String,
    /// None: shown for information.
    pub within: Option<bool>,
}

/// Judges one figure; `cpus` is how many the scenario runs on.
pub fn judge(name: &str, kernel: &Figure, sim: &Figure, cpus: u32) -> Verdict {
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
            let points = (s - k) / f64::from(cpus);
            Verdict {
                difference: format!("{points:+.2} points"),
                within: Some(points.abs() <= SHARE_POINTS),
            }
        }
        "count" => relative(COUNT_PERCENT, 1.0),
        "ms" => relative(DURATION_PERCENT, 0.0),
        _ => {
            let factor = s / k.max(0.001);
            let near = k.max(s) <= LATENCY_FLOOR_US
                || (1.0 / LATENCY_FACTOR..=LATENCY_FACTOR).contains(&factor);
            Verdict {
                difference: format!("x {factor:.2}"),
                within: (!name.contains(".p90.")).then_some(near),
            }
        }
    }
}
