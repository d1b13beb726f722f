//! What the kernel can do, found by looking; where only the kernel's version speaks, that is said.

use std::path::Path;

use super::{CgroupVersion, Hierarchy};
use crate::group_path::GroupPath;
use crate::{KernelFs, KfsError};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// `None` where it could not be found out.
    pub present: Option<bool>,
    pub how: String,
}

impl Feature {
    pub fn found(how: impl Into<String>) -> Self {
        Self {
            present: Some(true),
            how: how.into(),
        }
    }
    pub fn absent(how: impl Into<String>) -> Self {
        Self {
            present: Some(false),
            how: how.into(),
        }
    }
    pub fn unknown(how: impl Into<String>) -> Self {
        Self {
            present: None,
            how: how.into(),
        }
    }
    pub fn is_present(&self) -> bool {
        self.present == Some(true)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    pub quota: Feature,
    pub burst: Feature,
    pub idle: Feature,
    /// v1 with CONFIG_RT_GROUP_SCHED: real-time threads cannot enter our groups.
    pub rt_group_sched: Feature,
    /// The tick, which is the grain of the kernel's own group accounting.
    pub hz: Option<u32>,
}

const V1_FILES: [&str; 3] = ["cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.idle"];
const V2_FILES: [&str; 3] = ["cpu.max", "cpu.max.burst", "cpu.idle"];
/// Kernel versions that brought quota, burst and idle, for when no group shows the files.
const SINCE: [(u32, u32); 3] = [(4, 15), (5, 14), (5, 15)];

/// Looks at a group that shows the cpu files, when there is one.
pub(super) fn look(fs: &dyn KernelFs, version: CgroupVersion, cpu: &Hierarchy) -> Features {
    let shown = match version {
        // v1's root has all files but quota's effect; v2's root has none of them.
        CgroupVersion::V1 => Some(GroupPath::root()),
        CgroupVersion::V2 => shows_cpu(fs, cpu),
    };
    let [quota, burst, idle] = match &shown {
        Some(group) => cpu_files(fs, version, cpu, group),
        None => by_version(fs),
    };
    let rt_group_sched = match version {
        CgroupVersion::V1 if fs.exists(&cpu.mount.join("cpu.rt_runtime_us")) => {
            Feature::found("cpu.rt_runtime_us is there: real-time threads cannot enter our groups")
        }
        CgroupVersion::V1 => Feature::absent("cpu.rt_runtime_us is not there"),
        CgroupVersion::V2 => Feature::unknown("v2 does not show it"),
    };
    Features {
        quota,
        burst,
        idle,
        rt_group_sched,
        hz: tick_hz(),
    }
}

/// Makes a group for a moment and looks at the files it shows. For `doctor`, when no other group
/// shows them.
pub fn probe_features(
    fs: &dyn KernelFs,
    version: CgroupVersion,
    cpu: &Hierarchy,
    name: &str,
    features: &mut Features,
) -> Result<(), KfsError> {
    let Ok(group) = cpu.base.join(name) else {
        return Ok(());
    };
    fs.mkdir(&cpu.dir(&group))?;
    if fs.exists(&cpu.file(&group, "cpu.stat")) && fs.exists(&cpu.file(&group, files(version)[0])) {
        [features.quota, features.burst, features.idle] = cpu_files(fs, version, cpu, &group);
    }
    fs.rmdir(&cpu.dir(&group))
}

fn files(version: CgroupVersion) -> [&'static str; 3] {
    match version {
        CgroupVersion::V1 => V1_FILES,
        CgroupVersion::V2 => V2_FILES,
    }
}

fn cpu_files(
    fs: &dyn KernelFs,
    version: CgroupVersion,
    cpu: &Hierarchy,
    group: &GroupPath,
) -> [Feature; 3] {
    files(version).map(|name| {
        let path = cpu.file(group, name);
        match fs.exists(&path) {
            true => Feature::found(path.display().to_string()),
            false => Feature::absent(format!("{} is not there", path.display())),
        }
    })
}

/// A group of the first two levels in which v2's cpu files stand.
fn shows_cpu(fs: &dyn KernelFs, cpu: &Hierarchy) -> Option<GroupPath> {
    let kids = |group: &GroupPath| -> Vec<GroupPath> {
        let entries = fs.list(&cpu.dir(group)).unwrap_or_default();
        entries
            .iter()
            .filter(|one| one.is_dir)
            .filter_map(|one| group.join(&one.name).ok())
            .collect()
    };
    let first = kids(&GroupPath::root());
    let shows = |group: &GroupPath| fs.exists(&cpu.file(group, "cpu.weight"));
    first
        .iter()
        .find(|group| shows(group))
        .cloned()
        .or_else(|| first.iter().flat_map(kids).find(shows))
}

fn by_version(fs: &dyn KernelFs) -> [Feature; 3] {
    let release = kernel_release(fs);
    SINCE.map(|since| match parse_release(&release) {
        Some(version) if version >= since => {
            Feature::found(format!("kernel {release}; no group shows its files yet"))
        }
        Some(_) => Feature::absent(format!(
            "kernel {release} is older than {}.{}",
            since.0, since.1
        )),
        None => {
            Feature::unknown("no group shows its files, and the kernel's release cannot be read")
        }
    })
}

pub(crate) fn kernel_release(fs: &dyn KernelFs) -> String {
    let text = fs
        .read(Path::new("/proc/sys/kernel/osrelease"))
        .unwrap_or_default();
    text.trim()
        .chars()
        .take(64)
        .filter(|one| !one.is_control())
        .collect()
}

/// Major and minor of a release such as `6.18.15-cloud-amd64`.
pub(crate) fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|one: char| !one.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub fn tick_hz() -> Option<u32> {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let tick_ns = u32::try_from(tick.tv_nsec).ok()?;
    // Rounded: a tick at HZ=300 is 3333333 ns.
    (1_000_000_000 + tick_ns / 2).checked_div(tick_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(parse_release("6.18.15-cloud-amd64"), Some((6, 18)));
        assert_eq!(parse_release("7.3-rc1"), Some((7, 3)));
        for garbage in ["", "x", "6", "6.", ".6", "99999999999.1"] {
            assert_eq!(parse_release(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn the_tick_is_a_usual_one() {
        let hz = tick_hz().unwrap();
        assert!((24..=1200).contains(&hz), "{hz}");
    }
}
