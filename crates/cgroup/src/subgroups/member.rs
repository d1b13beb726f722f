//! One process or task on its way from group to group. Its number may mean another one by then,
//! which is none of ours: so it is looked at right before the move, and after it.

use std::path::Path;

use super::{Family, Per};
use crate::KernelFs;
use crate::group::{GroupPath, GroupResult, Groups};
use crate::target::{is_real_time, process_of, stat_field};

/// A process or a task of the gate, told from a later one with its number.
pub(super) struct Member {
    tid: i32,
    /// The number of what is moved: the task's, or its process's.
    pub id: i32,
    start_ticks: u64,
    pub is_real_time: bool,
}

impl Member {
    pub fn look_up(groups: &Groups, family: &Family, tid: i32) -> Option<Self> {
        let fs = &**groups.fs();
        let id = match family.per {
            Per::Task => tid,
            Per::Process => process_of(fs, tid)?,
        };
        let stat = stat_of(fs, id)?;
        Some(Self {
            tid,
            id,
            start_ticks: stat_field(&stat, 22)?,
            is_real_time: is_real_time(&stat),
        })
    }

    /// Moves it, unless it is no more what it was, or no more in the family.
    pub fn shift(&self, groups: &Groups, family: &Family, to: &GroupPath) -> GroupResult<bool> {
        let fs = &**groups.fs();
        let is_known = |at: GroupPath| at == family.group || family.id_of(&at).is_some();
        let is_process = family.per == Per::Process;
        if !groups.group_of(self.tid)?.is_some_and(is_known)
            || is_process && process_of(fs, self.tid) != Some(self.id)
            || self.is_another(fs)
        {
            return Ok(false);
        }
        if is_process {
            let placement = groups.place(to, self.id)?;
            if self.is_another(fs) {
                groups.place_back(&placement)?;
                return Ok(false);
            }
        } else {
            let from = groups.place_task(to, self.id)?;
            if self.is_another(fs) {
                if let Some(from) = from {
                    groups.place_task(&from, self.id)?;
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_another(&self, fs: &dyn KernelFs) -> bool {
        stat_of(fs, self.id).is_some_and(|stat| stat_field(&stat, 22) != Some(self.start_ticks))
    }
}

fn stat_of(fs: &dyn KernelFs, tid: i32) -> Option<String> {
    fs.read(Path::new(&format!("/proc/{tid}/stat"))).ok()
}

pub(super) fn is_real_time_now(fs: &dyn KernelFs, tid: i32) -> bool {
    stat_of(fs, tid).is_some_and(|stat| is_real_time(&stat))
}
