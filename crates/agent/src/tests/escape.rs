//! What somebody with privilege has set stays set, whatever its owner without privilege asks for.

use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::GroupPath;
use tidegate_knobs::kfs::FakeProcess;

use super::{Bed, KINDS, Kind, PIDS, gate_names, root, terms, unset};
use crate::api::{RunReply, RunRequest, SetRequest};
use crate::looper::lock;
use crate::owner::Owner;
use crate::peer::Peer;
use crate::server::Refusal;

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

fn run(owner: &Owner, peer: &Peer, pairs: &[(&str, &str)]) -> Result<RunReply, Refusal> {
    let mut terms = terms(pairs);
    terms.insert("class".to_owned(), "side".to_owned());
    let request = RunRequest {
        pid: peer.pid,
        name: None,
        command: vec!["job".to_owned()],
        terms,
    };
    owner.run(peer, &request)
}

fn user(pid: i32) -> Peer {
    Peer {
        pid,
        uid: 1000,
        groups: vec![1000],
    }
}

fn set(owner: &Owner, target: &str, pairs: &[(&str, &str)]) {
    let request = SetRequest {
        target: target.to_owned(),
        terms: terms(pairs),
    };
    owner.set(&root(1), &request).unwrap();
}

fn own_limit(owner: &Owner) -> Option<Bandwidth> {
    lock(&owner.gates)[0].own_limit()
}

#[test]
fn asking_again_wipes_nothing_that_was_set_with_privilege() {
    for kind in KINDS {
        let bed = bed(kind);
        let owner = bed.owner().unwrap();
        let first = run(&owner, &user(SHELL), &[]).unwrap();
        set(&owner, "gate:job", &[("quota", "5ms")]);
        let again = run(&owner, &user(SHELL), &[]).unwrap();
        assert_eq!(
            (&again.gate, &again.cgroup),
            (&first.gate, &first.cgroup),
            "{kind:?}"
        );
        let limit = Some(Bandwidth::limit(5_000, 100_000));
        assert_eq!(own_limit(&owner), limit, "{kind:?}");
        assert!(lock(&owner.gates)[0].record.by_admin.contains("quota"));
        let refused = run(&owner, &user(SHELL), &[("quota", "50ms")]).unwrap_err();
        assert_eq!(refused.kind, "denied", "{kind:?}: {refused}");
        assert_eq!(own_limit(&owner), limit, "{kind:?}");
        run(&owner, &user(SHELL), &[("quota", "3ms")]).unwrap();
        let tighter = Some(Bandwidth::limit(3_000, 100_000));
        assert_eq!(own_limit(&owner), tighter, "{kind:?}");
        if kind == Kind::V2 {
            // On v1 it is lifted while the side root is at its floor.
            let group = GroupPath::parse(&first.cgroup).unwrap();
            assert_eq!(owner.groups.bandwidth(&group).ok(), tighter);
        }
        assert_eq!(gate_names(&owner), ["job"]);
    }
}

#[test]
fn a_shell_does_not_leave_its_gates_limit_by_another_gate() {
    for kind in KINDS {
        let bed = bed(kind);
        let owner = bed.owner().unwrap();
        let outer = run(&owner, &user(SHELL), &[]).unwrap();
        let group = GroupPath::parse(&outer.cgroup).unwrap();
        // Its child begins where it is; a gate without a limit may be left.
        owner.groups.place(&group, HOG).unwrap();
        let free = run(&owner, &user(HOG), &[]).unwrap();
        assert_ne!(free.cgroup, outer.cgroup, "{kind:?}");
        owner.groups.place(&group, HOG).unwrap();
        set(&owner, "gate:job", &[("cap_hard", "50‰")]);
        let refused = run(&owner, &user(HOG), &[]).unwrap_err();
        assert_eq!(refused.kind, "denied", "{kind:?}: {refused}");
        assert!(refused.message.contains("gate job"), "{refused}");
        assert!(bed.place(HOG).contains("tg-side/job"), "{kind:?}");
        // Who may set it may leave it.
        run(&owner, &root(HOG), &[]).unwrap();
    }
}

#[test]
fn nobody_leaves_a_low_weight_for_a_gate_of_their_own() {
    for kind in KINDS {
        let bed = bed(kind);
        let owner = bed.owner().unwrap();
        let outer = run(&owner, &user(SHELL), &[("weight", "50")]).unwrap();
        let group = GroupPath::parse(&outer.cgroup).unwrap();
        owner.groups.place(&group, HOG).unwrap();
        // One's own low weight may be left, and so may a high one that was given.
        run(&owner, &user(HOG), &[]).unwrap();
        set(&owner, "gate:job", &[("weight", "300")]);
        owner.groups.place(&group, HOG).unwrap();
        run(&owner, &user(HOG), &[]).unwrap();
        set(&owner, "gate:job", &[("weight", "10")]);
        owner.groups.place(&group, HOG).unwrap();
        for weight in ["1", "100"] {
            let refused = run(&owner, &user(HOG), &[("weight", weight)]).unwrap_err();
            assert_eq!(refused.kind, "denied", "{kind:?}: {refused}");
            assert!(refused.message.contains("weight of gate job"), "{refused}");
        }
        assert!(bed.place(HOG).contains("tg-side/job"), "{kind:?}");
    }
}

#[test]
fn a_process_called_like_a_root_of_ours_is_not_put_there() {
    for kind in KINDS {
        for comm in ["main", "side", "agent"] {
            let bed = Bed::new(kind);
            let owner = bed.owner().unwrap();
            let pid = 779;
            bed.fs.inner().add_process(FakeProcess {
                comm: comm.to_owned(),
                ..FakeProcess::new(pid)
            });
            let home = bed.place(pid);
            let target = format!("pid:{pid}");
            set(&owner, &target, &[("class", "main"), ("quota", "30ms")]);
            assert_eq!(gate_names(&owner), [comm]);
            assert!(
                bed.place(pid).contains(&format!("/tg-{comm}=")),
                "{kind:?}: {}",
                bed.place(pid)
            );
            let ours = owner.groups.bandwidth(&owner.main_root());
            assert!(ours.is_err(), "{kind:?} {comm}: {ours:?}");
            unset(&owner, &target).unwrap();
            assert_eq!(bed.place(pid), home, "{kind:?}");
            owner.leave();
            assert!(!bed.exists(&format!("/tg-{comm}=")), "{kind:?} {comm}");
            assert!(!bed.place(PIDS[0]).contains("tg-"));
        }
    }
}

#[test]
fn systemd_is_not_asked_for_those_whom_the_terms_are_refused_whatever_it_says() {
    let bed = bed(Kind::V2);
    let owner = bed.owner().unwrap();
    let ask = |pairs| {
        let request = SetRequest {
            target: "unit:no-such-unit-of-ours".to_owned(),
            terms: terms(pairs),
        };
        owner.set(&user(SHELL), &request).unwrap_err().kind
    };
    assert_eq!(ask(&[("class", "main")]), "denied");
    let asked = (0..100).map(|_| ask(&[("class", "side")]));
    let kinds: Vec<&str> = asked.collect();
    assert_ne!(kinds[0], "denied");
    assert_eq!(
        kinds.last(),
        Some(&"busy"),
        "not more often than gates may be changed"
    );
}
