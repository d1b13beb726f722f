//! One control step: sample, estimate, plan, apply; and what it tells of itself.
//!
//! The step is short: it reads the sensor's counters, runs the law and a planner for each group that carries a moving
//! quota (normally one, the side root), and writes a quota a few times a second. It allocates only when it writes.
//! What the step needs of the outside comes in through [`Sensor`] and [`Apply`], so that tests drive this very code.

use std::collections::VecDeque;

use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::GroupPath;
use tidegate_knobs::plan::{PlanConfig, Planner, WriteBudget};
use tidegate_knobs::sense::{Counters, Group as SensedGroup, Sensor};
use tidegate_law::{
    Demand as Wanted, Headroom, HeadroomConfig, HeadroomDecision, HeadroomSample, HeadroomTerms,
    Reason, share,
};

use crate::gate::Demand;
use crate::meter::{Meter, Recent, Use};

/// Writes that are remembered for `explain`.
const WRITES_KEPT: usize = 64;

/// Windows longer than this hold a pause of the machine or of the owner, not a measurement.
const WINDOW_MAX_NS: u64 = 1_000_000_000;

/// Side work that starves below its tolerance for this long is helped.
const RELIEF_AFTER_NS: u64 = 1_000_000_000;

/// A group that carries a moving quota.
pub struct Target {
    /// Below the mount of the cpu controller.
    pub group: GroupPath,
    /// Its part of the allowance when demands compete.
    pub weight: u32,
    /// What it would use; `u64::MAX` for all that it gets.
    pub demand_ucpu: u64,
    planner: Planner,
    /// Out of the idle class for now, so that it gets its tolerance (see [`Control::relieve`]).
    relieved: bool,
}

impl Target {
    /// A target about which nothing is known yet: it wants all it gets.
    pub fn new(group: GroupPath, weight: u32, tick_ns: u64) -> Self {
        let config = PlanConfig {
            tick_ns,
            ..PlanConfig::default()
        };
        Self {
            group,
            weight,
            demand_ucpu: u64::MAX,
            planner: Planner::new(config),
            relieved: false,
        }
    }

    /// What stands, as far as the planner knows.
    pub fn standing(&self) -> Option<Bandwidth> {
        self.planner.standing()
    }

    /// Nothing is known of what stands: the next step writes.
    pub fn invalidate(&mut self) {
        self.planner.invalidate();
    }
}

/// A group that is to carry a moving quota.
#[derive(Clone, Debug)]
pub struct Limited {
    /// The group.
    pub group: GroupPath,
    /// The weights of its gates, added up.
    pub weight: u32,
    /// The first of them.
    pub first_weight: u32,
    /// Its gates are of unequal weight.
    pub unequal: bool,
}

impl Limited {
    /// The kernel keeps weights below a quota only while the group runs for long enough at a time: with a period of 10 ms, gates
    /// of 100 and 300 got nearly equal parts; with 50 ms, theirs (`cargo xtask vm kernel-weights-under-quota`).
    fn period_us(&self) -> u64 {
        if self.unequal {
            50_000
        } else {
            PlanConfig::default().period_us
        }
    }
}

/// What one limited group has.
#[derive(Clone, Debug)]
pub struct Given {
    /// The group.
    pub group: GroupPath,
    /// Its part of the allowance.
    pub ucpu: u64,
    /// The quota that stands, if known.
    pub standing: Option<Bandwidth>,
}

/// A write that was made.
#[derive(Clone, Debug)]
pub struct Write {
    /// When.
    pub at_ns: u64,
    /// The file, or the group for a quota.
    pub path: String,
    /// What.
    pub value: String,
    /// What stood there.
    pub was: Option<String>,
    /// Why.
    pub reason: String,
}

/// Puts a quota on a group: ledger first, then the kernel file.
pub trait Apply {
    /// `from` is what stands, if known. `Err` is a message for people; the planner writes again in a later step.
    fn set_quota(
        &mut self,
        group: &GroupPath,
        from: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), String>;
    /// Puts the group into the idle class (where side work belongs) or takes it out.
    fn set_yielding(&mut self, group: &GroupPath, yielding: bool) -> Result<(), String>;
}

/// The loop's state.
pub struct Control {
    sensor: Box<dyn Sensor>,
    law: Headroom,
    demand: Demand,
    targets: Vec<Target>,
    wanted: Vec<Wanted>,
    given_ucpu: Vec<u64>,
    budget: WriteBudget,
    groups: (Vec<SensedGroup>, Vec<SensedGroup>),
    /// The classes have changed since the last reading.
    regrouped: bool,
    last: Option<Counters>,
    window: Use,
    decision: HeadroomDecision,
    /// Use by seconds.
    pub meter: Meter,
    /// How late steps began.
    pub late: Recent,
    /// What steps cost.
    pub cost: Recent,
    /// Worst lateness since start.
    pub late_max_ns: u64,
    /// Steps made.
    pub steps: u64,
    /// How often the guardian wrote the fallback.
    pub fallbacks: u64,
    /// Samples that were refused.
    pub stale: u64,
    /// Time at the tolerance while side work was there.
    pub at_tolerance_ns: u64,
    /// Use since the allowance came down to the tolerance.
    floor_span: Use,
    /// Writes, newest last.
    pub writes: VecDeque<Write>,
    /// How many there were.
    pub writes_total: u64,
    /// When quotas were written, of the last ten seconds.
    quota_writes_ns: VecDeque<u64>,
    /// The last failure of sensing or writing, until one succeeds.
    pub trouble: Option<String>,
}

impl Control {
    /// A loop over `sensor`; nothing is limited yet.
    pub fn new(sensor: Box<dyn Sensor>, demand: Demand) -> Self {
        let exact = sensor.granularity_ns() == 0;
        let config = if exact {
            HeadroomConfig::FAST
        } else {
            HeadroomConfig::SLOW
        };
        let law = Headroom::new(config, terms(&demand));
        Self {
            sensor,
            law,
            demand,
            targets: Vec::new(),
            wanted: Vec::new(),
            given_ucpu: Vec::new(),
            budget: WriteBudget::new(PlanConfig::default().writes_per_s_max),
            groups: (Vec::new(), Vec::new()),
            regrouped: false,
            last: None,
            window: Use::default(),
            decision: HeadroomDecision::default(),
            meter: Meter::default(),
            late: Recent::default(),
            cost: Recent::default(),
            late_max_ns: 0,
            steps: 0,
            fallbacks: 0,
            stale: 0,
            at_tolerance_ns: 0,
            floor_span: Use::default(),
            writes: VecDeque::with_capacity(WRITES_KEPT),
            writes_total: 0,
            quota_writes_ns: VecDeque::new(),
            trouble: None,
        }
    }

    /// What the gates ask for now.
    pub fn set_demand(&mut self, demand: Demand) {
        if demand != self.demand {
            self.law.set_terms(terms(&demand));
            self.demand = demand;
        }
    }

    /// What is in force.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Which groups are side and main work. Nothing happens when they are what they were: another gate in the side root is
    /// no news to the sensor.
    pub fn set_groups(&mut self, side: Vec<SensedGroup>, main: Vec<SensedGroup>) {
        let groups = (side, main);
        if self.groups == groups {
            return;
        }
        self.groups = groups;
        if let Err(error) = self.sensor.set_groups(&self.groups.0, &self.groups.1) {
            self.trouble = Some(error.to_string());
        }
        // Classes moved under the counters: the window in which they did mixes two meanings.
        self.regrouped = true;
        self.meter.restart();
    }

    /// Groups that carry a moving quota. Known ones keep their planner.
    pub fn set_targets(&mut self, wanted: Vec<Limited>, tick_ns: u64) {
        let mut old = std::mem::take(&mut self.targets);
        for one in wanted {
            let mut target = match old.iter().position(|target| target.group == one.group) {
                Some(index) => old.swap_remove(index),
                None => Target::new(one.group.clone(), one.weight, tick_ns),
            };
            target.weight = one.weight;
            target.planner.set_period_us(one.period_us());
            self.targets.push(target);
        }
        self.wanted.reserve(self.targets.len());
        self.given_ucpu.resize(self.targets.len(), 0);
    }

    /// `group` no longer carries one: the loop must not write behind a restore.
    pub fn drop_target(&mut self, group: &GroupPath) {
        self.targets.retain(|target| target.group != *group);
        self.given_ucpu.truncate(self.targets.len());
    }

    /// The groups that carry a moving quota.
    pub fn targets(&mut self) -> &mut [Target] {
        &mut self.targets
    }

    /// Every limited group with what it was given in the last step and what stands.
    pub fn given(&self) -> Vec<Given> {
        let given = |(target, ucpu): (&Target, &u64)| Given {
            group: target.group.clone(),
            ucpu: *ucpu,
            standing: target.standing(),
        };
        self.targets
            .iter()
            .zip(&self.given_ucpu)
            .map(given)
            .collect()
    }

    /// Somebody else wrote, or may have: everything is written again.
    pub fn invalidate(&mut self) {
        for target in &mut self.targets {
            target.invalidate();
        }
    }

    /// The guardian wrote the fallback: every quota is unknown, and everybody is back in the idle class.
    pub fn fell_back(&mut self) {
        self.fallbacks += 1;
        self.floor_span = Use::default();
        for target in &mut self.targets {
            target.relieved = false;
        }
        self.invalidate();
    }

    /// `bpf` or `usage`.
    pub fn sensing(&self) -> &'static str {
        self.sensor.kind()
    }

    /// CPUs online at the last reading.
    pub fn online_cpus(&self) -> u32 {
        self.sensor.online_cpus()
    }

    /// The shortest useful period of the loop.
    pub fn period_min_ns(&self) -> u64 {
        self.sensor.min_window_ns()
    }

    /// The last decision.
    pub fn decision(&self) -> &HeadroomDecision {
        &self.decision
    }

    /// Quota writes a second over the last ten.
    pub fn quota_writes_per_second(&self, now_ns: u64) -> f64 {
        let since_ns = now_ns.saturating_sub(10_000_000_000);
        self.quota_writes_ns
            .iter()
            .filter(|at_ns| **at_ns >= since_ns)
            .count() as f64
            / 10.0
    }

    /// Remembers a write.
    pub fn remember(&mut self, write: Write) {
        if self.writes.len() == WRITES_KEPT {
            self.writes.pop_front();
        }
        self.writes.push_back(write);
        self.writes_total += 1;
    }

    /// One step. `late_ns` is how long after its time it began.
    pub fn step(&mut self, late_ns: u64, apply: &mut dyn Apply) {
        let mut now = Counters::default();
        let sampled = self.sensor.sample(&mut now);
        let now_ns = if now.now_ns == 0 {
            crate::lease::monotonic_ns()
        } else {
            now.now_ns
        };
        self.steps += 1;
        self.late.add(now_ns, late_ns);
        self.late_max_ns = self.late_max_ns.max(late_ns);
        if std::mem::take(&mut self.regrouped) && sampled.is_ok() && self.last.is_some() {
            // One window is left out; what was decided last stands for one more.
            self.last = Some(now);
            return;
        }
        let sample = match sampled {
            Ok(()) => self.difference(&now),
            Err(error) => {
                self.trouble = Some(error.to_string());
                self.last = None;
                self.window = Use::default();
                HeadroomSample::default()
            }
        };
        if self.window.wall_ns > 0 {
            self.meter.add(
                self.window,
                self.demand.headroom_ppm,
                self.demand.tolerance_ppm,
            );
        }
        self.decision = self.law.step(&sample);
        if self.decision.reason == Reason::Stale {
            self.stale += 1;
        }
        if self.targets.is_empty() {
            return;
        }
        if self.decision.allowance_ucpu <= self.decision.floor_ucpu {
            self.at_tolerance_ns += sample.dt_ns.min(WINDOW_MAX_NS);
            self.floor_span.add(&self.window);
        } else {
            self.floor_span = Use::default();
        }
        self.relieve(now_ns, apply);
        self.divide();
        self.write(now_ns, apply);
    }

    /// The stretch since the last reading; an invalid sample when there is none that may be used.
    fn difference(&mut self, now: &Counters) -> HeadroomSample {
        self.window = Use::default();
        let Some(last) = self.last.replace(*now) else {
            return HeadroomSample::default();
        };
        let since = |now_ns: u64, last_ns: u64| now_ns.saturating_sub(last_ns);
        let window = Use {
            wall_ns: since(now.now_ns, last.now_ns),
            capacity_ns: since(now.capacity_ns, last.capacity_ns),
            busy_ns: since(now.busy_ns, last.busy_ns),
            side_ns: since(now.side_ns, last.side_ns),
            main_ns: since(now.main_ns, last.main_ns),
            steal_ns: since(now.steal_ns, last.steal_ns),
            offered_ns: 0,
        };
        if now.valid && window.wall_ns <= WINDOW_MAX_NS {
            self.window = window;
        }
        HeadroomSample {
            dt_ns: window.wall_ns,
            capacity_ns: window.capacity_ns,
            busy_ns: window.busy_ns,
            side_ns: window.side_ns,
            granularity_ns: self.sensor.granularity_ns(),
            valid: now.valid,
        }
    }

    /// The tolerance is a promise to side work too, and the idle class breaks it: when main takes every CPU, an idle group gets
    /// three thousandths of one. So side work that has been at the tolerance for [`RELIEF_AFTER_NS`] and got less than half of it
    /// leaves the idle class. Its quota, which is the tolerance, bounds what that costs main; before the quota rises
    /// again, it goes back.
    fn relieve(&mut self, now_ns: u64, apply: &mut dyn Apply) {
        let span = &self.floor_span;
        let promised_ns =
            u128::from(self.decision.floor_ucpu) * u128::from(span.wall_ns) / 1_000_000;
        let starved = span.wall_ns >= RELIEF_AFTER_NS && u128::from(span.side_ns) < promised_ns / 2;
        let at_floor = span.wall_ns > 0;
        for index in 0..self.targets.len() {
            let target = &mut self.targets[index];
            let relief = if target.relieved { at_floor } else { starved };
            if relief == target.relieved {
                continue;
            }
            if let Err(why) = apply.set_yielding(&target.group, !relief) {
                self.trouble = Some(why);
                continue;
            }
            target.relieved = relief;
            let write = Write {
                at_ns: now_ns,
                path: target.group.to_string(),
                value: (if relief {
                    "not idle class"
                } else {
                    "idle class"
                })
                .to_owned(),
                was: None,
                reason: (if relief {
                    "starved below the tolerance"
                } else {
                    "tolerance is over"
                })
                .to_owned(),
            };
            self.remember(write);
        }
        if starved {
            self.floor_span = Use {
                wall_ns: 1,
                ..Use::default()
            };
        }
    }

    /// Shares the allowance over the targets.
    fn divide(&mut self) {
        let floor_each_ucpu = self.decision.floor_ucpu / self.targets.len() as u64;
        self.wanted.clear();
        for target in &self.targets {
            self.wanted.push(Wanted::new(
                target.weight,
                target.demand_ucpu,
                floor_each_ucpu,
            ));
        }
        share(
            self.decision.allowance_ucpu,
            &self.wanted,
            &mut self.given_ucpu,
        );
    }

    fn write(&mut self, now_ns: u64, apply: &mut dyn Apply) {
        let cpus = self.sensor.online_cpus();
        let floor_each_ucpu = self.decision.floor_ucpu / self.targets.len() as u64;
        for index in 0..self.targets.len() {
            let decision = self
                .decision
                .for_group(self.given_ucpu[index], floor_each_ucpu);
            let target = &mut self.targets[index];
            let was = target.standing();
            let Some(plan) = target
                .planner
                .step_shared(now_ns, &decision, cpus, &mut self.budget)
            else {
                continue;
            };
            if let Err(why) = apply.set_quota(&target.group, was, plan.bandwidth) {
                target.invalidate();
                self.trouble = Some(why);
                continue;
            }
            self.trouble = None;
            let write = Write {
                at_ns: now_ns,
                path: target.group.to_string(),
                value: describe(&plan.bandwidth),
                was: was.as_ref().map(describe),
                reason: plan.reason.as_str().to_owned(),
            };
            self.remember(write);
            self.quota_writes_ns.push_back(now_ns);
            let since_ns = now_ns.saturating_sub(10_000_000_000);
            while self
                .quota_writes_ns
                .front()
                .is_some_and(|at_ns| *at_ns < since_ns)
            {
                self.quota_writes_ns.pop_front();
            }
        }
    }
}

fn terms(demand: &Demand) -> HeadroomTerms {
    HeadroomTerms {
        headroom_ppm: demand.headroom_ppm,
        tolerance_ppm: demand.tolerance_ppm,
    }
}

/// A quota as people read it.
pub fn describe(bandwidth: &Bandwidth) -> String {
    match bandwidth.quota_us {
        Some(quota_us) => {
            let cpus = quota_us as f64 / bandwidth.period_us as f64;
            format!(
                "{quota_us} us per {} us ({cpus:.2} CPUs)",
                bandwidth.period_us
            )
        }
        None => "no quota".to_owned(),
    }
}
