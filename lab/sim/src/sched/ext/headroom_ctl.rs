//! Headroom in the kernel: how many CPUs side work may use at this moment.
//!
//! A timer of a millisecond reads the CPU time since the step before and steps the law (law/headroom.h,
//! [`HeadroomConfig::kernel`]); law/side_cpus.h makes CPUs of its allowance.

use tidegate_law::side_cpus::{Credit, Window};
use tidegate_law::tuning::HEADROOM_QUIET_NS;
use tidegate_law::{Headroom, HeadroomConfig, HeadroomDecision, HeadroomSample, HeadroomTerms};

use crate::Ns;

/// CPU time since the start, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTime {
    pub(super) now_ns: Ns,
    pub(super) busy_ns: u64,
    pub(super) side_ns: u64,
}

/// The law at work.
pub(super) struct HeadroomCtl {
    law: Headroom,
    terms: HeadroomTerms,
    cpus: u32,
    last: Option<CpuTime>,
    decision: HeadroomDecision,
    credit: Credit,
    /// The timer runs.
    on: bool,
    /// Since when there has been no side work.
    quiet_ns: Option<Ns>,
}

impl HeadroomCtl {
    pub(super) fn new(cpus: u32, headroom_ppm: u32, tolerance_ppm: u32) -> Self {
        let terms = HeadroomTerms {
            headroom_ppm,
            tolerance_ppm,
        };
        Self::of(cpus, terms)
    }

    fn of(cpus: u32, terms: HeadroomTerms) -> Self {
        Self {
            law: Headroom::new(HeadroomConfig::kernel(cpus), terms),
            terms,
            cpus,
            last: None,
            decision: HeadroomDecision::default(),
            credit: Credit::default(),
            on: false,
            quiet_ns: None,
        }
    }

    /// There is side work; true: the timer was off, and all is to be learnt again.
    pub(super) fn begin(&mut self) -> bool {
        if self.on {
            return false;
        }
        *self = Self {
            on: true,
            ..Self::of(self.cpus, self.terms)
        };
        true
    }

    /// Whether there is side work, or was a moment ago; if not, the timer stops.
    pub(super) fn goes_on(&mut self, now_ns: Ns, members: u32) -> bool {
        if members > 0 {
            self.quiet_ns = None;
            return true;
        }
        let quiet_ns = *self.quiet_ns.get_or_insert(now_ns);
        self.on = now_ns - quiet_ns < HEADROOM_QUIET_NS;
        if !self.on {
            self.credit = Credit::default();
            self.decision = HeadroomDecision::default();
        }
        self.on
    }

    pub(super) fn set_terms(&mut self, headroom_ppm: u32, tolerance_ppm: u32) {
        self.terms = HeadroomTerms {
            headroom_ppm,
            tolerance_ppm,
        };
        self.law.set_terms(self.terms);
    }

    pub(super) fn decision(&self) -> &HeadroomDecision {
        &self.decision
    }

    /// The timer's step, with so many tasks of side work that run or want to.
    pub(super) fn step(&mut self, now: CpuTime, members: u32) {
        let Some(last) = self.last.replace(now) else {
            return;
        };
        let dt_ns = now.now_ns - last.now_ns;
        let side_ns = now.side_ns - last.side_ns;
        let before_ucpu = self.decision.allowance_ucpu;
        self.decision = self.law.step(&HeadroomSample {
            dt_ns,
            capacity_ns: dt_ns * u64::from(self.cpus),
            busy_ns: now.busy_ns - last.busy_ns,
            side_ns,
            granularity_ns: 0,
            valid: true,
        });
        let window = Window {
            before_ucpu,
            dt_ns,
            side_ns,
            members: u64::from(members),
            online: self.cpus,
        };
        self.credit.step(&self.decision, &window);
    }

    /// How many CPUs side work may use until the next step.
    pub(super) fn cpus(&self) -> u32 {
        self.credit.cpus()
    }

    /// Whether side work has waited for its tolerance until it must be given at main's cost.
    pub(super) fn must_run(&self) -> bool {
        self.credit.is_owed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Side work that obeys at once, beside an even main; idle of the machine at the end, in millionths.
    fn idle_ppm(cpus: u64, main_ppm: u64, seconds: u64) -> u64 {
        let mut ctl = HeadroomCtl::new(cpus as u32, 300_000, 10_000);
        let mut now = CpuTime::default();
        let (mut from, mut side_from) = (0, 0);
        for ms in 0..seconds * 1_000 {
            ctl.step(now, 1);
            let main_ns = cpus * MS * main_ppm / 1_000_000;
            let free_ns = cpus * MS - main_ns;
            let side_ns = (u64::from(ctl.cpus()) * MS).min(free_ns);
            now.now_ns += MS;
            now.busy_ns += main_ns + side_ns;
            now.side_ns += side_ns;
            if ms == seconds * 500 {
                (from, side_from) = (now.now_ns, now.side_ns);
            }
        }
        let capacity_ns = (now.now_ns - from) * cpus;
        1_000_000 - main_ppm - (now.side_ns - side_from) * 1_000_000 / capacity_ns
    }

    #[test]
    fn the_fraction_is_kept_in_time() {
        for cpus in [1, 2, 3, 16, 64] {
            for main_ppm in [100_000, 300_000, 333_000, 450_000, 600_000] {
                let got = idle_ppm(cpus, main_ppm, 12);
                assert!(
                    got.abs_diff(300_000) <= 1_500,
                    "{cpus} CPUs, main {main_ppm}: {got}"
                );
            }
            let got = idle_ppm(cpus, 700_000, 12);
            assert!(
                got.abs_diff(290_000) <= 1_500,
                "{cpus} CPUs, the tolerance: {got}"
            );
        }
    }

    /// Each CPU's main takes the first part of the same 10 ms: side work has to be caught up with in between.
    #[test]
    fn mains_that_pulse_at_once_leave_idle_what_is_asked() {
        for (cpus, main_ppm) in [(2, 300_000), (2, 600_000), (3, 300_000)] {
            let mut ctl = HeadroomCtl::new(cpus, 300_000, 10_000);
            let mut now = CpuTime::default();
            let mut from_ns = 0;
            let cpus = u64::from(cpus);
            for ms in 0..12_000 {
                ctl.step(now, 1);
                let rests = ms % 10 >= main_ppm / 100_000;
                let side_ns = if rests { u64::from(ctl.cpus()) * MS } else { 0 };
                assert!(side_ns <= cpus * MS, "more CPUs than there are");
                now.now_ns += MS;
                now.busy_ns += if rests { side_ns } else { cpus * MS };
                now.side_ns += side_ns;
                if ms + 1 == 6_000 {
                    from_ns = now.busy_ns;
                }
            }
            let idle_ppm = 1_000_000 - (now.busy_ns - from_ns) / (6_000 * cpus);
            assert!(
                idle_ppm.abs_diff(300_000) <= 10_000,
                "{cpus} CPUs, main {main_ppm}: {idle_ppm}"
            );
        }
    }

    #[test]
    fn starved_side_work_is_owed_its_tolerance() {
        let mut ctl = HeadroomCtl::new(2, 300_000, 10_000);
        let mut now = CpuTime::default();
        let mut since_ms = 0;
        for ms in 0..1_000 {
            ctl.step(now, 1);
            now.now_ns += MS;
            now.busy_ns += 2 * MS;
            if ctl.must_run() {
                // 1 % of two CPUs is a millisecond in fifty.
                assert!(
                    (49..=52).contains(&(ms - since_ms)) || since_ms == 0,
                    "{ms} after {since_ms}"
                );
                since_ms = ms;
                now.side_ns += MS;
            }
        }
        assert!(since_ms > 900);
    }

    /// One CPU whose main takes a part of each period; whether steps of main were seen in the second half.
    fn alarms(period_ms: u64, main_ppm: u64) -> u32 {
        let mut ctl = HeadroomCtl::new(1, 300_000, 10_000);
        let mut now = CpuTime::default();
        let mut before = 0;
        for ms in 0..4_000 {
            ctl.step(now, 1);
            let left_us = (main_ppm * period_ms / 1_000).saturating_sub(ms % period_ms * 1_000);
            let main_us = left_us.min(1_000);
            let side_us = u64::from(ctl.cpus()).min(1) * (1_000 - main_us);
            now.now_ns += MS;
            now.busy_ns += (main_us + side_us) * 1_000;
            now.side_ns += side_us * 1_000;
            if ms == 2_000 {
                before = ctl.decision().alarms;
            }
        }
        ctl.decision().alarms - before
    }

    #[test]
    fn on_one_cpu_a_request_is_no_step() {
        for main_ppm in [100_000, 300_000, 400_000, 500_000, 600_000] {
            assert_eq!(alarms(5, main_ppm), 0, "{main_ppm} of each 5 ms");
            assert_eq!(alarms(10, main_ppm), 0, "{main_ppm} of each 10 ms");
        }
    }
}
