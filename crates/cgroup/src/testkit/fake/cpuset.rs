//! The cpuset controller's files and refusals: `kernel/cgroup/cpuset.c` (`update_cpumask`,
//! `validate_change`, `cpuset_can_attach`).

use std::path::Path;

use super::tree::State;
use crate::cpus::{ONLINE_PATH, format_list, parse_list};

pub(super) const V1_FILES: [&str; 5] = [
    "cpuset.cpus",
    "cpuset.mems",
    "cpuset.effective_cpus",
    "cpuset.effective_mems",
    "cpuset.sched_load_balance",
];
pub(super) const V2_FILES: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];
pub(super) const V2_FILES_ALSO_AT_ROOT: [&str; 1] = ["cpuset.cpus.effective"];

impl State {
    fn online(&self) -> Vec<u32> {
        let text = self.files.get(Path::new(ONLINE_PATH));
        let text = text.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        parse_list(&text.unwrap_or_default()).unwrap_or_default()
    }

    fn effective_cpus(&self, dir: &Path, version: u8) -> Vec<u32> {
        let online = self.online();
        let (false, Some(parent), Some(group)) =
            (self.is_root(dir), dir.parent(), self.groups.get(dir))
        else {
            return online;
        };
        let above = self.effective_cpus(parent, version);
        let own: Vec<u32> = group
            .cpus
            .iter()
            .copied()
            .filter(|cpu| above.contains(cpu))
            .collect();
        if own.is_empty() && version == 2 {
            above
        } else {
            own
        }
    }

    pub(super) fn cpuset_read(&self, dir: &Path, name: &str, version: u8) -> Result<String, i32> {
        let group = self.groups.get(dir).ok_or(libc::ENOENT)?;
        let root = self.is_root(dir);
        Ok(match name {
            "cpuset.cpus" if root => format_list(&self.online()),
            "cpuset.cpus" => format_list(&group.cpus),
            "cpuset.effective_cpus" | "cpuset.cpus.effective" => {
                format_list(&self.effective_cpus(dir, version))
            }
            "cpuset.mems" | "cpuset.effective_mems" if root => "0".to_owned(),
            "cpuset.mems" | "cpuset.effective_mems" => group.mems.clone(),
            "cpuset.sched_load_balance" => "1".to_owned(),
            _ => return Err(libc::ENOENT),
        } + "\n")
    }

    pub(super) fn cpuset_write(
        &mut self,
        mount: usize,
        dir: &Path,
        name: &str,
        value: &str,
    ) -> Result<(), i32> {
        let version = self.mounts[mount].version;
        if self.is_root(dir) && name != "cpuset.sched_load_balance" {
            return Err(libc::EACCES);
        }
        let busy = !self.pids_in(mount, dir).is_empty();
        let parent = dir.parent().map(Path::to_path_buf).ok_or(libc::EINVAL)?;
        match name {
            "cpuset.cpus" => {
                let cpus = parse_list(value).map_err(|_| libc::EINVAL)?;
                if version == 1 {
                    let above = self.effective_cpus(&parent, version);
                    if cpus.iter().any(|cpu| !above.contains(cpu)) {
                        return Err(libc::EACCES);
                    }
                    if cpus.is_empty() && busy {
                        return Err(libc::ENOSPC);
                    }
                }
                let had = !self.groups.get(dir).ok_or(libc::ENOENT)?.cpus.is_empty();
                if had && cpus.is_empty() && self.populated(mount, dir) {
                    return Err(libc::ENOSPC);
                }
                self.groups.get_mut(dir).ok_or(libc::ENOENT)?.cpus = cpus;
                Ok(())
            }
            "cpuset.mems" => {
                if version == 1 && value.is_empty() && busy {
                    return Err(libc::ENOSPC);
                }
                self.groups.get_mut(dir).ok_or(libc::ENOENT)?.mems = value.to_owned();
                Ok(())
            }
            "cpuset.sched_load_balance" => Ok(()),
            _ => Err(libc::EINVAL),
        }
    }

    /// v1: a group without CPUs or memory nodes takes no process in.
    pub(super) fn cpuset_takes(&self, mount: usize, dir: &Path) -> Result<(), i32> {
        let has = self.mounts[mount].has("cpuset");
        let group = self.groups.get(dir).ok_or(libc::ENOENT)?;
        if has && !self.is_root(dir) && (group.cpus.is_empty() || group.mems.is_empty()) {
            return Err(libc::ENOSPC);
        }
        Ok(())
    }
}
