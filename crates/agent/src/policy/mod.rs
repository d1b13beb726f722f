//! Policy: the rules of the files in force, on what runs and on what starts later.
//!
//! ```text
//! files ──> Config ──> find (what matches) ──> reconcile (gates) ──> runtime (kernel files)
//!                                      └─────> rehearse (the same, in memory: diff, observe)
//! ```
//!
//! Which texts are in force, on trial and were before is in `kept_policy.rs`.
//!
//! | file | idea |
//! |---|---|
//! | `find` | what the rules match |
//! | `reconcile` | gates agree with that |
//! | `recording_fs`, `rehearse` | what would be written, with an agent or without |
//! | `apply` | the calls: diff, apply, confirm, rollback |
//! | `in_force` | making every gate agree with a policy, all or nothing |
//! | `starts` | what starts later (its thread) |
//! | `xattrs` | terms that stand on groups themselves |

pub(crate) mod apply;
mod find;
mod in_force;
mod reconcile;
mod recording_fs;
pub(crate) mod rehearse;
pub(crate) mod starts;
mod xattrs;
