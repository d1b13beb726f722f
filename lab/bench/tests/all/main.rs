//! The laboratory from outside: its reports, its command and its replays. `TIDEGATE_BLESS=1`
//! rewrites the expected files.

#![allow(clippy::unwrap_used, reason = "tests")]

mod golden;
mod on_sim;
mod replay;
mod report_golden;
mod sim;
mod simulated_report_golden;
mod support;
mod tour;
mod vm;
