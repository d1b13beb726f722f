//! The tree of groups, whose hierarchical weights are flattened (law/hweight.h): a run queue per group and CPU is more than a BPF
//! scheduler can afford.
//!
//! What is active in a group changes under a waiting task; its share is looked up again when it is queued next.

use tidegate_law::hweight::{self, Group, MIN, SHIFT, WEIGHT_IDLE, group_weight};

use super::{KINDS, Kind};
use crate::GroupId;

struct Node {
    parent: u32,
    weight: u32,
    /// By kind of work: kinds do not share.
    competes: [Group; KINDS],
}

/// The tree of groups; the root is there from the start.
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node {
                parent: 0,
                weight: 1024,
                competes: <[Group; KINDS]>::default(),
            }],
        }
    }

    pub(super) fn add(&mut self, parent: GroupId, cgroup_weight: u32, idle: bool) {
        self.nodes.push(Node {
            parent: parent.0,
            weight: entity_weight(cgroup_weight, idle),
            competes: <[Group; KINDS]>::default(),
        });
    }

    pub(super) fn set_weight(&mut self, group: GroupId, cgroup_weight: u32, idle: bool) {
        self.nodes[group.index()].weight = entity_weight(cgroup_weight, idle);
        for kind in [Kind::Main, Kind::Side, Kind::Background] {
            self.change(group, kind, 0, 0);
        }
    }

    /// A task of this weight began to compete in `group`.
    pub(super) fn activate(&mut self, group: GroupId, kind: Kind, weight: u32) {
        self.change(group, kind, i64::from(weight), 1);
    }

    /// It sleeps, waits for quota, or is gone.
    pub(super) fn deactivate(&mut self, group: GroupId, kind: Kind, weight: u32) {
        self.change(group, kind, -i64::from(weight), -1);
    }

    /// Updates a group and those above, as far as they change; the root's sums serve nothing.
    fn change(&mut self, group: GroupId, kind: Kind, weight: i64, by: i32) {
        let mut at = group.index();
        let mut change = Some((weight, by));
        while let Some((weight, by)) = change.filter(|_| at != 0) {
            let node = &mut self.nodes[at];
            change = node.competes[kind as usize].update(node.weight, weight, by);
            at = node.parent as usize;
        }
    }

    /// What a task of this weight in `group` is worth now.
    pub(super) fn hweight(&self, group: GroupId, kind: Kind, weight: u32) -> u64 {
        let mut hweight = u64::from(weight) << SHIFT;
        let (mut at, mut own) = (group.index(), weight);
        while at != 0 {
            let node = &self.nodes[at];
            let active = node.competes[kind as usize].active();
            hweight = hweight::up(hweight, node.weight, active, own.into());
            own = node.weight;
            at = node.parent as usize;
        }
        hweight.max(MIN)
    }
}

fn entity_weight(cgroup_weight: u32, idle: bool) -> u32 {
    if idle {
        WEIGHT_IDLE
    } else {
        group_weight(cgroup_weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_law::hweight::ONE;

    #[test]
    fn a_group_is_worth_its_weight_however_many_tasks_share_it() {
        let mut tree = Tree::new();
        tree.add(GroupId::ROOT, 100, false);
        tree.add(GroupId::ROOT, 300, false);
        tree.add(GroupId(2), 50, false);
        tree.add(GroupId(2), 150, false);
        tree.activate(GroupId(1), Kind::Main, 1024);
        for _ in 0..4 {
            tree.activate(GroupId(3), Kind::Main, 1024);
            tree.activate(GroupId(4), Kind::Main, 1024);
        }
        assert_eq!(tree.hweight(GroupId(1), Kind::Main, 1024), ONE);
        let low = tree.hweight(GroupId(3), Kind::Main, 1024);
        let high = tree.hweight(GroupId(4), Kind::Main, 1024);
        assert_eq!((low * 4, high * 4), (ONE * 3 / 4, ONE * 9 / 4));
        for _ in 0..4 {
            tree.deactivate(GroupId(3), Kind::Main, 1024);
        }
        assert_eq!(tree.hweight(GroupId(4), Kind::Main, 1024) * 4, ONE * 3);
    }

    #[test]
    fn weights_change_under_active_tasks() {
        let mut tree = Tree::new();
        tree.add(GroupId::ROOT, 100, false);
        tree.add(GroupId(1), 100, false);
        tree.activate(GroupId(2), Kind::Main, 1024);
        tree.set_weight(GroupId(2), 700, false);
        tree.set_weight(GroupId(1), 100, true);
        let idle = u64::from(WEIGHT_IDLE) << SHIFT;
        assert_eq!(tree.hweight(GroupId(2), Kind::Main, 1024), idle);
        tree.deactivate(GroupId(2), Kind::Main, 1024);
        let none = <[Group; KINDS]>::default();
        assert!(tree.nodes.iter().all(|node| node.competes == none));
    }

    #[test]
    fn side_work_takes_nothing_from_the_main_work_of_its_group() {
        let mut tree = Tree::new();
        tree.add(GroupId::ROOT, 100, false);
        tree.activate(GroupId(1), Kind::Main, 1024);
        tree.activate(GroupId(1), Kind::Side, 1024);
        tree.activate(GroupId(1), Kind::Background, 1024);
        for kind in [Kind::Main, Kind::Side, Kind::Background] {
            assert_eq!(tree.hweight(GroupId(1), kind, 1024), ONE);
        }
    }
}
