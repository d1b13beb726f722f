//! A measurement of what side work costs main: who started it, what is switched, what it found. The
//! experiment itself is the control loop's ([`tidegate_engine::measure`]).

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_api::{
    ApiError, ApiResult, EffectView, ErrorKind, MeasureRequest, MeasureView, MeasuredGateView,
    MeasuredLevelView, MeasuringView,
};
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::clock::since_1970;
use tidegate_engine::control::{SwitchedGate, SwitchedQuota};
use tidegate_engine::ledger::{Change, Fallback};
use tidegate_engine::measure::{Data, Experiment, Findings, State, Switched};
use tidegate_engine::sync::lock;
use tidegate_terms::Class;
use tracing::warn;

use crate::errors::{not_recorded, of_group, usage};
use crate::events::EventKind;
use crate::gates::{Attachment, Gate};
use crate::runtime::Runtime;
use crate::runtime::measure_advice::measure_advice;

const LENGTH_MAX_S: u64 = 3_600;
const LEVELS_MAX: usize = 8;
const GATES_MAX: usize = 16;

/// What is known of the measurement that runs, or of the last one.
pub(crate) struct Measurement {
    pub id: u64,
    pub uid: u32,
    started_unix_s: f64,
    pub main: Vec<String>,
    pub side: Vec<String>,
    /// Groups that got a quota for it.
    limited: Vec<GroupPath>,
    /// Its end was reported, and its quotas are gone.
    is_settled: bool,
}

fn refused(kind: ErrorKind, why: &str, remedy: &str) -> ApiError {
    ApiError::new(kind, format!("measure: {why}")).with_remedy(remedy)
}

/// Starts one for the user `uid`.
pub(crate) fn begin(
    runtime: &Runtime,
    gates: &[Gate],
    uid: u32,
    request: &MeasureRequest,
) -> ApiResult<()> {
    check_free(runtime)?;
    let main = mains(gates)?;
    let side = sides(runtime, gates, request)?;
    check_machine(runtime)?;
    let length_ns = request.length_seconds.min(LENGTH_MAX_S + 1) * 1_000_000_000;
    let switched = switched(request, side.len())?;
    if length_ns < switched.length_min_ns() || request.length_seconds > LENGTH_MAX_S {
        let least_s = switched.length_min_ns().div_ceil(1_000_000_000);
        let why = format!(
            "{} s is not from {least_s} s, the least with an interval, to {LENGTH_MAX_S} s",
            request.length_seconds
        );
        return Err(refused(ErrorKind::Usage, &why, "write --for 2m"));
    }
    let now_ns = runtime.kernel.clock.now_ns();
    let seed = since_1970().as_nanos() as u64 ^ now_ns;
    let experiment = Experiment::new(switched, length_ns, seed, now_ns);
    let (switched_gates, limited) = match request.by_gate {
        true => limit_each(runtime, &side)?,
        false => (Vec::new(), Vec::new()),
    };
    let names = |gates: &[&Gate]| -> Vec<String> {
        gates.iter().map(|gate| gate.record.name.clone()).collect()
    };
    let (main, side) = (names(&main), names(&side));
    let what = format!(
        "of {} beside {}, for {:.0} s, by uid {uid}",
        main.join(", "),
        side.join(", "),
        experiment.length_ns() as f64 / 1e9
    );
    // In this order: what is known and does not run is settled.
    runtime
        .control()
        .begin_measuring(experiment, switched_gates);
    let mut last = lock(&runtime.measurement);
    *last = Some(Measurement {
        id: last.as_ref().map_or(1, |last| last.id + 1),
        uid,
        started_unix_s: since_1970().as_secs_f64(),
        main,
        side,
        limited,
        is_settled: false,
    });
    drop(last);
    runtime.events.tell(EventKind::MeasureStarted, None, what);
    Ok(())
}

fn check_free(runtime: &Runtime) -> ApiResult<()> {
    let left_s = {
        let control = runtime.control();
        let running = control.experiment().filter(|_| control.is_measuring());
        running.map(|one| one.length_ns().saturating_sub(one.elapsed_ns()) / 1_000_000_000)
    };
    let Some(left_s) = left_s else {
        settle(runtime);
        return Ok(());
    };
    let uid = lock(&runtime.measurement)
        .as_ref()
        .map_or(0, |last| last.uid);
    let why = format!("a measurement by uid {uid} runs, with {left_s} s left");
    let remedy = "wait, or end it where it was started (Ctrl-C)";
    Err(refused(ErrorKind::Busy, &why, remedy))
}

fn mains(gates: &[Gate]) -> ApiResult<Vec<&Gate>> {
    let all = gates.iter().filter(|gate| gate.class() == Class::Main);
    let (observed, main): (Vec<&Gate>, Vec<&Gate>) =
        all.partition(|gate| matches!(gate.record.attachment, Attachment::Observed { .. }));
    match (main.is_empty(), observed.first()) {
        (false, _) => Ok(main),
        (true, None) => Err(refused(
            ErrorKind::NotFound,
            "there is no main gate, so there is no work to measure",
            "tidegate set unit:NAME class=main",
        )),
        (true, Some(gate)) => {
            let why = format!(
                "gate {} is a process in a group with other work, which is not told apart",
                gate.record.name
            );
            let remedy =
                "give the whole group or unit class=main, or start it with `tidegate run --main`";
            Err(refused(ErrorKind::Unsupported, &why, remedy))
        }
    }
}

fn sides<'g>(
    runtime: &Runtime,
    gates: &'g [Gate],
    request: &MeasureRequest,
) -> ApiResult<Vec<&'g Gate>> {
    let is_limited = |gate: &&Gate| runtime.kernel.limited_group(gate).is_some();
    let side: Vec<&Gate> = match request.gates.is_empty() {
        true => gates.iter().filter(is_limited).collect(),
        false => {
            let named = request.gates.iter();
            // Once, where a gate is named twice.
            let found: ApiResult<BTreeSet<usize>> =
                named.map(|name| runtime.kernel.find(gates, name)).collect();
            found?.into_iter().map(|index| &gates[index]).collect()
        }
    };
    if let Some(other) = side.iter().find(|gate| !is_limited(gate)) {
        let why = format!(
            "gate {} is not side work, and cannot be switched",
            other.record.name
        );
        return Err(refused(ErrorKind::Usage, &why, "name side gates"));
    }
    match side.is_empty() {
        false => Ok(side),
        true => Err(refused(
            ErrorKind::NotFound,
            "there is no side work, so there is nothing that could slow main",
            "start it first: tidegate run --side -- CMD",
        )),
    }
}

fn check_machine(runtime: &Runtime) -> ApiResult<()> {
    if runtime.sched_ext.holds() {
        return Err(refused(
            ErrorKind::Unsupported,
            "the engine sched_ext enforces the limits, and a measurement switches quotas of the engine cgroup",
            "start the agent with --engine cgroup",
        ));
    }
    if lock(&runtime.cpuset).is_in_use() {
        return Err(refused(
            ErrorKind::Unsupported,
            "side work is confined to whole cores, which cannot be switched twice a second",
            "set cpuset = \"off\" for the time of the measurement",
        ));
    }
    if !runtime.control().tells_waits() {
        let note = &runtime.control_loop.sensing_note;
        return Err(refused(
            ErrorKind::Unsupported,
            &format!("main's run delay is known with BPF sensing only ({note})"),
            "see `tidegate doctor`",
        ));
    }
    Ok(())
}

fn switched(request: &MeasureRequest, gates: usize) -> ApiResult<Switched> {
    let mut levels_ppm = Vec::new();
    for ratio in &request.headroom_ratios {
        if !(0.0..1.0).contains(ratio) {
            let why = format!("level {}% is not from 0% to below 100%", ratio * 100.0);
            return Err(refused(ErrorKind::Usage, &why, "write --levels 0,20,40"));
        }
        levels_ppm.push((ratio * 1e6).round() as u32);
    }
    levels_ppm.sort_unstable();
    levels_ppm.dedup();
    match (request.by_gate, levels_ppm.len()) {
        (false, 1..=LEVELS_MAX) => Ok(Switched::Levels(levels_ppm)),
        (false, count) => {
            let why = format!("{count} levels; from 1 to {LEVELS_MAX} can be compared");
            Err(refused(ErrorKind::Usage, &why, "write --levels 0,20,40"))
        }
        (true, _) if gates <= GATES_MAX => Ok(Switched::Gates {
            count: gates,
            headroom_ppm: levels_ppm.first().copied().unwrap_or(0),
        }),
        (true, _) => {
            let why = format!("{gates} gates; at most {GATES_MAX} can be told apart");
            Err(refused(ErrorKind::Usage, &why, "name those to switch"))
        }
    }
}

/// Prepares a quota for each gate. The journal records it first, so that the guardian or the next
/// agent removes it if this agent dies.
fn limit_each(runtime: &Runtime, side: &[&Gate]) -> ApiResult<(Vec<SwitchedGate>, Vec<GroupPath>)> {
    if let Some(gate) = side.iter().find(|gate| gate.own_limit().is_some()) {
        let why = format!("gate {} has a quota or cap of its own", gate.record.name);
        return Err(refused(ErrorKind::Usage, &why, "name the others"));
    }
    let root = runtime.kernel.side_root();
    let mut limited = Vec::new();
    let mut limit = |gate: &Gate| -> ApiResult<SwitchedGate> {
        let group = gate.record.attachment.group().clone();
        if runtime.kernel.limited_group(gate).as_ref() != Some(&root) {
            return Ok(SwitchedGate { group, quota: None });
        }
        let free = runtime.kernel.groups.bandwidth(&group).map_err(of_group)?;
        let name = &gate.record.name;
        let recorded = runtime
            .journal()
            .record_limit(&group, name, free, Fallback::Restore);
        recorded.map_err(not_recorded)?;
        limited.push(group.clone());
        let standing = free;
        let quota = Some(SwitchedQuota { free, standing });
        Ok(SwitchedGate { group, quota })
    };
    let switched: ApiResult<Vec<SwitchedGate>> = side.iter().map(|gate| limit(gate)).collect();
    if switched.is_err() {
        take_off(runtime, &limited);
    }
    Ok((switched?, limited))
}

fn take_off(runtime: &Runtime, limited: &[GroupPath]) {
    for group in limited {
        for line in runtime
            .journal()
            .restore_lines_of(group, Change::is_bandwidth)
        {
            warn!("measure: {line}");
        }
    }
}

/// Until the next look for its end.
pub(crate) fn period(runtime: &Runtime) -> Duration {
    match runtime.control().is_measuring() {
        true => Duration::from_millis(500),
        false => Duration::from_secs(1),
    }
}

/// Removes the quotas of a measurement that is over, and reports its end as an event.
pub(crate) fn settle(runtime: &Runtime) {
    let is_over = !runtime.control().is_measuring();
    let (main, limited) = match &*lock(&runtime.measurement) {
        Some(last) if is_over && !last.is_settled => (last.main.clone(), last.limited.clone()),
        _ => return,
    };
    take_off(runtime, &limited);
    if let Some(last) = &mut *lock(&runtime.measurement) {
        last.is_settled = true;
    }
    let Some(view) = view(runtime) else { return };
    let main = main.join(", ");
    let (kind, what) = match view.ended_because {
        Some(why) => (EventKind::MeasureEnded, format!("of {main}: {why}")),
        None => (
            EventKind::MeasureDone,
            format!("of {main}: {}", view.advice.unwrap_or_default()),
        ),
    };
    runtime.events.tell(kind, None, what);
}

/// Its client has asked after number `id`: it is still there.
pub(crate) fn heard(runtime: &Runtime, id: u64) {
    let is_this = lock(&runtime.measurement)
        .as_ref()
        .is_some_and(|last| last.id == id);
    let now_ns = runtime.kernel.clock.now_ns();
    if let Some(experiment) = runtime.control().experiment_mut().filter(|_| is_this) {
        experiment.heard(now_ns);
    }
}

pub(crate) fn measuring_view(runtime: &Runtime) -> Option<MeasuringView> {
    let (headroom_ppm, is_reference, by_gate, left_ns) = {
        let control = runtime.control();
        let experiment = control.experiment().filter(|_| control.is_measuring())?;
        (
            experiment.headroom_ppm(),
            experiment.is_reference(),
            matches!(experiment.switched(), Switched::Gates { .. }),
            experiment
                .length_ns()
                .saturating_sub(experiment.elapsed_ns()),
        )
    };
    let uid = lock(&runtime.measurement)
        .as_ref()
        .map_or(0, |last| last.uid);
    let left_seconds = left_ns as f64 / 1e9;
    let now = match (is_reference, by_gate) {
        (true, _) => "side work is at its tolerance".to_owned(),
        (false, true) => "side gates are held at the tolerance in turn".to_owned(),
        (false, false) => format!("headroom is {} %", f64::from(headroom_ppm) / 1e4),
    };
    Some(MeasuringView {
        headroom_ratio: f64::from(headroom_ppm) / 1e6,
        left_seconds,
        uid,
        sentence: format!("now {now}; {left_seconds:.0} s left, started by uid {uid}"),
    })
}

/// The measurement that runs, or the last one.
pub(crate) fn view(runtime: &Runtime) -> Option<MeasureView> {
    // Copied under the loop's lock, evaluated without it.
    let (state, switched, elapsed_ns, length_ns, data, demand, tells_turns) = {
        let control = runtime.control();
        let experiment = control.experiment()?;
        (
            experiment.state().clone(),
            experiment.switched().clone(),
            experiment.elapsed_ns(),
            experiment.length_ns(),
            experiment.data(),
            control.demand().clone(),
            control.turns().is_some(),
        )
    };
    let mut view = {
        let last = lock(&runtime.measurement);
        let last = last.as_ref()?;
        MeasureView {
            id: last.id,
            uid: last.uid,
            started_unix_seconds: last.started_unix_s,
            main: last.main.clone(),
            side: last.side.clone(),
            ..MeasureView::default()
        }
    };
    view.elapsed_seconds = elapsed_ns as f64 / 1e9;
    view.length_seconds = length_ns as f64 / 1e9;
    view.tolerance_ratio = f64::from(demand.tolerance_ppm) / 1e6;
    let findings = found(&mut view, &switched, &data, tells_turns);
    match state {
        State::Running => view.state = "running".to_owned(),
        State::Done => view.state = "done".to_owned(),
        State::Ended(why) => {
            view.state = "ended".to_owned();
            view.ended_because = Some(why);
        }
    }
    if view.state != "running" {
        let times_longer = findings.times_longer();
        let asked_ratio = f64::from(demand.headroom_ppm) / 1e6;
        let (advice, command) = measure_advice(&view, times_longer, asked_ratio);
        (view.advice, view.command) = (Some(advice), command);
    }
    Some(view)
}

fn found(view: &mut MeasureView, switched: &Switched, data: &Data, tells_turns: bool) -> Findings {
    let findings = data.findings();
    view.main_cpus = findings.main_cpus;
    view.reference_side_cpus = findings.reference_side_cpus;
    view.late_after_us = findings.late_after_ns / 1e3;
    let of_this_kernel = |effect: EffectView| EffectView {
        behind_side_ratio: effect.behind_side_ratio.filter(|_| tells_turns),
        ..effect
    };
    let effects = findings
        .effects
        .iter()
        .map(|effect| effect.map(of_this_kernel));
    match switched {
        Switched::Levels(levels_ppm) => {
            let levels = levels_ppm.iter().zip(effects);
            let level = |(ppm, effect): (&u32, _)| MeasuredLevelView {
                headroom_ratio: f64::from(*ppm) / 1e6,
                effect,
            };
            view.levels = levels.map(level).collect();
        }
        Switched::Gates { .. } => {
            let gates = view.side.iter().cloned().zip(effects);
            let gate = |(gate, effect)| MeasuredGateView { gate, effect };
            view.gates = gates.map(gate).collect();
        }
    }
    findings
}

pub(crate) fn none_yet() -> ApiError {
    refused(
        ErrorKind::NotFound,
        "none was started since the agent started",
        "tidegate measure",
    )
}

pub(crate) fn end(runtime: &Runtime) -> ApiResult<()> {
    let mut control = runtime.control();
    if !control.is_measuring() {
        return Err(usage("measure: none runs"));
    }
    control.stop_measuring("it was asked to end");
    Ok(())
}
