//! A plain bit set of up to [`CPUS_MAX`] CPUs: affinities, cpusets, and the sets of idle CPUs that
//! wake placement scans a word at a time.

use std::fmt;

use tidegate_cgroup::cpus::{format_list, parse_list};

use crate::ids::{CPUS_MAX, CpuId};

const WORD_BITS: u32 = 64;
const WORDS: usize = (CPUS_MAX / WORD_BITS) as usize;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    pub const EMPTY: CpuSet = CpuSet { words: [0; WORDS] };

    /// CPUs 0 to `cpus - 1`.
    pub fn first_n(cpus: u32) -> Self {
        CpuSet::range(0..cpus)
    }

    pub fn single(cpu: CpuId) -> Self {
        CpuSet::range(cpu.0..cpu.0 + 1)
    }

    /// The CPUs of a range; those from [`CPUS_MAX`] on are left out.
    pub fn range(range: std::ops::Range<u32>) -> Self {
        let mut set = CpuSet::EMPTY;
        for cpu in range.start..range.end.min(CPUS_MAX) {
            set.insert(CpuId(cpu));
        }
        set
    }

    /// Reads the kernel's list format, such as `0-3,8`; none for any other text, and for CPUs that
    /// no machine has.
    pub fn parse(list: &str) -> Option<Self> {
        let cpus = parse_list(list).ok()?;
        let is_list = cpus.last().is_some_and(|last| *last < CPUS_MAX);
        is_list.then(|| cpus.into_iter().map(CpuId).collect())
    }

    /// Adds a CPU (one from [`CPUS_MAX`] on is not there to add).
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut((cpu.0 / WORD_BITS) as usize) {
            *word |= 1 << (cpu.0 % WORD_BITS);
        }
    }

    /// Takes a CPU out.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut((cpu.0 / WORD_BITS) as usize) {
            *word &= !(1 << (cpu.0 % WORD_BITS));
        }
    }

    /// Adds or takes out.
    #[inline]
    pub fn set(&mut self, cpu: CpuId, member: bool) {
        if member {
            self.insert(cpu)
        } else {
            self.remove(cpu)
        }
    }

    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words
            .get((cpu.0 / WORD_BITS) as usize)
            .is_some_and(|word| word >> (cpu.0 % WORD_BITS) & 1 == 1)
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// How many CPUs the set has.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    pub fn first(&self) -> Option<CpuId> {
        self.next_from(CpuId(0))
    }

    /// The lowest CPU at or above `cpu`.
    pub fn next_from(&self, cpu: CpuId) -> Option<CpuId> {
        next_member(cpu.0, CPUS_MAX, |index| self.words[index])
    }

    /// The lowest CPU at or above `from` and below `end` that is in either set.
    #[inline]
    pub fn next_in_either(&self, other: &CpuSet, from: CpuId, end: u32) -> Option<CpuId> {
        next_member(from.0, end, |index| self.words[index] | other.words[index])
    }

    pub fn and(&self, other: &CpuSet) -> CpuSet {
        let mut words = self.words;
        for (word, other) in words.iter_mut().zip(&other.words) {
            *word &= other;
        }
        CpuSet { words }
    }

    /// Whether the sets share a CPU.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether all CPUs of this set are in the other.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.words
            .iter()
            .zip(&other.words)
            .all(|(a, b)| a & !b == 0)
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        let mut next = self.first();
        std::iter::from_fn(move || {
            let cpu = next?;
            next = self.next_from(CpuId(cpu.0 + 1));
            Some(cpu)
        })
    }
}

/// The lowest set bit in `start..end` of the words that `word_at` gives.
#[inline]
fn next_member(start: u32, end: u32, word_at: impl Fn(usize) -> u64) -> Option<CpuId> {
    let end = end.min(CPUS_MAX);
    if start >= end {
        return None;
    }
    let mut index = (start / WORD_BITS) as usize;
    let mut word = word_at(index) & (u64::MAX << (start % WORD_BITS));
    loop {
        if word != 0 {
            let cpu = index as u32 * WORD_BITS + word.trailing_zeros();
            return (cpu < end).then_some(CpuId(cpu));
        }
        index += 1;
        if index as u32 * WORD_BITS >= end {
            return None;
        }
        word = word_at(index);
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = CpuSet::EMPTY;
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<u32> = self.iter().map(|cpu| cpu.0).collect();
        formatter.write_str(&format_list(&cpus))
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CpuSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_and_writes_as_the_kernels() {
        for list in ["0", "0-3,8", "63-65,1023"] {
            assert_eq!(CpuSet::parse(list).expect("a list").to_string(), list);
        }
        assert_eq!(CpuSet::EMPTY.to_string(), "");
        for wrong in ["", "a", "3-1", "1024"] {
            assert!(CpuSet::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn set_algebra() {
        let (a, b) = (CpuSet::first_n(4), CpuSet::range(2..1024));
        assert_eq!(a.and(&b).to_string(), "2-3");
        assert!(a.and(&b).is_subset(&a) && a.intersects(&b) && !a.is_subset(&b));
    }
}
