//! The engine on kernel files: cgroup v1 and v2, quotas, idle and weights.

pub mod apply;
pub mod bandwidth;
pub mod class;
pub mod clock;
pub mod control;
mod core_order;
pub mod cpus;
pub mod cpuset_planner;
pub mod discover;
pub mod domain;
pub mod group;
pub mod group_path;
pub mod ledger;
pub mod limit;
pub mod locks;
pub mod nodes;
pub mod quota_planner;
pub mod sched;
pub mod sense;
pub mod starts;
pub mod subgroups;
pub mod sync;
pub mod target;
pub mod topology;
