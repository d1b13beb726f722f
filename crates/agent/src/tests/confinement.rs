//! What was set with privilege stays set, whatever is asked for without.

use tidegate_api::{ApiResult, ErrorKind, RunReply};
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::testkit::FakeProcess;

use super::{
    Bed, KINDS, Kind, PIDS, begun, gate_names, path, root, run_as, set, set_as, unset, user,
};
use crate::agent::Agent;
use crate::peer::Peer;

/// Processes of the user's.
const SHELL: i32 = 777;
const HOG: i32 = 778;

fn bed(kind: Kind) -> Bed {
    let bed = Bed::new(kind);
    for pid in [SHELL, HOG] {
        bed.add_users_process(pid);
    }
    bed
}

fn run_side_as(agent: &Agent, peer: &Peer, more: &[(&str, &str)]) -> ApiResult<RunReply> {
    run_as(agent, peer, &[&[("class", "side")], more].concat())
}

fn own_limit(agent: &Agent) -> Option<Bandwidth> {
    agent.gates.lock()[0].own_limit()
}

#[test]
fn asking_again_wipes_nothing_that_was_set_with_privilege() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        let first = run_side_as(&agent, &user(SHELL), &[]).unwrap();
        set(&agent, "gate:job", &[("quota", "5ms")]).unwrap();
        let again = run_side_as(&agent, &user(SHELL), &[]).unwrap();
        assert_eq!((&again.gate, &again.cgroup), (&first.gate, &first.cgroup));
        let limit = Some(Bandwidth::limit(5_000, 100_000));
        assert_eq!(own_limit(&agent), limit);
        assert!(agent.gates.lock()[0].record.by_admin.contains("quota"));
        let refused = run_side_as(&agent, &user(SHELL), &[("quota", "50ms")]).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Denied, "{refused}");
        assert_eq!(own_limit(&agent), limit);
        run_side_as(&agent, &user(SHELL), &[("quota", "3ms")]).unwrap();
        let tighter = Some(Bandwidth::limit(3_000, 100_000));
        assert_eq!(own_limit(&agent), tighter);
        if kind == Kind::V2 {
            // On v1 it is lifted while the side root is at its floor.
            let group = path(&first.cgroup);
            assert_eq!(agent.groups().bandwidth(&group).ok(), tighter);
        }
        assert_eq!(gate_names(&agent), ["job"]);
    }
}

#[test]
fn root_is_told_which_limit_a_process_leaves() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        let limited = path("/other");
        let groups = agent.groups();
        groups.place(&limited, SHELL).unwrap();
        groups.place(&limited, HOG).unwrap();
        let limit = Bandwidth::limit(3_000, 100_000);
        groups.set_bandwidth(&limited, None, limit).unwrap();
        let told = |notes: &[String]| notes.iter().any(|note| note.contains("it left /other, "));
        let reply = run_as(&agent, &root(SHELL), &[("class", "side")]).unwrap();
        assert!(told(&reply.notes), "{kind:?}: {:?}", reply.notes);
        let notes = set(&agent, &format!("pid:{HOG}"), &[("class", "side")]).unwrap();
        // On v2 it stays below its group.
        assert_eq!(told(&notes), kind != Kind::V2, "{kind:?}: {notes:?}");
    }
}

#[test]
fn a_shell_does_not_leave_its_gates_limit_by_another_gate() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        let outer = run_side_as(&agent, &user(SHELL), &[]).unwrap();
        let group = path(&outer.cgroup);
        // Its child begins where it is; a gate without a limit may be left.
        agent.groups().place(&group, HOG).unwrap();
        let free = run_side_as(&agent, &user(HOG), &[]).unwrap();
        assert_ne!(free.cgroup, outer.cgroup);
        agent.groups().place(&group, HOG).unwrap();
        set(&agent, "gate:job", &[("cap_hard", "50‰")]).unwrap();
        let refused = run_side_as(&agent, &user(HOG), &[]).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Denied, "{refused}");
        assert!(refused.to_string().contains("gate job"), "{refused}");
        assert!(bed.place(HOG).contains("tg-side/job"));
        // Who may set it may leave it.
        run_side_as(&agent, &root(HOG), &[]).unwrap();
    }
}

#[test]
fn a_low_weight_cannot_be_left_for_a_gate_of_its_own() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        let outer = run_side_as(&agent, &user(SHELL), &[("weight", "50")]).unwrap();
        let group = path(&outer.cgroup);
        agent.groups().place(&group, HOG).unwrap();
        // One's own low weight may be left, and so may a high one that was given.
        run_side_as(&agent, &user(HOG), &[]).unwrap();
        set(&agent, "gate:job", &[("weight", "300")]).unwrap();
        agent.groups().place(&group, HOG).unwrap();
        run_side_as(&agent, &user(HOG), &[]).unwrap();
        set(&agent, "gate:job", &[("weight", "10")]).unwrap();
        agent.groups().place(&group, HOG).unwrap();
        for weight in ["1", "100"] {
            let refused = run_side_as(&agent, &user(HOG), &[("weight", weight)]).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Denied, "{refused}");
            assert!(
                refused.to_string().contains("weight of gate job"),
                "{refused}"
            );
        }
        assert!(bed.place(HOG).contains("tg-side/job"));
    }
}

#[test]
fn a_process_called_like_a_root_of_ours_is_not_put_there() {
    for kind in KINDS {
        for comm in ["main", "side", "agent"] {
            let (bed, agent) = begun(kind);
            let pid = 779;
            bed.fake.add_process(FakeProcess {
                comm: comm.to_owned(),
                ..FakeProcess::new(pid)
            });
            let home = bed.place(pid);
            let target = format!("pid:{pid}");
            set(&agent, &target, &[("class", "main"), ("quota", "30ms")]).unwrap();
            assert_eq!(gate_names(&agent), [comm]);
            assert!(
                bed.place(pid).contains(&format!("/tg-{comm}=")),
                "{}",
                bed.place(pid)
            );
            let ours = agent.groups().bandwidth(&agent.runtime.kernel.main_root());
            assert!(ours.is_err(), "{comm}: {ours:?}");
            unset(&agent, &target).unwrap();
            assert_eq!(bed.place(pid), home);
            agent.leave();
            assert!(!bed.exists(&format!("/tg-{comm}=")), "{comm}");
            assert!(!bed.place(PIDS[0]).contains("tg-"));
        }
    }
}

#[test]
fn systemd_is_not_asked_where_the_terms_are_refused_in_any_case() {
    let bed = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    let ask = |pairs: &[(&str, &str)]| {
        let target = "unit:no-such-unit-of-ours";
        let refused = set_as(&agent, &user(SHELL), target, pairs).unwrap_err();
        refused.kind
    };
    assert_eq!(ask(&[("class", "main")]), ErrorKind::Denied);
    let asked = (0..100).map(|_| ask(&[("class", "side")]));
    let kinds: Vec<ErrorKind> = asked.collect();
    assert_ne!(kinds[0], ErrorKind::Denied);
    assert_eq!(
        kinds.last(),
        Some(&ErrorKind::Busy),
        "not more often than gates may be changed"
    );
}

#[test]
fn a_process_whose_threads_are_in_several_groups_stays_where_it_is() {
    for kind in [Kind::V1, Kind::Mixed] {
        let (bed, agent) = begun(kind);
        bed.fake.add_thread(PIDS[0], 9_002);
        let tasks = format!("{}/other/tasks", super::cpu_mount(kind));
        bed.fake
            .write(std::path::Path::new(&tasks), "9002")
            .unwrap();
        let before = bed.place(PIDS[0]);
        let refused = set(&agent, &format!("pid:{}", PIDS[0]), &[("class", "side")]).unwrap_err();
        assert!(refused.detail.contains("in several groups"), "{refused}");
        assert_eq!((bed.place(PIDS[0]), gate_names(&agent).len()), (before, 0));
    }
}

#[test]
fn a_later_process_with_the_number_of_a_gate_has_its_own() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let target = format!("pid:{}", PIDS[0]);
        set(&agent, &target, &[("class", "side")]).unwrap();
        bed.fake.end_process(PIDS[0]);
        bed.fake.add_process(FakeProcess {
            start_ticks: 999_999,
            ..FakeProcess::new(PIDS[0])
        });
        set(&agent, &target, &[("quota", "5ms"), ("class", "side")]).unwrap();
        let gates = agent.gates.lock();
        let later = agent.runtime.kernel.gate_of(&gates, PIDS[0]).unwrap();
        let limit = later.own_limit().and_then(|limit| limit.quota_us);
        assert_eq!(limit, Some(5_000), "{kind:?}: {}", later.record.name);
    }
}

#[test]
fn what_only_run_can_give_is_refused_for_a_process_that_runs() {
    let (bed, agent) = begun(Kind::V2);
    let target = format!("pid:{}", PIDS[0]);
    let before = bed.place(PIDS[0]);
    for (term, value) in [("jobserver", "yes"), ("memory_high", "1GiB")] {
        let terms = [("class", "side"), (term, value)];
        let refused = set(&agent, &target, &terms).unwrap_err();
        assert!(refused.detail.starts_with(term), "{refused}");
        assert!(refused.detail.contains(" run "), "{refused}");
        assert_eq!(
            (bed.place(PIDS[0]), gate_names(&agent).len()),
            (before.clone(), 0)
        );
    }
}
