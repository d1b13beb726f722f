//! Caps that count for each process or task alone, on v1 and v2.

use tidegate_cgroup::Op;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::testkit::{FakeProcess, Fault, Rule};
use tidegate_engine::control::Usage;
use tidegate_engine::sync::lock;

use super::{Bed, KINDS, Kind, PIDS, in_journal, run, set, unset};
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

fn at(agent: &Agent, tid: i32) -> String {
    agent.groups().group_of(tid).unwrap().unwrap().to_string()
}

fn quota(agent: &Agent, group: &str) -> Option<u64> {
    let group = GroupPath::parse(group).unwrap();
    agent.groups().bandwidth(&group).unwrap().rate_ucpu()
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
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let group = run(&agent, PIDS[0], &EACH).unwrap();
        let first = at(&agent, PIDS[0]);
        assert_eq!(first, format!("{group}/tg-t{}", PIDS[0]), "{kind:?}");
        assert_eq!(quota(&agent, &first), Some(200_000), "{kind:?}");
        assert_eq!(
            quota(&agent, &group),
            None,
            "{kind:?}: not all of them together"
        );
        bed.fs.inner().fork(PIDS[0], FakeProcess::new(9_001));
        bed.fs.inner().add_thread(PIDS[0], 9_002);
        assert_eq!(at(&agent, 9_001), first, "{kind:?}: begins in its parent's");
        poll(&agent.runtime);
        for tid in [9_001, 9_002] {
            let own = at(&agent, tid);
            assert_eq!(own, format!("{group}/tg-t{tid}"), "{kind:?}");
            assert_eq!(quota(&agent, &own), Some(200_000), "{kind:?}");
        }
        bed.fs.inner().end_process(9_001);
        poll(&agent.runtime);
        assert!(
            !bed.exists(&format!("{group}/tg-t9001")),
            "{kind:?}: it is empty"
        );
        set(&agent, "gate:job", &[("cap_hard", "50‰")]).unwrap();
        assert_eq!(quota(&agent, &first), Some(50_000), "{kind:?}");
        set(&agent, "gate:job", &[("cap_scope", "process")]).unwrap();
        assert_eq!(
            at(&agent, 9_002),
            format!("{group}/tg-p{}", PIDS[0]),
            "{kind:?}"
        );
        set(&agent, "gate:job", &[("cap_scope", "group")]).unwrap();
        assert!(no_subgroups(&bed, &group), "{kind:?}");
        assert_eq!(
            (at(&agent, PIDS[0]), quota(&agent, &group)),
            (group.clone(), Some(50_000))
        );
        bed.fs.inner().end_process(PIDS[0]);
        agent.leave();
        assert!(
            !bed.exists(&group) && in_journal(&agent).is_empty(),
            "{kind:?}"
        );
    }
}

#[test]
fn a_running_process_goes_home_and_is_not_taken_for_moved() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let target = format!("pid:{}", PIDS[1]);
        set(&agent, &target, &EACH_PROCESS).unwrap();
        let group = at(&agent, PIDS[1]);
        assert!(
            group.ends_with(&format!("/tg-p{}", PIDS[1])),
            "{kind:?} {group}"
        );
        let mut housekeeping = Housekeeping::new(None);
        for _ in 0..3 {
            once(HOUSEKEEPING, &mut housekeeping, &agent);
        }
        assert!(
            lock(&agent.runtime.alerts).is_empty(),
            "{kind:?} {:?}",
            lock(&agent.runtime.alerts)
        );
        unset(&agent, &target).unwrap();
        assert!(bed.is_home(1) && in_journal(&agent).is_empty(), "{kind:?}");
    }
}

#[test]
fn what_cannot_be_dissolved_is_tried_once_and_is_brought_home_by_the_next_agent() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let target = format!("pid:{}", PIDS[1]);
        set(&agent, &target, &EACH_PROCESS).unwrap();
        let subgroup = at(&agent, PIDS[1]);
        let group = GroupPath::parse(&subgroup).unwrap().parent().unwrap();
        let file = format!("{group}/cgroup.procs");
        let busy = Fault::Errno(libc::EBUSY);
        bed.fs.add(Rule::on(Op::Write, &file, busy).times(1_000));
        let since = bed.fs.log().len();
        drop(unset(&agent, &target));
        let tried = bed.fs.log()[since..]
            .iter()
            .filter(|(op, path)| *op == Op::Write && path.to_string_lossy().ends_with(&file))
            .count();
        assert_eq!(tried, 20, "{kind:?}: one round of trying");
        assert_eq!(at(&agent, PIDS[1]), subgroup, "{kind:?}");
        assert_eq!(quota(&agent, &subgroup), Some(200_000), "{kind:?}: capped");
        let changes: Vec<&'static str> = agent
            .runtime
            .journal()
            .entries()
            .map(|entry| entry.change.name())
            .collect();
        for waits in ["membership", "groups for one each"] {
            assert!(changes.contains(&waits), "{kind:?}: {changes:?}");
        }
        bed.fs.clear();
        drop(agent);
        let agent = bed.agent().unwrap();
        assert!(bed.is_home(1), "{kind:?}");
        assert_eq!(in_journal(&agent), [], "{kind:?}");
    }
}

#[test]
fn the_next_agent_goes_on_and_a_restore_without_one_brings_all_home() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let group = run(&agent, PIDS[0], &EACH).unwrap();
        let target = format!("pid:{}", PIDS[1]);
        let mut restored = EACH.to_vec();
        restored.push(("fallback", "restore"));
        set(&agent, &target, &restored).unwrap();
        drop(agent);
        let (_, mut journal) = bed.without_agent();
        journal.fall_back(3);
        drop(journal);
        assert!(bed.is_home(1), "{kind:?}: {}", bed.place(PIDS[1]));
        let agent = bed.agent().unwrap();
        assert_eq!(
            at(&agent, PIDS[0]),
            format!("{group}/tg-t{}", PIDS[0]),
            "{kind:?}: its cap holds on"
        );
        bed.fs.inner().fork(PIDS[0], FakeProcess::new(9_001));
        poll(&agent.runtime);
        assert_eq!(at(&agent, 9_001), format!("{group}/tg-t9001"), "{kind:?}");
        unset(&agent, &target).unwrap();
        assert!(bed.is_home(1), "{kind:?}");
    }
}

#[test]
fn a_storm_of_forks_costs_a_bounded_number_of_moves_and_is_never_multiplied() {
    for kind in [Kind::Mixed, Kind::V2] {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let group = run(&agent, PIDS[0], &EACH_PROCESS).unwrap();
        for pid in 10_000..10_700 {
            bed.fs.inner().fork(PIDS[0], FakeProcess::new(pid));
        }
        let subgroups = |agent: &Agent| {
            agent
                .groups()
                .children(&GroupPath::parse(&group).unwrap())
                .unwrap()
                .len()
        };
        let before = subgroups(&agent);
        poll(&agent.runtime);
        assert!(subgroups(&agent) - before <= 32, "{kind:?}");
        for _ in 0..25 {
            poll(&agent.runtime);
        }
        assert!(
            subgroups(&agent) <= tidegate_cgroup::subgroups::SUBGROUPS_MAX,
            "{kind:?} {}",
            subgroups(&agent)
        );
        let free = (10_000..10_700)
            .filter(|pid| at(&agent, *pid) == group)
            .count();
        assert_eq!(free, 0, "{kind:?}: none is without a cap");
        let shown = agent.status().gates[0].notes.join("\n");
        assert!(shown.contains("some share one"), "{kind:?} {shown}");
    }
}

#[test]
fn real_time_tasks_are_left_alone_and_said() {
    for kind in [Kind::Mixed, Kind::V2] {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let group = run(&agent, PIDS[0], &EACH).unwrap();
        bed.fs.inner().add_thread(PIDS[0], 9_002);
        bed.fs.inner().make_real_time(9_002);
        poll(&agent.runtime);
        let shown = agent.status().gates[0].notes.join("\n");
        assert!(
            shown.contains("real-time, left alone: 9002"),
            "{kind:?} {shown}"
        );
        assert!(!bed.exists(&format!("{group}/tg-t9002")), "{kind:?}");
    }
}

#[test]
fn soft_caps_for_each_lie_beside_the_gate_so_that_they_yield_to_all() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
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
        assert_eq!(at(&agent, PIDS[0]), subgroup, "{kind:?}");
        assert_eq!(
            bed.file(&subgroup, "cpu.idle"),
            "1",
            "{kind:?}: a bucket begins empty"
        );
        assert_eq!(quota(&agent, &subgroup), Some(500_000), "{kind:?}");
        let mut housekeeping = Housekeeping::new(None);
        for _ in 0..4 {
            once(HOUSEKEEPING, &mut housekeeping, &agent);
        }
        assert_eq!(agent.gates.lock().len(), 1, "{kind:?}: it has not ended");
        bed.fs.inner().end_process(PIDS[0]);
        for _ in 0..4 {
            once(HOUSEKEEPING, &mut housekeeping, &agent);
        }
        assert!(
            agent.gates.lock().is_empty() && !bed.exists(&subgroup) && !bed.exists(&group),
            "{kind:?}"
        );
    }
}

#[test]
fn side_work_on_v1_keeps_its_caps_while_its_root_is_cut() {
    let bed = Bed::new(Kind::Mixed);
    let agent = bed.agent().unwrap();
    let mut side = EACH.to_vec();
    side.push(("class", "side"));
    let group = run(&agent, PIDS[0], &side).unwrap();
    assert_eq!(at(&agent, PIDS[0]), format!("{group}/tg-t{}", PIDS[0]));
    bed.fs.inner().end_process(PIDS[0]);
    agent.leave();
    assert!(
        !bed.exists(&group) && in_journal(&agent).is_empty(),
        "{:?}",
        in_journal(&agent)
    );
}

#[test]
fn soft_caps_for_each_are_refused_where_work_would_leave_a_limit() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let each = [("cap_soft", "100‰"), ("cap_scope", "process")];
        let with = |pair| [each.as_slice(), &[pair]].concat();
        for terms in [with(("class", "side")), with(("quota", "20ms"))] {
            let refusal = run(&agent, PIDS[0], &terms).unwrap_err();
            assert!(
                refusal.to_string().contains("take cap_scope=group"),
                "{kind:?} {refusal}"
            );
            assert!(bed.is_home(0), "{kind:?}");
        }
        let target = format!("pid:{}", PIDS[1]);
        set(&agent, &target, &each).unwrap_err();
        assert!(bed.is_home(1), "{kind:?}");
        set(&agent, &target, &EACH_PROCESS).unwrap();
        let before = at(&agent, PIDS[1]);
        set(&agent, &target, &[("cap_soft", "100‰")]).unwrap_err();
        assert_eq!(at(&agent, PIDS[1]), before, "{kind:?}: as it was");
        let group = run(&agent, PIDS[0], &each).unwrap();
        let subgroup = at(&agent, PIDS[0]);
        assert_eq!(subgroup, format!("{group}=p{}", PIDS[0]), "{kind:?}");
        set(&agent, "gate:job", &[("quota", "20ms")]).unwrap_err();
        assert_eq!(at(&agent, PIDS[0]), subgroup, "{kind:?}");
        assert_eq!(quota(&agent, &group), None, "{kind:?}");
    }
}

#[test]
fn subgroups_come_out_of_the_background_again_after_their_terms_are_set_again() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
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
        assert_eq!(
            bed.file(&subgroup, "cpu.idle"),
            "0",
            "{kind:?}: its bucket is full"
        );
        set(&agent, "gate:job", &[("cap_hard", "500‰")]).unwrap();
        step(1_000_400);
        step(1_000_600);
        assert_eq!(bed.file(&subgroup, "cpu.idle"), "0", "{kind:?}: and again");
    }
}

#[test]
fn work_in_groups_beside_its_gate_outlives_the_agent_under_its_caps() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let each = [("cap_soft", "100‰"), ("cap_scope", "process")];
        let group = run(&agent, PIDS[0], &each).unwrap();
        let subgroup = at(&agent, PIDS[0]);
        agent.leave();
        assert_eq!(at(&agent, PIDS[0]), subgroup, "{kind:?}");
        assert!(bed.exists(&group), "{kind:?}");
        assert_eq!(bed.file(&subgroup, "cpu.idle"), "1", "{kind:?}");
        assert_eq!(agent.gates.lock().len(), 1, "{kind:?}");
    }
}

#[test]
fn groups_that_cannot_be_dissolved_are_said_and_keep_their_caps_and_their_journal() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let agent = bed.agent().unwrap();
        let group = run(&agent, PIDS[0], &EACH_PROCESS).unwrap();
        let subgroup = at(&agent, PIDS[0]);
        let file = format!("{group}/cgroup.procs");
        let busy = Fault::Errno(libc::EBUSY);
        bed.fs.add(Rule::on(Op::Write, &file, busy).times(64));
        let before = in_journal(&agent);
        for pair in [("cap_scope", "group"), ("cap_scope", "task")] {
            let refusal = set(&agent, "gate:job", &[pair]).unwrap_err().to_string();
            assert!(refusal.contains("left in groups"), "{kind:?} {refusal}");
            assert_eq!(at(&agent, PIDS[0]), subgroup, "{kind:?}");
            assert_eq!(quota(&agent, &subgroup), Some(200_000), "{kind:?}");
            assert_eq!(in_journal(&agent), before, "{kind:?}");
        }
        poll(&agent.runtime);
        for _ in 0..4 {
            if set(&agent, "gate:job", &[("cap_scope", "group")]).is_ok() {
                break;
            }
        }
        assert_eq!(at(&agent, PIDS[0]), group, "{kind:?}: and again");
        assert!(no_subgroups(&bed, &group), "{kind:?}");
    }
}
