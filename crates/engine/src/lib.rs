//! The engine on kernel files: cgroup v1 and v2, quotas, idle and weights.

pub mod apply;
pub mod clock;
pub mod control;
mod core_order;
pub mod cpuset_planner;
pub mod held;
pub mod ledger;
pub mod limit;
pub mod locks;
pub mod measure;
pub mod quota_planner;
pub mod sense;
pub mod starts;
pub mod sync;
