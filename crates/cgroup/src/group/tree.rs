//! The hierarchies of one machine and the way to a group's files in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{GroupError, GroupPath, GroupResult};
use crate::KernelFs;
use crate::bandwidth::Bandwidth;
use crate::discover::{CgroupVersion, Hierarchy};

pub(super) struct Tree {
    pub fs: Arc<dyn KernelFs>,
    pub version: CgroupVersion,
    pub cpu: Hierarchy,
    pub cpuacct: Option<Hierarchy>,
    pub cpuset: Option<PathBuf>,
    pub has_idle: Option<bool>,
    pub has_burst: Option<bool>,
}

pub(super) fn numbers(text: &str) -> impl Iterator<Item = i32> + '_ {
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
}

impl Tree {
    /// Every hierarchy with what `group` (a path below the cpu mount) is called there.
    pub fn places<'a>(
        &'a self,
        group: &GroupPath,
    ) -> impl Iterator<Item = (&'a Hierarchy, GroupPath)> + 'a {
        let in_cpu = group.clone();
        let elsewhere = self
            .cpuacct
            .as_ref()
            .map(|other| (other, self.translate(group, other)));
        std::iter::once((&self.cpu, in_cpu)).chain(elsewhere)
    }

    /// Where the bases differ (containers without a cgroup namespace), what lies below one lies
    /// below the other.
    pub fn translate(&self, group: &GroupPath, other: &Hierarchy) -> GroupPath {
        if other.base == self.cpu.base || !group.is_within(&self.cpu.base) {
            return group.clone();
        }
        let below = if self.cpu.base.is_root() {
            group.as_str()
        } else {
            &group.as_str()[self.cpu.base.as_str().len()..]
        };
        GroupPath::parse(&format!("{}{below}", other.base)).unwrap_or_else(|_| group.clone())
    }

    /// What is there already is kept.
    pub fn make_dir(&self, group: &GroupPath, dir: &Path) -> GroupResult<()> {
        match self.fs.mkdir(dir) {
            Err(error) if error.errno != libc::EEXIST => Err(GroupError::kfs(group)(error)),
            _ => Ok(()),
        }
    }

    pub fn cpu_file(&self, group: &GroupPath, name: &str) -> PathBuf {
        self.cpu.file(group, name)
    }

    pub fn read(&self, group: &GroupPath, name: &str) -> GroupResult<String> {
        self.read_whole(group, &self.cpu_file(group, name))
    }

    /// Half a number is a number, too: what does not end as the kernel ends it was cut short.
    pub fn read_whole(&self, group: &GroupPath, path: &Path) -> GroupResult<String> {
        let text = self.fs.read(path).map_err(GroupError::kfs(group))?;
        if text.is_empty() || text.ends_with('\n') {
            return Ok(text);
        }
        Err(GroupError::Garbage {
            group: group.clone(),
            path: path.to_path_buf(),
            text: crate::clip(&text),
            why: "cut short, its last line does not end",
        })
    }

    pub fn write(&self, group: &GroupPath, name: &str, value: &str) -> GroupResult<()> {
        self.fs
            .write(&self.cpu_file(group, name), value)
            .map_err(GroupError::kfs(group))
    }

    pub fn read_number(&self, group: &GroupPath, path: PathBuf) -> GroupResult<u64> {
        let text = self.read_whole(group, &path)?;
        Bandwidth::parse_us(&text).map_err(GroupError::bandwidth(group, path))
    }

    /// A file that some kernels lack. Where this one has it, its absence means that the group is
    /// gone.
    pub fn read_optional(
        &self,
        group: &GroupPath,
        name: &str,
        has: Option<bool>,
    ) -> GroupResult<Option<u64>> {
        if has == Some(false) {
            return Ok(None);
        }
        match self.read_number(group, self.cpu_file(group, name)) {
            Err(error)
                if has.is_none()
                    && error.errno() == Some(libc::ENOENT)
                    && self.fs.exists(&self.cpu.dir(group)) =>
            {
                Ok(None)
            }
            value => value.map(Some),
        }
    }

    pub fn pids(&self, group: &GroupPath) -> GroupResult<Vec<i32>> {
        let text = self.read(group, "cgroup.procs")?;
        text.split_ascii_whitespace()
            .map(|word| {
                word.parse().map_err(|_| GroupError::Garbage {
                    group: group.clone(),
                    path: self.cpu_file(group, "cgroup.procs"),
                    text: crate::clip(word),
                    why: "not a process id",
                })
            })
            .collect()
    }

    pub fn children_in(
        &self,
        hierarchy: &Hierarchy,
        group: &GroupPath,
    ) -> GroupResult<Vec<GroupPath>> {
        let names = self
            .fs
            .subdirs(&hierarchy.dir(group))
            .map_err(GroupError::kfs(group))?;
        // A name with control characters cannot be ours and is not touched.
        Ok(names
            .iter()
            .filter_map(|name| group.join(name).ok())
            .collect())
    }
}
