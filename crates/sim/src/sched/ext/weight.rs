//! What a task is worth in its cache's queue: hierarchical weights, flattened.
//!
//! A BPF scheduler cannot afford a run queue per group and CPU, so the tree is flattened at each level into what a task of
//! it would get: its weight, times each group's weight over what is active in that group, up to the root. The unit is the
//! kernel's (a task of nice 0, or a group of weight 100, in the root is 1024), with 20 fractional bits.
//!
//! Weights are at most 10000 · 1024 / 100 = 102,400 < 2^17, so a flat weight is below 2^37 and its product with a weight below
//! 2^54. What is active in a group changes under a waiting task; its share is looked up again when it is queued next.

use crate::GroupId;

/// Fractional bits of a flat weight.
pub(super) const FLAT_BITS: u32 = 20;
/// A task of nice 0, alone in the root.
pub(super) const FLAT_ONE: u64 = 1024 << FLAT_BITS;
/// The kernel's WEIGHT_IDLEPRIO.
pub(super) const WEIGHT_IDLE: u64 = 3;

struct Node {
    parent: u32,
    weight: u64,
    /// Weights of active tasks and child groups, added up.
    active: u64,
    entities: u32,
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
                active: 0,
                entities: 0,
            }],
        }
    }

    pub(super) fn add(&mut self, parent: GroupId, cgroup_weight: u32, idle: bool) {
        self.nodes.push(Node {
            parent: parent.0,
            weight: entity_weight(cgroup_weight, idle),
            active: 0,
            entities: 0,
        });
    }

    pub(super) fn set_weight(&mut self, group: GroupId, cgroup_weight: u32, idle: bool) {
        let weight = entity_weight(cgroup_weight, idle);
        let node = &mut self.nodes[group.index()];
        let old = std::mem::replace(&mut node.weight, weight);
        if node.entities > 0 && group != GroupId::ROOT {
            let parent = node.parent as usize;
            self.nodes[parent].active = self.nodes[parent].active - old + weight;
        }
    }

    /// A task of this weight began to compete in `group`.
    pub(super) fn activate(&mut self, group: GroupId, weight: u64) {
        let (mut at, mut weight) = (group.index(), weight);
        loop {
            let node = &mut self.nodes[at];
            node.active += weight;
            node.entities += 1;
            if node.entities > 1 || at == 0 {
                return;
            }
            weight = node.weight;
            at = node.parent as usize;
        }
    }

    /// It sleeps, waits for quota, or is gone.
    pub(super) fn deactivate(&mut self, group: GroupId, weight: u64) {
        let (mut at, mut weight) = (group.index(), weight);
        loop {
            let node = &mut self.nodes[at];
            node.active -= weight;
            node.entities -= 1;
            if node.entities > 0 || at == 0 {
                return;
            }
            weight = node.weight;
            at = node.parent as usize;
        }
    }

    /// What a task of this weight in `group` is worth now; at least 1.
    pub(super) fn flat(&self, group: GroupId, weight: u64) -> u64 {
        let mut flat = weight << FLAT_BITS;
        let (mut at, mut own) = (group.index(), weight);
        while at != 0 {
            let node = &self.nodes[at];
            flat = flat * node.weight / node.active.max(own);
            own = node.weight;
            at = node.parent as usize;
        }
        flat.max(1)
    }
}

fn entity_weight(cgroup_weight: u32, idle: bool) -> u64 {
    if idle {
        return WEIGHT_IDLE;
    }
    (u64::from(cgroup_weight) * 1024 / 100).max(1)
}

/// CPU time as virtual time at a flat weight; rounded up, so that no run is free.
pub(super) fn virtual_ns(ran_ns: u64, flat: u64) -> u64 {
    (u128::from(ran_ns) * u128::from(FLAT_ONE)).div_ceil(u128::from(flat)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_worth_its_weight_however_many_tasks_share_it() {
        let mut tree = Tree::new();
        tree.add(GroupId::ROOT, 100, false);
        tree.add(GroupId::ROOT, 300, false);
        tree.add(GroupId(2), 50, false);
        tree.add(GroupId(2), 150, false);
        tree.activate(GroupId(1), 1024);
        for _ in 0..4 {
            tree.activate(GroupId(3), 1024);
            tree.activate(GroupId(4), 1024);
        }
        assert_eq!(tree.flat(GroupId(1), 1024), FLAT_ONE);
        let (low, high) = (tree.flat(GroupId(3), 1024), tree.flat(GroupId(4), 1024));
        assert_eq!((low * 4, high * 4), (FLAT_ONE * 3 / 4, FLAT_ONE * 9 / 4));
        for _ in 0..4 {
            tree.deactivate(GroupId(3), 1024);
        }
        assert_eq!(tree.flat(GroupId(4), 1024) * 4, FLAT_ONE * 3);
    }

    #[test]
    fn weights_change_under_active_tasks() {
        let mut tree = Tree::new();
        tree.add(GroupId::ROOT, 100, false);
        tree.add(GroupId(1), 100, false);
        tree.activate(GroupId(2), 1024);
        tree.set_weight(GroupId(2), 700, false);
        tree.set_weight(GroupId(1), 100, true);
        assert_eq!(tree.flat(GroupId(2), 1024), WEIGHT_IDLE << FLAT_BITS);
        tree.deactivate(GroupId(2), 1024);
        assert!(
            tree.nodes
                .iter()
                .all(|node| node.active == 0 && node.entities == 0)
        );
    }

    #[test]
    fn virtual_time_is_cpu_time_over_weight() {
        assert_eq!(virtual_ns(1_000, FLAT_ONE), 1_000);
        assert_eq!(virtual_ns(1_000, FLAT_ONE / 4), 4_000);
        assert_eq!(virtual_ns(1, FLAT_ONE * 100), 1);
    }
}
