//! Latency hints: on commands, processes and groups, given, kept, changed and taken back, with
//! other writers on the tasks.

use std::path::Path;

use tidegate_api::{ErrorKind, LatencyView};
use tidegate_cgroup::sched::{BATCH, IDLE, NORMAL};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess, Fault, Rule};
use tidegate_cgroup::{KernelFs, Op};

use super::{
    Bed, KINDS, Kind, PIDS, begun, cpu_mount, in_journal, policy, run, run_as, set, set_as, unset,
    unset_terms, user,
};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;

const FIRST: Option<u64> = Some(100_000);
const PLAIN: Option<u64> = Some(1_400_000);
/// 1.25^5 times the fake's default slice of 1.4 ms.
const PLUS_5: Option<u64> = Some(4_272_460);

fn slice(fake: &FakeFs, tid: i32) -> Option<u64> {
    fake.task(tid).unwrap().0
}

fn latency(agent: &Agent) -> LatencyView {
    let mut gates = agent.status().gates;
    gates.remove(0).latency.unwrap()
}

/// The second housekeeping poll: what came in between is there.
fn poll(agent: &Agent) {
    Housekeeping::new(None).poll_gates(&agent.gates, &agent.runtime);
}

fn pid_target() -> String {
    format!("pid:{}", PIDS[0])
}

fn enter(bed: &Bed, group: &str, pid: i32) {
    let file = format!("{}{group}/cgroup.procs", cpu_mount(bed.kind));
    bed.fake.write(Path::new(&file), &pid.to_string()).unwrap();
}

#[test]
fn where_a_cpu_has_one_queue_side_work_has_short_turns_unless_it_asks_for_others() {
    for kind in KINDS {
        let mut bed = Bed::new(kind);
        bed.has_short_turns = true;
        let agent = bed.agent().unwrap();
        let fake = &bed.fake;
        let task = format!("/proc/{}", PIDS[1]);
        let denied = Fault::Errno(libc::EPERM);
        bed.fs.add(Rule::on(Op::SchedSet, &task, denied));
        run(&agent, PIDS[0], &[("class", "side")]).unwrap();
        // Side work that cannot have them is not refused.
        set(&agent, &format!("pid:{}", PIDS[1]), &[("class", "side")]).unwrap();
        assert_eq!((slice(fake, PIDS[0]), slice(fake, PIDS[1])), (FIRST, None));
        let how = latency(&agent).how;
        assert!(how.contains("default of side work"), "{how}");
        let target = "gate:job";
        set(&agent, target, &[("latency", "5")]).unwrap();
        assert_eq!(slice(fake, PIDS[0]), PLUS_5);
        set(&agent, target, &[("latency", "0")]).unwrap();
        assert_eq!(slice(fake, PIDS[0]), None, "the kernel's own, on request");
        unset_terms(&agent, "job", &["latency"]).unwrap();
        assert_eq!(slice(fake, PIDS[0]), FIRST);
    }
}

#[test]
fn a_thread_has_a_hint_of_its_own_and_no_class() {
    let (bed, agent) = begun(Kind::Mixed);
    let fake = &bed.fake;
    fake.add_thread(PIDS[0], 610);
    set(&agent, "tid:610", &[("latency", "-20")]).unwrap();
    poll(&agent);
    assert_eq!((slice(fake, PIDS[0]), slice(fake, 610)), (None, FIRST));
    assert!(agent.explain("tid:610").is_ok());
    let inherited = [("latency", "-20"), ("latency_inherit", "no")];
    let refused = set(&agent, "tid:610", &inherited).unwrap_err();
    assert!(refused.to_string().contains("no other terms"), "{refused}");
    let refused = set(&agent, "tid:610", &[("class", "side")]).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Usage);
    let refused = set(&agent, "pid:610", &[("latency", "5")]).unwrap_err();
    let own = format!("a thread of process {}", PIDS[0]);
    assert!(refused.detail.contains(&own), "{}", refused.detail);
    unset(&agent, "tid:610").unwrap();
    assert_eq!(slice(fake, 610), None);
    assert!(in_journal(&agent).is_empty());
}

#[test]
fn what_a_hint_of_a_process_costs_grows_with_its_threads_and_not_faster() {
    let operations = |threads: i32| {
        let (bed, agent) = begun(Kind::Mixed);
        for tid in 10_000..10_000 + threads {
            bed.fake.add_thread(PIDS[0], tid);
        }
        let before = bed.fs.count();
        set(&agent, &pid_target(), &[("latency", "5")]).unwrap();
        bed.fs.count() - before
    };
    let [none, few, many] = [0, 500, 1_000].map(operations);
    assert!(
        many - none <= 2 * (few - none) + 16,
        "{none}, {few}, {many}"
    );
}

#[test]
fn what_a_task_had_before_is_put_back_and_what_it_got_since_is_left() {
    let (bed, agent) = begun(Kind::V2);
    let fake = &bed.fake;
    for pid in PIDS {
        enter(&bed, "/other", pid);
    }
    fake.set_task(PIDS[0], NORMAL, 0, Some(9_000_000));
    // The very slice that the hint will come to.
    fake.set_task(PIDS[1], NORMAL, 0, FIRST);
    set(&agent, "cgroup:/other", &[("latency", "-20")]).unwrap();
    for pid in PIDS {
        assert_eq!(slice(fake, pid), FIRST);
    }
    fake.set_task(PIDS[2], NORMAL, 0, Some(5_000_000));
    poll(&agent);
    let view = latency(&agent);
    assert_eq!(view.tasks, 2);
    assert!(view.left_alone[0].contains("1 with a slice that another program"));
    unset(&agent, "cgroup:/other").unwrap();
    assert_eq!(slice(fake, PIDS[0]), Some(9_000_000));
    assert_eq!(slice(fake, PIDS[1]), FIRST);
    assert_eq!(slice(fake, PIDS[2]), Some(5_000_000));
}

#[test]
fn a_hint_that_another_program_removes_twice_stays_removed() {
    let (bed, agent) = begun(Kind::Mixed);
    let fake = &bed.fake;
    set(&agent, &pid_target(), &[("latency", "-20")]).unwrap();
    for given in [true, true, false] {
        fake.set_task(PIDS[0], NORMAL, 0, None);
        poll(&agent);
        assert_eq!(slice(fake, PIDS[0]).is_some(), given);
    }
}

#[test]
fn real_time_and_idle_tasks_are_left_alone_and_said() {
    let (bed, agent) = begun(Kind::V2);
    let fake = &bed.fake;
    fake.add_process(FakeProcess {
        threads: vec![(701, true)],
        ..FakeProcess::new(700)
    });
    fake.add_thread(700, 702);
    fake.set_task(702, IDLE, 0, None);
    set(&agent, "pid:700", &[("latency", "-20")]).unwrap();
    assert_eq!((slice(fake, 700), slice(fake, 701)), (FIRST, None));
    let view = latency(&agent);
    assert_eq!(view.tasks, 1);
    assert_eq!(view.left_alone.len(), 2, "{:?}", view.left_alone);
}

#[test]
fn children_lose_what_they_were_not_to_inherit() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let fake = &bed.fake;
        let pairs = [
            ("latency", "-20"),
            ("latency_inherit", "no"),
            ("class", "side"),
        ];
        run(&agent, PIDS[0], &pairs).unwrap();
        fake.fork(PIDS[0], FakeProcess::new(620));
        fake.add_thread(PIDS[0], 621);
        fake.set_task(621, NORMAL, 0, None);
        poll(&agent);
        assert_eq!(slice(fake, 620), None, "its child");
        assert_eq!(slice(fake, 621), FIRST, "its thread");
        assert_eq!(slice(fake, PIDS[0]), FIRST);
    }
}

#[test]
fn the_next_agent_goes_on_and_what_has_ended_is_undone() {
    let bed = Bed::new(Kind::Mixed);
    let first = bed.agent().unwrap();
    let fake = &bed.fake;
    enter(&bed, "/other", PIDS[1]);
    set(&first, &pid_target(), &[("latency", "-20")]).unwrap();
    set(&first, "cgroup:/other", &[("latency", "5")]).unwrap();
    drop(first);
    let second = bed.agent().unwrap();
    assert_eq!(
        (slice(fake, PIDS[0]), slice(fake, PIDS[1])),
        (FIRST, PLUS_5)
    );
    let gates = second.status().gates;
    assert!(gates.iter().all(|gate| gate.latency.is_some()));
    // Its record is lost, its entry is not: what is no longer asked for is put back.
    drop(second);
    let _ = bed.fs.unlink(&bed.run_dir().gates());
    let third = bed.agent().unwrap();
    assert_eq!((slice(fake, PIDS[0]), slice(fake, PIDS[1])), (None, None));
    assert!(in_journal(&third).is_empty());
}

#[test]
fn a_later_process_with_the_number_is_not_touched() {
    let bed = Bed::new(Kind::Mixed);
    let first = bed.agent().unwrap();
    let fake = &bed.fake;
    set(&first, &pid_target(), &[("latency", "-20")]).unwrap();
    drop(first);
    fake.end_process(PIDS[0]);
    fake.add_process(FakeProcess {
        start_ticks: 999_999,
        ..FakeProcess::new(PIDS[0])
    });
    fake.set_task(PIDS[0], NORMAL, 0, FIRST);
    let second = bed.agent().unwrap();
    assert_eq!(slice(fake, PIDS[0]), FIRST, "its own");
    assert!(in_journal(&second).is_empty());
}

#[test]
fn the_nearer_of_two_hints_holds() {
    let (bed, agent) = begun(Kind::Mixed);
    let fake = &bed.fake;
    for pid in [PIDS[0], PIDS[1]] {
        enter(&bed, "/other", pid);
    }
    set(&agent, &pid_target(), &[("latency", "-20")]).unwrap();
    set(&agent, "cgroup:/other", &[("latency", "5")]).unwrap();
    poll(&agent);
    assert_eq!(
        (slice(fake, PIDS[0]), slice(fake, PIDS[1])),
        (FIRST, PLUS_5)
    );
    unset(&agent, &pid_target()).unwrap();
    poll(&agent);
    assert_eq!(slice(fake, PIDS[0]), PLUS_5, "the group's, by the sweep");
    unset(&agent, "cgroup:/other").unwrap();
    assert_eq!((slice(fake, PIDS[0]), slice(fake, PIDS[1])), (None, None));
}

#[test]
fn a_hint_of_0_keeps_the_hint_of_a_group_above_away() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let fake = &bed.fake;
        policy::group(&bed, "other/plain");
        enter(&bed, "/other", PIDS[0]);
        enter(&bed, "/other/plain", PIDS[1]);
        set(&agent, "cgroup:/other", &[("latency", "-20")]).unwrap();
        assert_eq!(slice(fake, PIDS[1]), FIRST);
        set(&agent, "cgroup:/other/plain", &[("latency", "0")]).unwrap();
        for _ in 0..3 {
            poll(&agent);
            assert_eq!((slice(fake, PIDS[0]), slice(fake, PIDS[1])), (FIRST, PLAIN));
        }
        // One that comes with the other hint.
        enter(&bed, "/other", PIDS[2]);
        poll(&agent);
        assert_eq!(slice(fake, PIDS[2]), FIRST);
        enter(&bed, "/other/plain", PIDS[2]);
        poll(&agent);
        assert_eq!(slice(fake, PIDS[2]), PLAIN);
        unset(&agent, "cgroup:/other/plain").unwrap();
        poll(&agent);
        assert_eq!(slice(fake, PIDS[1]), FIRST, "the sweep");
        unset(&agent, "cgroup:/other").unwrap();
        for pid in PIDS {
            assert_eq!(slice(fake, pid), None, "{pid}");
        }
        assert!(in_journal(&agent).is_empty());
    }
}

#[test]
fn before_6_12_positive_hints_are_batch_and_negative_ones_refused() {
    let (bed, agent) = begun(Kind::Mixed);
    let fake = &bed.fake;
    fake.without_slices();
    let refused = set(&agent, &pid_target(), &[("latency", "-5")]).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unsupported);
    assert!(refused.to_string().contains("6.12"), "{refused}");
    assert!(in_journal(&agent).is_empty());
    fake.set_task(PIDS[0], NORMAL, 3, None);
    set(&agent, &pid_target(), &[("latency", "5")]).unwrap();
    assert_eq!(fake.task(PIDS[0]), Some((None, BATCH, 3)));
    unset(&agent, &pid_target()).unwrap();
    assert_eq!(fake.task(PIDS[0]), Some((None, NORMAL, 3)));
}

#[test]
fn a_refusal_of_the_kernel_leaves_nothing() {
    let (bed, agent) = begun(Kind::Mixed);
    let denied = Fault::Errno(libc::EPERM);
    bed.fs.add(Rule::on(
        Op::SchedSet,
        &format!("/proc/{}", PIDS[0]),
        denied,
    ));
    let refused = set(&agent, &pid_target(), &[("latency", "-20")]).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Denied);
    assert!(agent.status().gates.is_empty());
    assert!(in_journal(&agent).is_empty());
}

#[test]
fn a_user_may_hint_only_downwards_and_only_what_is_theirs() {
    let (bed, agent) = begun(Kind::Mixed);
    let fake = &bed.fake;
    bed.add_users_process(640);
    let ask = |target: &str, hint: &str| {
        set_as(&agent, &user(640), target, &[("latency", hint)]).map(|gate| gate.class)
    };
    assert_eq!(ask("pid:640", "-1").unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(ask(&pid_target(), "5").unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(ask("pid:640", "5").unwrap(), "neutral");
    assert_eq!(slice(fake, 640), PLUS_5);
    assert_eq!(ask("pid:640", "0").unwrap(), "neutral");
    assert_eq!(slice(fake, 640), None);
    let refused = run_as(&agent, &user(640), &[("latency", "5")]).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Denied);
}
