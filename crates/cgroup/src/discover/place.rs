//! Where in the trees: the mount that carries a controller, our own group, and the base for the
//! groups we make.

use std::path::{Path, PathBuf};

use super::mountinfo::{CgroupLine, CgroupMount, below_mount};
use super::{CgroupVersion, DiscoverError, Feature, Hierarchy, Writable};
use crate::KernelFs;
use crate::group_path::GroupPath;

/// The mount that carries cpu: v1's by its options, else v2's by `cgroup.controllers`. A controller
/// is on one hierarchy only, so at most one of the two is true.
pub(super) fn find_cpu<'a>(
    fs: &dyn KernelFs,
    mounts: &'a [CgroupMount],
) -> Option<(CgroupVersion, &'a CgroupMount)> {
    if let Some(mount) = best(mounts, |mount| mount.is_v1_of("cpu")) {
        return Some((CgroupVersion::V1, mount));
    }
    let mount = best(mounts, |mount| {
        mount.version == 2 && v2_lists(fs, &mount.mount, "cpu")
    })?;
    Some((CgroupVersion::V2, mount))
}

fn v2_lists(fs: &dyn KernelFs, mount: &Path, controller: &str) -> bool {
    fs.read(&mount.join("cgroup.controllers"))
        .is_ok_and(|text| text.split_ascii_whitespace().any(|own| own == controller))
}

/// Among mounts of one hierarchy: writable before read-only, the whole tree before a part, the
/// shortest path.
fn best(mounts: &[CgroupMount], wanted: impl Fn(&CgroupMount) -> bool) -> Option<&CgroupMount> {
    mounts
        .iter()
        .filter(|mount| wanted(mount))
        .min_by_key(|mount| {
            (
                mount.read_only,
                mount.root != "/",
                mount.mount.as_os_str().len(),
            )
        })
}

pub(super) fn describe(mounts: &[CgroupMount]) -> String {
    if mounts.is_empty() {
        return "there is no cgroup mount at all".to_owned();
    }
    let one = |mount: &CgroupMount| {
        format!(
            "v{} {} [{}]",
            mount.version,
            mount.mount.display(),
            mount.controllers.join(",")
        )
    };
    mounts.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(super) fn group_below(
    lines: &[CgroupLine],
    version: CgroupVersion,
    controllers: &[String],
    root: &str,
) -> Option<GroupPath> {
    let line = lines.iter().find(|line| match version {
        CgroupVersion::V2 => line.controllers.is_empty(),
        CgroupVersion::V1 => line.controllers.iter().any(|own| controllers.contains(own)),
    })?;
    GroupPath::parse(&below_mount(root, &line.path)?).ok()
}

pub(super) fn hierarchy(
    fs: &dyn KernelFs,
    mount: &CgroupMount,
    version: CgroupVersion,
    own_lines: &[CgroupLine],
    base: Option<&str>,
) -> Result<Hierarchy, DiscoverError> {
    let own = group_below(own_lines, version, &mount.controllers, &mount.root);
    let controllers = match version {
        CgroupVersion::V1 => mount.controllers.clone(),
        CgroupVersion::V2 => fs
            .read(&mount.mount.join("cgroup.controllers"))?
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect(),
    };
    let mut found = Hierarchy {
        controllers,
        mount: mount.mount.clone(),
        root: mount.root.clone(),
        own,
        base: GroupPath::root(),
        writable: Writable::Yes,
    };
    if let Some(base) = base {
        let bad = |why: String| DiscoverError::Base {
            base: base.to_owned(),
            why,
        };
        found.base = GroupPath::parse(base).map_err(|error| bad(error.to_string()))?;
        if !fs.exists(&found.dir(&found.base)) {
            return Err(bad(format!(
                "{} is not there",
                found.dir(&found.base).display()
            )));
        }
        found.writable = writable_at(fs, &found, version, &found.base);
    } else {
        (found.base, found.writable) = find_base(fs, &found, version);
    }
    Ok(found)
}

/// The topmost group on the way from the mount to our own where we may make groups: there side's
/// branch and main's divide highest. With none, the mount itself and what refuses there.
fn find_base(
    fs: &dyn KernelFs,
    hierarchy: &Hierarchy,
    version: CgroupVersion,
) -> (GroupPath, Writable) {
    let mut ways = Vec::new();
    let mut at = hierarchy.own.clone();
    while let Some(group) = at {
        at = group.parent();
        ways.push(group);
    }
    if ways.is_empty() {
        ways.push(GroupPath::root());
    }
    let mut first_refusal = None;
    for group in ways.into_iter().rev() {
        match writable_at(fs, hierarchy, version, &group) {
            Writable::Yes => return (group, Writable::Yes),
            refusal => first_refusal = first_refusal.or(Some(refusal)),
        }
    }
    (
        GroupPath::root(),
        first_refusal.unwrap_or_else(|| Writable::No("no group to ask".to_owned())),
    )
}

/// Asks for write access to the directory and what a move into a new group needs; tries nothing.
fn writable_at(
    fs: &dyn KernelFs,
    hierarchy: &Hierarchy,
    version: CgroupVersion,
    group: &GroupPath,
) -> Writable {
    let mut asked: Vec<PathBuf> = vec![hierarchy.dir(group), hierarchy.file(group, "cgroup.procs")];
    if version == CgroupVersion::V2 {
        asked.push(hierarchy.file(group, "cgroup.subtree_control"));
    }
    match asked.iter().find_map(|path| fs.access_write(path).err()) {
        Some(error) => Writable::No(error.to_string()),
        None => Writable::Yes,
    }
}

/// v1's cpuacct where it is a hierarchy of its own. Without a usable one, groups have no usage
/// figure: said, not fatal.
pub(super) fn find_cpuacct(
    fs: &dyn KernelFs,
    mounts: &[CgroupMount],
    cpu: &Hierarchy,
    own_lines: &[CgroupLine],
    notes: &mut Vec<String>,
) -> Result<Option<Hierarchy>, DiscoverError> {
    if cpu.controllers.iter().any(|one| one == "cpuacct") {
        return Ok(None);
    }
    let Some(mount) = best(mounts, |mount| mount.is_v1_of("cpuacct")) else {
        notes.push(
            "no cpuacct hierarchy is mounted: usage of single groups is not known".to_owned(),
        );
        return Ok(None);
    };
    let found = hierarchy(fs, mount, CgroupVersion::V1, own_lines, None)?;
    if let Writable::No(why) = &found.writable {
        notes.push(format!(
            "cpuacct cannot be used, usage of single groups is not known: {why}"
        ));
        return Ok(None);
    }
    if found.base != cpu.base {
        notes.push(format!(
            "cpuacct groups are made in {} and cpu groups in {}",
            found.base, cpu.base
        ));
    }
    Ok(Some(found))
}

/// Where cpuset is, for machines that will confine side work by cpuset.
pub(super) fn find_cpuset(
    fs: &dyn KernelFs,
    mounts: &[CgroupMount],
    version: CgroupVersion,
) -> Option<PathBuf> {
    let mount = match version {
        CgroupVersion::V1 => best(mounts, |mount| mount.is_v1_of("cpuset")),
        CgroupVersion::V2 => best(mounts, |mount| {
            mount.version == 2 && v2_lists(fs, &mount.mount, "cpuset")
        }),
    };
    mount.map(|mount| mount.mount.clone())
}

/// v2: do (or can) groups in the base have cpu files?
pub(super) fn cpu_enabled(fs: &dyn KernelFs, cpu: &Hierarchy) -> Feature {
    let lists = |file: &str| {
        fs.read(&cpu.file(&cpu.base, file))
            .map(|text| text.split_ascii_whitespace().any(|one| one == "cpu"))
    };
    match (lists("cgroup.subtree_control"), lists("cgroup.controllers")) {
        (Ok(true), _) => Feature::found("cpu is in the base's cgroup.subtree_control"),
        (Err(error), _) | (_, Err(error)) => Feature::unknown(error.to_string()),
        (Ok(false), Ok(false)) => Feature::absent(format!(
            "cpu is not in {}: its parent does not hand it down; enable it there or have the group delegated",
            cpu.file(&cpu.base, "cgroup.controllers").display()
        )),
        (Ok(false), Ok(true)) => can_enable(fs, cpu),
    }
}

/// The real root may have processes and children with controllers; every other group only one of
/// the two.
fn can_enable(fs: &dyn KernelFs, cpu: &Hierarchy) -> Feature {
    let real_root = !fs.exists(&cpu.file(&cpu.base, "cgroup.type"));
    let empty = fs
        .read(&cpu.file(&cpu.base, "cgroup.procs"))
        .is_ok_and(|text| text.trim().is_empty());
    if real_root || empty {
        Feature::found("can be enabled in the base's cgroup.subtree_control")
    } else {
        Feature::absent(format!(
            "{} holds processes, so cpu cannot be enabled below it; move them into a child group first",
            cpu.dir(&cpu.base).display()
        ))
    }
}
