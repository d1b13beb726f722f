//! How often a step is taken: at the loop's own period while a step of main may call for a cut at
//! once, else as without BPF.
//!
//! A cut is urgent where it leaves main idle CPU: where idle is to be kept, and side work has
//! something to do. That is so from half of its tolerance on, in the mean of a second: what is held
//! at the tolerance wants more, and is given it as soon as main rests. Without idle to keep, side
//! work is in the idle class without a quota: such steps keep figures, and help side work that
//! starves below its tolerance.

use tidegate_law::HeadroomDecision;

use super::Control;

/// While no cut is urgent. A wakeup costs more than what is done in it.
const CALM_NS: u64 = 50_000_000;
/// While nothing is kept. A window in which gates came or went is left out of all sums, so it is
/// not long.
const NOTHING_KEPT_NS: u64 = 500_000_000;

impl Control {
    /// How long after the last step the next one is due, in a loop that steps every `period_ns`
    /// where that is urgent.
    pub fn period_ns(&self, period_ns: u64) -> u64 {
        if self.is_measuring() {
            return period_ns;
        }
        let keeps_idle = self.may_keep_idle();
        let is_limited = !self.quotas.is_empty();
        // What was made at the tolerance is to have what it is due.
        let is_written = self.quotas.are_in_force() || self.enforced_by_sched_ext;
        let is_urgent = keeps_idle && side_works(&self.decision);
        let least_ns = match (is_limited, keeps_idle) {
            (true, _) if is_urgent => 0,
            (true, false) if is_written => NOTHING_KEPT_NS,
            _ => CALM_NS,
        };
        period_ns.max(least_ns)
    }
}

/// Whether side work has something to do; where its use is not known, it may.
fn side_works(decision: &HeadroomDecision) -> bool {
    decision.reason.is_unusable() || decision.side_ucpu > decision.floor_ucpu / 2
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::control::quotas::tests::{Files, quotas_of};
    use crate::control::{Demand, Figure, Objective};
    use crate::sense::{Counters, Group, SenseError, Sensor};
    use tidegate_cgroup::group::GroupPath;

    const MS: u64 = 1_000_000;
    const STEP_NS: u64 = 50 * MS;

    /// Two CPUs, main on a tenth of them. Side work has so many per cent of them; more than all of
    /// them cannot be true.
    #[derive(Default)]
    struct Machine {
        side_pct: Arc<AtomicU64>,
        counters: Counters,
    }

    impl Sensor for Machine {
        fn sample(&mut self, out: &mut Counters) -> Result<(), SenseError> {
            let side_pct = self.side_pct.load(Ordering::Relaxed);
            let counters = &mut self.counters;
            counters.now_ns += STEP_NS;
            counters.capacity_ns += 2 * STEP_NS;
            counters.side_ns += 2 * STEP_NS * side_pct / 100;
            counters.busy_ns += 2 * STEP_NS * (side_pct + 10) / 100;
            counters.valid = true;
            *out = *counters;
            Ok(())
        }
        fn set_groups(&mut self, _: &[Group], _: &[Group]) -> Result<(), SenseError> {
            Ok(())
        }
        fn kind(&self) -> &'static str {
            "bpf"
        }
        fn min_window_ns(&self) -> u64 {
            5 * MS
        }
        fn online_cpus(&self) -> u32 {
            2
        }
    }

    struct Bed {
        control: Control,
        side_pct: Arc<AtomicU64>,
    }

    impl Bed {
        fn new(headroom_ppm: u32) -> Self {
            let machine = Machine::default();
            let side_pct = Arc::clone(&machine.side_pct);
            let demand = Demand {
                headroom_ppm,
                tolerance_ppm: 10_000,
                ..Demand::default()
            };
            let mut control = Control::new(Box::new(machine), demand);
            control.quotas = quotas_of(&["/side"]);
            let mut bed = Self { control, side_pct };
            bed.period_ms_after(0, 50);
            bed
        }

        /// The period after so many steps in which side work has so many per cent of the machine.
        fn period_ms_after(&mut self, side_pct: u64, steps: u64) -> u64 {
            self.side_pct.store(side_pct, Ordering::Relaxed);
            for _ in 0..steps {
                let began_ns = self.control.steps * STEP_NS;
                self.control.step(began_ns, 0, &mut Files::default());
            }
            self.control.period_ns(5 * MS) / MS
        }
    }

    #[test]
    fn steps_are_short_while_a_cut_may_be_needed() {
        let mut bed = Bed::new(300_000);
        assert_eq!(bed.period_ms_after(0, 1), 50, "nothing to cut");
        assert_eq!(bed.period_ms_after(60, 1), 5, "at once");
        assert_eq!(bed.period_ms_after(60, 500), 5);
        assert_eq!(bed.period_ms_after(0, 20), 5, "a second later");
        assert_eq!(bed.period_ms_after(0, 120), 50, "it has ended");
        assert_eq!(bed.period_ms_after(1, 500), 5, "it may want more");
        assert_eq!(
            bed.control.period_ns(100 * MS),
            100 * MS,
            "the machine's own word"
        );
    }

    #[test]
    fn without_idle_to_keep_no_cut_is_urgent() {
        let mut bed = Bed::new(0);
        assert_eq!(bed.period_ms_after(80, 500), 500);
        bed.control.set_demand(Demand {
            objective: Some(Objective {
                gate: "web".to_owned(),
                figure: Figure::RunDelay { share_ppm: 10_000 },
                late_after_ns: 5 * MS,
                start_ppm: 0,
                from: "gate web".to_owned(),
            }),
            ..bed.control.demand().clone()
        });
        assert_eq!(bed.period_ms_after(80, 1), 5, "it may ask for some");
    }

    #[test]
    fn use_that_is_not_known_may_be_any() {
        let mut bed = Bed::new(300_000);
        assert_eq!(bed.period_ms_after(200, 1), 5);
    }

    #[test]
    fn nothing_limited_is_in_no_hurry() {
        let mut bed = Bed::new(300_000);
        bed.period_ms_after(60, 50);
        bed.control.quotas.drop(&GroupPath::parse("/side").unwrap());
        assert_eq!(bed.control.period_ns(5 * MS), 50 * MS);
    }
}
