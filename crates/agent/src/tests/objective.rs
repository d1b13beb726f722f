//! An objective on a latency that is reported from outside: what the reports lead to, and who may
//! make them.

use tidegate_api::{ApiResult, Done, ErrorKind, ObjectiveView, ReportRequest};

use super::steps::{Knob, steps};
use super::{Bed, Kind, PIDS, run_side, set};
use crate::agent::Agent;
use crate::lifecycle::loop_watch::LoopWatch;
use crate::peer::Peer;

const SECOND: u32 = 200;

/// Main at 30 % of two CPUs on a sensor that does not tell waits, side work that takes all that it
/// is given.
fn bed() -> (Bed, Agent, Knob) {
    let bed = Bed::new(Kind::V2);
    bed.main_uses(300_000);
    let agent = bed.agent().unwrap();
    run_side(&agent, PIDS[0]).unwrap();
    let terms = [("class", "main"), ("objective", "reported<5ms")];
    set(&agent, "cgroup:/other", &terms).unwrap();
    (bed, agent, Knob::default())
}

fn report(agent: &Agent, uid: u32, target: &str, latency: &str) -> ApiResult<Done> {
    let peer = Peer {
        pid: PIDS[1],
        uid,
        ..Peer::default()
    };
    let request = ReportRequest {
        target: target.to_owned(),
        latency: latency.to_owned(),
    };
    crate::api::report::report(agent, &peer, &request)
}

fn objective(agent: &Agent) -> ObjectiveView {
    agent.status().objective.unwrap()
}

/// A report of that latency every two seconds.
fn reports(bed: &Bed, agent: &Agent, knob: &mut Knob, latency: &str, count: u32) {
    for _ in 0..count {
        report(agent, 0, "other", latency).unwrap();
        steps(bed, agent, knob, 2 * SECOND);
    }
}

#[test]
fn headroom_rises_while_reports_are_above_it_and_falls_when_they_are_within() {
    let (bed, agent, mut knob) = bed();
    steps(&bed, &agent, &mut knob, 2 * SECOND);
    assert_eq!(objective(&agent).extra_ratio, 0.2, "the default");
    assert!(!objective(&agent).measured);
    reports(&bed, &agent, &mut knob, "9ms", 6);
    let raised = objective(&agent);
    assert!((0.3..=0.6).contains(&raised.extra_ratio), "{raised:?}");
    assert_eq!(
        (raised.runs, raised.late_ratio, raised.percentile_us),
        (6, 1.0, 9_000.0)
    );
    let given = knob.ucpu();
    assert!(
        given < 900_000,
        "{given} of two CPUs, of which main has 0.6"
    );
    reports(&bed, &agent, &mut knob, "1ms", 25);
    assert_eq!(
        objective(&agent).extra_ratio,
        raised.extra_ratio,
        "for a minute"
    );
    reports(&bed, &agent, &mut knob, "1ms", 60);
    assert_eq!(objective(&agent).extra_ratio, 0.0, "main is well without");
}

#[test]
fn where_reports_end_the_default_is_back_after_a_minute_and_a_half() {
    let (bed, agent, mut knob) = bed();
    reports(&bed, &agent, &mut knob, "9ms", 6);
    steps(&bed, &agent, &mut knob, 150 * SECOND);
    let silent = objective(&agent);
    assert_eq!((silent.extra_ratio, silent.measured), (0.2, false));
}

#[test]
fn a_latency_beyond_all_measure_is_just_late() {
    let (bed, agent, mut knob) = bed();
    reports(&bed, &agent, &mut knob, "5000000h", 6);
    assert!(objective(&agent).extra_ratio >= 0.3);
}

#[test]
fn only_its_owner_and_admins_report_and_only_to_such_an_objective() {
    let (_bed, agent, _) = bed();
    let refused = report(&agent, 1000, "other", "9ms").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Denied);
    let refused = report(&agent, 0, "other", "9").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Usage);
    assert!(refused.to_string().contains("\"9\""), "{refused}");
    set(&agent, "cgroup:/other", &[("objective", "p99<1ms")]).unwrap();
    let refused = report(&agent, 0, "other", "9ms").unwrap_err();
    assert!(refused.to_string().contains("reported<TIME"), "{refused}");
}

#[test]
fn a_stricter_objective_goes_before_it_and_the_answer_says_so() {
    let (_bed, agent, _) = bed();
    run_side(&agent, PIDS[1]).unwrap();
    let terms = [("class", "main"), ("objective", "p99<1ms")];
    set(&agent, &format!("pid:{}", PIDS[2]), &terms).unwrap();
    let said = report(&agent, 0, "other", "9ms").unwrap().message;
    assert!(said.contains("not used, p99<1ms of gate"), "{said}");
    assert_eq!(objective(&agent).unused, ["reported<5ms of gate other"]);
}

#[test]
fn an_objective_that_is_missed_for_five_seconds_is_an_event_and_so_is_its_end() {
    let (bed, agent, mut knob) = bed();
    let mut watch = LoopWatch::default();
    let mut told = |agent: &Agent| {
        watch.poll(&agent.runtime);
        let events = agent.runtime.events.after(0).events.into_iter();
        let events = events.filter(|event| event.kind.starts_with("objective."));
        events.map(|event| (event.kind, event.message)).next_back()
    };
    for _ in 0..4 {
        reports(&bed, &agent, &mut knob, "9ms", 1);
        assert_eq!(told(&agent), None);
    }
    // Three reports are enough to judge by, from the third on; it takes five polls.
    for _ in 0..3 {
        reports(&bed, &agent, &mut knob, "9ms", 1);
        told(&agent);
    }
    let (kind, message) = told(&agent).unwrap();
    assert_eq!(kind, "objective.missed");
    assert!(
        message.contains("reported<5ms") && message.contains("100.0 %"),
        "{message}"
    );
    for _ in 0..120 {
        reports(&bed, &agent, &mut knob, "1ms", 1);
        told(&agent);
    }
    assert_eq!(told(&agent).unwrap().0, "objective.met");
}
