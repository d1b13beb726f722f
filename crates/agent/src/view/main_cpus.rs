//! Main gates whose cpusets give them fewer CPUs than the machine has: headroom is idle CPU of the
//! whole machine, and need not be on theirs.

use std::collections::BTreeSet;

use tidegate_api::GateView;
use tidegate_cgroup::cpus::format_list;
use tidegate_cgroup::group::{GroupPath, Groups};

/// For a main gate whose work has these CPUs, ascending, all of them online.
fn of_main(gate: &str, cpus: &[u32], side: &[u32], online: &[u32]) -> Option<String> {
    if cpus == online || !side.iter().any(|cpu| cpus.contains(cpu)) {
        return None;
    }
    let others = online.iter().copied().filter(|cpu| !cpus.contains(cpu));
    let others = format_list(&others.collect::<Vec<u32>>());
    Some(format!(
        "gate {gate} has CPUs {}, side work has CPUs {}, and headroom counts idle CPU anywhere on the machine: keep side work \
         off main's CPUs (AllowedCPUs={others} for a unit, taskset -c {others} tidegate run --side), or give it a quota",
        format_list(cpus),
        format_list(side),
    ))
}

/// One sentence for each of the main gates whose CPUs side work may use as well, while others are
/// not theirs.
pub fn advice<'v>(
    groups: &Groups,
    online: &[u32],
    mains: impl Iterator<Item = &'v GateView>,
    sides: impl Iterator<Item = &'v GateView>,
) -> Vec<String> {
    // Work whose CPUs cannot be told may run everywhere.
    let cpus_of = |gate: &GateView| -> Vec<u32> {
        let group = GroupPath::parse(&gate.cgroup).ok();
        let found = group.and_then(|group| groups.cpus_of_work(&group).ok().flatten());
        let is_online = |cpu: &u32| online.binary_search(cpu).is_ok();
        let found = found.map(|cpus| cpus.into_iter().filter(is_online).collect::<Vec<u32>>());
        found
            .filter(|cpus| !cpus.is_empty())
            .unwrap_or_else(|| online.to_vec())
    };
    let mains = mains.map(|gate| (&gate.name, cpus_of(gate)));
    let mains: Vec<_> = mains.filter(|(_, cpus)| cpus != online).collect();
    if mains.is_empty() {
        return Vec::new();
    }
    let side: BTreeSet<u32> = sides.flat_map(cpus_of).collect();
    let side: Vec<u32> = side.into_iter().collect();
    mains
        .iter()
        .filter_map(|(gate, cpus)| of_main(gate, cpus, &side, online))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_said_where_side_work_may_run_on_mains_cpus() {
        let online: Vec<u32> = (0..16).collect();
        let web = |side: &[u32]| of_main("web", &[0, 1, 2, 3], side, &online);
        let sentence = web(&online).unwrap();
        assert!(
            sentence.starts_with("gate web has CPUs 0-3, side work has CPUs 0-15,")
                && sentence.contains("AllowedCPUs=4-15 ")
                && sentence.contains("taskset -c 4-15 "),
            "{sentence}"
        );
        assert_eq!(web(&[4, 5]), None);
        assert_eq!(web(&[]), None, "no side work");
        assert_eq!(of_main("web", &online, &online, &online), None);
    }
}
