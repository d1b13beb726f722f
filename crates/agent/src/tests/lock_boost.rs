//! Main waits for a lock of side work's: the holder is boosted, within its budget, in the journal
//! first, and whichever process dies.

use std::time::Duration;

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::sched::{BATCH, DEADLINE, NORMAL};
use tidegate_engine::clock::Clock;
use tidegate_engine::locks::boost::Boost;
use tidegate_engine::locks::budget::DEPTH_NS;
use tidegate_engine::sync::lock;

use super::sim_clock::in_time;
use super::{Bed, KINDS, PIDS, begun, run, run_limited};
use crate::After;
use crate::agent::Agent;
use crate::lifecycle::repair as fallback;
use crate::runtime::lock_boost::LockBoost;

/// Main's process of the bed's, which is in no gate.
const WAITER: i32 = PIDS[2];

const TURN_NS: u64 = 7_000_000;

/// `holder` holds a flock that another process of its gate took, and `waiter` waits for it.
pub(super) fn locked(bed: &Bed, holder: i32, waiter: i32) {
    let line = "FLOCK  ADVISORY  WRITE";
    bed.fake.set_file(
        "/proc/locks",
        &format!("1: {line} 77 00:1b:7 0 EOF\n1: -> {line} {waiter} 00:1b:7 0 EOF\n"),
    );
    bed.fake.set_file(
        &format!("/proc/{holder}/fdinfo/9"),
        &format!("pos:\t0\nlock:\t1: {line} 77 00:1b:7 0 EOF\n"),
    );
}

fn times(agent: &Agent) -> u64 {
    lock(&agent.runtime.lock_boost).view().unwrap().times
}

fn in_journal(agent: &Agent) -> bool {
    agent
        .runtime
        .journal()
        .entries()
        .any(|entry| entry.change.is_boost())
}

#[test]
fn a_holder_is_boosted_within_its_budget_and_is_as_before() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        run_limited(&agent, PIDS[0]).unwrap();
        bed.fake.set_task(PIDS[0], BATCH, 7, Some(300_000));
        let before = bed.fake.task(PIDS[0]);
        locked(&bed, PIDS[0], WAITER);
        let mut lock_boost = LockBoost::new(&agent.runtime.kernel, &agent.runtime.control_loop);
        for _ in 0..3 {
            lock_boost.poll(&agent.gates, &agent.runtime, &agent.life, None);
        }
        assert!(times(&agent) >= 1);
        assert_eq!(bed.fake.task(PIDS[0]), before);
        assert!(!in_journal(&agent));
        let view = lock(&agent.runtime.lock_boost).view().unwrap();
        let most_ns = DEPTH_NS + DEPTH_NS / 2;
        assert!(view.seconds * 1e9 <= most_ns as f64, "{view:?}");
        assert_eq!(view.waits, 3);
        let name = agent.gates.lock()[0].record.name.clone();
        let told = agent.explain(&name).unwrap();
        let note = |note: &String| note.contains("locks that main waited for");
        assert!(told.gate.notes.iter().any(note), "{:?}", told.gate.notes);
        let wrote = |write: &tidegate_api::WriteView| write.reason == "main waits for its flock";
        assert!(told.writes.iter().any(wrote), "{:?}", told.writes);
    }
}

#[test]
fn a_holder_that_keeps_the_lock_rests_longer_and_longer() {
    let (bed, clock) = in_time(Bed::new(KINDS[2]));
    let agent = bed.agent().unwrap();
    run_limited(&agent, PIDS[0]).unwrap();
    bed.fake.set_task(PIDS[0], BATCH, 7, Some(300_000));
    locked(&bed, PIDS[0], WAITER);
    let mut lock_boost = LockBoost::new(&agent.runtime.kernel, &agent.runtime.control_loop);
    let mut turns_after = |seconds: u64| {
        let before = times(&agent);
        for _ in 0..seconds * 10 {
            clock.sleep(Duration::from_millis(100));
            lock_boost.poll(&agent.gates, &agent.runtime, &agent.life, None);
        }
        times(&agent) - before
    };
    assert!((10..=12).contains(&turns_after(3)));
    assert!(turns_after(60) <= 6);
    assert!(turns_after(600) <= 11);
    drop(bed);
}

#[test]
fn no_boost_for_side_work_without_a_lock_or_against_a_cap() {
    let (bed, agent) = begun(KINDS[2]);
    run_limited(&agent, PIDS[0]).unwrap();
    run_limited(&agent, PIDS[1]).unwrap();
    let mut lock_boost = LockBoost::new(&agent.runtime.kernel, &agent.runtime.control_loop);
    lock_boost.poll(&agent.gates, &agent.runtime, &agent.life, None);
    locked(&bed, PIDS[0], PIDS[1]);
    lock_boost.poll(&agent.gates, &agent.runtime, &agent.life, None);
    locked(&bed, PIDS[0], 4_711);
    lock_boost.poll(&agent.gates, &agent.runtime, &agent.life, None);
    assert_eq!((times(&agent), in_journal(&agent)), (0, false));

    let (bed, agent) = begun(KINDS[2]);
    run(&agent, PIDS[0], &[("class", "side"), ("cap_hard", "100‰")]).unwrap();
    locked(&bed, PIDS[0], WAITER);
    LockBoost::new(&agent.runtime.kernel, &agent.runtime.control_loop).poll(
        &agent.gates,
        &agent.runtime,
        &agent.life,
        None,
    );
    let view = lock(&agent.runtime.lock_boost).view().unwrap();
    assert_eq!((view.times, view.waits), (0, 1));
    assert!(view.refused.unwrap().contains("a limit of its own"));
}

/// A holder in the midst of its turns, whose agent is not there any more.
fn orphaned(bed: &Bed) {
    let agent = bed.agent().unwrap();
    run_limited(&agent, PIDS[0]).unwrap();
    let group = agent.gates.lock()[0].record.attachment.group().clone();
    let boost = Boost {
        turn_ns: TURN_NS,
        ..Boost::plan(&*agent.runtime.kernel.fs, &[PIDS[0]])
    };
    let mut journal = agent.runtime.journal();
    let id = journal.record_boost(&group, "sh", boost).unwrap();
    assert!(journal.start_boost(id).unwrap());
    let now = bed.fake.sched(PIDS[0]).unwrap();
    assert_eq!((now.policy, now.slice_ns), (DEADLINE, TURN_NS));
}

#[test]
fn a_dead_agents_boosts_are_taken_back_by_the_next_process() {
    for kind in KINDS {
        for who in [
            "guardian",
            "repair",
            "next agent",
            "next agent after a guardian",
        ] {
            let bed = Bed::new(kind);
            orphaned(&bed);
            if who == "guardian" || who == "next agent after a guardian" {
                let (_, mut journal) = bed.without_agent();
                journal.fall_back(0);
            }
            if who == "repair" {
                let (groups, mut journal) = bed.without_agent();
                fallback::repair_with(&groups, &mut journal, &bed.run_dir(), After::End).unwrap();
                assert!(!journal.entries().any(|entry| entry.change.is_boost()));
            }
            if who.starts_with("next agent") {
                let agent = bed.agent().unwrap();
                assert!(!in_journal(&agent), "{who}");
            }
            let task = bed.fake.task(PIDS[0]);
            assert_eq!(task, Some((None, NORMAL, 0)), "{who}");
        }
    }
}

#[test]
fn an_agent_that_leaves_takes_turns_back() {
    let (bed, agent) = begun(KINDS[0]);
    run_limited(&agent, PIDS[0]).unwrap();
    let group = agent.gates.lock()[0].record.attachment.group().clone();
    let boost = Boost {
        turn_ns: TURN_NS,
        ..Boost::plan(&*agent.runtime.kernel.fs, &[PIDS[0]])
    };
    let id = agent
        .runtime
        .journal()
        .record_boost(&group, "sh", boost)
        .unwrap();
    agent.runtime.journal().start_boost(id).unwrap();
    agent.leave();
    assert_eq!(bed.fake.task(PIDS[0]), Some((None, NORMAL, 0)));
    assert!(
        !agent.runtime.journal().start_boost(id).unwrap(),
        "and none follows"
    );
}
