//! A measurement in an agent on kernel files in memory: its levels, its end, and who may start it.

use std::sync::atomic::Ordering;

use tidegate_api::{ApiResult, ErrorKind, MeasureRequest, MeasureView};
use tidegate_engine::control::Apply;

use super::steps::Knob;
use super::{Bed, CPUS, Kind, PIDS, STEP_NS, kinds, run_side, set};
use crate::agent::Agent;
use crate::api::measure;
use crate::events::EventKind;
use crate::peer::Peer;
use crate::runtime::measurement::settle;

const MAIN: [(&str, &str); 1] = [("class", "main")];

fn bed() -> (Bed, Agent) {
    let bed = Bed::new(Kind::V2);
    bed.main_uses(300_000);
    bed.sensor.tells_waits.store(true, Ordering::Relaxed);
    let agent = bed.agent().unwrap();
    (bed, agent)
}

fn start(agent: &Agent, uid: u32, by_gate: bool) -> ApiResult<MeasureView> {
    start_with(agent, uid, by_gate, &[])
}

fn start_with(agent: &Agent, uid: u32, by_gate: bool, gates: &[&str]) -> ApiResult<MeasureView> {
    let peer = Peer {
        pid: PIDS[1],
        uid,
        ..Peer::default()
    };
    let request = MeasureRequest {
        length_seconds: 12,
        headroom_ratios: vec![0.0, 0.2],
        by_gate,
        gates: gates.iter().map(|name| (*name).to_owned()).collect(),
    };
    measure::start(agent, &peer, &request)
}

/// Steps of 5 ms until it is over; `look` after each.
fn run(bed: &Bed, agent: &Agent, knob: &mut impl Apply, mut look: impl FnMut(&Agent, u64)) {
    let began_ns = agent.runtime.kernel.clock.now_ns();
    for step in 1..4_000 {
        let now_ns = began_ns + step * STEP_NS;
        let mut control = agent.runtime.control();
        if let Some(experiment) = control.experiment_mut() {
            experiment.heard(now_ns);
        }
        control.step(now_ns, 0, knob);
        let is_measuring = control.is_measuring();
        drop(control);
        let side_ppm = agent.runtime.control().decision().allowance_ucpu / CPUS;
        bed.sensor
            .side_ppm
            .store(side_ppm.min(700_000), Ordering::Relaxed);
        look(agent, step);
        if !is_measuring {
            return;
        }
    }
    panic!("it does not end");
}

#[test]
fn each_level_is_in_force_in_its_blocks_and_what_was_asked_is_back_in_the_end() {
    let (bed, agent) = bed();
    run_side(&agent, PIDS[0]).unwrap();
    set(&agent, "cgroup:/other", &MAIN).unwrap();
    let asked = start(&agent, 0, false).unwrap();
    assert_eq!(
        (asked.state.as_str(), asked.length_seconds),
        ("running", 12.0)
    );
    let mut seen = std::collections::BTreeMap::new();
    let mut knob = Knob::default();
    run(&bed, &agent, &mut knob, |agent, step| {
        let control = agent.runtime.control();
        let given = control
            .decided()
            .groups
            .first()
            .and_then(|group| group.quota_us);
        if let Some(experiment) = control.experiment().filter(|_| step % 10 == 0) {
            let given_ucpu = control.decision().allowance_ucpu;
            let of_level: &mut Vec<_> = seen.entry(experiment.headroom_ppm()).or_default();
            of_level.push((given, given_ucpu));
        }
    });
    assert_eq!(
        seen.keys().copied().collect::<Vec<_>>(),
        [0, 200_000, 1_000_000]
    );
    let most = |level: u32| seen[&level].iter().map(|(_, ucpu)| *ucpu).max().unwrap();
    assert_eq!(most(1_000_000), 20_000, "the tolerance of two CPUs");
    // Of two CPUs main has 0.6, and 0.4 are kept.
    assert!(
        (900_000..1_050_000).contains(&most(200_000)),
        "{}",
        most(200_000)
    );
    assert!(
        seen[&0].iter().skip(2).any(|(quota, _)| quota.is_none()),
        "no quota"
    );
    assert!(knob.ucpu() > 2_000_000, "free again: {}", knob.ucpu());
    settle(&agent.runtime);
    let view = measure::read(&agent, None, None).unwrap();
    assert_eq!(view.state, "done");
    for level in &view.levels {
        let effect = level.effect.as_ref().unwrap();
        assert!(effect.rounds >= 7, "{effect:?}");
        assert!(effect.slowdown_ratio.estimate.abs() < 0.001, "{effect:?}");
    }
    assert_eq!(kinds(&agent).last().unwrap(), EventKind::MeasureDone.name());
}

#[test]
fn a_change_of_terms_ends_it_and_the_new_terms_are_in_force() {
    let (bed, agent) = bed();
    run_side(&agent, PIDS[0]).unwrap();
    set(&agent, "cgroup:/other", &MAIN).unwrap();
    start(&agent, 0, false).unwrap();
    let busy = start(&agent, 0, false).unwrap_err();
    assert_eq!(busy.kind, ErrorKind::Busy);
    run(&bed, &agent, &mut Knob::default(), |agent, step| {
        if step == 500 {
            let terms = [("class", "main"), ("headroom", "30%")];
            set(agent, "cgroup:/other", &terms).unwrap();
        }
    });
    assert_eq!(agent.runtime.control().headroom_ppm(), 300_000);
    settle(&agent.runtime);
    let view = measure::read(&agent, None, None).unwrap();
    assert_eq!(
        view.ended_because.unwrap(),
        "what the gates ask for changed"
    );
    assert_eq!(
        kinds(&agent).last().unwrap(),
        EventKind::MeasureEnded.name()
    );
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_remedy() {
    let (bed, agent) = bed();
    let refused = |uid, kind, text: &str| {
        let error = start(&agent, uid, false).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    };
    refused(1_000, ErrorKind::Denied, "without privilege");
    refused(0, ErrorKind::NotFound, "tidegate set unit:NAME class=main");
    set(&agent, "cgroup:/other", &MAIN).unwrap();
    refused(0, ErrorKind::NotFound, "tidegate run --side");
    run_side(&agent, PIDS[0]).unwrap();
    bed.sensor.tells_waits.store(false, Ordering::Relaxed);
    refused(0, ErrorKind::Unsupported, "tidegate doctor");
    let none = measure::read(&agent, None, None).unwrap_err();
    assert_eq!(none.kind, ErrorKind::NotFound);
}

#[test]
fn a_gate_that_is_named_twice_is_switched_once() {
    let (_bed, agent) = bed();
    set(&agent, "cgroup:/other", &MAIN).unwrap();
    run_side(&agent, PIDS[0]).unwrap();
    let names: Vec<String> = agent
        .status()
        .gates
        .into_iter()
        .map(|gate| gate.name)
        .collect();
    let side = names.iter().find(|name| !name.contains("other")).unwrap();
    let view = start_with(&agent, 0, true, &[side, side]).unwrap();
    assert_eq!(view.side, [side.as_str()]);
}
