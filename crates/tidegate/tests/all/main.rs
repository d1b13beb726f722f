//! The command on the running kernel, from outside: what it prints, what it enforces, and what
//! holds when a part of it dies.

#![allow(clippy::unwrap_used, reason = "tests")]

mod api;
mod boundaries;
mod common;
mod e2e_caps;
mod e2e_errors;
mod e2e_hints;
mod e2e_limits;
mod e2e_run;
mod e2e_support;
mod e2e_terms;
mod e2e_users;
mod events;
mod fault_machine;
mod fault_namespaces;
mod first_words;
mod golden;
mod hostile_client;
mod jobserver;
mod kill;
mod kill_foreign;
mod lock_boost;
mod measure;
mod metrics;
mod policy;
mod recording;
mod support_fault;
mod support_hostile;
mod support_kill;
mod support_prometheus;
mod top;
mod truth;
mod web;
mod web_recording;
