//! The engine on fake machines and on the running kernel. What measures the machine is in `alone`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cpuset;
mod cpuset_planner;
mod discovery;
mod fake_is_true;
mod groups;
mod groups_faults;
mod groups_placement;
mod ledger;
mod ledger_batch;
mod ledger_death;
mod quota_planner;
mod real_host;
mod sense_usage;
mod subgroups;
mod support;
mod topology;
mod v1_orders;
