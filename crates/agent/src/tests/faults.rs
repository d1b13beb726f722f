//! Each operation on a kernel file fails once, with each errno that matters, in each call that
//! makes or ends a gate: whatever is refused leaves nothing half done, and the next call works.

use tidegate_api::{ApiResult, ErrorKind, UnsetRequest};
use tidegate_cgroup::Op;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::testkit::{Fault, Rule};
use tidegate_engine::control::Apply;

use super::{
    Bed, KINDS, Kind, PIDS, alerts, begun, gate_names, in_journal, path, root, run, run_as,
    run_limited, set, set_limited, stands, unset, user, write_quota,
};
use crate::After;
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::runtime::measure::has_ended;
use crate::threads::{HOUSEKEEPING, once};

const ERRNOS: [i32; 5] = [
    libc::EIO,
    libc::EPERM,
    libc::ENOENT,
    libc::EBUSY,
    libc::ENOSPC,
];

/// Operations that a call takes when nothing fails.
fn operations(kind: Kind, call: impl Fn(&Agent) -> ApiResult<()>) -> u64 {
    let (bed, agent) = begun(kind);
    let before = bed.fs.count();
    call(&agent).unwrap_or_else(|error| panic!("{error}"));
    bed.fs.count() - before
}

/// Fails the call at each operation with each errno and hands what is left to `check`, with the
/// call's answer.
fn at_each_fault(
    call: impl Fn(&Agent) -> ApiResult<()> + Copy,
    check: impl Fn(&Bed, &Agent, ApiResult<()>, &str),
) {
    for kind in KINDS {
        let count = operations(kind, call);
        assert!(count > 5, "{kind:?}: the call does {count} operations");
        for errno in ERRNOS {
            for nth in 1..=count {
                let (bed, agent) = begun(kind);
                bed.fs.add(Rule::nth(bed.fs.count() + nth, errno));
                let answer = call(&agent);
                let (op, path) = bed.fs.log().pop().unwrap();
                bed.fs.clear();
                let what = format!(
                    "operation {nth} of {count}, errno {errno}, last {op} {}: {answer:?}",
                    path.display()
                );
                check(&bed, &agent, answer, &what);
            }
        }
    }
}

#[test]
fn a_run_that_is_refused_leaves_nothing() {
    let call = |agent: &Agent| run_limited(agent, PIDS[0]).map(drop);
    at_each_fault(call, |bed, agent, answer, what| {
        if answer.is_err() && !gate_names(agent).is_empty() {
            // Placed, listed and limited, but not written down: the command is told, and ends or
            // runs in its gate.
            assert!(
                bed.is_limited("/tg-side") && bed.place(PIDS[0]).contains("/tg-side/job"),
                "{what}"
            );
            return;
        }
        if answer.is_err() {
            assert!(bed.is_home(0), "{what}: {}", bed.place(PIDS[0]));
            assert!(
                !in_journal(agent).iter().any(|group| group.name() == "job"),
                "{what}"
            );
        } else {
            assert!(bed.place(PIDS[0]).contains("/tg-side/job"), "{what}");
            assert!(bed.is_limited("/tg-side"), "{what}");
        }
        // The next one works, and is limited.
        run_limited(agent, PIDS[1]).unwrap_or_else(|error| panic!("{what}: then {error}"));
        assert!(bed.is_limited("/tg-side"), "{what}");
        assert!(bed.place(PIDS[1]).contains("/tg-side/job"), "{what}");
    });
}

#[test]
fn a_process_that_cannot_be_limited_stays_where_it_is() {
    let target = format!("pid:{}", PIDS[0]);
    let call = |agent: &Agent| set_limited(agent, &format!("pid:{}", PIDS[0]));
    at_each_fault(call, |bed, agent, answer, what| {
        if answer.is_err() {
            assert!(bed.is_home(0), "{what}: {}", bed.place(PIDS[0]));
            assert_eq!(gate_names(agent), Vec::<String>::new(), "{what}");
            let ours = |group: &GroupPath| group.as_str().contains("work");
            assert!(!in_journal(agent).iter().any(ours), "{what}");
            set_limited(agent, &target).unwrap_or_else(|error| panic!("{what}: then {error}"));
        }
        assert!(bed.place(PIDS[0]).contains("tg-"), "{what}");
        unset(agent, &target).unwrap_or_else(|error| panic!("{what}: unset: {error}"));
        assert!(bed.is_home(0), "{what}: {}", bed.place(PIDS[0]));
        agent.leave();
        assert!(!bed.exists("/tg-side"), "{what}");
    });
}

#[test]
fn a_group_that_cannot_be_limited_keeps_its_values() {
    let call = |agent: &Agent| set_limited(agent, "cgroup:/other");
    at_each_fault(call, |bed, agent, answer, what| {
        let fresh = Bed::new(bed.kind).values("/other");
        if answer.is_err() {
            assert_eq!(bed.values("/other"), fresh, "{what}");
            assert_eq!(gate_names(agent), Vec::<String>::new(), "{what}");
            assert_eq!(in_journal(agent), [], "{what}");
            set_limited(agent, "cgroup:/other")
                .unwrap_or_else(|error| panic!("{what}: then {error}"));
        }
        assert!(bed.is_limited("/other"), "{what}");
        unset(agent, "cgroup:/other").unwrap_or_else(|error| panic!("{what}: unset: {error}"));
        assert_eq!(bed.values("/other"), fresh, "{what}");
        assert!(in_journal(agent).is_empty(), "{what}");
    });
}

#[test]
fn what_cannot_be_looked_at_has_not_ended() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        run_limited(&agent, PIDS[0]).unwrap();
        set_limited(&agent, &format!("pid:{}", PIDS[1])).unwrap();
        let gates = agent.gates.lock().clone();
        for gate in &gates {
            let before = bed.fs.count();
            assert!(!has_ended(&agent.runtime, gate));
            for nth in 1..=bed.fs.count() - before {
                for errno in [libc::EMFILE, libc::EIO, libc::EACCES] {
                    bed.fs.add(Rule::nth(bed.fs.count() + nth, errno));
                    assert!(!has_ended(&agent.runtime, gate), "{nth}, errno {errno}");
                    bed.fs.clear();
                }
            }
        }
        bed.fake.end_process(PIDS[0]);
        bed.fake.end_process(PIDS[1]);
        assert!(gates.iter().all(|gate| has_ended(&agent.runtime, gate)));
    }
}

#[test]
fn an_agent_does_not_start_where_it_cannot_read_what_is_limited() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        set_limited(&agent, "cgroup:/other").unwrap();
        let limited = bed.values("/other");
        drop(agent);
        bed.fs
            .add(Rule::on(Op::Read, "gates.json", Fault::Errno(libc::EIO)));
        let why = bed.agent().err();
        assert!(
            why.is_some_and(|why| why.contains("gates.json")),
            "{kind:?}"
        );
        assert_eq!(bed.values("/other"), limited, "{kind:?}");
        bed.fs.clear();
        assert_eq!(gate_names(&bed.agent().unwrap()).len(), 1, "{kind:?}");
    }
}

#[test]
fn what_is_not_put_back_is_said() {
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        set_limited(&agent, "cgroup:/other").unwrap();
        let theirs = Bandwidth::limit(7_000, 20_000);
        write_quota(&agent, "/other", theirs);
        let request = UnsetRequest {
            target: "cgroup:/other".to_owned(),
            ..UnsetRequest::default()
        };
        let done = agent.unset(&root(1), &request).unwrap();
        assert!(
            done.message.contains("another program wrote 7000 us"),
            "{}",
            done.message
        );
        assert_eq!(stands(&agent, "/other"), theirs);
        assert_eq!(alerts(&agent).lines().count(), 1);
        set_limited(&agent, "cgroup:/other").unwrap();
        assert_eq!(alerts(&agent), "", "of the gate before");
    }
}

#[test]
fn what_is_left_to_another_writer_is_told_until_its_gate_is_set_again_or_has_ended() {
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        let mut housekeeping = Housekeeping::new(None);
        let mut left_alone = || {
            for _ in 0..2 {
                agent.groups().set_idle(&path("/other"), false).unwrap();
                housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
            }
            alerts(&agent)
        };
        set_limited(&agent, "cgroup:/other").unwrap();
        assert!(left_alone().contains("/other: another program"), "{kind:?}");
        set_limited(&agent, "cgroup:/other").unwrap();
        assert_eq!(alerts(&agent), "", "{kind:?}");
        assert!(left_alone().contains("/other: another program"), "{kind:?}");
        unset(&agent, "cgroup:/other").unwrap();
        assert_eq!(alerts(&agent), "", "{kind:?}");
    }
}

#[test]
fn a_quota_of_the_side_root_that_is_ours_again_is_no_alert() {
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        let mut housekeeping = Housekeeping::new(None);
        run(&agent, PIDS[0], &[("class", "side"), ("headroom", "20%")]).unwrap();
        for quota_us in [70_000, 60_000] {
            write_quota(&agent, "/tg-side", Bandwidth::limit(quota_us, 100_000));
            housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
        }
        assert!(
            alerts(&agent).contains("/tg-side: another program"),
            "{kind:?}"
        );
        set(&agent, "gate:job", &[("headroom", "30%")]).unwrap();
        housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
        assert_eq!(alerts(&agent), "", "{kind:?}");
    }
}

#[test]
fn a_repair_names_no_group_that_it_has_removed() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        set_limited(&agent, &format!("pid:{}", PIDS[0])).unwrap();
        drop(agent);
        let report = bed.repair(After::End).unwrap().join("\n");
        assert!(bed.is_home(0), "{kind:?}");
        assert!(!report.contains("still run"), "{kind:?}: {report}");
    }
}

#[test]
fn what_the_guardian_wrote_is_not_taken_for_an_outside_write() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let restored = [("class", "side"), ("fallback", "restore")];
        set(&agent, "cgroup:/other", &restored).unwrap();
        set(&agent, &format!("pid:{}", PIDS[0]), &restored).unwrap();
        let mut housekeeping = Housekeeping::new(None);
        once(HOUSEKEEPING, &mut housekeeping, &agent);
        // It resumes while the guardian writes: the mark is there, the loop has not seen it.
        agent.runtime.control_loop.lease.mark_fallback(1);
        bed.fall_back().unwrap();
        assert!(bed.is_home(0), "{}", bed.place(PIDS[0]));
        housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
        // The loop has, housekeeping has not.
        assert!(agent.runtime.control_loop.lease.take_fallback());
        agent.runtime.control().fell_back(0);
        housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
        assert!(bed.is_home(0));
        assert_eq!(alerts(&agent), "");
        once(HOUSEKEEPING, &mut housekeeping, &agent);
        assert!(!bed.is_home(0), "moved again");
        assert_eq!(bed.file("/other", "cpu.idle"), "1");
        assert_eq!(alerts(&agent), "");
    }
}

#[test]
fn what_was_written_over_once_does_not_become_ours() {
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        set_limited(&agent, "cgroup:/other").unwrap();
        let theirs = Bandwidth::limit(70_000, 100_000);
        let ours = Bandwidth::limit(9_000, 50_000);
        let other = path("/other");
        write_quota(&agent, "/other", theirs);
        // As the loop answers once: it reads what stands, and writes.
        let noted = agent.runtime.journal().record_write(&other, &theirs, &ours);
        noted.unwrap();
        write_quota(&agent, "/other", ours);
        write_quota(&agent, "/other", theirs);
        unset(&agent, "cgroup:/other").unwrap();
        assert_eq!(stands(&agent, "/other"), theirs);
    }
}

#[test]
fn a_relief_that_was_noted_and_not_written_is_no_outside_write() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let fresh = bed.values("/other");
        set_limited(&agent, "cgroup:/other").unwrap();
        let other = path("/other");
        let mut journal = agent.runtime.journal();
        journal.record_idle_class_change(&other, false).unwrap();
        drop(journal);
        unset(&agent, "cgroup:/other").unwrap();
        assert_eq!(bed.values("/other"), fresh);
        // And one that is refused is noted as what it is.
        set_limited(&agent, "cgroup:/other").unwrap();
        let mut writer = agent.runtime.quota_writer();
        let busy = Fault::Errno(libc::EBUSY);
        bed.fs.add(Rule::on(Op::Write, "other/cpu.idle", busy));
        assert!(writer.set_yielding(&other, false).is_err());
        bed.fs.clear();
        assert_eq!(agent.runtime.journal().relieved(), []);
        unset(&agent, "cgroup:/other").unwrap();
        assert_eq!(bed.values("/other"), fresh);
    }
}

/// An agent that dies while it had taken starved side work out of the idle class: what its guardian
/// then puts back stays so.
#[test]
fn what_falls_back_to_what_it_was_does_not_yield_again() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let fresh = bed.values("/other");
        let restored = [("class", "side"), ("fallback", "restore")];
        set(&agent, "cgroup:/other", &restored).unwrap();
        run_limited(&agent, PIDS[0]).unwrap();
        let mut writer = agent.runtime.quota_writer();
        for group in ["/other", "/tg-side"] {
            writer.set_yielding(&path(group), false).unwrap();
        }
        drop(agent);
        let (_, mut journal) = bed.without_agent();
        journal.fall_back(0);
        assert_eq!(bed.values("/other"), fresh);
        assert_eq!(bed.file("/tg-side", "cpu.idle"), "1");
        // Of no account to what comes later.
        journal.fall_back(1);
        assert_eq!(bed.values("/other"), fresh);
    }
}

/// Starved side work is out of the idle class only while a loop can end that.
#[test]
fn an_agent_that_leaves_puts_side_work_back_into_the_idle_class() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        run_limited(&agent, PIDS[0]).unwrap();
        let mut writer = agent.runtime.quota_writer();
        writer.set_yielding(&path("/tg-side"), false).unwrap();
        assert_eq!(bed.file("/tg-side", "cpu.idle"), "0");
        drop(writer);
        agent.leave();
        assert_eq!(bed.file("/tg-side", "cpu.idle"), "1");
    }
}

#[test]
fn terms_go_to_gates_and_not_to_the_groups_that_hold_them() {
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        run_limited(&agent, PIDS[0]).unwrap();
        for class in ["side", "main", "neutral"] {
            let asked = [("class", class), ("cap_hard", "500‰")];
            let refused = set(&agent, "cgroup:/tg-side", &asked).unwrap_err();
            assert!(refused.to_string().contains("made this group"), "{refused}");
        }
        set(&agent, "cgroup:/tg-side/job", &[("weight", "50")]).unwrap();
        assert_eq!(agent.gates.lock().len(), 1, "that is the gate's own group");
    }
}

#[test]
fn side_targets_do_not_overlap() {
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        agent.groups().create(&path("/other/inner")).unwrap();
        set_limited(&agent, "cgroup:/other").unwrap();
        let refused = set_limited(&agent, "cgroup:/other/inner").unwrap_err();
        assert!(
            refused.to_string().contains("overlaps with gate other"),
            "{refused}"
        );
        unset(&agent, "cgroup:/other").unwrap();
        set_limited(&agent, "cgroup:/other/inner").unwrap();
        let refused = set_limited(&agent, "cgroup:/other").unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Usage);
    }
}

#[test]
fn work_in_a_side_gate_does_not_become_main_by_asking_again() {
    let (_bed, agent) = begun(Kind::Mixed);
    run_limited(&agent, PIDS[0]).unwrap();
    let refused = run(&agent, PIDS[0], &[("class", "main")]).unwrap_err();
    assert!(refused.to_string().contains("escape"), "{refused}");
    assert_eq!(gate_names(&agent), ["job"]);
}

#[test]
fn a_user_does_not_leave_an_administrators_limit_by_becoming_side_work() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let pid = 777;
        bed.add_users_process(pid);
        let agent = bed.agent().unwrap();
        let other = path("/other");
        agent.groups().create(&other).unwrap();
        agent.groups().place(&other, pid).unwrap();
        let set_quota = |to| write_quota(&agent, "/other", to);
        set_quota(Bandwidth::limit(20_000, 100_000));
        if kind == Kind::V2 {
            // It stays below it.
            let reply = run_as(&agent, &user(pid), &[("class", "side")]).unwrap();
            assert!(reply.cgroup.starts_with("/other/"), "{}", reply.cgroup);
            continue;
        }
        let refused = run_as(&agent, &user(pid), &[("class", "side")]).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Denied, "{refused}");
        assert!(bed.place(pid).contains("/other"));
        set_quota(Bandwidth::unlimited());
        run_as(&agent, &user(pid), &[("class", "side")]).unwrap();
    }
}

/// A guardian that goes on writing for a moment after the agent thawed: what the call puts back is
/// put back afterwards, and stays.
#[test]
fn what_is_put_back_waits_for_a_guardian_that_writes() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let fresh = bed.values("/other");
        set_limited(&agent, "cgroup:/other").unwrap();
        let other = path("/other");
        // The loop had taken it out of the idle class.
        let mut writer = agent.runtime.quota_writer();
        writer.set_yielding(&other, false).unwrap();
        let lease = &agent.runtime.control_loop.lease;
        lease.set_falling_back(Some(crate::process::lease::monotonic_ns()));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| unset(&agent, "cgroup:/other"));
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert!(!call.is_finished());
            bed.fall_back().unwrap();
            lease.set_falling_back(None);
            call.join().unwrap().unwrap();
        });
        assert_eq!(bed.values("/other"), fresh);
    }
}
