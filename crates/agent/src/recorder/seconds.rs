//! The machine's part of a second, of figures that the control loop has anyway.

use tidegate_engine::control::Control;
use tidegate_engine::sense::{WAIT_BUCKETS, WaitHistogram};
use tidegate_recording::Second;

use crate::recorder_state::unix_us;
use crate::runtime::Runtime;

#[derive(Default)]
pub(super) struct Seconds {
    late_steps: u64,
    at_tolerance_ns: u64,
    waits: Option<[WaitHistogram; 2]>,
}

/// At the tolerance for the better part of the second.
const AT_TOLERANCE_NS: u64 = 500_000_000;

impl Seconds {
    pub(super) fn poll(&mut self, runtime: &Runtime) -> Second {
        let period_ns = runtime.control_loop.period_ns;
        let now_ns = runtime.kernel.clock.now_ns();
        let mut second = self.copy(&runtime.control(), now_ns, period_ns);
        second.unix_ms = unix_us() / 1_000;
        second.allowance_cpus = runtime.decision().allowance_cpus as f32;
        second.alerts.extend(runtime.all_alerts());
        second
    }

    /// Called with the loop's state locked: numbers are copied, nothing is read.
    fn copy(&mut self, control: &Control, now_ns: u64, period_ns: u64) -> Second {
        let used = control.meter.second();
        let late = &control.late_ever;
        let late_steps = late.total() - late.at_most(period_ns);
        let late_before = std::mem::replace(&mut self.late_steps, late_steps);
        let tolerance_ns = control.at_tolerance_ns(now_ns);
        let tolerance_before_ns = std::mem::replace(&mut self.at_tolerance_ns, tolerance_ns);
        let waits = control.waits_by_class();
        let waits_before = std::mem::replace(&mut self.waits, waits);
        let waited = waits
            .zip(waits_before)
            .map(|(now, before)| lately(&now, &before));
        let waited = waited.unwrap_or_default();
        Second {
            capacity_cpus: used.cpus(used.capacity_ns) as f32,
            main_cpus: used.cpus(used.busy_ns.saturating_sub(used.side_ns)) as f32,
            side_cpus: used.cpus(used.side_ns) as f32,
            idle_cpus: used.cpus(used.idle_ns()) as f32,
            headroom_pct: control.headroom_ppm() as f32 / 1e4,
            tolerance_pct: control.demand().tolerance_ppm as f32 / 1e4,
            is_at_tolerance: tolerance_ns.saturating_sub(tolerance_before_ns) > AT_TOLERANCE_NS,
            late_steps: small(late_steps.saturating_sub(late_before)),
            main_turns: small(waited.turns),
            main_wait_us: waited.wait_ns / 1_000,
            main_wait_p99_us: small(waited.p99_ns / 1_000),
            alerts: control.quotas.write_errors().cloned().collect(),
            ..Second::default()
        }
    }
}

fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Waited {
    turns: u64,
    wait_ns: u64,
    p99_ns: u64,
}

/// Main's waits since the last look; where no gate is main, those of all that no gate names.
fn lately(now: &[WaitHistogram; 2], before: &[WaitHistogram; 2]) -> Waited {
    let [neutral, main] = [0, 1].map(|class| between(&now[class], &before[class]));
    match main.turns {
        0 => neutral,
        _ => main,
    }
}

fn between(now: &WaitHistogram, before: &WaitHistogram) -> Waited {
    let mut counts = [0; WAIT_BUCKETS];
    let pairs = now.buckets.iter().zip(before.buckets);
    for (count, (now, before)) in counts.iter_mut().zip(pairs) {
        *count = now.saturating_sub(before);
    }
    Waited {
        turns: counts.iter().sum(),
        wait_ns: now.wait_ns.saturating_sub(before.wait_ns),
        p99_ns: tidegate_engine::sense::percentile_ns(&counts, 990_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(short: u64, long: u64) -> WaitHistogram {
        let mut waits = WaitHistogram {
            wait_ns: short * 1_000 + long * 1_000_000,
            ..WaitHistogram::default()
        };
        waits.buckets[0] = short;
        waits.buckets[10] = long;
        waits
    }

    #[test]
    fn waits_are_of_the_last_second_and_of_main() {
        let before = [waits(5_000, 0), waits(10, 10)];
        let waited = lately(&[waits(9_000, 0), waits(190, 30)], &before);
        assert_eq!(waited.turns, 200);
        assert_eq!(waited.wait_ns, 180 * 1_000 + 20 * 1_000_000);
        assert!(waited.p99_ns >= 1_000_000, "{waited:?}");
        let waited = lately(&[waits(9_000, 0), before[1]], &before);
        assert_eq!(
            (waited.turns, waited.wait_ns),
            (4_000, 4_000_000),
            "no gate is main"
        );
    }
}
