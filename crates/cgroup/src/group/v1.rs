//! v1's files: `cpu.cfs_*`, `cpu.shares`, `cpuacct.usage`; three files for one limit, hence an
//! order of writes.

use super::{
    CpuStat, Files, GroupError, GroupPath, GroupResult, Tree, shares_from_weight,
    weight_from_shares,
};
use crate::KfsError;
use crate::bandwidth::Bandwidth;

const QUOTA: &str = "cpu.cfs_quota_us";
const PERIOD: &str = "cpu.cfs_period_us";
const BURST: &str = "cpu.cfs_burst_us";

pub(super) struct V1;

impl Files for V1 {
    fn usage_ns(&self, tree: &Tree, group: &GroupPath) -> GroupResult<Option<u64>> {
        let path = match &tree.cpuacct {
            Some(cpuacct) => cpuacct.file(&tree.translate(group, cpuacct), "cpuacct.usage"),
            None if tree.cpu.controllers.iter().any(|one| one == "cpuacct") => {
                tree.cpu_file(group, "cpuacct.usage")
            }
            None => return Ok(None),
        };
        tree.read_number(group, path).map(Some)
    }

    fn cpu_stat(&self, tree: &Tree, group: &GroupPath) -> GroupResult<CpuStat> {
        let text = tree.read(group, "cpu.stat")?;
        Ok(CpuStat {
            nr_periods: field(tree, group, &text, "nr_periods")?,
            nr_throttled: field(tree, group, &text, "nr_throttled")?,
            throttled_ns: field(tree, group, &text, "throttled_time")?,
            // Kernels before 5.14 have no burst.
            nr_bursts: field(tree, group, &text, "nr_bursts").unwrap_or(0),
            burst_ns: field(tree, group, &text, "burst_time").unwrap_or(0),
        })
    }

    fn bandwidth(&self, tree: &Tree, group: &GroupPath) -> GroupResult<Bandwidth> {
        let quota_path = tree.cpu_file(group, QUOTA);
        let text = tree.read(group, QUOTA)?;
        let quota_us =
            Bandwidth::parse_v1_quota(&text).map_err(GroupError::bandwidth(group, quota_path))?;
        let period_us = tree.read_number(group, tree.cpu_file(group, PERIOD))?;
        Ok(Bandwidth {
            quota_us,
            period_us,
            burst_us: read_burst(tree, group, BURST)?,
        })
    }

    fn set_bandwidth(
        &self,
        tree: &Tree,
        group: &GroupPath,
        from: Bandwidth,
        to: Bandwidth,
    ) -> GroupResult<u32> {
        match write_all(tree, group, (from, to), &order(from, to)) {
            Err(error) if error.errno() == Some(libc::EINVAL) => {
                write_all(tree, group, (from, to), &without_quota_between(from, to))
                    .map_err(|_| error)
            }
            result => result,
        }
    }

    fn burst_file(&self) -> &'static str {
        BURST
    }

    fn weight_file(&self) -> &'static str {
        "cpu.shares"
    }

    fn weight_raw(&self, weight: u32) -> u64 {
        shares_from_weight(weight)
    }

    fn weight_of_raw(&self, raw: u64) -> u32 {
        weight_from_shares(raw)
    }

    fn populated(&self, tree: &Tree, group: &GroupPath) -> GroupResult<bool> {
        if !tree.pids(group)?.is_empty() {
            return Ok(true);
        }
        for child in tree.children_in(&tree.cpu, group)? {
            match self.populated(tree, &child) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // A child that ends meanwhile is empty.
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn is_frozen(&self, _tree: &Tree, _group: &GroupPath) -> GroupResult<bool> {
        Ok(false)
    }

    fn enable_cpu_below(&self, _tree: &Tree, _parent: &GroupPath) -> GroupResult<()> {
        Ok(())
    }
}

/// Burst where the kernel has it; 0 where it has not.
pub(super) fn read_burst(tree: &Tree, group: &GroupPath, file: &str) -> GroupResult<u64> {
    Ok(tree
        .read_optional(group, file, tree.has_burst)?
        .unwrap_or(0))
}

/// One field of a file such as `cpu.stat`.
pub(super) fn field(tree: &Tree, group: &GroupPath, text: &str, name: &str) -> GroupResult<u64> {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok()).flatten()
    });
    value.ok_or_else(|| GroupError::Garbage {
        group: group.clone(),
        path: tree.cpu_file(group, "cpu.stat"),
        text: crate::clip(text),
        why: "a field is missing or is no number",
    })
}

/// The writes that lead from one limit to another.
///
/// Burst goes down first and up last, because the kernel refuses a burst above the quota. Of quota
/// and period, the one goes first that makes the tighter state in between: the two candidates'
/// rates multiply to the product of the old and the new rate, so the smaller is at most their
/// geometric mean, and therefore never looser than both ends. From "no limit" the period goes first
/// (it limits nothing yet), to "no limit" the quota does.
fn order(from: Bandwidth, to: Bandwidth) -> Vec<(&'static str, String)> {
    let mut steps = Vec::new();
    if to.burst_us < from.burst_us {
        steps.push((BURST, to.burst_us.to_string()));
    }
    let quota = (from.quota_us != to.quota_us).then(|| (QUOTA, to.format_v1_quota()));
    let period = (from.period_us != to.period_us).then(|| (PERIOD, to.period_us.to_string()));
    if quota_first(from, to) {
        steps.extend(quota);
        steps.extend(period);
    } else {
        steps.extend(period);
        steps.extend(quota);
    }
    if to.burst_us > from.burst_us {
        steps.push((BURST, to.burst_us.to_string()));
    }
    steps
}

/// The writes by way of no quota, which is allowed below any parent and above any child: the
/// tighter state in between may be below a child's limit.
fn without_quota_between(from: Bandwidth, to: Bandwidth) -> Vec<(&'static str, String)> {
    let none = Bandwidth {
        quota_us: None,
        burst_us: 0,
        ..from
    };
    [order(from, none), order(none, to)].concat()
}

fn write_all(
    tree: &Tree,
    group: &GroupPath,
    (from, to): (Bandwidth, Bandwidth),
    steps: &[(&'static str, String)],
) -> GroupResult<u32> {
    for (done, (file, value)) in steps.iter().enumerate() {
        let Err(source) = tree.fs.write(&tree.cpu_file(group, file), value) else {
            continue;
        };
        return Err(undo(tree, group, from, to, &steps[..done], source));
    }
    // At most six.
    Ok(steps.len() as u32)
}

fn quota_first(from: Bandwidth, to: Bandwidth) -> bool {
    match (from.quota_us, to.quota_us) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(from_quota), Some(to_quota)) => {
            // to_quota / from.period <= from_quota / to.period, cross-multiplied in 128 bits.
            u128::from(to_quota) * u128::from(to.period_us)
                <= u128::from(from_quota) * u128::from(from.period_us)
        }
    }
}

/// After a refusal: the writes already made are taken back, last first, as far as the kernel lets
/// us.
fn undo(
    tree: &Tree,
    group: &GroupPath,
    from: Bandwidth,
    to: Bandwidth,
    done: &[(&'static str, String)],
    source: KfsError,
) -> GroupError {
    for (nth, (file, _)) in done.iter().enumerate().rev() {
        let old = match *file {
            QUOTA => from.format_v1_quota(),
            PERIOD => from.period_us.to_string(),
            _ => from.burst_us.to_string(),
        };
        if tree.fs.write(&tree.cpu_file(group, file), &old).is_err() {
            // The way there and the part of the way back.
            let writes = (2 * done.len() - nth - 1) as u32;
            return GroupError::HalfBandwidth {
                group: group.clone(),
                ends: Box::new((from, to)),
                source,
                writes,
            };
        }
    }
    GroupError::kfs(group)(source)
}

#[cfg(test)]
mod order_tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(state: &mut Bandwidth, step: &(&'static str, String)) {
        match step.0 {
            QUOTA => state.quota_us = Bandwidth::parse_v1_quota(&step.1).unwrap(),
            PERIOD => state.period_us = step.1.parse().unwrap(),
            _ => state.burst_us = step.1.parse().unwrap(),
        }
    }

    fn any_bandwidth() -> impl Strategy<Value = Bandwidth> {
        (
            proptest::option::of(1_000u64..2_000_000),
            1_000u64..=1_000_000,
            0u64..=1_000,
        )
            .prop_map(|(quota_us, period_us, burst_pm)| Bandwidth {
                quota_us,
                period_us,
                burst_us: quota_us.map_or(0, |quota| quota * burst_pm / 1_000),
            })
    }

    proptest! {
        #[test]
        fn no_state_between_is_invalid_or_looser_than_both(from in any_bandwidth(), to in any_bandwidth()) {
            let mut state = from;
            for step in order(from, to) {
                apply(&mut state, &step);
                prop_assert!(state.quota_us.is_none_or(|quota| state.burst_us <= quota), "{state}");
                prop_assert!(
                    state.rate_no_above(&from) || state.rate_no_above(&to),
                    "{from} -> {state} -> {to}"
                );
            }
            prop_assert_eq!(state, to);
        }

        #[test]
        fn only_what_differs_is_written(from in any_bandwidth(), quota in 1_000u64..2_000_000) {
            let from = Bandwidth { burst_us: 0, ..from };
            prop_assert!(order(from, from).is_empty());
            let to = Bandwidth { quota_us: Some(quota), ..from };
            prop_assert_eq!(order(from, to).len(), usize::from(from.quota_us != Some(quota)));
        }
    }
}
