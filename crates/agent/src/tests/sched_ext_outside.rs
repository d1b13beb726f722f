//! The engine sched_ext at its edges: who writes over its copies, who has another scheduler, what
//! is refused leaves nothing, who goes on without an agent keeps its caps, counts go on from one
//! load to the next, and what is told of caps is what the engine in force does.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_api::{GateView, Limit, SchedExtView};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_engine::sync::lock;
use tidegate_sched_ext::{CapScope, CapStat, CapTerms, LimitStat};

use super::sched_ext::{bed, eject, id};
use super::{KINDS, Kind, PIDS, at, path, run, run_limited, set, stands, unset};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::runtime::scheduler_view::sched_ext_view;
use crate::runtime::supervise;

/// What is shown of the scheduler.
pub(super) fn view_at(agent: &Agent, now_ns: u64) -> SchedExtView {
    sched_ext_view(&agent.runtime.sched_ext, now_ns).unwrap()
}

pub(super) fn supervise(agent: &Agent, now_ns: u64) {
    let poll = || supervise::supervise(&agent.gates, &agent.runtime, &agent.life, now_ns);
    poll();
    while lock(&agent.runtime.sched_ext.inner).preparing.is_some() {
        std::thread::yield_now();
        poll();
    }
}

const S: u64 = 1_000_000_000;

/// A gate that was not measured for so long is measured for a call.
const STALE: Duration = Duration::from_millis(1_600);

#[test]
fn a_copy_that_is_written_over_stands_again_once_and_is_then_theirs_for_the_scheduler_too() {
    for kind in KINDS {
        let (bed, kernel) = bed(kind);
        let agent = bed.agent().unwrap();
        run_limited(&agent, PIDS[0]).unwrap();
        supervise(&agent, S);
        let root = agent.runtime.kernel.side_root();
        let copy = agent.groups().bandwidth(&root).unwrap();
        let theirs = Bandwidth::limit(77_000, 100_000);
        let mut housekeeping = Housekeeping::new(None);
        let write = || agent.groups().set_bandwidth(&root, None, theirs).unwrap();
        write();
        housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
        let stands = agent.groups().bandwidth(&root).unwrap();
        assert_eq!(
            stands.rate_ucpu(),
            copy.rate_ucpu(),
            "written again once, though the loop writes nothing beside the scheduler"
        );
        let root_id = id(&agent, "/tg-side");
        assert!(lock(&kernel.told).mirrors.contains(&root_id));
        write();
        for _ in 0..3 {
            housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
            assert_eq!(agent.groups().bandwidth(&root).unwrap(), theirs);
        }
        assert!(
            !lock(&kernel.told).mirrors.contains(&root_id),
            "the scheduler keeps every quota"
        );
    }
}

#[test]
fn a_group_that_was_refused_its_terms_has_its_quota_back_and_enforced() {
    let (bed, kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    supervise(&agent, S);
    let other = path("/other");
    let fresh = bed.values("/other");
    let other_id = id(&agent, "/other");
    for pid in PIDS {
        agent.groups().place(&other, pid).unwrap();
    }
    let terms = [("class", "side"), ("tolerance", "0.001%")];
    let refused = set(&agent, "cgroup:/other", &terms).unwrap_err();
    assert!(refused.to_string().contains("x 67 ="), "{refused}");
    assert_eq!(bed.values("/other"), fresh);
    assert!(!lock(&kernel.told).mirrors.contains(&other_id));

    // Whatever else left a mark there.
    agent.runtime.sched_ext.mark(other_id, true);
    assert!(lock(&kernel.told).mirrors.contains(&other_id));
    run_limited(&agent, PIDS[0]).unwrap();
    let left = lock(&kernel.told).mirrors.contains(&other_id);
    assert!(
        !left,
        "no gate's: the next word to the scheduler takes it away"
    );
}

#[test]
fn anothers_scheduler_is_waited_for_and_is_no_end_of_ours() {
    let (bed, kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    lock(&kernel.told).other = Some("rusty_1.0");
    for turn in 0..100 {
        let now_ns = turn * 31 * S;
        supervise(&agent, now_ns);
        let view = view_at(&agent, now_ns);
        let off = view.off.unwrap();
        assert!(off.contains("another scheduler, rusty_1.0"), "{off}");
        assert_eq!((view.on, view.ends), (false, 0));
    }
    lock(&kernel.told).other = None;
    supervise(&agent, 101 * 31 * S);
    assert!(agent.runtime.sched_ext.holds() && kernel.in_force.load(Ordering::Relaxed));
}

#[test]
fn work_that_outlives_the_agent_is_divided_into_groups_that_keep_its_caps() {
    let (bed, _kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    supervise(&agent, S);
    let each = [("cap_hard", "200‰"), ("cap_scope", "task")];
    let group = run(&agent, PIDS[0], &each).unwrap();
    assert_eq!(at(&agent, PIDS[0]), group, "the scheduler needs none");
    agent.leave();
    let own = at(&agent, PIDS[0]);
    assert_ne!(own, group);
    let limit = stands(&agent, &own).rate_ucpu();
    assert_eq!(limit, Some(200_000), "its quota holds it from now on");
}

#[test]
fn totals_go_on_over_an_end_and_a_load_until_the_gate_goes() {
    let (bed, kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    let group = run(&agent, PIDS[0], &[("quota", "20ms")]).unwrap();
    let other = || set(&agent, "cgroup:/other", &[("class", "side")]).unwrap();
    other();
    let counted = LimitStat {
        cgroup_id: id(&agent, &group),
        nr_periods: 9,
        nr_throttled: 7,
        throttled_us: 5,
        ..LimitStat::default()
    };
    let wakeups = |gates: &[GateView], group: &str| {
        let gate = gates.iter().find(|gate| gate.cgroup == group).unwrap();
        gate.sched_ext.as_ref().map(|sched_ext| sched_ext.wakeups)
    };
    let shown = || {
        // What was measured a moment ago is shown as it was then.
        agent
            .gates
            .lock()
            .iter_mut()
            .for_each(|gate| gate.held.at_ns = 0);
        let gates = agent.status().gates;
        let gate = gates.iter().find(|gate| gate.cgroup == group).unwrap();
        (gate.nr_throttled, wakeups(&gates, &group))
    };
    supervise(&agent, S);
    lock(&kernel.told).limits = vec![counted];
    assert_eq!(shown(), (7, Some(10)));
    eject(&kernel);
    assert_eq!(
        shown(),
        (7, None),
        "it has ended, and that is not known yet"
    );
    supervise(&agent, 2 * S);
    assert_eq!(shown(), (7, None), "no scheduler");
    supervise(&agent, 4 * S);
    assert_eq!(shown(), (7, Some(20)), "a new one, which begins at nothing");
    lock(&kernel.told).limits = vec![counted];
    agent.runtime.kernel.clock.sleep(Duration::from_millis(60));
    assert_eq!(shown(), (14, Some(20)));
    let of_other = || wakeups(&agent.status().gates, "/other");
    assert_eq!(of_other(), Some(20));
    unset(&agent, "cgroup:/other").unwrap();
    other();
    assert_eq!(of_other(), Some(10), "a gate that is set again");
    eject(&kernel);
    supervise(&agent, 5 * S);
    assert!(!agent.runtime.sched_ext.is_loaded());
    unset(&agent, "cgroup:/other").unwrap();
    other();
    supervise(&agent, 8 * S);
    assert_eq!(shown().1, Some(30), "the third");
    let again = "a gate that was set again while there was no scheduler";
    assert_eq!(of_other(), Some(10), "{again}");
}

#[test]
fn a_gate_that_is_not_counted_on_its_own_has_its_cap_counted() {
    let (bed, kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    supervise(&agent, S);
    let group = run(&agent, PIDS[0], &[("cap_soft", "200‰")]).unwrap();
    lock(&kernel.told).without_account = true;
    assert_eq!(
        agent.status().gates[0].sched_ext,
        None,
        "nothing is counted of it"
    );
    let terms = CapTerms {
        soft_ppt: Some(200),
        ..CapTerms::default()
    };
    lock(&kernel.told).caps = counted(&agent, &group, terms, 3);
    agent.runtime.kernel.clock.sleep(Duration::from_millis(60));
    let counts = agent.status().gates[0]
        .sched_ext
        .clone()
        .expect("its cap's");
    assert_eq!((counts.wakeups, counts.used_seconds), (0, 0.0));
    assert_eq!(counts.cap.map(|cap| cap.throttles), Some(3));
}

/// What the scheduler has counted of a cap with those terms.
fn counted(agent: &Agent, group: &str, terms: CapTerms, throttles: u64) -> Vec<CapStat> {
    vec![CapStat {
        cgroup_id: id(agent, group),
        terms,
        buckets: 3,
        soft_level_us: -2_500,
        used_us: 4_000_000,
        background_us: 1_500_000,
        throttles,
        throttled_us: 700_000,
        ..CapStat::default()
    }]
}

#[test]
fn a_soft_cap_is_told_as_the_engine_in_force_has_it() {
    let (bed, kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    supervise(&agent, S);
    let group = run(&agent, PIDS[0], &[("cap_soft", "200‰")]).unwrap();
    let terms = CapTerms {
        soft_ppt: Some(200),
        ..CapTerms::default()
    };
    lock(&kernel.told).caps = counted(&agent, &group, terms, 0);
    agent.explain("gate:job").unwrap();
    agent.runtime.kernel.clock.sleep(STALE);
    lock(&kernel.told).caps[0].background_us += 1_000_000;
    let page = agent.explain("gate:job").unwrap();
    let loops = page.gate.cap;
    assert!(loops.is_none(), "the loop's bucket keeps nothing back");
    let cap = page.gate.sched_ext.unwrap().cap.unwrap();
    assert_eq!(cap.soft_cpus, Some(0.2));
    assert_eq!(cap.soft_level_us, Some(-2_500.0));
    assert_eq!((cap.used_seconds, cap.background_seconds), (4.0, 2.5));
    assert_eq!(cap.background_cpus, 1.0 / STALE.as_secs_f64());
    assert_eq!(page.gate.held.limit, Limit::SoftCap, "{}", page.summary);
    let says = "above its soft cap of 0.2cpu";
    assert!(page.summary.contains(says), "{}", page.summary);

    kernel.in_force.store(false, Ordering::Relaxed);
    let gate = agent.explain("gate:job").unwrap().gate;
    assert!(
        gate.sched_ext.is_none() && gate.cap.is_some(),
        "the loop's again"
    );
}

#[test]
fn what_a_hard_cap_held_back_between_two_polls_binds() {
    let (bed, kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    supervise(&agent, S);
    let each = [("cap_hard", "100‰"), ("cap_scope", "task")];
    let group = run(&agent, PIDS[0], &each).unwrap();
    let terms = CapTerms {
        hard_ppt: Some(100),
        scope: CapScope::Task,
        ..CapTerms::default()
    };
    lock(&kernel.told).caps = counted(&agent, &group, terms, 5);
    let gate = agent.explain("gate:job").unwrap().gate;
    let cap = gate.sched_ext.unwrap().cap.unwrap();
    assert_eq!((cap.throttles, cap.throttled_seconds), (5, 0.7));
    assert_eq!(cap.level_us, None, "there are three");
    agent.runtime.kernel.clock.sleep(STALE);
    lock(&kernel.told).caps = counted(&agent, &group, terms, 9);
    let page = agent.explain("gate:job").unwrap();
    assert_eq!(page.gate.held.limit, Limit::Cap, "{}", page.summary);
    assert_eq!(page.gate.held.own_throttled_periods, 4);
}
