//! A group for one process or task: making it, and moving one task.

use super::placement::check_pid;
use super::{Files, GroupError, GroupPath, GroupResult, Groups, v2};
use crate::discover::{CgroupVersion, Hierarchy, group_in};

impl Groups {
    /// Moves one task into an existing group, in every hierarchy; taken back where one refuses.
    /// Says where it was.
    pub fn place_task(&self, group: &GroupPath, tid: i32) -> GroupResult<Option<GroupPath>> {
        check_pid(group, tid)?;
        let file = match self.tree.version {
            CgroupVersion::V1 => "tasks",
            CgroupVersion::V2 => "cgroup.threads",
        };
        let from = group_in(&*self.tree.fs, &self.tree.cpu, self.tree.version, tid)?;
        let enter = |hierarchy: &Hierarchy, here: &GroupPath| {
            let path = hierarchy.file(here, file);
            self.tree.fs.write(&path, &tid.to_string())
        };
        for (nth, (hierarchy, here)) in self.tree.places(group).enumerate() {
            let Err(source) = enter(hierarchy, &here) else {
                continue;
            };
            if nth > 0
                && let Some(home) = &from
                && let Err(back) = enter(&self.tree.cpu, home)
            {
                tracing::warn!(tid, error = %back, "a task is accounted elsewhere than it is scheduled");
            }
            return Err(self.explain_refusal(group, tid, source));
        }
        Ok(from)
    }

    /// Makes a group for one process or task; on v2 a threaded one, where it lies below a group
    /// with processes in it.
    pub fn create_subgroup(&self, subgroup: &GroupPath, threaded: bool) -> GroupResult<()> {
        if self.tree.version == CgroupVersion::V1 || !threaded {
            return self.create(subgroup).map(drop);
        }
        let own = subgroup.parent().unwrap_or_else(GroupPath::root);
        match self.tree.fs.mkdir(&self.tree.cpu.dir(subgroup)) {
            Err(error) if error.errno != libc::EEXIST => {
                return Err(GroupError::kfs(subgroup)(error));
            }
            _ => {}
        }
        let made = self
            .make_threaded(&own, subgroup)
            .and_then(|()| v2::V2.enable_cpu_below(&self.tree, &own));
        if made.is_err() {
            self.remove(subgroup)?;
        }
        made.map(drop)
    }

    pub fn is_threaded(&self, group: &GroupPath) -> bool {
        let kind = self.tree.read(group, "cgroup.type");
        self.tree.version == CgroupVersion::V2 && kind.is_ok_and(|kind| kind.trim() == "threaded")
    }
}
