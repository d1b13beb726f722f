//! Limits that a gate has for itself: quota and period, burst, and the slice that CPUs take of a
//! quota.

use tidegate_cgroup::discover::{CgroupVersion, Feature, Machine};

use super::{Facts, Mechanism, Now};

fn by_feature(
    name: &'static str,
    feature: Option<&Feature>,
    how: String,
    since: &'static str,
) -> Mechanism {
    let (now, how) = match feature.map(|feature| (feature.present, &feature.how)) {
        Some((Some(true), _)) => (Now::Yes, how),
        Some((Some(false), why)) => (Now::No, format!("the kernel has none: {why}")),
        Some((None, why)) => (Now::Partly, format!("{how}; not certain: {why}")),
        None => (
            Now::No,
            "the cgroup tree could not be understood".to_owned(),
        ),
    };
    Mechanism::new(name, now, how, (now != Now::Yes).then(|| since.to_owned()))
}

pub(super) fn quota(machine: Option<&Machine>) -> Mechanism {
    let nested = match machine.map(|machine| machine.version) {
        Some(CgroupVersion::V1) => "one above its parent's is refused (cgroup v1)",
        _ => "the least of those above it holds (cgroup v2)",
    };
    by_feature(
        "quota, period",
        machine.map(|machine| &machine.features.quota),
        format!(
            "the group's own limit, written once, 1 ms at least; over n periods at most n quotas and a tick a CPU; {nested}"
        ),
        "a kernel with CONFIG_CFS_BANDWIDTH",
    )
}

pub(super) fn burst(machine: Option<&Machine>) -> Mechanism {
    let mut row = by_feature(
        "burst",
        machine.map(|machine| &machine.features.burst),
        "unused quota is carried over, never more than one quota; burst = max carries over all that the groups above leave; without a quota it acts on limits of other programs"
            .to_owned(),
        "a kernel of 5.14 or newer",
    );
    if row.now == Now::No && machine.is_some_and(|machine| machine.features.quota.is_present()) {
        row.how.push_str("; quotas hold without it");
    }
    row
}

pub(super) fn slice(facts: &Facts) -> Mechanism {
    const MEANING: &str = "so much of a quota a CPU takes at a time; less spreads a small quota over more CPUs, more takes the \
                           lock that they share less often";
    const FILE: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";
    let how = match facts.bandwidth_slice_us {
        Some(us) => format!(
            "one sysctl for the whole machine, {} ms now: {MEANING}; shown, not set",
            us as f64 / 1e3
        ),
        None => format!("the kernel's sysctl cannot be read ({FILE})"),
    };
    Mechanism::new(
        "slice",
        Now::No,
        how,
        facts
            .bandwidth_slice_us
            .map(|_| format!("by hand, for all groups: {FILE}")),
    )
}
