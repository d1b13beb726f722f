//! Hierarchical weights against a tree that is counted again each time, and virtual time against
//! exact fractions.

use proptest::prelude::*;
use tidegate_law::hweight::{
    Group, MIN, ONE, SHIFT, WEIGHT_IDLE, group_weight, nice_weight, slice_left_ns, up, virtual_ns,
};

/// Groups of a tree; the parent of each comes before it, and the root is the first.
struct Tree {
    parents: Vec<usize>,
    weights: Vec<u32>,
    groups: Vec<Group>,
    /// Weights of the tasks that compete in each.
    tasks: Vec<Vec<u32>>,
}

impl Tree {
    fn new(shape: &[(usize, u32)]) -> Self {
        let mut parents = vec![0];
        for (at, (parent, _)) in shape.iter().enumerate() {
            parents.push(parent % (at + 1));
        }
        let weights: Vec<u32> = std::iter::once(1024)
            .chain(shape.iter().map(|(_, weight)| *weight))
            .collect();
        let count = weights.len();
        Self {
            parents,
            weights,
            groups: vec![Group::default(); count],
            tasks: vec![Vec::new(); count],
        }
    }

    fn change(&mut self, mut at: usize, weight: i64, by: i32) {
        let mut change = Some((weight, by));
        while let Some((weight, by)) = change {
            change = self.groups[at].update(self.weights[at], weight, by);
            if at == 0 {
                return;
            }
            at = self.parents[at];
        }
    }

    /// What competes in each group, counted again: weights and entities.
    fn counted(&self) -> Vec<(i64, i32)> {
        let mut sums: Vec<(i64, i32)> = self
            .tasks
            .iter()
            .map(|tasks| {
                let weights = tasks.iter().map(|weight| i64::from(*weight)).sum();
                (weights, i32::try_from(tasks.len()).unwrap())
            })
            .collect();
        for at in (1..sums.len()).rev() {
            if sums[at].1 > 0 {
                let above = &mut sums[self.parents[at]];
                above.0 += i64::from(self.weights[at]);
                above.1 += 1;
            }
        }
        sums
    }

    fn hweight(&self, mut at: usize, weight: u32) -> u64 {
        let (mut hweight, mut own) = (u64::from(weight) << SHIFT, u64::from(weight));
        while at != 0 {
            hweight = up(hweight, self.weights[at], self.groups[at].active(), own);
            own = u64::from(self.weights[at]);
            at = self.parents[at];
        }
        hweight
    }
}

fn shape() -> impl Strategy<Value = Vec<(usize, u32)>> {
    prop::collection::vec((0usize..8, 1u32..=102_400), 1..8)
}

proptest! {
    #[test]
    fn what_competes_is_what_is_counted(
        shape in shape(),
        steps in prop::collection::vec((0usize..8, 1u32..=88_761, 0u8..3), 1..60),
    ) {
        let mut tree = Tree::new(&shape);
        for (group, weight, what) in steps {
            let at = group % tree.groups.len();
            match what {
                0 => {
                    tree.tasks[at].push(weight);
                    tree.change(at, i64::from(weight), 1);
                }
                1 => {
                    if let Some(gone) = tree.tasks[at].pop() {
                        tree.change(at, -i64::from(gone), -1);
                    }
                }
                _ => {
                    tree.weights[at] = if at == 0 { 1024 } else { weight };
                    tree.change(at, 0, 0);
                }
            }
            let found: Vec<(i64, i32)> =
                tree.groups.iter().map(|group| (group.active(), group.entities())).collect();
            prop_assert_eq!(found, tree.counted());
        }
    }

    /// However many tasks share a group, together they are worth what the group is: each division
    /// drops less than one.
    #[test]
    fn tasks_share_what_their_group_is_worth(
        weight in 1u32..=102_400,
        tasks in prop::collection::vec(1u32..=88_761, 1..20),
    ) {
        let mut tree = Tree::new(&[(0, weight)]);
        for task in &tasks {
            tree.tasks[1].push(*task);
            tree.change(1, i64::from(*task), 1);
        }
        let sum: u64 = tasks.iter().map(|task| tree.hweight(1, *task)).sum();
        let whole = u64::from(weight) << SHIFT;
        prop_assert!(sum <= whole && sum + tasks.len() as u64 > whole, "{sum} of {whole}");
    }

    #[test]
    fn virtual_time_is_time_by_weight_and_no_run_is_free(
        ran_ns in 1u64..1 << 34,
        hweight in MIN..1 << 37,
    ) {
        let counted = u128::from(ran_ns.min(1 << 33)) * u128::from(ONE);
        let virtual_ns = virtual_ns(ran_ns, hweight);
        prop_assert_eq!(u128::from(virtual_ns), counted.div_ceil(u128::from(hweight)));
        prop_assert!(virtual_ns > 0);
    }

    #[test]
    fn the_rest_of_a_slice_comes_back(
        slice_ns in 0u64..=100_000_000,
        hweight in MIN..1 << 37,
        start in any::<u64>(),
    ) {
        let end = start.wrapping_add(virtual_ns(slice_ns, hweight));
        let left_ns = slice_left_ns(start, end, hweight);
        // Rounded up by less than one of virtual time, which is so much of CPU time.
        prop_assert!(left_ns >= slice_ns && left_ns <= slice_ns + hweight / ONE);
        prop_assert_eq!(slice_left_ns(end, end, hweight), 0);
        prop_assert_eq!(slice_left_ns(end.wrapping_add(1), end, hweight), 0);
    }
}

#[test]
fn a_sum_that_lacks_the_entity_itself_makes_it_no_more_than_its_group() {
    let hweight = up(1024 << SHIFT, 2048, 0, 1024);
    assert_eq!(hweight, 2048 << SHIFT);
    assert_eq!(up(1024 << SHIFT, 2048, -5, 1024), 2048 << SHIFT);
    assert_eq!(up(0, 2048, 0, 0), 0, "no division by nothing");
}

#[test]
fn weights_are_the_kernels() {
    assert_eq!(
        (nice_weight(-20), nice_weight(0), nice_weight(19)),
        (88_761, 1024, 15)
    );
    assert_eq!(
        (nice_weight(20), nice_weight(-21)),
        (1024, 1024),
        "no such level"
    );
    for nice in -20..19 {
        let ratio = f64::from(nice_weight(nice)) / f64::from(nice_weight(nice + 1));
        assert!((1.17..1.34).contains(&ratio), "{nice}: {ratio}");
    }
    assert_eq!(
        (group_weight(1), group_weight(100), group_weight(10_000)),
        (10, 1024, 102_400)
    );
    assert_eq!(group_weight(0), 1);
    assert!(WEIGHT_IDLE < nice_weight(19));
}
