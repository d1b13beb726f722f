//! A group for one process or task: making it, and moving one task.

use super::{Files, GroupPath, GroupResult, Groups, v2};
use crate::discover::CgroupVersion;

impl Groups {
    /// Moves one task into an existing group, in every hierarchy; taken back where one refuses.
    /// Says where it was.
    pub fn place_task(&self, group: &GroupPath, tid: i32) -> GroupResult<Option<GroupPath>> {
        let mut from = self.enter_all(group, tid, true)?;
        Ok(from.swap_remove(0).group)
    }

    /// Makes a group for one process or task; on v2 a threaded one, where it lies below a group
    /// with processes in it.
    pub fn create_subgroup(&self, subgroup: &GroupPath, threaded: bool) -> GroupResult<()> {
        if self.tree.version == CgroupVersion::V1 || !threaded {
            return self.create(subgroup).map(drop);
        }
        let own = subgroup.parent().unwrap_or_else(GroupPath::root);
        self.tree.make_dir(subgroup, &self.dir(subgroup))?;
        let made = self
            .make_threaded(&own, subgroup)
            .and_then(|()| v2::V2.enable_cpu_below(&self.tree, &own));
        if made.is_err() {
            self.remove(subgroup)?;
        }
        made
    }

    pub fn is_threaded(&self, group: &GroupPath) -> bool {
        let kind = self.tree.read(group, "cgroup.type");
        self.tree.version == CgroupVersion::V2 && kind.is_ok_and(|kind| kind.trim() == "threaded")
    }
}
