//! The entities that wait on one run queue: a treap in order of (key, order of
//! arrival), which also knows the least vruntime and the least slice below
//! each node.
//!
//! EEVDF asks for the first by deadline among those whose vruntime is low
//! enough; the least vruntime of a subtree tells whether to look there at all,
//! so a pick costs O(log n), as do insertion and removal. Nodes are entities,
//! linked by number; priorities are a hash of the number, so the shape depends
//! on nothing but the history of the queue.

use super::entity::Entity;
use super::links::Links;
use crate::kernel::NONE;

/// Brings a node's sums up to date with its children's.
#[inline]
fn pull(ents: &mut [Entity], node: u32) {
    let e = &ents[node as usize];
    let (mut min_vruntime, mut min_slice) = (e.vruntime, e.slice_ns);
    for child in [e.links.left, e.links.right] {
        if child != NONE {
            let links = &ents[child as usize].links;
            min_vruntime = min_vruntime.min(links.min_vruntime);
            min_slice = min_slice.min(links.min_slice);
        }
    }
    let links = &mut ents[node as usize].links;
    links.min_vruntime = min_vruntime;
    links.min_slice = min_slice;
}

/// Inserts `new`, whose key and seq are set; returns the new root.
pub(super) fn insert(ents: &mut [Entity], root: u32, new: u32) -> u32 {
    if root == NONE {
        let links = &mut ents[new as usize].links;
        (links.left, links.right) = (NONE, NONE);
        pull(ents, new);
        return new;
    }
    let (mine, at) = (ents[new as usize].links, ents[root as usize].links);
    if mine.priority > at.priority {
        let (left, right) = split(ents, root, &mine);
        let links = &mut ents[new as usize].links;
        (links.left, links.right) = (left, right);
        pull(ents, new);
        return new;
    }
    if mine.before(&at) {
        let left = insert(ents, at.left, new);
        ents[root as usize].links.left = left;
    } else {
        let right = insert(ents, at.right, new);
        ents[root as usize].links.right = right;
    }
    pull(ents, root);
    root
}

/// Removes `old`, which is in the tree; returns the new root.
pub(super) fn remove(ents: &mut [Entity], root: u32, old: u32) -> u32 {
    debug_assert_ne!(root, NONE, "the entity is in this tree");
    let at = ents[root as usize].links;
    if root == old {
        return merge(ents, at.left, at.right);
    }
    if ents[old as usize].links.before(&at) {
        let left = remove(ents, at.left, old);
        ents[root as usize].links.left = left;
    } else {
        let right = remove(ents, at.right, old);
        ents[root as usize].links.right = right;
    }
    pull(ents, root);
    root
}

/// Splits into what comes before `at` and the rest.
fn split(ents: &mut [Entity], root: u32, at: &Links) -> (u32, u32) {
    if root == NONE {
        return (NONE, NONE);
    }
    let links = ents[root as usize].links;
    if links.before(at) {
        let (middle, right) = split(ents, links.right, at);
        ents[root as usize].links.right = middle;
        pull(ents, root);
        (root, right)
    } else {
        let (left, middle) = split(ents, links.left, at);
        ents[root as usize].links.left = middle;
        pull(ents, root);
        (left, root)
    }
}

fn merge(ents: &mut [Entity], left: u32, right: u32) -> u32 {
    if left == NONE {
        return right;
    }
    if right == NONE {
        return left;
    }
    let (l, r) = (ents[left as usize].links, ents[right as usize].links);
    if l.priority > r.priority {
        let merged = merge(ents, l.right, right);
        ents[left as usize].links.right = merged;
        pull(ents, left);
        left
    } else {
        let merged = merge(ents, left, r.left);
        ents[right as usize].links.left = merged;
        pull(ents, right);
        right
    }
}

/// The first by key.
pub(super) fn first(ents: &[Entity], root: u32) -> Option<u32> {
    let mut node = root;
    if node == NONE {
        return None;
    }
    while ents[node as usize].links.left != NONE {
        node = ents[node as usize].links.left;
    }
    Some(node)
}

/// The second by key.
pub(super) fn second(ents: &[Entity], root: u32) -> Option<u32> {
    let (mut node, mut parent) = (root, NONE);
    if node == NONE {
        return None;
    }
    while ents[node as usize].links.left != NONE {
        parent = node;
        node = ents[node as usize].links.left;
    }
    // After the first comes the first of what is right of it, else the node above it.
    first(ents, ents[node as usize].links.right).or((parent != NONE).then_some(parent))
}

/// The first by key among those whose vruntime passes `eligible`, which must
/// hold for every vruntime below one for which it holds.
#[inline]
pub(super) fn first_eligible(
    ents: &[Entity],
    root: u32,
    eligible: impl Fn(i64) -> bool,
) -> Option<u32> {
    let mut node = root;
    while node != NONE {
        let e = &ents[node as usize];
        let left = e.links.left;
        if left != NONE && eligible(ents[left as usize].links.min_vruntime) {
            node = left;
        } else if eligible(e.vruntime) {
            return Some(node);
        } else {
            node = e.links.right;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    fn slow_pick(ents: &[Entity], members: &[u32], limit: i64) -> Option<u32> {
        let eligible = members
            .iter()
            .filter(|&&m| ents[m as usize].vruntime <= limit);
        eligible.copied().min_by_key(|&m| {
            let links = &ents[m as usize].links;
            (links.key, links.seq)
        })
    }

    #[test]
    fn picks_as_a_scan_of_all_would() {
        let mut rng = Prng::new(3);
        let mut ents: Vec<Entity> = (0..200).map(|n| Entity::new(n, NONE, 1 << 20)).collect();
        let mut members: Vec<u32> = Vec::new();
        let mut root = NONE;
        for seq in 0..20_000 {
            let node = rng.below(200) as u32;
            if let Some(at) = members.iter().position(|&m| m == node) {
                members.swap_remove(at);
                root = remove(&mut ents, root, node);
            } else {
                let e = &mut ents[node as usize];
                e.vruntime = rng.below(50) as i64;
                e.slice_ns = rng.below(9);
                e.links.key = rng.below(20) as i64;
                e.links.seq = seq;
                root = insert(&mut ents, root, node);
                members.push(node);
            }
            let limit = rng.below(50) as i64;
            assert_eq!(
                first_eligible(&ents, root, |v| v <= limit),
                slow_pick(&ents, &members, limit)
            );
            assert_eq!(first(&ents, root), slow_pick(&ents, &members, i64::MAX));
            let slice = members.iter().map(|&m| ents[m as usize].slice_ns).min();
            assert_eq!(
                slice,
                (root != NONE).then(|| ents[root as usize].links.min_slice)
            );
        }
    }
}
