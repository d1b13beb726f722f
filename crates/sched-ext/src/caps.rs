//! Caps as the scheduler enforces them: asking for one, and what became of it.

use libbpf_rs::MapCore;
use serde::Serialize;
use tidegate_law::cap::NONE;

use crate::error::SchedExtError;
use crate::intf::{Bucket, CapAsk, MainSkel, TokenBucket};
use crate::object::{self, bytes, get};
use crate::terms::{CapScope, CapTerms};

const TABLE_FULL: &str = "the table of caps is full";

/// A gate's cap and its counts, since it was set; those of all its processes or tasks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CapStat {
    pub cgroup_id: u64,
    pub terms: CapTerms,
    pub buckets: u32,
    /// What the family's own bucket of the hard cap holds; below zero: owes.
    pub level_us: i64,
    /// The same of the soft cap.
    pub soft_level_us: i64,
    /// Reserved by tasks that wait for that bucket.
    pub reserved_us: u64,
    /// CPU time under the cap.
    pub used_us: u64,
    /// Of that, beyond the soft cap, on CPUs that no other task wanted.
    pub background_us: u64,
    /// Times that a task was throttled.
    pub throttles: u64,
    pub throttled_us: u64,
    /// Runs that only the kernel's watchdog made necessary.
    pub min_runs: u64,
}

/// A bucket's level at `now_ns`, with what runs have borrowed and not used: `tg_cap_fill` without
/// the fractions.
fn level_ns(bucket: &TokenBucket, now_ns: u64) -> i64 {
    let waited_ns = now_ns.saturating_sub(bucket.last_ns);
    let filled_ns = u128::from(waited_ns) * u128::from(bucket.rate_ppt) / 1_000;
    let filled_ns = i64::try_from(filled_ns).unwrap_or(i64::MAX);
    let level_ns = bucket.level_ns + bucket.lent_ns.cast_signed();
    level_ns
        .saturating_add(filled_ns)
        .min(bucket.depth_ns.cast_signed().max(level_ns))
}

impl CapStat {
    /// A family's bucket; None where it is a member, or free, or of a cap that was taken away (it
    /// asks for nothing): tasks that have not looked since still hold it, while another of the same
    /// gate may be in force by now.
    fn of(index: u32, bucket: &Bucket, buckets: u32, now_ns: u64) -> Option<CapStat> {
        let terms = &bucket.terms;
        let is_none = terms.hard_ppt == NONE && terms.soft_ppt == NONE;
        if bucket.users == 0 || bucket.family != index || is_none {
            return None;
        }
        let some = |ppt: u32| (ppt != NONE).then_some(ppt);
        Some(CapStat {
            cgroup_id: bucket.owner,
            terms: CapTerms {
                hard_ppt: some(terms.hard_ppt),
                soft_ppt: some(terms.soft_ppt),
                scope: match terms.scope {
                    1 => CapScope::Process,
                    2 => CapScope::Task,
                    _ => CapScope::Group,
                },
            },
            buckets,
            level_us: level_ns(&bucket.cap.hard, now_ns) / 1_000,
            soft_level_us: level_ns(&bucket.cap.soft, now_ns) / 1_000,
            reserved_us: bucket.reserved_ns / 1_000,
            used_us: bucket.used_ns / 1_000,
            background_us: bucket.background_ns / 1_000,
            throttles: bucket.throttles,
            throttled_us: bucket.throttled_ns / 1_000,
            min_runs: bucket.min_runs,
        })
    }
}

/// Asks for a cap on a gate's group; the caller raises the generation.
pub fn ask(skel: &MainSkel<'_>, cgroup_id: u64, terms: &CapTerms) -> Result<(), SchedExtError> {
    let ask = CapAsk {
        cgroup_id,
        hard_ppt: terms.hard_ppt.unwrap_or(NONE),
        soft_ppt: terms.soft_ppt.unwrap_or(NONE),
        scope: terms.scope as u32,
        ..CapAsk::default()
    };
    match object::call(&skel.progs.set_cap, bytes(&ask))? {
        0 => Ok(()),
        _ => Err(SchedExtError::Machine(TABLE_FULL.to_owned())),
    }
}

pub fn all(skel: &MainSkel<'_>) -> Result<Vec<CapStat>, SchedExtError> {
    let table = &skel.maps.buckets;
    let mut all = Vec::new();
    for index in 1..table.max_entries() {
        match get::<Bucket>(table, &index.to_ne_bytes())? {
            // Buckets are handed out in order, so the first that never had a user is the end.
            Some(bucket) if bucket.family != 0 => all.push(bucket),
            _ => break,
        }
    }
    let now_ns = monotonic_ns();
    let mut buckets = vec![0_u32; all.len() + 1];
    // Where each process or task has a bucket, no task draws on the family's own.
    let draws = |index: u32, bucket: &Bucket| {
        bucket.users > 0 && (bucket.terms.scope == 0 || bucket.family != index)
    };
    for (_, bucket) in (1_u32..)
        .zip(&all)
        .filter(|(index, bucket)| draws(*index, bucket))
    {
        if let Some(count) = buckets.get_mut(bucket.family as usize) {
            *count += 1;
        }
    }
    let stat = |(index, bucket): (u32, &Bucket)| {
        CapStat::of(index, bucket, buckets[index as usize], now_ns)
    };
    Ok((1_u32..).zip(&all).filter_map(stat).collect())
}

/// The clock of the scheduler (`bpf_ktime_get_ns`). Cgroup has the same: engines know nothing of
/// each other.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_between_looks() {
        // Of 100 permille, 1 ms deep, owing 0.7 ms at 10 ms, of which 0.2 are only lent.
        let bucket = TokenBucket {
            last_ns: 10_000_000,
            level_ns: -700_000,
            depth_ns: 1_000_000,
            lent_ns: 200_000,
            rate_ppt: 100,
            carry_ppt: 0,
        };
        assert_eq!(level_ns(&bucket, 10_000_000), -500_000);
        assert_eq!(
            level_ns(&bucket, 9_000_000),
            -500_000,
            "another CPU's clock"
        );
        assert_eq!(level_ns(&bucket, 14_000_000), -100_000);
        assert_eq!(level_ns(&bucket, u64::MAX), 1_000_000, "full");
        // A soft cap of 0 has no rate and no depth.
        let none = TokenBucket {
            last_ns: 10_000_000,
            ..TokenBucket::default()
        };
        assert_eq!(level_ns(&none, 16_000_000), 0);
    }

    #[test]
    fn a_family_is_shown_and_its_members_are_not() {
        let mut bucket = Bucket {
            family: 3,
            users: 2,
            owner: 77,
            used_ns: 5_000_000,
            ..Bucket::default()
        };
        bucket.terms.hard_ppt = 200;
        bucket.terms.soft_ppt = NONE;
        bucket.terms.scope = 2;
        let stat = CapStat::of(3, &bucket, 4, 0).expect("a family's");
        assert_eq!(stat.buckets, 4);
        assert_eq!((stat.cgroup_id, stat.used_us), (77, 5_000));
        assert_eq!(stat.terms.hard_ppt, Some(200));
        assert_eq!(stat.terms.soft_ppt, None);
        assert_eq!(stat.terms.scope, CapScope::Task);
        assert!(CapStat::of(4, &bucket, 4, 0).is_none(), "a member");
        let free = Bucket { users: 0, ..bucket };
        assert!(CapStat::of(3, &free, 4, 0).is_none(), "free");
        let mut taken_away = bucket;
        taken_away.terms.hard_ppt = NONE;
        let held = "what its gate has no more, though tasks hold it";
        assert!(CapStat::of(3, &taken_away, 4, 0).is_none(), "{held}");
    }
}
