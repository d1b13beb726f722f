//! What was set with privilege stays set, whatever is asked for without.

use tidegate_api::{ApiError, ErrorKind, RunReply, RunRequest, SetRequest};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::testkit::FakeProcess;

use super::{Bed, KINDS, Kind, PIDS, gate_names, root, terms, unset};
use crate::agent::Agent;
use crate::peer::Peer;

/// Processes of the user's.
const SHELL: i32 = 777;
const HOG: i32 = 778;

fn bed(kind: Kind) -> Bed {
    let bed = Bed::new(kind);
    for pid in [SHELL, HOG] {
        bed.fs.inner().add_process(FakeProcess {
            uid: 1000,
            ..FakeProcess::new(pid)
        });
    }
    bed
}

fn run(agent: &Agent, peer: &Peer, pairs: &[(&str, &str)]) -> Result<RunReply, ApiError> {
    let mut terms = terms(pairs);
    terms.insert("class".to_owned(), "side".to_owned());
    let request = RunRequest {
        pid: peer.pid,
        name: None,
        command: vec!["job".to_owned()],
        terms,
    };
    agent.run(peer, &request)
}

fn user(pid: i32) -> Peer {
    Peer {
        pid,
        uid: 1000,
        groups: vec![1000],
        ..Peer::default()
    }
}

fn set(agent: &Agent, target: &str, pairs: &[(&str, &str)]) {
    let request = SetRequest {
        target: target.to_owned(),
        terms: terms(pairs),
    };
    agent.set(&root(1), &request).unwrap();
}

fn own_limit(agent: &Agent) -> Option<Bandwidth> {
    agent.gates.lock()[0].own_limit()
}

#[test]
fn asking_again_wipes_nothing_that_was_set_with_privilege() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        let first = run(&agent, &user(SHELL), &[]).unwrap();
        set(&agent, "gate:job", &[("quota", "5ms")]);
        let again = run(&agent, &user(SHELL), &[]).unwrap();
        assert_eq!(
            (&again.gate, &again.cgroup),
            (&first.gate, &first.cgroup),
            "{kind:?}"
        );
        let limit = Some(Bandwidth::limit(5_000, 100_000));
        assert_eq!(own_limit(&agent), limit, "{kind:?}");
        assert!(agent.gates.lock()[0].record.by_admin.contains("quota"));
        let refused = run(&agent, &user(SHELL), &[("quota", "50ms")]).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Denied, "{kind:?}: {refused}");
        assert_eq!(own_limit(&agent), limit, "{kind:?}");
        run(&agent, &user(SHELL), &[("quota", "3ms")]).unwrap();
        let tighter = Some(Bandwidth::limit(3_000, 100_000));
        assert_eq!(own_limit(&agent), tighter, "{kind:?}");
        if kind == Kind::V2 {
            // On v1 it is lifted while the side root is at its floor.
            let group = GroupPath::parse(&first.cgroup).unwrap();
            assert_eq!(agent.groups().bandwidth(&group).ok(), tighter);
        }
        assert_eq!(gate_names(&agent), ["job"]);
    }
}

#[test]
fn a_shell_does_not_leave_its_gates_limit_by_another_gate() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        let outer = run(&agent, &user(SHELL), &[]).unwrap();
        let group = GroupPath::parse(&outer.cgroup).unwrap();
        // Its child begins where it is; a gate without a limit may be left.
        agent.groups().place(&group, HOG).unwrap();
        let free = run(&agent, &user(HOG), &[]).unwrap();
        assert_ne!(free.cgroup, outer.cgroup, "{kind:?}");
        agent.groups().place(&group, HOG).unwrap();
        set(&agent, "gate:job", &[("cap_hard", "50‰")]);
        let refused = run(&agent, &user(HOG), &[]).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Denied, "{kind:?}: {refused}");
        assert!(refused.to_string().contains("gate job"), "{refused}");
        assert!(bed.place(HOG).contains("tg-side/job"), "{kind:?}");
        // Who may set it may leave it.
        run(&agent, &root(HOG), &[]).unwrap();
    }
}

#[test]
fn a_low_weight_cannot_be_left_for_a_gate_of_its_own() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        let outer = run(&agent, &user(SHELL), &[("weight", "50")]).unwrap();
        let group = GroupPath::parse(&outer.cgroup).unwrap();
        agent.groups().place(&group, HOG).unwrap();
        // One's own low weight may be left, and so may a high one that was given.
        run(&agent, &user(HOG), &[]).unwrap();
        set(&agent, "gate:job", &[("weight", "300")]);
        agent.groups().place(&group, HOG).unwrap();
        run(&agent, &user(HOG), &[]).unwrap();
        set(&agent, "gate:job", &[("weight", "10")]);
        agent.groups().place(&group, HOG).unwrap();
        for weight in ["1", "100"] {
            let refused = run(&agent, &user(HOG), &[("weight", weight)]).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Denied, "{kind:?}: {refused}");
            assert!(
                refused.to_string().contains("weight of gate job"),
                "{refused}"
            );
        }
        assert!(bed.place(HOG).contains("tg-side/job"), "{kind:?}");
    }
}

#[test]
fn a_process_called_like_a_root_of_ours_is_not_put_there() {
    for kind in KINDS {
        for comm in ["main", "side", "agent"] {
            let bed = Bed::new(kind);
            let agent = bed.agent().unwrap();
            let pid = 779;
            bed.fs.inner().add_process(FakeProcess {
                comm: comm.to_owned(),
                ..FakeProcess::new(pid)
            });
            let home = bed.place(pid);
            let target = format!("pid:{pid}");
            set(&agent, &target, &[("class", "main"), ("quota", "30ms")]);
            assert_eq!(gate_names(&agent), [comm]);
            assert!(
                bed.place(pid).contains(&format!("/tg-{comm}=")),
                "{kind:?}: {}",
                bed.place(pid)
            );
            let ours = agent.groups().bandwidth(&agent.runtime.kernel.main_root());
            assert!(ours.is_err(), "{kind:?} {comm}: {ours:?}");
            unset(&agent, &target).unwrap();
            assert_eq!(bed.place(pid), home, "{kind:?}");
            agent.leave();
            assert!(!bed.exists(&format!("/tg-{comm}=")), "{kind:?} {comm}");
            assert!(!bed.place(PIDS[0]).contains("tg-"));
        }
    }
}

#[test]
fn systemd_is_not_asked_where_the_terms_are_refused_in_any_case() {
    let bed = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    let ask = |pairs| {
        let request = SetRequest {
            target: "unit:no-such-unit-of-ours".to_owned(),
            terms: terms(pairs),
        };
        agent.set(&user(SHELL), &request).unwrap_err().kind
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
