//! A measurement of what side work costs main while it runs ([`crate::measure`]): its levels are in
//! force instead of what the gates ask for.
//!
//! It is in this process's memory alone, so an agent that dies leaves nothing of it to the next
//! one.

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;
use tidegate_law::{HeadroomDecision, Reason};

use super::apply::Apply;
use super::{Control, Quotas};
use crate::measure::{Experiment, Window};
use crate::quota_planner::{PERIOD_US, bandwidth_for};
use crate::sense::WAIT_BUCKETS;

pub(super) struct Measuring {
    experiment: Experiment,
    gates: Vec<SwitchedGate>,
    /// Another level is to be written.
    is_due: bool,
    /// What the gates ask for is in force again.
    is_over: bool,
}

/// A side gate that is switched by itself.
#[derive(Clone, Debug)]
pub struct SwitchedGate {
    pub group: GroupPath,
    /// The quota of its group; none where that is one of the loop's own.
    pub quota: Option<SwitchedQuota>,
}

#[derive(Clone, Copy, Debug)]
pub struct SwitchedQuota {
    /// While it is free.
    pub free: Bandwidth,
    pub standing: Bandwidth,
}

impl SwitchedGate {
    fn hold(
        &mut self,
        is_held: bool,
        floor: Bandwidth,
        quotas: &mut Quotas,
        apply: &mut dyn Apply,
    ) -> Result<(), String> {
        let Some(quota) = &mut self.quota else {
            quotas.hold(&self.group, is_held);
            return Ok(());
        };
        let to = if is_held { floor } else { quota.free };
        if to == quota.standing {
            return Ok(());
        }
        apply
            .set_quota(&self.group, Some(quota.standing), to)
            .map_err(|error| error.to_string())?;
        quota.standing = to;
        Ok(())
    }
}

impl Control {
    /// Puts the levels of `experiment` in force from the next step on.
    pub fn begin_measuring(&mut self, experiment: Experiment, gates: Vec<SwitchedGate>) {
        self.measuring = Some(Measuring {
            experiment,
            gates,
            is_due: false,
            is_over: false,
        });
    }

    /// The measurement that runs, or the last one.
    pub fn experiment(&self) -> Option<&Experiment> {
        self.measuring
            .as_ref()
            .map(|measuring| &measuring.experiment)
    }

    pub fn experiment_mut(&mut self) -> Option<&mut Experiment> {
        let measuring = self.measuring.as_mut();
        measuring.map(|measuring| &mut measuring.experiment)
    }

    pub fn is_measuring(&self) -> bool {
        self.measuring
            .as_ref()
            .is_some_and(|measuring| !measuring.is_over)
    }

    /// Ends a measurement that runs, for this reason; the next step puts back what the gates ask
    /// for.
    pub fn stop_measuring(&mut self, why: &str) {
        if let Some(experiment) = self.experiment_mut() {
            experiment.end(why);
        }
    }

    /// The headroom that a measurement holds.
    pub(super) fn measured_ppm(&self) -> Option<u32> {
        let experiment = self.experiment().filter(|one| one.is_running());
        experiment.map(Experiment::headroom_ppm)
    }

    /// One window of the measurement, and the switch to its next level.
    pub(super) fn measure(&mut self, began_ns: u64, is_valid: bool, apply: &mut dyn Apply) {
        if self.enforced_by_sched_ext {
            self.stop_measuring("the scheduler of the engine sched_ext is in force");
        } else if self.quotas.is_empty() {
            self.stop_measuring("no side work is left");
        }
        let reason = self.decision.reason;
        let is_decided = !reason.is_unusable() && reason != Reason::Warmup;
        let Some(measuring) = self.measuring.as_mut().filter(|one| !one.is_over) else {
            return;
        };
        let window = Window {
            wall_ns: self.window.wall_ns,
            main_ns: self.window.main_ns,
            side_ns: self.window.side_ns,
            behind_side_ns: self.window.behind_side_ns,
            waits: self.waits,
            is_usable: is_valid && is_decided && self.quotas.are_in_force(),
        };
        let sensor = &self.sensor;
        let waits = || sensor.wait_buckets().unwrap_or([0; WAIT_BUCKETS]);
        measuring.is_due |= measuring.experiment.step(began_ns, &window, waits);
        measuring.is_due |= !measuring.experiment.is_running();
        if std::mem::take(&mut measuring.is_due) {
            self.switch(apply);
        }
    }

    fn switch(&mut self, apply: &mut dyn Apply) {
        let cpus = u64::from(self.sensor.online_cpus().max(1));
        let floor_ucpu = cpus * u64::from(self.demand.tolerance_ppm);
        let Some(measuring) = &mut self.measuring else {
            return;
        };
        let is_running = measuring.experiment.is_running();
        let each_ucpu = floor_ucpu / measuring.gates.len().max(1) as u64;
        let floor = bandwidth_for(each_ucpu, PERIOD_US);
        for at in 0..measuring.gates.len() {
            let is_held = is_running && measuring.experiment.holds(at);
            let gate = &mut measuring.gates[at];
            if let Err(why) = gate.hold(is_held, floor, &mut self.quotas, apply) {
                measuring.experiment.end(&why);
            }
        }
        measuring.is_over = !is_running;
        self.quotas.renew();
        self.law.set_terms(self.machine_terms());
    }

    /// A level is in force from its first step on: a rise does not wait for the law's slope.
    pub(super) fn at_once(&self, decision: HeadroomDecision) -> HeadroomDecision {
        if !self.is_measuring() || decision.reason != Reason::Ramp {
            return decision;
        }
        let left_ucpu = decision
            .capacity_ucpu
            .saturating_sub(decision.asked_ucpu)
            .saturating_sub(decision.main_est_ucpu);
        HeadroomDecision {
            allowance_ucpu: left_ucpu.max(decision.floor_ucpu),
            reason: Reason::Track,
            ..decision
        }
    }
}
