//! v2's files: `cpu.max`, `cpu.weight`, `cpu.stat`; and the controllers that a parent hands down.

use super::v1::{field, read_burst};
use super::{CpuStat, Files, GroupError, GroupPath, GroupResult, Tree};
use crate::bandwidth::Bandwidth;

const MAX: &str = "cpu.max";
const BURST: &str = "cpu.max.burst";

pub(super) struct V2;

impl Files for V2 {
    fn usage_ns(&self, tree: &Tree, group: &GroupPath) -> GroupResult<Option<u64>> {
        let text = tree.read(group, "cpu.stat")?;
        Ok(Some(
            field(tree, group, &text, "usage_usec")?.saturating_mul(1_000),
        ))
    }

    fn cpu_stat(&self, tree: &Tree, group: &GroupPath) -> GroupResult<CpuStat> {
        let text = tree.read(group, "cpu.stat")?;
        // A group without the cpu controller has only usage_usec: nothing was ever throttled.
        let ns = |name| {
            field(tree, group, &text, name)
                .unwrap_or(0)
                .saturating_mul(1_000)
        };
        let count = |name| field(tree, group, &text, name).unwrap_or(0);
        field(tree, group, &text, "usage_usec")?;
        Ok(CpuStat {
            nr_periods: count("nr_periods"),
            nr_throttled: count("nr_throttled"),
            throttled_ns: ns("throttled_usec"),
            nr_bursts: count("nr_bursts"),
            burst_ns: ns("burst_usec"),
        })
    }

    fn bandwidth(&self, tree: &Tree, group: &GroupPath) -> GroupResult<Bandwidth> {
        let text = tree.read(group, MAX)?;
        let max = Bandwidth::parse_max(&text)
            .map_err(GroupError::bandwidth(group, tree.cpu_file(group, MAX)))?;
        Ok(Bandwidth {
            burst_us: read_burst(tree, group, BURST)?,
            ..max
        })
    }

    fn set_bandwidth(
        &self,
        tree: &Tree,
        group: &GroupPath,
        from: Bandwidth,
        to: Bandwidth,
    ) -> GroupResult<u32> {
        // The kernel refuses a burst above the quota: burst goes down first and up last.
        let burst = to.burst_us.to_string();
        let mut steps: Vec<(&str, String)> = Vec::new();
        if to.burst_us < from.burst_us {
            steps.push((BURST, burst.clone()));
        }
        if (to.quota_us, to.period_us) != (from.quota_us, from.period_us) {
            steps.push((MAX, to.format_max()));
        }
        if to.burst_us > from.burst_us {
            steps.push((BURST, burst));
        }
        for (done, (file, value)) in steps.iter().enumerate() {
            let Err(source) = tree.fs.write(&tree.cpu_file(group, file), value) else {
                continue;
            };
            if done == 0 {
                return Err(GroupError::kfs(group)(source));
            }
            // Burst went down, or quota went up to where its burst could not follow: neither is
            // looser than both ends.
            let writes = done as u32;
            return Err(GroupError::HalfBandwidth {
                group: group.clone(),
                ends: Box::new((from, to)),
                source,
                writes,
            });
        }
        Ok(steps.len() as u32)
    }

    fn burst_file(&self) -> &'static str {
        BURST
    }

    fn weight_file(&self) -> &'static str {
        "cpu.weight"
    }

    fn weight_raw(&self, weight: u32) -> u64 {
        u64::from(weight)
    }

    fn weight_of_raw(&self, raw: u64) -> u32 {
        // While idle is set, kernels before 6.12 show 0.
        u32::try_from(raw)
            .unwrap_or(super::WEIGHT_MAX)
            .clamp(super::WEIGHT_MIN, super::WEIGHT_MAX)
    }

    fn populated(&self, tree: &Tree, group: &GroupPath) -> GroupResult<bool> {
        let text = tree.read(group, "cgroup.events")?;
        Ok(field(tree, group, &text, "populated")? != 0)
    }

    fn is_frozen(&self, tree: &Tree, group: &GroupPath) -> GroupResult<bool> {
        let text = tree.read(group, "cgroup.events")?;
        // Since Linux 5.2.
        Ok(field(tree, group, &text, "frozen").unwrap_or(0) != 0)
    }

    fn enable_cpu_below(&self, tree: &Tree, parent: &GroupPath) -> GroupResult<()> {
        if hands_down(tree, parent, "cpu")? {
            return Ok(());
        }
        let refused = |errno: i32| match errno {
            libc::ENOENT => Some((
                "its own parent does not hand the cpu controller down to it",
                "enable cpu in the parent's cgroup.subtree_control, or have the group delegated",
            )),
            libc::EBUSY | libc::EOPNOTSUPP => Some((
                "it holds processes, so cpu cannot be enabled below it",
                "move its processes into a child group first",
            )),
            _ => None,
        };
        let enabled = tree.write(parent, "cgroup.subtree_control", "+cpu");
        enabled.map_err(|error| match error.errno().and_then(refused) {
            Some((why, remedy)) => GroupError::NotPossible {
                group: parent.clone(),
                why: why.to_owned(),
                remedy: remedy.to_owned(),
            },
            None => error,
        })
    }
}

pub(super) fn hands_down(tree: &Tree, group: &GroupPath, controller: &str) -> GroupResult<bool> {
    let standing = tree.read(group, "cgroup.subtree_control")?;
    Ok(standing
        .split_ascii_whitespace()
        .any(|one| one == controller))
}
