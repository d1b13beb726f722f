//! The engine ext at its edges: who writes over its copies, who has another scheduler, what is refused leaves nothing, and who goes on
//! without an owner keeps its caps.

use std::sync::atomic::Ordering;

use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::GroupPath;

use super::ext::{bed, id};
use super::{KINDS, Kind, PIDS, run, run_side, set};
use crate::house::House;
use crate::looper::lock;
use crate::owner::Owner;

const S: u64 = 1_000_000_000;

#[test]
fn a_copy_that_is_written_over_stands_again_once_and_is_then_theirs_for_the_scheduler_too() {
    for kind in KINDS {
        let (bed, kernel) = bed(kind);
        let owner = bed.owner().unwrap();
        run_side(&owner, PIDS[0]).unwrap();
        owner.carry(S);
        let root = owner.side_root();
        let copy = owner.groups.bandwidth(&root).unwrap();
        let theirs = Bandwidth::limit(77_000, 100_000);
        let mut house = House::new(None);
        let write = || owner.groups.set_bandwidth(&root, None, theirs).unwrap();
        write();
        house.look_for_outside_writes(&owner);
        let stands = owner.groups.bandwidth(&root).unwrap();
        assert_eq!(
            stands.rate_ucpu(),
            copy.rate_ucpu(),
            "{kind:?}: written again once, though the loop writes nothing beside the scheduler"
        );
        let root_id = id(&owner, "/tg-side");
        assert!(lock(&kernel.told).mirrors.contains(&root_id), "{kind:?}");
        write();
        for _ in 0..3 {
            house.look_for_outside_writes(&owner);
            assert_eq!(owner.groups.bandwidth(&root).unwrap(), theirs, "{kind:?}");
        }
        assert!(
            !lock(&kernel.told).mirrors.contains(&root_id),
            "{kind:?}: the scheduler keeps whoever's quota"
        );
    }
}

#[test]
fn a_group_that_was_refused_its_terms_has_its_quota_back_and_enforced() {
    let (bed, kernel) = bed(Kind::V2);
    let owner = bed.owner().unwrap();
    owner.carry(S);
    let other = GroupPath::parse("/other").unwrap();
    let fresh = bed.values("/other");
    let other_id = id(&owner, "/other");
    for pid in PIDS {
        owner.groups.place(&other, pid).unwrap();
    }
    let terms = [("class", "side"), ("tolerance", "0.001%")];
    let refused = set(&owner, "cgroup:/other", &terms).unwrap_err();
    assert!(refused.message.contains("x 67 ="), "{}", refused.message);
    assert_eq!(bed.values("/other"), fresh);
    assert!(!lock(&kernel.told).mirrors.contains(&other_id));

    // Whatever else left a mark there.
    owner.ext.mark(other_id, true);
    assert!(lock(&kernel.told).mirrors.contains(&other_id));
    run_side(&owner, PIDS[0]).unwrap();
    let left = lock(&kernel.told).mirrors.contains(&other_id);
    assert!(
        !left,
        "no gate's: the next word to the scheduler takes it away"
    );
}

#[test]
fn anothers_scheduler_is_waited_for_and_is_no_end_of_ours() {
    let (bed, kernel) = bed(Kind::V2);
    let owner = bed.owner().unwrap();
    lock(&kernel.told).other = Some("rusty_1.0");
    for turn in 0..100 {
        let now_ns = turn * 31 * S;
        owner.carry(now_ns);
        let view = owner.ext_view(now_ns).unwrap();
        let off = view.off.unwrap();
        assert!(off.contains("another scheduler, rusty_1.0"), "{off}");
        assert_eq!((view.on, view.ends), (false, 0));
    }
    lock(&kernel.told).other = None;
    owner.carry(101 * 31 * S);
    assert!(owner.ext.holds() && kernel.in_force.load(Ordering::Relaxed));
}

#[test]
fn who_goes_on_without_an_owner_is_divided_into_groups_that_keep_its_caps() {
    let (bed, _kernel) = bed(Kind::V2);
    let owner = bed.owner().unwrap();
    owner.carry(S);
    let each = [("cap_hard", "200‰"), ("cap_scope", "task")];
    let group = run(&owner, PIDS[0], &each).unwrap();
    let at = |owner: &Owner| owner.groups.group_of(PIDS[0]).unwrap().unwrap();
    assert_eq!(at(&owner).to_string(), group, "the scheduler needs none");
    owner.leave();
    assert_ne!(at(&owner).to_string(), group);
    let limit = owner.groups.bandwidth(&at(&owner)).unwrap();
    assert_eq!(
        limit.rate_ucpu(),
        Some(200_000),
        "its quota holds it from now on"
    );
}
