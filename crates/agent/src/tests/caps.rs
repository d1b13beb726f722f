//! Soft caps: where the group lies, what stands on it, and that it goes back, on v1 and v2.

use std::path::Path;

use tidegate_api::ErrorKind;
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::Usage;
use tidegate_engine::ledger::Change;

use super::{Bed, KINDS, Kind, PIDS, begun, in_journal, path, run, set, unset, unset_terms};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::threads::{HOUSEKEEPING, once};

/// Every group has used this much.
struct Used(u64);

impl Usage for Used {
    fn usage_ns(&mut self, _: &GroupPath) -> Option<u64> {
        Some(self.0)
    }
}

const MS: u64 = 1_000_000;

fn poll(agent: &Agent, now_ms: u64, used_ms: u64) {
    let mut writer = agent.runtime.quota_writer();
    agent
        .runtime
        .control()
        .soft_caps
        .step(now_ms * MS, &mut Used(used_ms * MS), &mut writer);
}

fn in_background(bed: &Bed, group: &str) -> bool {
    bed.file(group, "cpu.idle") == "1"
}

#[test]
fn a_process_and_a_group_get_back_what_they_had() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let fresh = bed.values("/other");
        let pid = format!("pid:{}", PIDS[1]);
        for target in ["cgroup:/other", &pid] {
            set(&agent, target, &[("cap_soft", "0")]).unwrap();
            poll(&agent, 1_000, 0);
            assert!(agent.runtime.control().soft_caps.is_idle(), "for good");
            let group = agent.gates.lock()[0].record.attachment.group().to_string();
            assert!(in_background(&bed, &group), "{target}");
            unset(&agent, target).unwrap();
        }
        assert_eq!(bed.values("/other"), fresh);
        assert!(bed.is_home(1) && in_journal(&agent).is_empty());
    }
}

#[test]
fn a_thread_has_a_cap_of_its_own_and_goes_back_to_its_process() {
    let terms: [(&str, &str); 2] = [("cap_hard", "0.2cpu"), ("quota", "20ms")];
    for (kind, term) in KINDS
        .into_iter()
        .flat_map(|kind| terms.map(|term| (kind, term)))
    {
        let (bed, agent) = begun(kind);
        bed.fake.add_thread(PIDS[1], 610);
        let home = bed.place(610);
        set(&agent, "tid:610", &[term]).unwrap();
        let group = agent.gates.lock()[0].record.attachment.group().to_string();
        assert!(
            bed.place(610).contains(&group),
            "{kind:?}: {}",
            bed.place(610)
        );
        let bandwidth = agent.groups().bandwidth(&path(&group)).unwrap();
        assert!(
            bandwidth.quota_us.is_some() && bed.is_home(1),
            "{kind:?} {term:?}"
        );
        set(&agent, "tid:610", &[("latency", "-20")]).unwrap();
        // The next agent finds the thread, and takes it back.
        drop(agent);
        let agent = bed.agent().unwrap();
        assert!(agent.explain("tid:610").is_ok());
        unset(&agent, "tid:610").unwrap();
        assert_eq!(bed.place(610), home, "{kind:?} {term:?}");
        assert!(in_journal(&agent).is_empty() && !bed.exists(&group));
    }
}

#[test]
fn a_thread_of_the_agents_or_of_init_is_no_target() {
    let (bed, agent) = begun(Kind::Mixed);
    let own = std::process::id() as i32;
    bed.add_users_process(own);
    for pid in [1, own] {
        bed.fake.add_thread(pid, 610 + pid);
        let target = format!("tid:{}", 610 + pid);
        let refused = set(&agent, &target, &[("cap_hard", "0.2cpu")]).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Usage, "{target}: {refused}");
    }
}

/// In a unit's group on v2, where it would yield to that unit's tasks alone.
#[test]
fn a_process_that_cannot_yield_to_the_machine_is_refused() {
    let (_bed, agent) = begun(Kind::V2);
    agent.groups().place(&path("/other"), PIDS[1]).unwrap();
    let refused = set(&agent, &format!("pid:{}", PIDS[1]), &[("cap_soft", "0")]).unwrap_err();
    assert!(refused.detail.contains("stays in /other"), "{refused}");
    assert!(in_journal(&agent).is_empty());
}

#[test]
fn unsetting_the_cap_takes_it_out_for_good_and_the_gate_lives_on() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let group = run(&agent, PIDS[0], &[("cap_soft", "0"), ("quota", "30ms")]).unwrap();
        assert!(in_background(&bed, &group));
        unset_terms(&agent, "gate:job", &["cap_soft"]).unwrap();
        assert!(!in_background(&bed, &group));
        poll(&agent, 1_000, 0);
        assert!(!in_background(&bed, &group), "nothing polls any more");
    }
}

#[test]
fn without_an_agent_it_stays_in_the_background_and_the_next_goes_on() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let group = run(&agent, PIDS[0], &[("cap_soft", "500‰")]).unwrap();
        let restored = [("cap_soft", "500‰"), ("fallback", "restore")];
        set(&agent, "cgroup:/other", &restored).unwrap();
        poll(&agent, 1_000, 0);
        poll(&agent, 1_010, 0);
        assert!(!in_background(&bed, &group) && !in_background(&bed, "/other"));
        drop(agent);
        let (_, mut journal) = bed.without_agent();
        journal.fall_back(3);
        assert!(in_background(&bed, &group));
        assert!(!in_background(&bed, "/other"), "as it declared");
        drop(journal);
        let agent = bed.agent().unwrap();
        poll(&agent, 2_000, 0);
        poll(&agent, 2_010, 0);
        let journal = agent.runtime.journal();
        let capped = journal
            .entries()
            .filter(|entry| matches!(entry.change, Change::Background { .. }));
        assert_eq!(capped.count(), 2);
        drop(journal);
        assert!(!in_background(&bed, &group), "the cap goes on");
        agent.leave();
        assert!(in_background(&bed, &group), "after an orderly end, too");
    }
}

#[test]
fn side_work_yields_within_side_work_and_a_soft_cap_above_the_hard_one_is_none() {
    let (bed, agent) = begun(Kind::V1);
    let group = run(&agent, PIDS[0], &[("class", "side"), ("cap_soft", "0")]).unwrap();
    assert_eq!(group, "/tg-side/job");
    assert!(in_background(&bed, &group));
    let equal = [("cap_hard", "200‰"), ("cap_soft", "200‰")];
    let group = run(&agent, PIDS[1], &equal).unwrap();
    assert!(group.starts_with("/tg-main/") && !in_background(&bed, &group));
    // Set later, it counts where the group is; said.
    let notes = set(&agent, "gate:job-2", &[("cap_soft", "0")]).unwrap();
    assert!(in_background(&bed, &group));
    assert!(
        notes.iter().any(|note| note.contains("/tg-main")),
        "{notes:?}"
    );
}

#[test]
fn an_outside_write_is_answered_once() {
    let (bed, agent) = begun(Kind::V2);
    let group = run(&agent, PIDS[0], &[("cap_soft", "0")]).unwrap();
    poll(&agent, 1_000, 0);
    // In or out is ours to say; a weight is not.
    agent.groups().set_idle(&path(&group), false).unwrap();
    agent.groups().set_weight(&path(&group), 77).unwrap();
    let mut housekeeping = Housekeeping::new(None);
    once(HOUSEKEEPING, &mut housekeeping, &agent);
    poll(&agent, 1_005, 0);
    assert!(in_background(&bed, &group), "written again");
}

/// cpuacct is mounted apart, and another program made the group in the cpu hierarchy alone.
fn without_account() -> (Bed, Agent) {
    let (bed, agent) = begun(Kind::Mixed);
    bed.fake
        .mkdir(Path::new("/sys/fs/cgroup/cpu/lone"))
        .unwrap();
    bed.fake
        .write(Path::new("/sys/fs/cgroup/cpu/lone/cgroup.procs"), "502")
        .unwrap();
    (bed, agent)
}

#[test]
fn a_soft_cap_is_refused_where_the_use_is_unknown() {
    let (bed, agent) = without_account();
    for terms in [
        &[("cap_soft", "200‰")][..],
        &[("cap_soft", "200‰"), ("cap_scope", "process")],
    ] {
        let refused = set(&agent, "cgroup:/lone", terms).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unsupported);
        let said = refused.to_string();
        assert!(said.contains("cap_soft") || terms.len() > 1, "{said}");
        assert!(said.contains("cap_hard") || terms.len() > 1, "{said}");
    }
    let refused = set(&agent, "cgroup:/lone", &[("cap_soft", "200‰")]).unwrap_err();
    assert!(
        refused
            .detail
            .contains("/lone is not in the cpuacct hierarchy"),
        "{refused}"
    );
    assert!(!in_background(&bed, "/lone") && in_journal(&agent).is_empty());
    set(&agent, "cgroup:/lone", &[("cap_soft", "0")]).unwrap();
    poll(&agent, 1_000, 0);
    assert!(in_background(&bed, "/lone"), "which needs no count");
}

#[test]
fn a_use_that_is_unknown_is_said_and_is_no_zero() {
    let (_bed, agent) = without_account();
    set(&agent, "cgroup:/lone", &[("class", "main")]).unwrap();
    let gate = &agent.status().gates[0];
    assert_eq!((gate.usage_cpus, gate.used_seconds), (None, None));
    let shown = serde_json::to_value(gate).unwrap();
    assert!(shown["usage_cpus"].is_null() && shown["used_seconds"].is_null());
    let page = agent.explain("cgroup:/lone").unwrap();
    assert!(
        page.summary.contains("uses unknown CPUs"),
        "{}",
        page.summary
    );
    let user = page.users.iter().find(|user| user.who == gate.name);
    assert_eq!(user.unwrap().usage_cpus, None);
}
