//! A main that comes in pulses: side work has what main leaves on average.
//!
//! Main displaces side work of the idle class at once, in a pulse as elsewhere. So a cut for each
//! of many pulses gives main nothing, and costs side work most of its due. Where CPUs share cores a
//! cut does give main something: the other half of its core (simulated, 16 CPUs of 8 cores: without
//! cuts 38 % more p99 beside such a main). There pulses are cut for.

use tidegate_law::{HeadroomDecision, Reason};

const SECOND_US: u64 = 1_000_000;
/// So many steps of main in a second are pulses, where main is the same over a quarter of a second
/// as over all of it.
const STEPS: usize = 4;

#[derive(Clone, Debug, Default)]
pub struct Pulses {
    second_ucpu: u64,
    quarter_ucpu: u64,
    now_us: u64,
    alarms: u32,
    stepped_us: [Option<u64>; STEPS],
    shared_cores: bool,
}

impl Pulses {
    /// How much longer main's work takes beside side work on every CPU.
    pub fn set_contention(&mut self, contend_ppm: u32) {
        self.shared_cores = contend_ppm > 0;
    }

    /// What the law decided for a window of `dt_ns`; beside a main in pulses, what main leaves on
    /// average.
    pub fn smooth(&mut self, dt_ns: u64, decision: HeadroomDecision) -> HeadroomDecision {
        if decision.reason.is_unusable() || decision.reason == Reason::Warmup {
            return decision;
        }
        let dt_us = dt_ns / 1_000;
        self.now_us = self.now_us.saturating_add(dt_us);
        let main_ucpu = decision.main_now_ucpu;
        mean(&mut self.second_ucpu, main_ucpu, dt_us, SECOND_US);
        mean(&mut self.quarter_ucpu, main_ucpu, dt_us, SECOND_US / 4);
        if decision.alarms != self.alarms {
            self.alarms = decision.alarms;
            self.stepped_us.rotate_right(1);
            self.stepped_us[0] = Some(self.now_us);
        }
        let often = !self.shared_cores
            && self.stepped_us[STEPS - 1].is_some_and(|at_us| self.now_us - at_us < SECOND_US);
        let even = self.second_ucpu.abs_diff(self.quarter_ucpu) <= decision.capacity_ucpu / 20;
        if !(often && even) {
            return decision;
        }
        let left_ucpu = decision
            .capacity_ucpu
            .saturating_sub(decision.asked_ucpu)
            .saturating_sub(self.second_ucpu);
        HeadroomDecision {
            allowance_ucpu: left_ucpu.max(decision.floor_ucpu),
            main_est_ucpu: self.second_ucpu,
            trim_ucpu: 0,
            reason: Reason::Track,
            ..decision
        }
    }
}

fn mean(of_ucpu: &mut u64, now_ucpu: u64, dt_us: u64, span_us: u64) {
    let dt_us = dt_us.min(span_us);
    // Below 2^44 µCPU and 2^20 µs.
    *of_ucpu = (*of_ucpu * (span_us - dt_us) + now_ucpu * dt_us) / span_us;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of 5 ms on two CPUs, 30 % asked: main has all of them in the first `on` of each
    /// `every`, and each pulse is an alarm.
    fn pulses(on: u32, every: u32, windows: u32) -> HeadroomDecision {
        let mut pulses = Pulses::default();
        let mut decision = HeadroomDecision::default();
        for window in 0..windows {
            let in_pulse = window % every < on;
            decision = pulses.smooth(
                5_000_000,
                HeadroomDecision {
                    allowance_ucpu: if in_pulse { 20_000 } else { 1_400_000 },
                    floor_ucpu: 20_000,
                    capacity_ucpu: 2_000_000,
                    asked_ucpu: 600_000,
                    main_now_ucpu: if in_pulse { 2_000_000 } else { 0 },
                    reason: if in_pulse {
                        Reason::Floor
                    } else {
                        Reason::Track
                    },
                    alarms: window / every + 1,
                    ..HeadroomDecision::default()
                },
            );
        }
        decision
    }

    #[test]
    fn pulses_are_worth_their_mean() {
        // 20 ms in each 100: main has 20 % of two CPUs.
        for windows in [600, 603, 611] {
            let decision = pulses(4, 20, windows);
            let off = decision.allowance_ucpu.abs_diff(1_000_000);
            assert!(off < 60_000, "{} after {windows}", decision.allowance_ucpu);
            assert_eq!(decision.reason, Reason::Track);
        }
    }

    #[test]
    fn where_cpus_share_cores_each_pulse_is_the_laws() {
        let mut pulses = Pulses::default();
        pulses.set_contention(1);
        for alarms in 0..100 {
            let decision = HeadroomDecision {
                reason: Reason::Cut,
                alarms,
                ..HeadroomDecision::default()
            };
            assert_eq!(pulses.smooth(5_000_000, decision), decision);
        }
    }

    #[test]
    fn one_step_is_none() {
        let decision = pulses(600, 1_200, 300);
        assert_eq!(
            (decision.allowance_ucpu, decision.reason),
            (20_000, Reason::Floor)
        );
        let decision = pulses(200, 400, 1_020);
        assert_eq!(
            decision.allowance_ucpu, 1_400_000,
            "a second on, a second off"
        );
    }

    #[test]
    fn a_sample_that_is_lost_keeps_the_laws_word() {
        let mut pulses = Pulses::default();
        for reason in [Reason::Stale, Reason::Skip, Reason::Warmup] {
            let decision = HeadroomDecision {
                allowance_ucpu: 7,
                reason,
                ..HeadroomDecision::default()
            };
            assert_eq!(pulses.smooth(u64::MAX, decision), decision);
        }
    }
}
