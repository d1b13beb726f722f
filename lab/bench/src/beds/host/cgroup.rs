//! The lab's own groups, for the arms that are not Tidegate's: made, written and removed here, with
//! nothing shared with the engine that is under test.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{LabError, clock};

/// Names of the lab's groups begin so, followed by the lab's process id.
pub(crate) const PREFIX: &str = "tglab-";

/// Where the cpu controller is, and in which version.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// Version 2 of cgroups.
    pub v2: bool,
    /// The directory under which groups of the cpu controller are made.
    pub cpu: PathBuf,
    /// ... of the controller that accounts CPU time; the same as `cpu` on v2 and where both are
    /// mounted together.
    pub cpuacct: PathBuf,
}

impl Hierarchy {
    /// Looks in the mount table; whether groups can be made there is not asked.
    pub fn locate() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        Hierarchy::from_mountinfo(&mounts, |path| {
            fs::read_to_string(path.join("cgroup.controllers"))
                .is_ok_and(|c| c.split_whitespace().any(|c| c == "cpu"))
        })
    }

    /// ... and makes a group there, to see whether we may.
    pub fn find() -> Result<Self, LabError> {
        let needs = |why: String| LabError::Needs {
            what: "making groups for main and side".into(),
            why,
            mend: "run as root on a machine (or in a container) with a writable cgroup tree".into(),
        };
        let h = Hierarchy::locate().ok_or_else(|| needs("no cpu controller is mounted".into()))?;
        if h.v2 {
            // Refused where the controller is on already or not ours to turn on; the probe tells.
            let _ = fs::write(h.cpu.join("cgroup.subtree_control"), "+cpu");
        }
        let probe = Group::create(&h, "probe").map_err(|e| needs(e.to_string()))?;
        let writable = probe.set_quota(None, 100_000);
        drop(probe);
        writable.map_err(|e| needs(e.to_string()))?;
        Ok(h)
    }

    pub(crate) fn from_mountinfo(mounts: &str, v2_has_cpu: impl Fn(&Path) -> bool) -> Option<Self> {
        let (mut cpu, mut cpuacct, mut unified) = (None, None, None);
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let Some(at) = left.split(' ').nth(4).map(PathBuf::from) else {
                continue;
            };
            let mut right = right.split(' ');
            let kind = right.next().unwrap_or("");
            let options = right.nth(1).unwrap_or("");
            match kind {
                "cgroup" => {
                    let has = |name| options.split(',').any(|o| o == name);
                    if has("cpu") {
                        cpu.get_or_insert(at.clone());
                    }
                    if has("cpuacct") {
                        cpuacct.get_or_insert(at);
                    }
                }
                "cgroup2" => unified = Some(at),
                _ => {}
            }
        }
        if let Some(at) = unified.filter(|at| v2_has_cpu(at)) {
            return Some(Hierarchy {
                v2: true,
                cpuacct: at.clone(),
                cpu: at,
            });
        }
        let cpu = cpu?;
        Some(Hierarchy {
            v2: false,
            cpuacct: cpuacct.unwrap_or_else(|| cpu.clone()),
            cpu,
        })
    }

    /// CPU time of everything on the machine but the idle threads, where the kernel accounts it
    /// apart from the ticks: on v1. (The root of v2 repeats the ticks of /proc/stat.)
    pub fn root_usage_ns(&self) -> Option<u64> {
        if self.v2 {
            return None;
        }
        fs::read_to_string(self.cpuacct.join("cpuacct.usage"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// CPU time of the group `name` (a path below the mount) of anyone.
    pub fn usage_ns(&self, name: &str) -> Option<u64> {
        usage_of(self.v2, &self.cpuacct.join(name.trim_start_matches('/')))
    }
}

fn usage_of(v2: bool, dir: &Path) -> Option<u64> {
    if !v2 {
        return fs::read_to_string(dir.join("cpuacct.usage"))
            .ok()?
            .trim()
            .parse()
            .ok();
    }
    let stat = fs::read_to_string(dir.join("cpu.stat")).ok()?;
    let usec = stat.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
    usec.trim().parse::<u64>().ok().map(|us| us * 1000)
}

/// The group of the cpu controller that process `pid` is in, as a directory.
pub fn group_of(h: &Hierarchy, pid: i32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    Some(h.cpu.join(path_in(&text, h.v2)?.trim_start_matches('/')))
}

/// The path after the controllers, of the hierarchy that has the cpu controller.
fn path_in(text: &str, v2: bool) -> Option<&str> {
    text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let ours = if v2 {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|c| c == "cpu")
        };
        ours.then_some(path)
    })
}

/// The bandwidth limit of a group of anyone, and what it has counted: files of the kernel, read from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bandwidth {
    /// Periods in which the group had something to run.
    pub periods: u64,
    /// ... and was throttled.
    pub throttled: u64,
    /// For how long, over all CPUs.
    pub throttled_ns: u64,
    /// Periods that used what was carried over.
    pub bursts: u64,
    /// The quota in force; `None`: no limit.
    pub quota_us: Option<u64>,
    /// The burst in force.
    pub burst_us: u64,
}

impl Bandwidth {
    /// Of the group `dir`.
    pub fn read(v2: bool, dir: &Path) -> Self {
        let text = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
        let stat = text("cpu.stat");
        let quota = if v2 {
            text("cpu.max")
        } else {
            text("cpu.cfs_quota_us")
        };
        let burst = if v2 {
            text("cpu.max.burst")
        } else {
            text("cpu.cfs_burst_us")
        };
        Bandwidth {
            // "max" and −1 are no limit.
            quota_us: quota.split_whitespace().next().and_then(|q| q.parse().ok()),
            burst_us: burst.trim().parse().unwrap_or(0),
            ..Bandwidth::counted(&stat)
        }
    }

    /// The counters of `cpu.stat`, in either version's names and units.
    fn counted(stat: &str) -> Self {
        let of = |name: &str| {
            let line = stat
                .lines()
                .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|n| n.trim().parse::<u64>().ok())
        };
        Bandwidth {
            periods: of("nr_periods").unwrap_or(0),
            throttled: of("nr_throttled").unwrap_or(0),
            throttled_ns: of("throttled_usec")
                .map(|us| us * 1000)
                .or(of("throttled_time"))
                .unwrap_or(0),
            bursts: of("nr_bursts").unwrap_or(0),
            ..Bandwidth::default()
        }
    }

    /// What was counted since `earlier`; the limit as it is now.
    pub fn since(&self, earlier: &Self) -> Self {
        Bandwidth {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled: self.throttled.saturating_sub(earlier.throttled),
            throttled_ns: self.throttled_ns.saturating_sub(earlier.throttled_ns),
            bursts: self.bursts.saturating_sub(earlier.bursts),
            ..*self
        }
    }
}

/// A group of the lab; what is in it is killed and the group removed when it is dropped.
pub struct Group {
    v2: bool,
    cpu: PathBuf,
    cpuacct: PathBuf,
}

impl Group {
    /// Makes `tglab-<pid>-<name>` at the top of the hierarchy.
    pub fn create(h: &Hierarchy, name: &str) -> Result<Self, LabError> {
        let name = format!("{PREFIX}{}-{name}", std::process::id());
        let (cpu, cpuacct) = (h.cpu.join(&name), h.cpuacct.join(&name));
        fs::create_dir(&cpu).map_err(|e| LabError::file("make a group", &cpu, e))?;
        let group = Group {
            v2: h.v2,
            cpu,
            cpuacct,
        };
        // Another hierarchy only where the two are mounted apart.
        if !group.cpuacct.is_dir() {
            fs::create_dir(&group.cpuacct)
                .map_err(|e| LabError::file("make a group", &group.cpuacct, e))?;
        }
        Ok(group)
    }

    /// Its path below the mount.
    pub fn name(&self) -> String {
        let name = self.cpu.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The files that a process writes itself into.
    pub fn membership(&self) -> Vec<PathBuf> {
        let mut files = vec![self.cpu.join("cgroup.procs")];
        if self.cpuacct != self.cpu {
            files.push(self.cpuacct.join("cgroup.procs"));
        }
        files
    }

    /// CPU time of what is or was in it.
    pub fn usage_ns(&self) -> u64 {
        usage_of(self.v2, &self.cpuacct).unwrap_or(0)
    }

    fn write(&self, file: &str, value: &str) -> Result<(), LabError> {
        let path = self.cpu.join(file);
        fs::write(&path, value).map_err(|e| LabError::file("write a group's file", path, e))
    }

    /// The lowest weight: 1 of v2, whose scale puts 100 at 1024 shares, so 10 shares on v1.
    pub fn set_weight_one(&self) -> Result<(), LabError> {
        if self.v2 {
            self.write("cpu.weight", "1")
        } else {
            self.write("cpu.shares", "10")
        }
    }

    /// A weight of v2's scale.
    pub fn set_weight(&self, weight: u32) -> Result<(), LabError> {
        if self.v2 {
            return self.write("cpu.weight", &weight.to_string());
        }
        let shares = (u64::from(weight) * 1024 / 100).max(2);
        self.write("cpu.shares", &shares.to_string())
    }

    /// Runs only where nothing else wants the CPU.
    pub fn set_idle(&self) -> Result<(), LabError> {
        self.write("cpu.idle", "1")
    }

    /// A limit of `quota_us` per `period_us`, or none.
    pub fn set_quota(&self, quota_us: Option<u64>, period_us: u64) -> Result<(), LabError> {
        if self.v2 {
            let quota = quota_us.map_or("max".to_string(), |q| q.to_string());
            return self.write("cpu.max", &format!("{quota} {period_us}"));
        }
        // A write is a refill, so the period is written only when it changes.
        let period = self.cpu.join("cpu.cfs_period_us");
        let now = fs::read_to_string(&period).unwrap_or_default();
        if now.trim() != period_us.to_string() {
            self.write("cpu.cfs_period_us", &period_us.to_string())?;
        }
        let quota = quota_us.map_or("-1".to_string(), |q| q.to_string());
        self.write("cpu.cfs_quota_us", &quota)
    }

    /// What may be carried over, at most the quota.
    pub fn set_burst(&self, burst_us: u64) -> Result<(), LabError> {
        let file = if self.v2 {
            "cpu.max.burst"
        } else {
            "cpu.cfs_burst_us"
        };
        self.write(file, &burst_us.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove(&self.cpu);
        if self.cpuacct != self.cpu {
            remove(&self.cpuacct);
        }
    }
}

/// Kills what is in the group and removes it; a killed process leaves its group a little later.
fn remove(dir: &Path) {
    for _ in 0..200 {
        let members = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        for pid in members
            .lines()
            .filter_map(|l| l.parse::<i32>().ok())
            .filter(|&p| p > 0)
        {
            // SAFETY: the group is ours and holds only what the lab started.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
            }
        }
        if fs::remove_dir(dir).is_ok() || !dir.exists() {
            return;
        }
        clock::sleep_until(clock::monotonic_ns() + 10_000_000);
    }
    eprintln!(
        "tidegate: lab: removing a group: {}: still in use; remove it by hand",
        dir.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/cpuacct rw,nosuid - cgroup cgroup rw,cpuacct
33 30 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
34 30 0:30 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw
";

    #[test]
    fn an_empty_v2_beside_v1_is_v1() {
        let h = Hierarchy::from_mountinfo(V1, |_| false).expect("found");
        assert!(!h.v2);
        assert_eq!(h.cpu, Path::new("/sys/fs/cgroup/cpu"));
        assert_eq!(h.cpuacct, Path::new("/sys/fs/cgroup/cpuacct"));
    }

    #[test]
    fn a_v2_with_the_cpu_controller_is_v2() {
        let only = "24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let h = Hierarchy::from_mountinfo(only, |_| true).expect("found");
        assert!(h.v2);
        assert_eq!(h.cpu, h.cpuacct);
        assert!(Hierarchy::from_mountinfo(only, |_| false).is_none());
    }

    #[test]
    fn both_versions_of_the_counters_are_read() {
        let v2 = "usage_usec 5\nnr_periods 7\nnr_throttled 3\nthrottled_usec 12\nnr_bursts 1\n";
        let v1 = "nr_periods 7\nnr_throttled 3\nthrottled_time 12000\nnr_bursts 1\nburst_time 9\n";
        assert_eq!(Bandwidth::counted(v2), Bandwidth::counted(v1));
        assert_eq!(Bandwidth::counted(v1).throttled_ns, 12_000);
        assert_eq!(Bandwidth::counted("").periods, 0);
    }

    #[test]
    fn the_group_with_the_cpu_controller_is_found() {
        let v1 = "3:cpuset:/c\n2:cpuacct:/a\n1:cpu:/b/x\n0::/u\n";
        assert_eq!(
            (path_in(v1, false), path_in(v1, true)),
            (Some("/b/x"), Some("/u"))
        );
        assert_eq!(path_in("4:cpu,cpuacct:/y\n", false), Some("/y"));
    }

    #[test]
    fn controllers_mounted_together_are_one_directory() {
        let both = "31 30 0:27 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let h = Hierarchy::from_mountinfo(both, |_| false).expect("found");
        assert_eq!((h.v2, &h.cpu), (false, &h.cpuacct));
    }
}
