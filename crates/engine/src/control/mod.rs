//! One control step: sample, estimate, plan, apply; and what it tells of itself.
//!
//! The agent process runs it against the kernel's files, the simulator against a simulated machine:
//! the same code. Nothing here reads a clock or a file; time comes in with the call and with the
//! sample.
//!
//! The step is short: it reads the sensor's counters, runs the law and a planner for each group
//! that carries a moving quota (normally one, the side root), and writes a quota a few times a
//! second. It allocates only when it writes. What the step needs of the outside comes in through
//! [`Sensor`] and [`Apply`], so that tests drive this very code.

mod apply;
mod decision;
mod demand;
mod measuring;
mod meter;
mod pace;
mod protect;
mod pulses;
mod quotas;
mod soft_caps;
mod unusable;
mod write_error;
mod write_log;

use tidegate_law::{
    Headroom, HeadroomConfig, HeadroomDecision, HeadroomSample, HeadroomTerms, Reason,
};

pub use apply::{Apply, ApplyError};
pub use decision::decision_of;
pub use demand::Demand;
pub use measuring::{SwitchedGate, SwitchedQuota};
pub use meter::{Durations, Meter, Recent, Totals, Use};
pub use protect::{Figure, Objective, Protect, Protection};
pub use pulses::Pulses;
pub use quotas::{QuotaTarget, Quotas, Target};
pub use soft_caps::{POLL_NS as SOFT_CAP_POLL_NS, Soft, SoftCapStats, SoftCapped, SoftCaps, Usage};
pub use unusable::Unusable;
pub use write_log::{Write, WriteLog, describe};

use self::measuring::Measuring;
use crate::sense::{Counters, Group as SensedGroup, Sensor, Turns, WaitHistogram, Waits};

/// Windows longer than this hold a pause of the machine or of the agent, not a measurement.
const WINDOW_MAX_NS: u64 = 1_000_000_000;

/// What side work on every CPU does to main where CPUs share cores, for
/// [`Control::set_contention`]. The kernel used to take two threads of a core for 1.15 of one, so
/// main beside busy siblings takes up to 1.7 times as long; and a main that takes longer is in its
/// own way more. In the simulator anything from 0.6 to 1.3 keeps the loop from answering itself
/// (law/headroom.md).
pub const SHARED_CORES_PPM: u32 = 800_000;

pub struct Control {
    sensor: Box<dyn Sensor>,
    law: Headroom,
    pulses: Pulses,
    demand: Demand,
    protect: Protect,
    measuring: Option<Measuring>,
    pub quotas: Quotas,
    pub soft_caps: SoftCaps,
    groups: (Vec<SensedGroup>, Vec<SensedGroup>),
    regrouped: bool,
    last: Option<Counters>,
    window: Use,
    waits: Waits,
    decision: HeadroomDecision,
    pub meter: Meter,
    pub late: Recent,
    pub cost: Recent,
    pub late_ever: Durations,
    pub late_max_ns: u64,
    pub steps: u64,
    pub fallbacks: u64,
    /// How long the agent was silent before the last one.
    pub silent_ns: u64,
    pub unusable: Unusable,
    stepped_ns: Option<u64>,
    at_tolerance_ns: u64,
    at_tolerance_since_ns: Option<u64>,
    pub sensing_error: Option<String>,
    enforced_by_sched_ext: bool,
}

impl Control {
    pub fn new(mut sensor: Box<dyn Sensor>, demand: Demand) -> Self {
        let config = HeadroomConfig::for_window_ns(sensor.min_window_ns());
        let mut protect = Protect::default();
        protect.follow(demand.objective.as_ref(), sensor.as_mut());
        let law = Headroom::new(
            config,
            demand.terms(demand.headroom_ppm, protect.extra_ppm()),
        );
        Self {
            sensor,
            law,
            pulses: Pulses::default(),
            demand,
            protect,
            measuring: None,
            quotas: Quotas::default(),
            soft_caps: SoftCaps::default(),
            groups: (Vec::new(), Vec::new()),
            regrouped: false,
            last: None,
            window: Use::default(),
            waits: Waits::default(),
            decision: HeadroomDecision::default(),
            meter: Meter::default(),
            late: Recent::default(),
            cost: Recent::default(),
            late_ever: Durations::default(),
            late_max_ns: 0,
            steps: 0,
            fallbacks: 0,
            silent_ns: 0,
            unusable: Unusable::default(),
            stepped_ns: None,
            at_tolerance_ns: 0,
            at_tolerance_since_ns: None,
            sensing_error: None,
            enforced_by_sched_ext: false,
        }
    }

    /// Another engine enforces what the gates ask for: quotas and backgrounds stay as they stand.
    /// When that is over, both are written at the next step, for the law has gone on meanwhile.
    pub fn set_enforced_by_sched_ext(&mut self, enforced_by_sched_ext: bool) {
        if enforced_by_sched_ext {
            self.quotas.forget_failed_cuts();
        }
        self.sensor.set_ends_turns(!enforced_by_sched_ext);
        if std::mem::replace(&mut self.enforced_by_sched_ext, enforced_by_sched_ext)
            && !enforced_by_sched_ext
        {
            self.quotas.fell_back();
            self.soft_caps.fell_back();
        }
    }

    pub fn is_enforced_by_sched_ext(&self) -> bool {
        self.enforced_by_sched_ext
    }

    /// Says whether it is another one.
    pub fn set_demand(&mut self, demand: Demand) -> bool {
        let is_new = demand != self.demand;
        if is_new {
            self.stop_measuring("what the gates ask for changed");
            let objective = demand.objective.as_ref();
            self.protect.follow(objective, self.sensor.as_mut());
            self.demand = demand;
            self.law.set_terms(self.machine_terms());
        }
        is_new
    }

    /// Some of the machine is to stay idle: at 0 % the idle class is all that main asks of side
    /// work, and no CPU is kept from it.
    pub fn keeps_idle(&self) -> bool {
        self.headroom_ppm() > 0
    }

    /// The same, or an objective may ask for it at any moment.
    pub fn may_keep_idle(&self) -> bool {
        self.keeps_idle() || self.demand.objective.is_some()
    }

    pub fn room_ucpu(&self) -> u64 {
        self.decision.allowance_ucpu
    }

    /// Main's time on each CPU; empty where that cannot be told.
    pub fn main_by_cpu(&self, out: &mut Vec<u64>) {
        self.sensor.main_by_cpu(out);
    }

    pub fn window(&self) -> &Use {
        &self.window
    }

    pub fn report(&mut self, latency_ns: u64) {
        self.protect.report(latency_ns);
    }

    /// What main's run delay asked for on top of the headroom, if it has an objective.
    pub fn protection(&self) -> Option<Protection> {
        self.protect.protection(self.sensor.as_ref())
    }

    /// How long neutral tasks and main's waited to run since the sensor was opened; `None` where it
    /// cannot tell.
    pub fn waits_by_class(&self) -> Option<[WaitHistogram; 2]> {
        self.sensor.waits_by_class()
    }

    /// Turns of side work before work that could run, where the kernel can end them.
    pub fn turns(&self) -> Option<Turns> {
        self.sensor.turns()
    }

    /// Whether the sensor tells how long main waits to run.
    pub fn tells_waits(&self) -> bool {
        self.sensor.tells_waits()
    }

    /// The idle that is kept: what was asked for and what an objective adds.
    pub fn headroom_ppm(&self) -> u32 {
        self.machine_terms().headroom_ppm
    }

    fn machine_terms(&self) -> HeadroomTerms {
        match self.measured_ppm() {
            Some(level_ppm) => self.demand.terms(level_ppm, 0),
            None => self
                .demand
                .terms(self.demand.headroom_ppm, self.protect.extra_ppm()),
        }
    }

    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Which groups are side and main work. Nothing happens when they are what they were: another
    /// gate in the side root is no news to the sensor.
    pub fn set_groups(&mut self, side: Vec<SensedGroup>, main: Vec<SensedGroup>) {
        let groups = (side, main);
        if self.groups == groups {
            return;
        }
        self.stop_measuring("groups of main or side work came or went");
        self.groups = groups;
        if let Err(error) = self.sensor.set_groups(&self.groups.0, &self.groups.1) {
            self.sensing_error = Some(error.to_string());
        }
        // Classes moved under the counters: the window in which they did mixes two meanings.
        self.regrouped = true;
        self.meter.restart();
    }

    /// How much longer main's work takes beside side work on every CPU: what the law may put down
    /// to side work.
    pub fn set_contention(&mut self, contend_ppm: u32) {
        self.law.set_contention(contend_ppm);
        self.pulses.set_contention(contend_ppm);
    }

    pub fn fell_back(&mut self, silent_ns: u64) {
        self.fallbacks += 1;
        self.silent_ns = silent_ns;
        self.stop_measuring("the agent was silent, and the guardian wrote the fallback");
        self.quotas.fell_back();
        self.soft_caps.fell_back();
    }

    pub fn sensing(&self) -> &'static str {
        self.sensor.kind()
    }

    pub fn online_cpus(&self) -> u32 {
        self.sensor.online_cpus()
    }

    pub fn counters(&self) -> Option<&Counters> {
        self.last.as_ref().filter(|last| last.valid)
    }

    /// What side work that begins now would be given while this much is kept idle: by what was
    /// seen before it, or `None` without a history.
    pub fn first_ucpu(&self, headroom_ppm: u32) -> Option<u64> {
        let seen = self.decision;
        let has_history =
            self.steps > 0 && seen.reason != Reason::Warmup && !seen.reason.is_unusable();
        let kept_ucpu = seen.capacity_ucpu * u64::from(headroom_ppm) / 1_000_000;
        let free_ucpu = seen
            .capacity_ucpu
            .saturating_sub(kept_ucpu + seen.main_est_ucpu);
        has_history.then_some(free_ucpu)
    }

    pub fn decision(&self) -> &HeadroomDecision {
        &self.decision
    }

    /// One step that began at `began_ns`, `late_ns` after its time. The sample's own time counts
    /// where there is one.
    pub fn step(&mut self, began_ns: u64, late_ns: u64, apply: &mut dyn Apply) {
        let mut now = Counters::default();
        let sampled = self.sensor.sample(&mut now);
        let now_ns = if now.now_ns == 0 {
            began_ns
        } else {
            now.now_ns
        };
        self.steps += 1;
        self.late.add(now_ns, late_ns);
        self.late_ever.add(late_ns);
        self.late_max_ns = self.late_max_ns.max(late_ns);
        self.at_tolerance_ns = self.at_tolerance_ns(now_ns);
        self.at_tolerance_since_ns = self.at_tolerance_since_ns.map(|_| now_ns);
        if std::mem::take(&mut self.regrouped) && sampled.is_ok() && self.last.is_some() {
            // One window is left out; what was decided last stands for one more.
            self.last = Some(now);
            return;
        }
        self.at_tolerance_since_ns = None;
        let before_ns = self.stepped_ns.replace(began_ns).unwrap_or(began_ns);
        let since_ns = began_ns.saturating_sub(before_ns);
        let is_first = self.last.is_none() && sampled.is_ok();
        let mut sample = match sampled {
            Ok(()) => {
                self.sensing_error = None;
                self.difference(&now)
            }
            Err(error) => {
                self.sensing_error = Some(error.to_string());
                self.last = None;
                self.window = Use::default();
                HeadroomSample::default()
            }
        };
        if !sample.valid || sample.dt_ns == 0 {
            // How long the law goes without a usable one.
            sample.dt_ns = since_ns;
        }
        if self.window.wall_ns > 0 {
            let kept_ppm = self.headroom_ppm();
            self.meter
                .add(self.window, kept_ppm, self.demand.tolerance_ppm);
        }
        self.measure(began_ns, sample.valid, apply);
        self.estimate(&sample);
        // A pause of the agent or of the machine is no fault of the sensor's; lateness tells of it.
        if self.decision.reason.is_unusable() && !is_first && since_ns <= WINDOW_MAX_NS {
            self.unusable.add(now_ns);
        }
        if self.enforced_by_sched_ext {
            return;
        }
        if self.quotas.is_empty() {
            self.quotas.forget_failed_cuts();
            return;
        }
        let decision = self.decision;
        let cpus = self.sensor.online_cpus();
        let keeps_idle = self.keeps_idle();
        self.quotas
            .step(now_ns, &decision, keeps_idle, &self.window, cpus, apply);
        let is_at_floor = decision.allowance_ucpu <= decision.floor_ucpu;
        let is_at_tolerance =
            self.quotas.holds_at_floor() || is_at_floor && !self.quotas.is_free(keeps_idle);
        self.at_tolerance_since_ns = is_at_tolerance.then_some(now_ns);
    }

    /// How long side work was limited to its tolerance.
    pub fn at_tolerance_ns(&self, now_ns: u64) -> u64 {
        let since_ns = self.at_tolerance_since_ns.unwrap_or(now_ns);
        self.at_tolerance_ns + now_ns.saturating_sub(since_ns).min(WINDOW_MAX_NS)
    }

    fn estimate(&mut self, sample: &HeadroomSample) {
        let tolerance_ppm = self.demand.tolerance_ppm;
        // What main waits under a measurement's levels says nothing about the objective.
        if !self.is_measuring() && self.protect.step(sample, &self.waits, tolerance_ppm) {
            self.law.set_terms(self.machine_terms());
        }
        let decision = self.pulses.smooth(sample.dt_ns, self.law.step(sample));
        self.decision = self.at_once(decision);
    }

    /// The stretch since the last reading; an invalid sample when there is none that may be used.
    fn difference(&mut self, now: &Counters) -> HeadroomSample {
        self.window = Use::default();
        self.waits = Waits::default();
        let Some(last) = self.last.replace(*now) else {
            return HeadroomSample::default();
        };
        let window = between(&last, now);
        if now.valid && window.wall_ns <= WINDOW_MAX_NS {
            self.window = window;
            self.waits = now.waits.since(&last.waits);
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
}

fn between(last: &Counters, now: &Counters) -> Use {
    let since = |now_ns: u64, last_ns: u64| now_ns.saturating_sub(last_ns);
    Use {
        wall_ns: since(now.now_ns, last.now_ns),
        capacity_ns: since(now.capacity_ns, last.capacity_ns),
        busy_ns: since(now.busy_ns, last.busy_ns),
        side_ns: since(now.side_ns, last.side_ns),
        main_ns: since(now.main_ns, last.main_ns),
        steal_ns: since(now.steal_ns, last.steal_ns),
        offered_ns: 0,
        behind_side_ns: since(now.behind_side_ns, last.behind_side_ns),
    }
}
