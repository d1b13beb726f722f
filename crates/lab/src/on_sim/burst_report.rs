//! What `tidegate lab burst --on sim` makes of its cells.

use serde_json::json;

use super::burst::{
    Arm, BURST_US, LARGE, Outcome, PERIOD_US, QUOTA_US, REQUEST_NS, SMALL, WORKERS,
};
use super::stage::{Stage, plain};
use crate::LabError;
use crate::dist::{self, Latency};
use crate::experiments::published::BURST;
use crate::experiments::{num, row};
use crate::report::{Headline, Met, Report};
use crate::stats;
use crate::tables::burst;

/// The mean over the rounds of an arm.
fn of(outcomes: &[Outcome], arm: Arm, f: impl Fn(&Outcome) -> f64) -> f64 {
    let values: Vec<f64> = outcomes
        .iter()
        .filter(|o| o.cell.arm == arm)
        .map(f)
        .collect();
    stats::mean(&values).unwrap_or(f64::NAN)
}

/// Builds the report.
pub fn report(stage: &Stage<'_>, outcomes: &[Outcome]) -> Result<Report, LabError> {
    let cpus = outcomes[0].cell.cpus;
    let example = plain(cpus, stage.options.seed);
    let bed = stage.bed(&[cpus], &example, "EEVDF, cpu.max as the kernel does it");
    let mut report = Report::new("burst", bed);
    for o in outcomes {
        let (w, r) = (&o.wakeup, &o.request);
        report.rows.push(row(json!({
            "arm": o.cell.arm.key(), "round": o.cell.round + 1, "quota_us": QUOTA_US, "period_us": PERIOD_US,
            "wakeup_avg_us": num(w.avg_us), "wakeup_p50_us": num(w.p50_us), "wakeup_p99_us": num(w.p99_us),
            "wakeup_p999_us": num(w.p999_us), "wakeup_max_us": num(w.max_us),
            "request_avg_us": num(r.avg_us), "request_p50_us": num(r.p50_us), "request_p99_us": num(r.p99_us),
            "request_p999_us": num(r.p999_us), "request_max_us": num(r.max_us), "requests": r.completed,
            "used_pct_of_quota": num(o.used_pct), "throttled_periods_pct": num(o.throttled_pct),
            "periods_asking_over_pct": num(o.asked_over_pct), "bursts_per_second": num(o.bursts_per_s),
            "burst_ms_at_end": num(o.burst_ms_end), "seconds": num(o.seconds),
        })));
    }
    report.headline = headline(outcomes);
    let rows = rows(outcomes);
    // In the burst series' order: no limit last.
    let columns: Vec<&burst::Row> = rows[1..].iter().chain(&rows[..1]).collect();
    report.tables = vec![
        burst::table("Quota 700 ms in 100 ms, mean use 500 ms", &rows),
        burst::seed_table(
            "What a request waits (its latency less its own 10 ms) beside the burst series' wakeup latency, us",
            REQUEST_NS as f64 / 1000.0,
            &columns,
        ),
    ];
    report.plots.push(burst::plot(&rows)?);
    let over = of(outcomes, Arm::NoLimit, |o| o.asked_over_pct);
    report.notes.push(format!(
        "{WORKERS} workers, requests of 10 ms, a batch each 40 ms over 20 ms: {SMALL} requests, or {LARGE} with odds of \
         one in three; {over:.1} % of the periods ask for more than the quota of 700 ms, the mean is 500. \
         Mechanism: pool, silos, slices, burst and throttling as in the kernel; `auto` is Tidegate's \
         engine on kernel files with the law of adaptive burst (a write refills, so it writes only a change that \
         is a tenth of the quota). The model's: the arrivals, the costs of a \
         switch and a wakeup, and no contention between CPUs. The burst series' figures are wakeup latencies on a machine \
         that it does not name; here a wakeup is not delayed, since the CPU that a worker wakes on still holds 1 ms \
         of quota: it is the request that waits, in its middle."
    ));
    Ok(report)
}

fn waiting_us(request_us: f64) -> f64 {
    burst::waiting_us(request_us, REQUEST_NS as f64 / 1000.0)
}

fn headline(outcomes: &[Outcome]) -> Vec<Headline> {
    let mut lines = Vec::new();
    let p99 = |arm| of(outcomes, arm, |o| o.request.p99_us);
    for arm in [Arm::Fixed(0), Arm::Fixed(BURST_US), Arm::Auto] {
        let ratio = p99(arm) / p99(Arm::NoLimit);
        let name = format!("p99 of a request over no limit: {}", arm.label());
        let h = Headline::new(&name, ratio, "×");
        lines.push(if arm == Arm::Fixed(0) {
            h
        } else {
            h.target("≤ 1.2", Met::of(ratio <= 1.2))
        });
    }
    let auto = p99(Arm::Auto) / p99(Arm::Fixed(BURST_US));
    lines.push(
        Headline::new(
            "p99 of a request, auto over the kernel's burst 400 ms",
            auto,
            "×",
        )
        .target("≤ 1.05", Met::of(auto <= 1.05)),
    );
    let seed = BURST.iter().find(|r| r.stat == "p99");
    let waiting = |arm| of(outcomes, arm, |o| waiting_us(o.request.p99_us));
    let gain = waiting(Arm::Fixed(0)) / waiting(Arm::Fixed(BURST_US));
    lines.push(
        Headline::new(
            "p99 of a request's waiting, burst 0 over burst 400 ms",
            gain,
            "×",
        )
        .published(seed.map(|r| r.without_us / r.with_us)),
    );
    let limited = [Arm::Fixed(0), Arm::Fixed(BURST_US), Arm::Auto];
    let used = stats::most(limited.map(|arm| of(outcomes, arm, |o| o.used_pct)));
    // No target: arrivals ask for 500 ms of 700 on average, so no arm could miss it.
    lines.push(Headline::new("mean use of the quota, worst arm", used, "%"));
    lines
}

/// The mean over the rounds, for each limit.
fn rows(outcomes: &[Outcome]) -> Vec<burst::Row> {
    let latency = |arm, f: fn(&Outcome) -> &Latency| {
        let windows: Vec<&Latency> = outcomes
            .iter()
            .filter(|o| o.cell.arm == arm)
            .map(f)
            .collect();
        dist::mean(&windows)
    };
    let row = |arm: Arm| burst::Row {
        label: arm.label(),
        wakeup: latency(arm, |o| &o.wakeup),
        request: latency(arm, |o| &o.request),
        used_pct: of(outcomes, arm, |o| o.used_pct),
        throttled_pct: of(outcomes, arm, |o| o.throttled_pct),
        burst_ms_end: of(outcomes, arm, |o| o.burst_ms_end),
    };
    Arm::ALL.map(row).to_vec()
}
