//! Placing a process in place, whole: as the agent does it, without what it writes in between.

use tidegate_cgroup::group::{GroupPath, GroupResult, Groups, Placement};

pub trait PlaceInPlace {
    fn place_in_place(&self, pid: i32, name: &str, v1: &GroupPath) -> GroupResult<Placement>;
}

impl PlaceInPlace for Groups {
    fn place_in_place(&self, pid: i32, name: &str, v1: &GroupPath) -> GroupResult<Placement> {
        let plan = self.plan_in_place(pid, name, v1)?;
        let made = self.make_planned(&plan);
        match made.and_then(|()| self.place(&plan.group, pid)) {
            Ok(_) => Ok(plan),
            Err(error) => {
                // As an agent's journal does it; what stays is looked at by the test.
                let _ = self.place_back(&plan);
                Err(error)
            }
        }
    }
}
