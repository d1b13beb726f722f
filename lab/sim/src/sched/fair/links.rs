//! A node of the tree of those who wait.

use crate::kernel::NONE;

/// A node's links and sums.
#[derive(Clone, Copy)]
pub(crate) struct Links {
    pub(crate) left: u32,
    pub(crate) right: u32,
    pub(super) priority: u32,
    /// What the tree is sorted by: deadline (EEVDF) or vruntime (CFS).
    pub(crate) key: i64,
    /// Arrival: equal keys stay in order.
    pub(crate) seq: u64,
    pub(crate) min_vruntime: i64,
    pub(crate) min_slice: u64,
}

impl Links {
    pub(super) fn new(number: u32) -> Links {
        Links {
            left: NONE,
            right: NONE,
            priority: mix(number),
            key: 0,
            seq: 0,
            min_vruntime: 0,
            min_slice: 0,
        }
    }

    pub(super) fn before(&self, other: &Links) -> bool {
        (self.key, self.seq) < (other.key, other.seq)
    }
}

/// A fixed permutation of the numbers (Murmur3's finisher): treap priorities.
fn mix(number: u32) -> u32 {
    let mut x = number.wrapping_add(0x9e37_79b9);
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}
