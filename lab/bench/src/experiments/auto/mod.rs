//! `tidegate lab auto`: a headroom that is found (`headroom = auto`) against the oracle, which is the best of what can be set once:
//! side work as people start it, `cpu.idle` alone, and fixed headrooms. The oracle knows what each of them does to main, and takes the
//! one with the most side work among those that keep main's mean within [`MEAN_AIM`] and its p99 within [`P99_AIM`] of main alone.
//! Others' published laws run beside them.

pub mod host;
mod host_report;
mod regret;
pub mod sim;
mod sim_cells;
mod sim_report;

/// Main's mean latency over main alone that counts as no harm.
pub const MEAN_AIM: f64 = 1.05;
/// The same of its 99th percentile.
pub const P99_AIM: f64 = 1.15;
