//! Main gates whose cpusets give them fewer CPUs than the machine has: headroom is idle CPU of the
//! whole machine, and need not be on theirs.

use std::collections::BTreeSet;

use tidegate_api::GateView;
use tidegate_cgroup::cpus::format_list;
use tidegate_cgroup::group::{GroupPath, Groups};

/// A main gate and the CPUs of its work, ascending, all of them online.
struct Main {
    gate: String,
    cpus: Vec<u32>,
}

impl Main {
    fn advice(&self, side: &[u32], online: &[u32]) -> Option<String> {
        let shares = side.iter().any(|cpu| self.cpus.contains(cpu));
        if !shares || self.cpus == online {
            return None;
        }
        let others: Vec<u32> = online
            .iter()
            .copied()
            .filter(|cpu| !self.cpus.contains(cpu))
            .collect();
        let others = format_list(&others);
        Some(format!(
            "gate {} has CPUs {}, side work has CPUs {}, and headroom counts idle CPU anywhere on the machine: keep side work \
             off main's CPUs (AllowedCPUs={others} for a unit, taskset -c {others} tidegate run --side), or give it a quota",
            self.gate,
            format_list(&self.cpus),
            format_list(side),
        ))
    }
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
    let mains: Vec<Main> = mains
        .map(|gate| Main {
            gate: gate.name.clone(),
            cpus: cpus_of(gate),
        })
        .filter(|main| main.cpus != online)
        .collect();
    if mains.is_empty() {
        return Vec::new();
    }
    let side: BTreeSet<u32> = sides.flat_map(cpus_of).collect();
    let side: Vec<u32> = side.into_iter().collect();
    mains
        .iter()
        .filter_map(|main| main.advice(&side, online))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_said_where_side_work_may_run_on_mains_cpus() {
        let online: Vec<u32> = (0..16).collect();
        let web = Main {
            gate: "web".to_owned(),
            cpus: vec![0, 1, 2, 3],
        };
        let sentence = web.advice(&online, &online).unwrap();
        assert!(
            sentence.starts_with("gate web has CPUs 0-3, side work has CPUs 0-15,")
                && sentence.contains("AllowedCPUs=4-15 ")
                && sentence.contains("taskset -c 4-15 "),
            "{sentence}"
        );
        assert_eq!(web.advice(&[4, 5], &online), None);
        assert_eq!(web.advice(&[], &online), None, "no side work");
        let everywhere = Main {
            cpus: online.clone(),
            ..web
        };
        assert_eq!(everywhere.advice(&online, &online), None);
    }
}
