//! What experiments report. `TIDEGATE_BLESS=1` rewrites the expected files.

#![allow(clippy::unwrap_used, reason = "tests")]

mod demo_golden;
mod on_sim;
mod report_golden;
mod simulated_report_golden;
mod support;
