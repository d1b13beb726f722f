//! What the agent shows: the machine, the gates, and why a gate runs as it does.

mod events;
mod measure;
mod policy;
mod sched_ext;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decision::{Decision, HeldView};

pub use events::{EventView, EventsView, GapView};
pub use measure::{
    EffectView, IntervalView, MeasureView, MeasuredGateView, MeasuredLevelView, MeasuringView,
};
pub use policy::{
    GateChangeView, KernelWriteView, ObservedView, PolicyChangeView, PolicyView, RuleView,
};
pub use sched_ext::{QuotaCounts, SchedExtView};

/// One term of a gate, with where it came from.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TermView {
    /// The term's name.
    pub name: String,
    /// Its value as a user would write it.
    pub value: String,
    /// Where it came from: `default`, a file, `run flag`, `set`.
    pub source: String,
    /// Weaker values that it overrode, weakest first, as `value (source)`.
    pub overrode: Vec<String>,
}

/// A gate's latency hint, as its tasks have it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LatencyView {
    /// What was asked for.
    pub hint: i32,
    /// The slice that it comes to; absent where it is SCHED_BATCH.
    pub slice_us: Option<f64>,
    /// The kernel's default slice.
    pub default_us: Option<f64>,
    /// Tasks that have it.
    pub tasks: u64,
    /// Tasks that were left alone, by reason.
    pub left_alone: Vec<String>,
    /// What it does, and who gets it, in words.
    pub how: String,
    /// The gate's tasks are looked at this often.
    pub look_seconds: u64,
}

/// What a gate's soft cap did.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CapView {
    /// The cap, in parts per thousand of one CPU.
    pub soft_cpus: f64,
    /// For how long it has been in the background; none while it is not.
    pub in_background_seconds: Option<f64>,
    /// Of its time under the cap, the part that it was in the background.
    pub background_ratio: f64,
    /// How often it went there.
    pub turns: u64,
    /// What the bucket holds; debt where negative. None while the gate's use is unknown: then the
    /// cap rests.
    pub level_us: Option<f64>,
    /// CPU that it got in the background, that no other work wanted.
    pub used_background_seconds: f64,
    /// CPU that it got otherwise.
    pub used_foreground_seconds: f64,
}

/// One gate.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GateView {
    /// The gate's name.
    pub name: String,
    /// `run`, `pid:N` or `cgroup:/path`.
    pub target: String,
    /// `main`, `side` or `neutral`.
    pub class: String,
    /// The command line of a `run` gate.
    pub command: Option<String>,
    /// The gate's group, below the mount of the cpu controller.
    pub cgroup: String,
    /// The user who made it.
    pub uid: u32,
    /// The gate inside which it was started, if any.
    pub parent: Option<String>,
    /// The rule of the policy that gives it terms, if any.
    pub rule: Option<String>,
    /// Processes in it now.
    pub processes: u64,
    /// What it used over the last second, or since it was made; none where that is unknown.
    pub usage_cpus: Option<f64>,
    /// CPU that its group (its process, where it has none) has used in all; none where that is
    /// unknown.
    pub used_seconds: Option<f64>,
    /// What the law gives it now, for side gates.
    pub allowance_cpus: Option<f64>,
    /// Periods in which a quota throttled its group (the side root, where its group had none), as
    /// the kernel counts.
    pub nr_throttled: u64,
    /// Time throttled, as the kernel counts.
    pub throttled_seconds: f64,
    /// Its latency hint, if it has one.
    pub latency: Option<LatencyView>,
    /// Its soft cap's bucket, where it has one; none while the sched_ext engine keeps the cap
    /// ([`GateCounts::cap`]).
    pub cap: Option<CapView>,
    /// Periods in which the same group ran, as the kernel counts.
    pub nr_periods: u64,
    /// Periods in which it used saved quota.
    pub nr_bursts: u64,
    /// Saved quota that it used.
    pub burst_us: u64,
    /// The limit that holds it back, and the kernel's counts that say so.
    pub held: HeldView,
    /// Jobs that its jobserver lets it run at once, if it has one.
    pub jobs: Option<u32>,
    /// What its own quota and hard cap come to.
    pub own_limit: Option<LimitView>,
    /// What enforces the terms at this moment.
    pub engine: String,
    /// What the sched_ext engine counts of it, while that is in force.
    pub sched_ext: Option<GateCounts>,
    /// Every term with its source.
    pub terms: Vec<TermView>,
    /// Seconds since the gate was made.
    pub age_seconds: f64,
    /// What cannot be enforced for it here, one sentence each.
    pub notes: Vec<String>,
}

/// One value that was written to a kernel file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WriteView {
    /// Seconds ago.
    pub ago_seconds: f64,
    /// The file.
    pub path: String,
    /// What was written.
    pub value: String,
    /// What stood there before, where known.
    pub was: Option<String>,
    /// Why: `cut`, `raise`, `floor`, `new gate`, `restore`, ...
    pub reason: String,
}

/// The control loop's own health.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LoopView {
    /// The period at present.
    pub period_us: f64,
    /// Steps made so far.
    pub steps: u64,
    /// Samples that were impossible and left out; after 250 ms without a usable one side work is
    /// cut.
    pub unusable_samples: u64,
    /// Of those, how many in the last minute.
    pub unusable_samples_last_minute: u64,
    /// How late a step began, median over the last minute.
    pub late_p50_us: f64,
    /// ... 99th percentile.
    pub late_p99_us: f64,
    /// ... worst since start.
    pub late_max_us: f64,
    /// How long one step took, mean over the last minute or two.
    pub step_cost_us: f64,
    /// CPUs that the agent's process used in that window.
    pub agent_cpus: f64,
    /// The last minute, or the time since the agent started.
    pub agent_window_seconds: f64,
}

/// Work that could run and stood behind side work, on all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BehindSideView {
    /// Of each second, over the last minute.
    pub seconds_per_second: f64,
    /// Since the agent started.
    pub seconds: f64,
    /// How often side work got a CPU before such work, since the agent started.
    pub turns: u64,
    /// How often such a turn was interrupted, since the agent started.
    pub interrupted: u64,
}

/// The whole machine at a glance.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StatusView {
    /// Tidegate's version.
    pub version: String,
    /// The agent's process.
    pub pid: i32,
    /// `on-demand` or `service`.
    pub mode: String,
    /// What enforces the terms at this moment: `cgroup` or `sched_ext`.
    pub engine: String,
    /// The scheduler, where the engine sched_ext was asked for.
    pub sched_ext: Option<SchedExtView>,
    /// `bpf` or `usage`.
    pub sensing: String,
    /// Why not `bpf`, when it is not.
    pub sensing_note: Option<String>,
    /// Counts the policies that were put in force since the agent started.
    pub policy_generation: u64,
    /// The policy files were refused when they were last read: the policy before is in force.
    pub policy_refused: bool,
    /// Seconds since the agent started.
    pub uptime_seconds: f64,
    /// CPUs online.
    pub cpus: u32,
    /// CPUs less what the hypervisor took over the last second.
    pub capacity_cpus: f64,
    /// ... that, of the machine.
    pub steal_ratio: f64,
    /// Headroom in force, of the machine.
    pub headroom_ratio: f64,
    /// Tolerance in force.
    pub tolerance_ratio: f64,
    /// Which gate (or default) asked for the headroom.
    pub headroom_from: String,
    /// How long main waits to run, where a gate has an objective.
    pub objective: Option<ObjectiveView>,
    /// What other work waits behind side work; absent where the kernel cannot tell (BPF sensing,
    /// 6.10).
    pub behind_side: Option<BehindSideView>,
    /// Everything but side and idle, over the last second.
    pub main_cpus: f64,
    /// Side work, over the last second.
    pub side_cpus: f64,
    /// Idle, over the last second.
    pub idle_cpus: f64,
    /// Where side work runs, in words.
    pub cpuset: String,
    /// Holders of locks that main waited for; none where this is turned off.
    pub lock_boost: Option<LockBoostView>,
    /// The last control step's decision on side work.
    pub decision: Decision,
    /// Idle kept, of the machine, over the last second.
    pub idle_kept_ratio: f64,
    /// Side's CPU over what main left (`(1 - headroom) C - mean main`), over the last minute.
    pub reclaim_ratio: Option<f64>,
    /// Seconds that side work has been at the tolerance since start.
    pub at_tolerance_seconds: f64,
    /// The loop.
    pub control: LoopView,
    /// Writes to kernel files since start.
    pub writes_total: u64,
    /// ... of the moving quota, a second, over the last 10 s.
    pub quota_writes_per_second: f64,
    /// The guardian's process, if alive.
    pub guardian_pid: Option<i32>,
    /// The lease.
    pub lease_seconds: f64,
    /// The measurement that runs (`tidegate measure`), if any.
    pub measuring: Option<MeasuringView>,
    /// Where it is recorded; none while it is not.
    pub recording: Option<RecordingView>,
    /// Sums since start.
    pub totals: TotalsView,
    /// Every gate.
    pub gates: Vec<GateView>,
    /// What needs a person, one sentence each.
    pub alerts: Vec<String>,
}

/// Holders of locks that main waited for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LockBoostView {
    /// Waits of others for a lock that side work holds.
    pub waits: u64,
    /// Boosts of a holder for that.
    pub times: u64,
    /// For how long in all, at most.
    pub seconds: f64,
    /// Why one could not, the last time.
    pub refused: Option<String>,
    /// CPU time of one look, a mean.
    pub look_us: f64,
}

/// An objective on main's latency, and what it led to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ObjectiveView {
    /// The objective and its gate.
    pub from: String,
    /// What is held against it: `run_delay`, or `reported` (`tidegate report`).
    pub figure: String,
    /// Headroom found on top of what was asked, of the machine.
    pub extra_ratio: f64,
    /// `fine`, `missed` (side work uses too little to be the cause), `raised`, `release`, `bound`
    /// or `rest`.
    pub state: String,
    /// Whether the figure is known: run delay is measured (BPF sensing), or there were reports in
    /// the last minute or two.
    pub measured: bool,
    /// Times that main began to run in the last minute or two; reports.
    pub runs: u64,
    /// The part of those that waited for longer than the objective says; reports above it.
    pub late_ratio: f64,
    /// Their mean wait; the mean report.
    pub mean_wait_us: f64,
    /// The objective's percentile of the wait since the agent started, to a factor of two; the last
    /// report.
    pub percentile_us: f64,
    /// Raises since the objective was named.
    pub raises: u32,
    /// Of those at the bound, how many did not help and were given back.
    pub vain: u32,
    /// Objectives of other gates: one is in force, that of the shortest time, of a wait or of a
    /// reported latency.
    pub unused: Vec<String>,
}

/// Who uses how much CPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct UserView {
    /// A gate's name, or `everything else`.
    pub who: String,
    /// Its class.
    pub class: String,
    /// CPUs over the last second; none where they are unknown.
    pub usage_cpus: Option<f64>,
}

/// Why a gate runs at its present rate, on one screen.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ExplainView {
    /// The gate.
    pub gate: GateView,
    /// One sentence: at what rate it runs, and what binds it.
    pub summary: String,
    /// The arithmetic of the allowance, line by line.
    pub arithmetic: Vec<String>,
    /// The same as numbers.
    pub sum: Vec<SumLineView>,
    /// Who uses the machine.
    pub users: Vec<UserView>,
    /// What was written for this gate, newest first.
    pub writes: Vec<WriteView>,
    /// The machine.
    pub status: StatusView,
}

/// The limit that a gate's own terms ask for, as its group has it (for side work: where the
/// allowance leaves all of it).
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LimitView {
    /// `quota` or `cap_hard`: whichever is the tighter.
    pub by: String,
    /// The rate.
    pub cpus: f64,
    /// CPU time in each period.
    pub quota_us: u64,
    /// The period.
    pub period_us: u64,
    /// Unused quota that may be carried over.
    pub burst_us: u64,
}

/// Where the machine is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingView {
    /// The directory, which `tidegate-lab replay` and `tidegate top --recording` read.
    pub directory: String,
    /// Bytes in it.
    pub bytes: u64,
    /// It never has more.
    pub bytes_max: u64,
    /// Seconds and events that could not be written.
    pub lost: u64,
}

/// The machine over a stretch of the last hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryView {
    /// The stretch's beginning, seconds since 1970.
    pub from_unix_seconds: u64,
    /// Its end, which belongs to it.
    pub to_unix_seconds: u64,
    /// What one point covers.
    pub step_seconds: u64,
    /// Oldest first; a step in which the agent sampled nothing has none.
    pub points: Vec<HistoryPointView>,
}

/// Means over one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPointView {
    /// When the step began, seconds since 1970.
    pub time_unix_seconds: u64,
    /// Samples in it, one a second.
    pub samples: u64,
    /// CPUs less what the hypervisor took.
    pub capacity_cpus: f64,
    /// Everything but side and idle.
    pub main_cpus: f64,
    /// Side work.
    pub side_cpus: f64,
    /// Idle.
    pub idle_cpus: f64,
    /// What the law gave side work.
    pub allowance_cpus: f64,
    /// Headroom in force, of the machine.
    pub headroom_ratio: f64,
    /// Idle kept, of the machine.
    pub idle_kept_ratio: f64,
    /// Steps of the control loop that began more than a period late: their number, not a mean.
    pub late_steps: u64,
}

/// One line of the sum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SumLineView {
    /// What is counted, after the sign with which it counts: `- headroom`, `= side work may use`.
    /// Spaces begin what does not count: a part of the line before, or a limit beside the sum.
    pub what: String,
    /// How much.
    pub cpus: f64,
    /// Where it comes from.
    pub why: String,
}

impl SumLineView {
    pub fn new(what: impl Into<String>, cpus: f64, why: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            cpus,
            why: why.into(),
        }
    }
}

impl fmt::Display for SumLineView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, cpus, why } = self;
        write!(f, "{what:<26}{cpus:>8.2} CPUs  {why}")
    }
}

/// Sums since the agent started. The control loop adds the CPU of each of its windows, except for
/// one in which the side groups changed or the sample could not be used.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TotalsView {
    /// What main and the headroom left for side work, while there was some.
    pub reclaimable_cpu_seconds: f64,
    /// What side work used.
    pub side_cpu_seconds: f64,
    /// Everything but side and idle.
    pub main_cpu_seconds: f64,
    /// What the agent itself used.
    pub agent_cpu_seconds: f64,
    /// Writes to kernel files by why they were made.
    pub writes: BTreeMap<String, u64>,
    /// Events by kind.
    pub events: BTreeMap<String, u64>,
    /// How late steps of the control loop began.
    pub step_lateness: HistogramView,
    /// How long tasks waited to run, by class: `main`, and `neutral` for what no gate names. Empty
    /// where the sensor cannot tell.
    pub run_delay: BTreeMap<String, HistogramView>,
}

/// How many values lay at or below each bound.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HistogramView {
    /// Their sum.
    pub sum_seconds: f64,
    /// How many there are.
    pub count: u64,
    /// Upper bounds in seconds, with how many lie at or below each.
    pub buckets: Vec<(f64, u64)>,
}

/// A gate's tasks under the agent's schedulers so far, since the gate was made, without those of
/// gates inside it. All but its cap is nothing where there are more gates than the scheduler has
/// accounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateCounts {
    /// CPU time.
    pub used_seconds: f64,
    /// Of it, out of its soft cap.
    pub background_seconds: f64,
    /// Times that a task was woken, or forked, and ran.
    pub wakeups: u64,
    /// From wakeup to run, the mean.
    pub delay_mean_us: f64,
    /// Half of the wakeups waited no longer, by powers of two.
    pub delay_p50_us: f64,
    /// 99 of 100 waited no longer.
    pub delay_p99_us: f64,
    /// The longest.
    pub delay_longest_us: f64,
    /// Its cap, if it has one.
    pub cap: Option<CapCounts>,
}

/// What the scheduler did for a gate's cap, since it was loaded or the cap was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapCounts {
    /// The hard cap, in parts per thousand of one CPU.
    pub hard_cpus: Option<f64>,
    /// The soft cap.
    pub soft_cpus: Option<f64>,
    /// What shares one bucket: `group`, `process`, `task`.
    pub scope: String,
    /// Buckets: one, or one for each.
    pub buckets: u32,
    /// What the one bucket holds of the hard cap; debt where negative. None where there is one for
    /// each.
    pub level_us: Option<f64>,
    /// The same of the soft cap.
    pub soft_level_us: Option<f64>,
    /// CPU time under the cap.
    pub used_seconds: f64,
    /// Of it, above the soft cap, that no other work wanted.
    pub background_seconds: f64,
    /// The same over the last look, in CPUs.
    pub background_cpus: f64,
    /// Times that a task was held back.
    pub throttles: u64,
    /// For how long, all tasks added up.
    pub throttled_seconds: f64,
    /// Runs beyond the cap that only the kernel's watchdog made necessary.
    pub min_runs: u64,
}
