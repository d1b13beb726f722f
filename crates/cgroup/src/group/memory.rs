//! `memory.high` of groups of ours, where cgroup v2 hands the memory controller down to them.

use super::error::GroupError;
use super::v2::hands_down;
use super::{GroupPath, GroupResult, Groups};
use crate::discover::CgroupVersion;

const HIGH: &str = "memory.high";

impl Groups {
    /// `None` is no limit, and needs no controller.
    pub fn set_memory_high(&self, group: &GroupPath, bytes: Option<u64>) -> GroupResult<()> {
        let has_file = || self.tree.fs.exists(&self.dir(group).join(HIGH));
        let Some(bytes) = bytes else {
            return match has_file() {
                true => self.tree.write(group, HIGH, "max"),
                false => Ok(()),
            };
        };
        let refused = |why: String, remedy: &str| GroupError::NotPossible {
            group: group.clone(),
            why: format!("memory_high: {why}"),
            remedy: remedy.to_owned(),
        };
        if self.tree.version == CgroupVersion::V1 {
            let why = "the cpu controller is on cgroup v1 here, apart from memory".to_owned();
            let remedy = "boot with systemd.unified_cgroup_hierarchy=1, or leave memory_high out";
            return Err(refused(why, remedy));
        }
        // The base is others'; all below it is ours.
        if !hands_down(&self.tree, self.base(), "memory")? {
            let why = format!("{} does not hand the memory controller down", self.base());
            let remedy = "write +memory to its cgroup.subtree_control, or leave memory_high out";
            return Err(refused(why, remedy));
        }
        let above = std::iter::successors(group.parent(), GroupPath::parent);
        let mut ours: Vec<GroupPath> = above.take_while(|above| above != self.base()).collect();
        while let Some(above) = ours.pop() {
            self.tree
                .write(&above, "cgroup.subtree_control", "+memory")?;
        }
        self.tree.write(group, HIGH, &bytes.to_string())
    }
}
