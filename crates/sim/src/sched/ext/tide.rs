//! Headroom in the kernel: how many CPUs side work may use at this moment.
//!
//! A timer of a millisecond reads the exact ledger and steps the law (law/headroom.h, [`HeadroomConfig::kernel`]). Its
//! allowance is kept in space first: side work may hold as many whole CPUs as fit in it. The fraction is kept in time: what was
//! allowed and not used gathers as credit, which opens one CPU more until it is spent. A second credit, of the tolerance
//! alone, tells when side work has to run though main wants every CPU.

use tidegate_law::{Headroom, HeadroomConfig, HeadroomDecision, HeadroomSample, HeadroomTerms};

use crate::Ns;

/// So much credit opens a CPU; so much owed tolerance displaces main.
const OPEN_NS: i64 = 1_000_000;
/// Unused allowance is kept for so long.
const KEEP_US: u64 = 10_000;
/// Each so much of credit beyond that opens another CPU, to catch up.
const CATCH_UP_NS: i64 = 5_000_000;

/// What the kernel's watchdog makes necessary: a run of 1 ms in 15 s for each task of side work, in millionths of a CPU.
const VISITS_UCPU: u64 = 66;
/// After so long without side work the timer stops, and what the law has learnt is forgotten.
const QUIET_NS: Ns = 2_000_000_000;
/// A fall by more than this part of the machine in one step is a cut.
const CUT_PART: u64 = 50;

/// What the ledger says at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ledger {
    pub(super) now_ns: Ns,
    pub(super) busy_ns: u64,
    pub(super) side_ns: u64,
}

/// The law at work.
pub(super) struct Tide {
    law: Headroom,
    terms: HeadroomTerms,
    cpus: u64,
    last: Option<Ledger>,
    decision: HeadroomDecision,
    credit_ns: i64,
    owed_ns: i64,
    open: bool,
    /// The timer runs.
    on: bool,
    /// Since when there has been no side work.
    quiet_ns: Option<Ns>,
    /// What the law allows, or the visits ask for, if that is more.
    allowance_ucpu: u64,
}

impl Tide {
    pub(super) fn new(cpus: u32, headroom_ppm: u32, tolerance_ppm: u32) -> Self {
        let terms = HeadroomTerms {
            headroom_ppm,
            tolerance_ppm,
        };
        Self::of(u64::from(cpus), terms)
    }

    fn of(cpus: u64, terms: HeadroomTerms) -> Self {
        Self {
            law: Headroom::new(HeadroomConfig::kernel(cpus as u32), terms),
            terms,
            cpus,
            last: None,
            decision: HeadroomDecision::default(),
            credit_ns: 0,
            owed_ns: 0,
            open: false,
            on: false,
            quiet_ns: None,
            allowance_ucpu: 0,
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
        self.on = now_ns - quiet_ns < QUIET_NS;
        if !self.on {
            self.allowance_ucpu = 0;
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
    pub(super) fn step(&mut self, now: Ledger, members: u32) {
        let Some(last) = self.last.replace(now) else {
            return;
        };
        let dt_ns = now.now_ns - last.now_ns;
        let side_ns = now.side_ns - last.side_ns;
        let before = self.decision.allowance_ucpu;
        let visits_ucpu = u64::from(members) * VISITS_UCPU;
        self.decision = self.law.step(&HeadroomSample {
            dt_ns,
            capacity_ns: dt_ns * self.cpus,
            busy_ns: now.busy_ns - last.busy_ns,
            side_ns,
            granularity_ns: 0,
            valid: true,
        });
        // Rates <= 2^33 ucpu, windows <= 2^34 ns: in 128 bits without a thought, and far below 2^63 as ns of CPU time.
        let over =
            |rate_ucpu: u64, ns: u64| (u128::from(rate_ucpu) * u128::from(ns) / 1_000_000) as i64;
        let floor = self.decision.floor_ucpu.max(visits_ucpu);
        let allowance = self.decision.allowance_ucpu.max(floor);
        self.allowance_ucpu = allowance;
        if before > allowance + self.decision.capacity_ucpu / CUT_PART {
            // Main has stepped: what was saved up under its old level is not to be spent at its new one.
            self.credit_ns = self.credit_ns.min(0);
            self.open = false;
        }
        let most_ns = over(allowance, KEEP_US * 1_000).max(OPEN_NS);
        self.credit_ns =
            (self.credit_ns + over(allowance, dt_ns) - side_ns as i64).clamp(-most_ns, most_ns);
        self.owed_ns =
            (self.owed_ns + over(floor, dt_ns) - side_ns as i64).clamp(-OPEN_NS, 2 * OPEN_NS);
        if self.credit_ns >= OPEN_NS {
            self.open = true;
        } else if self.credit_ns <= 0 {
            self.open = false;
        }
    }

    /// How many CPUs side work may use until the next step.
    pub(super) fn cpus(&self) -> u32 {
        let allowance = self.allowance_ucpu;
        let whole = allowance / 1_000_000;
        // A debt of more than a CPU's step is worked off by a CPU less.
        let less = u64::from(self.credit_ns < -OPEN_NS);
        let more = u64::from(self.open) + (self.credit_ns.max(0) / CATCH_UP_NS) as u64;
        // Where main pulses on all CPUs at the same moments, one CPU in between is not enough for less than one.
        let most = (whole + (whole / 4).max(1) + 1).min(self.cpus);
        ((whole - less.min(whole)) + more).min(most) as u32
    }

    /// Whether side work has waited for its tolerance until it must be given at main's cost.
    pub(super) fn must_run(&self) -> bool {
        self.owed_ns >= OPEN_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Side work that obeys at once, beside an even main; idle of the machine at the end, in millionths.
    fn idle_ppm(cpus: u64, main_ppm: u64, seconds: u64) -> u64 {
        let mut tide = Tide::new(cpus as u32, 300_000, 10_000);
        let mut now = Ledger::default();
        let (mut from, mut side_from) = (0, 0);
        for ms in 0..seconds * 1_000 {
            tide.step(now, 1);
            let main_ns = cpus * MS * main_ppm / 1_000_000;
            let free_ns = cpus * MS - main_ns;
            let side_ns = (u64::from(tide.cpus()) * MS).min(free_ns);
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
            let mut tide = Tide::new(cpus, 300_000, 10_000);
            let mut now = Ledger::default();
            let mut from_ns = 0;
            let cpus = u64::from(cpus);
            for ms in 0..12_000 {
                tide.step(now, 1);
                let rests = ms % 10 >= main_ppm / 100_000;
                let side_ns = if rests {
                    u64::from(tide.cpus()) * MS
                } else {
                    0
                };
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
        let mut tide = Tide::new(2, 300_000, 10_000);
        let mut now = Ledger::default();
        let mut since_ms = 0;
        for ms in 0..1_000 {
            tide.step(now, 1);
            now.now_ns += MS;
            now.busy_ns += 2 * MS;
            if tide.must_run() {
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
        let mut tide = Tide::new(1, 300_000, 10_000);
        let mut now = Ledger::default();
        let mut before = 0;
        for ms in 0..4_000 {
            tide.step(now, 1);
            let left_us = (main_ppm * period_ms / 1_000).saturating_sub(ms % period_ms * 1_000);
            let main_us = left_us.min(1_000);
            let side_us = u64::from(tide.cpus()).min(1) * (1_000 - main_us);
            now.now_ns += MS;
            now.busy_ns += (main_us + side_us) * 1_000;
            now.side_ns += side_us * 1_000;
            if ms == 2_000 {
                before = tide.decision().alarms;
            }
        }
        tide.decision().alarms - before
    }

    #[test]
    fn on_one_cpu_a_request_is_no_step() {
        for main_ppm in [100_000, 300_000, 400_000, 500_000, 600_000] {
            assert_eq!(alarms(5, main_ppm), 0, "{main_ppm} of each 5 ms");
            assert_eq!(alarms(10, main_ppm), 0, "{main_ppm} of each 10 ms");
        }
    }
}
