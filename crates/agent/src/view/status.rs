//! What the agent shows of the machine and itself. Why a gate runs at its present rate is in
//! `explain`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidegate_api::{
    BehindSideView, HistogramView, LoopView, ObjectiveView, StatusView, TotalsView, WriteView,
};
use tidegate_engine::clock::{ClockId, clock_ns};
use tidegate_engine::control::{Control, Figure, Protection, Write};
use tidegate_engine::sense::WaitHistogram;
use tidegate_engine::sync::lock;
use tidegate_law::delay::State;

use super::figures::{ratio, seconds};
use super::gates::{Detail, gate_views};
use crate::gates::{Gate, Gates, RateLimit, unused_objectives};
use crate::process::Life;
use crate::process::liveness::is_alive;
use crate::runtime::Runtime;
use crate::runtime::measure::measure_for_show;
use crate::runtime::measurement::measuring_view;
use crate::runtime::scheduler_view::{engine, sched_ext_alerts, sched_ext_view};

/// Bounds of the histogram of lateness: the loop's period is 5 to 100 ms, and the lease runs out
/// after 2 s.
const LATENESS_US: [u64; 8] = [100, 500, 1_000, 5_000, 20_000, 100_000, 500_000, 2_000_000];

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

pub(crate) fn write_view(write: &Write, now_ns: u64) -> WriteView {
    WriteView {
        ago_seconds: now_ns.saturating_sub(write.at_ns) as f64 / 1e9,
        path: write.path.clone(),
        value: write.value.clone(),
        was: write.was.clone(),
        reason: write.reason.clone(),
    }
}

pub(crate) fn status(
    registry: &Gates,
    runtime: &Runtime,
    life: &Life,
    detail: Detail,
) -> StatusView {
    let kernel = &runtime.kernel;
    let now_ns = kernel.clock.now_ns();
    // The loop waits for this lock: what is wanted of its state is copied, files are read
    // afterwards.
    let mut view = StatusView {
        engine: engine(&runtime.sched_ext).to_owned(),
        sched_ext: sched_ext_view(&runtime.sched_ext, now_ns),
        ..StatusView::default()
    };
    {
        let control = runtime.control();
        show_control(&mut view, &control, now_ns);
        view.control.period_us = us(control.period_ns(runtime.control_loop.period_ns));
    }
    view.decision = runtime.decision();
    let mut gates = registry.lock();
    for gate in gates.iter_mut().take(detail.measured()) {
        measure_for_show(runtime, gate, &view.decision, now_ns);
    }
    let limited = gates.iter().any(Gate::is_limited);
    if runtime.sched_ext.holds() {
        view.alerts
            .extend(sched_ext_alerts(&view.decision, view.tolerance_ratio));
    }
    if !limited {
        view.reclaim_ratio = None;
    }
    view.gates = gate_views(runtime, &gates, &view.decision, detail, now_ns);
    if let Some(objective) = &mut view.objective {
        objective.unused = unused_objectives(&gates, &objective.from);
    }
    drop(gates);
    view.measuring = measuring_view(runtime);
    view.lock_boost = lock(&runtime.lock_boost).view();
    view.cpuset = lock(&runtime.cpuset).sentence();
    (view.policy_generation, view.policy_refused) = registry.policy();
    show_agent(&mut view, runtime, life, now_ns);
    view
}

fn show_agent(view: &mut StatusView, runtime: &Runtime, life: &Life, now_ns: u64) {
    view.version = env!("CARGO_PKG_VERSION").to_owned();
    view.pid = std::process::id() as i32;
    view.mode = life.mode.as_str().to_owned();
    view.sensing_note = (view.sensing != "bpf").then(|| runtime.control_loop.sensing_note.clone());
    view.uptime_seconds = now_ns.saturating_sub(life.started_ns) as f64 / 1e9;
    let (used_ns, window_ns) = lock(&life.own_cpu).used_and_window_ns(now_ns);
    view.control.agent_cpus = ratio(used_ns as f64, window_ns as f64);
    view.control.agent_window_seconds = seconds(window_ns);
    view.guardian_pid =
        Some(runtime.control_loop.lease.guardian_pid()).filter(|pid| is_alive(*pid));
    view.lease_seconds = runtime.control_loop.lease.age_and_lease_ns(now_ns).1 as f64 / 1e9;
    view.totals.agent_cpu_seconds = seconds(clock_ns(ClockId::ProcessCPUTime));
    let counts = runtime.events.counts();
    view.totals.events = counts
        .map(|(kind, count)| (kind.to_owned(), count))
        .collect();
    view.recording = runtime.recorder.view();
    view.alerts.extend(runtime.all_alerts());
}

fn show_control(view: &mut StatusView, control: &Control, now_ns: u64) {
    let second = control.meter.second();
    let minute = control.meter.minute();
    let capacity = second.cpus(second.capacity_ns);
    let demand = control.demand();
    let late = control.late.all();
    view.sensing = control.sensing().to_owned();
    view.cpus = control.online_cpus();
    view.capacity_cpus = capacity;
    view.steal_ratio = ratio(
        second.cpus(second.steal_ns),
        f64::from(control.online_cpus()),
    );
    view.headroom_ratio = f64::from(control.headroom_ppm()) / 1e6;
    view.objective = control.protection().as_ref().map(objective_view);
    view.tolerance_ratio = f64::from(demand.tolerance_ppm) / 1e6;
    view.headroom_from = demand.headroom_from.clone();
    view.main_cpus = second.cpus(second.busy_ns.saturating_sub(second.side_ns));
    view.side_cpus = second.cpus(second.side_ns);
    view.idle_cpus = second.cpus(second.idle_ns());
    view.idle_kept_ratio = ratio(second.cpus(second.idle_ns()), capacity);
    view.reclaim_ratio =
        (minute.offered_ns > 0).then(|| ratio(minute.side_ns as f64, minute.offered_ns as f64));
    view.behind_side = control.turns().map(|turns| BehindSideView {
        seconds_per_second: ratio(minute.behind_side_ns as f64, minute.wall_ns as f64),
        seconds: seconds(turns.ns),
        turns: turns.begun,
        interrupted: turns.ended,
    });
    view.at_tolerance_seconds = control.at_tolerance_ns(now_ns) as f64 / 1e9;
    view.control = LoopView {
        steps: control.steps,
        unusable_samples: control.unusable.total(),
        unusable_samples_last_minute: control.unusable.last_minute(now_ns) as u64,
        late_p50_us: us(late.percentile_ns(500)),
        late_p99_us: us(late.percentile_ns(990)),
        late_max_us: us(control.late_max_ns),
        step_cost_us: us(control.cost.all().mean_ns()),
        ..LoopView::default()
    };
    view.totals = totals(control);
    view.writes_total = control.quotas.log.total();
    view.quota_writes_per_second = control.quotas.log.quotas_per_second(now_ns);
    view.alerts
        .extend(control.unusable.alert(now_ns, control.sensing()));
    view.alerts.extend(control.sensing_error.clone());
    view.alerts.extend(control.quotas.write_errors().cloned());
    view.alerts
        .extend(control.soft_caps.write_errors().cloned());
}

fn totals(control: &Control) -> TotalsView {
    let total = control.meter.totals();
    let long = |ns: u128| ns as f64 / 1e9;
    let late = &control.late_ever;
    let bucket = |us: &u64| (seconds(us * 1_000), late.at_most(us * 1_000));
    TotalsView {
        reclaimable_cpu_seconds: long(total.offered_ns),
        side_cpu_seconds: long(total.side_ns),
        main_cpu_seconds: long(total.main_ns),
        writes: control.quotas.log.by_reason().clone(),
        step_lateness: HistogramView {
            sum_seconds: seconds(late.sum_ns()),
            count: late.total(),
            buckets: LATENESS_US.iter().map(bucket).collect(),
        },
        run_delay: run_delay(control),
        ..TotalsView::default()
    }
}

fn run_delay(control: &Control) -> BTreeMap<String, HistogramView> {
    let by_class = control.waits_by_class().into_iter().flatten();
    let view = |waits: WaitHistogram| HistogramView {
        sum_seconds: seconds(waits.wait_ns),
        count: waits.buckets.iter().sum(),
        buckets: waits
            .below()
            .map(|(end_ns, count)| (seconds(end_ns), count))
            .collect(),
    };
    let classes = ["neutral", "main"].map(str::to_owned).into_iter();
    classes.zip(by_class.map(view)).collect()
}

fn objective_view(found: &Protection) -> ObjectiveView {
    let waits = &found.recent;
    let runs = waits.runs.max(1) as f64;
    ObjectiveView {
        from: found.objective.from.clone(),
        figure: match found.objective.figure {
            Figure::RunDelay { .. } => "run_delay",
            Figure::Reported => "reported",
        }
        .to_owned(),
        extra_ratio: f64::from(found.extra_ppm) / 1e6,
        state: match found.is_missed() {
            // Side work uses too little to be the cause.
            Some(true) if found.state == State::Fine => "missed",
            _ => found.state.as_str(),
        }
        .to_owned(),
        measured: found.measured,
        runs: waits.runs,
        late_ratio: waits.late as f64 / runs,
        mean_wait_us: us(waits.wait_ns) / runs,
        percentile_us: us(found.percentile_ns),
        raises: found.raises,
        vain: found.vain,
        unused: Vec::new(),
    }
}

const SNAPSHOT_NS: u64 = 1_000_000_000;

/// What readers without privilege share: one status for all of them, and how often each may ask.
#[derive(Default)]
pub struct SharedStatus {
    rate: Mutex<RateLimit>,
    /// By `Detail`, when it was made, and the status.
    snapshots: [Mutex<Snapshot>; 3],
}

type Snapshot = Option<(u64, Arc<StatusView>)>;

impl SharedStatus {
    pub(crate) fn admit(&self, user: u32, now_ns: u64) -> bool {
        lock(&self.rate).admit(user, now_ns)
    }

    /// A status that is no older than a second; `make` makes one.
    pub(crate) fn snapshot(
        &self,
        detail: Detail,
        now_ns: u64,
        make: impl FnOnce() -> StatusView,
    ) -> Arc<StatusView> {
        let mut kept = lock(&self.snapshots[detail as usize]);
        match &*kept {
            Some((made_ns, view)) if now_ns.saturating_sub(*made_ns) < SNAPSHOT_NS => {
                Arc::clone(view)
            }
            _ => {
                let view = Arc::new(make());
                *kept = Some((now_ns, Arc::clone(&view)));
                view
            }
        }
    }
}
