//! What this machine offers: which cgroup hierarchy carries the cpu controller, where in it we may
//! make groups, and what the kernel can do. Discovery only reads; nothing is created, moved or
//! enabled (except [`probe_features`], on request).

mod features;
mod mountinfo;
mod place;

use std::path::{Path, PathBuf};

use crate::cpus::{self, CpusError};
use crate::group_path::GroupPath;
use crate::{KernelFs, KfsError};

pub use features::{Feature, Features, probe_features, tick_hz};
pub(crate) use features::{kernel_release, parse_release};
pub use mountinfo::{
    CgroupLine, CgroupMount, ParseError, below_mount, parse_mountinfo, parse_proc_cgroup,
};

const MOUNTINFO: &str = "/proc/self/mountinfo";
const OWN_CGROUP: &str = "/proc/self/cgroup";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoverError {
    #[error("discovery: {0}")]
    Kfs(#[from] KfsError),
    #[error("discovery: {0}")]
    Parse(#[from] ParseError),
    #[error("discovery: {0}")]
    Cpus(#[from] CpusError),
    #[error(
        "discovery: /proc/self/mountinfo: no cgroup mount carries the cpu controller ({found}); mount one: \
         mount -t cgroup2 none /sys/fs/cgroup, or mount -t cgroup -o cpu none /sys/fs/cgroup/cpu"
    )]
    NoCpuController { found: String },
    #[error(
        "discovery: kernel {release} is that of WSL 1, which has no cgroups; convert the distribution to WSL 2: \
         wsl --set-version NAME 2"
    )]
    Wsl1 { release: String },
    #[error(
        "discovery: base {base}: {why}; name an existing group below the cpu controller's mount"
    )]
    Base { base: String, why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CgroupVersion {
    /// One hierarchy a controller (or several).
    V1,
    V2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writable {
    /// By asking access(2) for the directory and its files.
    Yes,
    No(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    pub controllers: Vec<String>,
    pub mount: PathBuf,
    /// Which group lies at the mount, as the kernel names it to us.
    pub root: String,
    /// Our own group, below the mount; `None` when it cannot be named through this mount.
    pub own: Option<GroupPath>,
    /// The group in which ours are made: the topmost one where we may.
    pub base: GroupPath,
    pub writable: Writable,
}

impl Hierarchy {
    pub fn dir(&self, group: &GroupPath) -> PathBuf {
        // A trailing slash for the root would make "/sys/fs/cgroup/cpu/" out of the mount.
        if group.is_root() {
            self.mount.clone()
        } else {
            self.mount.join(group.relative())
        }
    }

    pub fn file(&self, group: &GroupPath, name: &str) -> PathBuf {
        self.dir(group).join(name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub version: CgroupVersion,
    pub cpu: Hierarchy,
    /// The hierarchy with cpuacct, on v1 where it is mounted apart from cpu.
    pub cpuacct: Option<Hierarchy>,
    /// Where cpuset is (v1: its own mount; v2: the unified one, when listed).
    pub cpuset_mount: Option<PathBuf>,
    /// v2: whether groups at the base have, or can be given, the cpu controller; on v1 always.
    pub cpu_enabled: Feature,
    pub features: Features,
    pub online_cpus: Vec<u32>,
    pub kernel: String,
    pub systemd: bool,
    pub notes: Vec<String>,
}

impl Machine {
    /// The hierarchies in which a gate needs a group, cpu first.
    pub fn used(&self) -> impl Iterator<Item = &Hierarchy> {
        std::iter::once(&self.cpu).chain(self.cpuacct.as_ref())
    }

    /// The cgroup mounts in use, to confine a [`crate::RealFs`] to.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.used()
            .map(|hierarchy| hierarchy.mount.clone())
            .chain(self.cpuset_mount.clone())
            .collect()
    }

    pub fn refusal(&self) -> Option<String> {
        let not_writable = self.used().find_map(|hierarchy| match &hierarchy.writable {
            Writable::Yes => None,
            Writable::No(why) => Some(why.clone()),
        });
        let lacking = |feature: &Feature, remedy: &str| match feature.present {
            Some(false) => Some(format!("{}{remedy}", feature.how)),
            _ => None,
        };
        not_writable
            .or_else(|| lacking(&self.cpu_enabled, ""))
            .or_else(|| {
                lacking(
                    &self.features.quota,
                    "; boot Linux 4.15 or later with CONFIG_CFS_BANDWIDTH",
                )
            })
    }

    /// Where a process is, below the mount of the cpu controller.
    pub fn group_of(
        &self,
        fs: &dyn KernelFs,
        pid: i32,
    ) -> Result<Option<GroupPath>, DiscoverError> {
        group_in(fs, &self.cpu, self.version, pid)
    }
}

/// Where a process is in one hierarchy; `None` when that group cannot be named through our mount
/// (another namespace).
pub fn group_in(
    fs: &dyn KernelFs,
    hierarchy: &Hierarchy,
    version: CgroupVersion,
    pid: i32,
) -> Result<Option<GroupPath>, DiscoverError> {
    let file = format!("/proc/{pid}/cgroup");
    let lines = parse_proc_cgroup(&file, &fs.read(Path::new(&file))?)?;
    let group = place::group_below(&lines, version, &hierarchy.controllers, &hierarchy.root);
    // A name that is not text was read with U+FFFD in it, which is another group's name, or no
    // group's.
    Ok(group.filter(|group| !group.as_str().contains(char::REPLACEMENT_CHARACTER)))
}

pub fn cgroup_mounts(fs: &dyn KernelFs) -> Result<Vec<CgroupMount>, DiscoverError> {
    Ok(parse_mountinfo(MOUNTINFO, &fs.read(Path::new(MOUNTINFO))?)?)
}

fn no_cpu_controller(fs: &dyn KernelFs, mounts: &[CgroupMount]) -> DiscoverError {
    let release = kernel_release(fs);
    // WSL 2 has a kernel of its own, whose release ends in `-microsoft-standard-WSL2`.
    match release.ends_with("-Microsoft") {
        true => DiscoverError::Wsl1 { release },
        false => DiscoverError::NoCpuController {
            found: place::describe(mounts),
        },
    }
}

/// Looks at the machine. `base` overrides where our groups are made (a path below the cpu mount).
pub fn discover(fs: &dyn KernelFs, base: Option<&str>) -> Result<Machine, DiscoverError> {
    let mounts = cgroup_mounts(fs)?;
    let own = parse_proc_cgroup(OWN_CGROUP, &fs.read(Path::new(OWN_CGROUP))?)?;
    let mut notes = Vec::new();
    let (version, cpu_mount) =
        place::find_cpu(fs, &mounts).ok_or_else(|| no_cpu_controller(fs, &mounts))?;
    let cpu = place::hierarchy(fs, cpu_mount, version, &own, base)?;
    let cpuacct = match version {
        CgroupVersion::V1 => place::find_cpuacct(fs, &mounts, &cpu, &own, &mut notes)?,
        CgroupVersion::V2 => None,
    };
    let cpu_enabled = match version {
        CgroupVersion::V1 => Feature::found("v1: every group of this hierarchy has it"),
        CgroupVersion::V2 => place::cpu_enabled(fs, &cpu),
    };
    let features = features::look(fs, version, &cpu);
    let systemd = fs.exists(Path::new("/run/systemd/system"));
    if systemd && version == CgroupVersion::V2 && cpu.base.is_root() {
        notes.push(
            "systemd is PID 1: our groups stand at the top of its tree, where it leaves them alone"
                .into(),
        );
    }
    if cpu.own.is_none() {
        notes.push(format!(
            "our own group cannot be named through {}",
            cpu.mount.display()
        ));
    }
    Ok(Machine {
        version,
        cpuset_mount: place::find_cpuset(fs, &mounts, version),
        cpu,
        cpuacct,
        cpu_enabled,
        features,
        online_cpus: cpus::online(fs)?,
        kernel: features::kernel_release(fs),
        systemd,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::FakeFs;

    /// What a machine says that Tidegate cannot use; `None` for one that it can.
    fn refusal(release: &str, mounts: &[(u8, &str, &[&str])]) -> Option<String> {
        let fs = FakeFs::with_mounts(mounts);
        fs.set_file("/proc/sys/kernel/osrelease", release);
        match discover(&fs, None) {
            Ok(machine) => machine.refusal(),
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn a_machine_that_cannot_be_used_says_why_and_what_helps() {
        let v2: (u8, &str, &[&str]) = (2, "/sys/fs/cgroup", &["cpu", "memory"]);
        let no_cpu: (u8, &str, &[&str]) = (2, "/sys/fs/cgroup", &["memory"]);
        let unified: (u8, &str, &[&str]) = (2, "/sys/fs/cgroup/unified", &[]);
        let v1: (u8, &str, &[&str]) = (1, "/sys/fs/cgroup/cpu,cpuacct", &["cpu", "cpuacct"]);
        for (release, mounts, why, remedy) in [
            (
                "4.4.0-19041-Microsoft",
                &[][..],
                "4.4.0-19041-Microsoft is that of WSL 1",
                "wsl --set-version NAME 2",
            ),
            (
                "6.18.0",
                &[],
                "no cgroup mount at all",
                "mount -t cgroup2 none /sys/fs/cgroup",
            ),
            (
                "6.18.0",
                &[no_cpu],
                "no cgroup mount carries the cpu controller",
                "mount one: mount -t cgroup",
            ),
            (
                "4.9.0-19-amd64",
                &[v2],
                "kernel 4.9.0-19-amd64 is older than 4.15",
                "boot Linux 4.15 or later",
            ),
        ] {
            let refusal = refusal(release, mounts).unwrap();
            assert!(
                refusal.contains(why) && refusal.contains(remedy),
                "{refusal}"
            );
        }
        for (release, mounts) in [
            ("5.15.90.1-microsoft-standard-WSL2", &[v2][..]),
            ("6.18.0", &[v1, unified]),
        ] {
            assert_eq!(refusal(release, mounts), None, "{release}");
        }
    }
}
