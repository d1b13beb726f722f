//! Caps that count for each process or task alone, on v1 and v2.

use tidegate_cgroup::Op;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::subgroups::SUBGROUPS_MAX;
use tidegate_cgroup::testkit::{FakeProcess, Fault, Rule};
use tidegate_engine::control::Usage;

use super::{Bed, KINDS, Kind, PIDS, at, begun, in_journal, path, run, set, stands, unset};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::runtime::mechanisms::subgroups::poll;
use crate::threads::{HOUSEKEEPING, once};

struct Unused;

impl Usage for Unused {
    fn usage_ns(&mut self, _: &GroupPath) -> Option<u64> {
        Some(0)
    }
}

fn quota(agent: &Agent, group: &str) -> Option<u64> {
    stands(agent, group).rate_ucpu()
}

fn no_subgroups(bed: &Bed, group: &str) -> bool {
    [PIDS[0], PIDS[1], 9_001, 9_002].iter().all(|id| {
        ["p", "t"]
            .iter()
            .all(|kind| !bed.exists(&format!("{group}/tg-{kind}{id}")))
    })
}

const EACH: [(&str, &str); 2] = [("cap_hard", "200‰"), ("cap_scope", "task")];
const EACH_PROCESS: [(&str, &str); 2] = [("cap_hard", "200‰"), ("cap_scope", "process")];

#[test]
fn each_task_has_its_own_quota_and_forks_share_until_they_are_found() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let group = run(&agent, PIDS[0], &EACH).unwrap();
        let first = at(&agent, PIDS[0]);
        assert_eq!(first, format!("{group}/tg-t{}", PIDS[0]));
        assert_eq!(quota(&agent, &first), Some(200_000));
        assert_eq!(quota(&agent, &group), None, "not all of them together");
        bed.fake.fork(PIDS[0], FakeProcess::new(9_001));
        bed.fake.add_thread(PIDS[0], 9_002);
        assert_eq!(at(&agent, 9_001), first, "begins in its parent's");
        poll(&agent.runtime);
        for tid in [9_001, 9_002] {
            let own = at(&agent, tid);
            assert_eq!(own, format!("{group}/tg-t{tid}"));
            assert_eq!(quota(&agent, &own), Some(200_000));
        }
        bed.fake.end_process(9_001);
        poll(&agent.runtime);
        assert!(!bed.exists(&format!("{group}/tg-t9001")), "it is empty");
        set(&agent, "gate:job", &[("cap_hard", "50‰")]).unwrap();
        assert_eq!(quota(&agent, &first), Some(50_000));
        set(&agent, "gate:job", &[("cap_scope", "process")]).unwrap();
        assert_eq!(at(&agent, 9_002), format!("{group}/tg-p{}", PIDS[0]));
        set(&agent, "gate:job", &[("cap_scope", "group")]).unwrap();
        assert!(no_subgroups(&bed, &group));
        assert_eq!(
            (at(&agent, PIDS[0]), quota(&agent, &group)),
            (group.clone(), Some(50_000))
        );
        bed.fake.end_process(PIDS[0]);
        agent.leave();
        assert!(!bed.exists(&group) && in_journal(&agent).is_empty());
    }
}

#[test]
fn what_cannot_be_dissolved_is_tried_once_and_is_brought_home_by_the_next_agent() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let target = format!("pid:{}", PIDS[1]);
        set(&agent, &target, &EACH_PROCESS).unwrap();
        let subgroup = at(&agent, PIDS[1]);
        let group = path(&subgroup).parent().unwrap();
        let file = format!("{group}/cgroup.procs");
        let busy = Fault::Errno(libc::EBUSY);
        bed.fs.add(Rule::on(Op::Write, &file, busy).times(1_000));
        let since = bed.fs.log().len();
        drop(unset(&agent, &target));
        let tried = bed.fs.log()[since..]
            .iter()
            .filter(|(op, path)| *op == Op::Write && path.to_string_lossy().ends_with(&file))
            .count();
        assert_eq!(tried, 20, "one round of trying");
        assert_eq!(at(&agent, PIDS[1]), subgroup);
        assert_eq!(quota(&agent, &subgroup), Some(200_000), "capped");
        let journal = agent.runtime.journal();
        let changes: Vec<_> = journal.entries().map(|entry| entry.change.name()).collect();
        drop(journal);
        for waits in ["membership", "groups for one each"] {
            assert!(changes.contains(&waits), "{changes:?}");
        }
        bed.fs.clear();
        drop(agent);
        let agent = bed.agent().unwrap();
        assert!(bed.is_home(1));
        assert_eq!(in_journal(&agent), []);
    }
}

#[test]
fn the_next_agent_goes_on_and_a_restore_without_one_brings_all_home() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let group = run(&agent, PIDS[0], &EACH).unwrap();
        let target = format!("pid:{}", PIDS[1]);
        let mut restored = EACH.to_vec();
        restored.push(("fallback", "restore"));
        set(&agent, &target, &restored).unwrap();
        drop(agent);
        let (_, mut journal) = bed.without_agent();
        journal.fall_back(3);
        drop(journal);
        assert!(bed.is_home(1), "{}", bed.place(PIDS[1]));
        let agent = bed.agent().unwrap();
        assert_eq!(
            at(&agent, PIDS[0]),
            format!("{group}/tg-t{}", PIDS[0]),
            "its cap holds on"
        );
        bed.fake.fork(PIDS[0], FakeProcess::new(9_001));
        poll(&agent.runtime);
        assert_eq!(at(&agent, 9_001), format!("{group}/tg-t9001"));
        unset(&agent, &target).unwrap();
        assert!(bed.is_home(1));
    }
}

#[test]
fn a_storm_of_forks_costs_a_bounded_number_of_moves_and_is_never_multiplied() {
    for kind in [Kind::Mixed, Kind::V2] {
        let (bed, agent) = begun(kind);
        let group = run(&agent, PIDS[0], &EACH_PROCESS).unwrap();
        // More than there may be subgroups.
        let storm = 10_000..10_000 + SUBGROUPS_MAX as i32 + 40;
        for pid in storm.clone() {
            bed.fake.fork(PIDS[0], FakeProcess::new(pid));
        }
        let subgroups = || agent.groups().children(&path(&group)).unwrap().len();
        let before = subgroups();
        poll(&agent.runtime);
        assert!(subgroups() - before <= 32);
        for _ in 0..18 {
            poll(&agent.runtime);
        }
        assert!(subgroups() <= SUBGROUPS_MAX, "{}", subgroups());
        let free = storm.filter(|pid| at(&agent, *pid) == group).count();
        assert_eq!(free, 0, "none is without a cap");
        let shown = agent.status().gates[0].notes.join("\n");
        assert!(shown.contains("some share one"), "{shown}");
    }
}

#[test]
fn real_time_tasks_are_left_alone_and_said() {
    for kind in [Kind::Mixed, Kind::V2] {
        let (bed, agent) = begun(kind);
        let group = run(&agent, PIDS[0], &EACH).unwrap();
        bed.fake.add_thread(PIDS[0], 9_002);
        bed.fake.make_real_time(9_002);
        poll(&agent.runtime);
        let shown = agent.status().gates[0].notes.join("\n");
        assert!(shown.contains("real-time, left alone: 9002"), "{shown}");
        assert!(!bed.exists(&format!("{group}/tg-t9002")));
    }
}

#[test]
fn soft_caps_for_each_lie_beside_the_gate_so_that_they_yield_to_all() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let each = [
            ("cap_soft", "100‰"),
            ("cap_hard", "500‰"),
            ("cap_scope", "task"),
        ];
        let group = run(&agent, PIDS[0], &each).unwrap();
        assert_eq!(group, "/tg-soft=job");
        // v2 keeps the threads of a process together.
        let kind_of = if kind == Kind::V2 { 'p' } else { 't' };
        let subgroup = format!("/tg-soft=job={kind_of}{}", PIDS[0]);
        assert_eq!(at(&agent, PIDS[0]), subgroup);
        assert_eq!(bed.file(&subgroup, "cpu.idle"), "1", "it begins empty");
        assert_eq!(quota(&agent, &subgroup), Some(500_000));
        let mut housekeeping = Housekeeping::new(None);
        for _ in 0..4 {
            once(HOUSEKEEPING, &mut housekeeping, &agent);
        }
        assert_eq!(agent.gates.lock().len(), 1, "it has not ended");
        bed.fake.end_process(PIDS[0]);
        for _ in 0..4 {
            once(HOUSEKEEPING, &mut housekeeping, &agent);
        }
        assert!(agent.gates.lock().is_empty() && !bed.exists(&subgroup) && !bed.exists(&group));
    }
}

#[test]
fn soft_caps_for_each_are_refused_where_work_would_leave_a_limit() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let each = [("cap_soft", "100‰"), ("cap_scope", "process")];
        let with = |pair| [each.as_slice(), &[pair]].concat();
        for terms in [with(("class", "side")), with(("quota", "20ms"))] {
            let refusal = run(&agent, PIDS[0], &terms).unwrap_err();
            assert!(
                refusal.to_string().contains("take cap_scope=group"),
                "{refusal}"
            );
            assert!(bed.is_home(0));
        }
        let target = format!("pid:{}", PIDS[1]);
        set(&agent, &target, &each).unwrap_err();
        assert!(bed.is_home(1));
        set(&agent, &target, &EACH_PROCESS).unwrap();
        let before = at(&agent, PIDS[1]);
        set(&agent, &target, &[("cap_soft", "100‰")]).unwrap_err();
        assert_eq!(at(&agent, PIDS[1]), before, "as it was");
        let group = run(&agent, PIDS[0], &each).unwrap();
        let subgroup = at(&agent, PIDS[0]);
        assert_eq!(subgroup, format!("{group}=p{}", PIDS[0]));
        set(&agent, "gate:job", &[("quota", "20ms")]).unwrap_err();
        assert_eq!(at(&agent, PIDS[0]), subgroup);
        assert_eq!(quota(&agent, &group), None);
    }
}

#[test]
fn subgroups_come_out_of_the_background_again_after_their_terms_are_set_again() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let each = [("cap_soft", "100‰"), ("cap_scope", "process")];
        run(&agent, PIDS[0], &each).unwrap();
        let subgroup = at(&agent, PIDS[0]);
        let step = |now_ms: u64| {
            let mut writer = agent.runtime.quota_writer();
            let soft_caps = &mut agent.runtime.control().soft_caps;
            soft_caps.step(now_ms * 1_000_000, &mut Unused, &mut writer);
        };
        step(1_000_000);
        step(1_000_200);
        assert_eq!(bed.file(&subgroup, "cpu.idle"), "0", "its bucket is full");
        set(&agent, "gate:job", &[("cap_hard", "500‰")]).unwrap();
        step(1_000_400);
        step(1_000_600);
        assert_eq!(bed.file(&subgroup, "cpu.idle"), "0", "and again");
    }
}

#[test]
fn work_in_groups_beside_its_gate_outlives_the_agent_under_its_caps() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let each = [("cap_soft", "100‰"), ("cap_scope", "process")];
        let group = run(&agent, PIDS[0], &each).unwrap();
        let subgroup = at(&agent, PIDS[0]);
        agent.leave();
        assert_eq!(at(&agent, PIDS[0]), subgroup);
        assert!(bed.exists(&group));
        assert_eq!(bed.file(&subgroup, "cpu.idle"), "1");
        assert_eq!(agent.gates.lock().len(), 1);
    }
}

#[test]
fn groups_that_cannot_be_dissolved_are_said_and_keep_their_caps_and_their_journal() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let group = run(&agent, PIDS[0], &EACH_PROCESS).unwrap();
        let subgroup = at(&agent, PIDS[0]);
        let file = format!("{group}/cgroup.procs");
        let busy = Fault::Errno(libc::EBUSY);
        bed.fs.add(Rule::on(Op::Write, &file, busy).times(64));
        let before = in_journal(&agent);
        for pair in [("cap_scope", "group"), ("cap_scope", "task")] {
            let refusal = set(&agent, "gate:job", &[pair]).unwrap_err().to_string();
            assert!(refusal.contains("left in groups"), "{refusal}");
            assert_eq!(at(&agent, PIDS[0]), subgroup);
            assert_eq!(quota(&agent, &subgroup), Some(200_000));
            assert_eq!(in_journal(&agent), before);
        }
        poll(&agent.runtime);
        for _ in 0..4 {
            if set(&agent, "gate:job", &[("cap_scope", "group")]).is_ok() {
                break;
            }
        }
        assert_eq!(at(&agent, PIDS[0]), group, "and again");
        assert!(no_subgroups(&bed, &group));
    }
}
