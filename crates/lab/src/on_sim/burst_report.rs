//! What `tidegate lab burst --on sim` makes of its cells.

use serde_json::json;

use super::burst::{
    Arm, BURST_US, LARGE, Outcome, PERIOD_US, QUOTA_US, REQUEST_NS, SMALL, WORKERS,
};
use super::stage::{Stage, plain};
use crate::LabError;
use crate::experiments::seeds::BURST;
use crate::experiments::{num, row};
use crate::report::{Headline, Met, Report, Table, plots};
use crate::stats;

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
    report.tables = vec![table(outcomes), seed_table(outcomes)];
    report.plots.push(plot(outcomes)?);
    let over = of(outcomes, Arm::NoLimit, |o| o.asked_over_pct);
    report.notes.push(format!(
        "{WORKERS} workers, requests of 10 ms, a batch each 40 ms over 20 ms: {SMALL} requests, or {LARGE} with odds of \
         one in three; {over:.1} % of the periods ask for more than the quota of 700 ms, the mean is 500. \
         Mechanism: pool, silos, slices, burst and throttling as in the kernel; `auto` is Tidegate's \
         engine on kernel files with the law of adaptive burst (a write refills, so it writes only a change that \
         is a tenth of the quota). The model's: the arrivals, the costs of a \
         switch and a wakeup, and no contention between CPUs. The seed's figures are wakeup latencies on a machine \
         that it does not name; here a wakeup is not delayed, since the CPU that a worker wakes on still holds 1 ms \
         of quota: it is the request that waits, in its middle."
    ));
    let waits_ms = |arm| of(outcomes, arm, |o| waiting_us(o.request.p999_us) / 1000.0);
    report.sentence = format!(
        "of a load that exceeds its quota in {over:.0} % of the periods, one request in a thousand waited {:.1} ms \
         or longer without burst, {:.1} ms with adaptive burst and {:.1} ms without a limit",
        waits_ms(Arm::Fixed(0)),
        waits_ms(Arm::Auto),
        waits_ms(Arm::NoLimit)
    );
    Ok(report)
}

/// What a request waits for, beside its own work: CPUs and quota.
fn waiting_us(request_us: f64) -> f64 {
    (request_us - REQUEST_NS as f64 / 1000.0).max(0.0)
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
        .seed(seed.map(|r| r.without_us / r.with_us)),
    );
    let limited = [Arm::Fixed(0), Arm::Fixed(BURST_US), Arm::Auto];
    let used = stats::most(limited.map(|arm| of(outcomes, arm, |o| o.used_pct)));
    // No target: arrivals ask for 500 ms of 700 on average, so no arm could miss it.
    lines.push(Headline::new("mean use of the quota, worst arm", used, "%"));
    lines
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut t = Table::new(
        "Quota 700 ms in 100 ms, mean use 500 ms",
        &[
            "limit",
            "wakeup p50, us",
            "p99",
            "p99.9",
            "max",
            "request p50, ms",
            "p99",
            "max",
            "of the quota used",
            "periods throttled",
            "burst at the end, ms",
        ],
    );
    for arm in Arm::ALL {
        let f =
            |f: fn(&Outcome) -> f64, digits: usize| format!("{:.digits$}", of(outcomes, arm, f));
        t.push([
            arm.label(),
            f(|o| o.wakeup.p50_us, 1),
            f(|o| o.wakeup.p99_us, 1),
            f(|o| o.wakeup.p999_us, 1),
            f(|o| o.wakeup.max_us, 0),
            f(|o| o.request.p50_us / 1000.0, 2),
            f(|o| o.request.p99_us / 1000.0, 2),
            f(|o| o.request.max_us / 1000.0, 1),
            f(|o| o.used_pct, 1) + " %",
            f(|o| o.throttled_pct, 1) + " %",
            f(|o| o.burst_ms_end, 0),
        ]);
    }
    t
}

fn seed_table(outcomes: &[Outcome]) -> Table {
    let mut t = Table::new(
        "What a request waits (its latency less its own 10 ms) beside the seed's wakeup latency, us",
        &[
            "statistic",
            "seed: burst 0",
            "seed: burst 400 ms",
            "burst 0",
            "burst 400 ms",
            "burst auto",
            "no limit",
        ],
    );
    for r in &BURST {
        let ours: Option<fn(&Outcome) -> f64> = match r.stat {
            "p50" => Some(|o| waiting_us(o.request.p50_us)),
            "p90" => Some(|o| waiting_us(o.request.p90_us)),
            "p99" => Some(|o| waiting_us(o.request.p99_us)),
            "p99.9" => Some(|o| waiting_us(o.request.p999_us)),
            "max" => Some(|o| waiting_us(o.request.max_us)),
            _ => None,
        };
        let Some(ours) = ours else { continue };
        let cell = |arm| format!("{:.1}", of(outcomes, arm, ours));
        t.push([
            r.stat.to_string(),
            format!("{:.0}", r.without_us),
            format!("{:.0}", r.with_us),
            cell(Arm::Fixed(0)),
            cell(Arm::Fixed(BURST_US)),
            cell(Arm::Auto),
            cell(Arm::NoLimit),
        ]);
    }
    t
}

fn plot(outcomes: &[Outcome]) -> Result<plots::Plot, LabError> {
    let mut plot = plots::Lines::new(
        "A request's latency",
        "percentile (50, 90, 99, 99.9 and the worst, evenly spaced)",
        "latency, ms",
    )
    .see("Burst brings the tail back to where it is without a limit; the mean use stays below the quota.")
    .range(0.0..4.0, 0.0..1.0)
    .dots()
    .log_y();
    for (i, arm) in Arm::ALL.into_iter().enumerate() {
        let points: [fn(&Outcome) -> f64; 5] = [
            |o| o.request.p50_us,
            |o| o.request.p90_us,
            |o| o.request.p99_us,
            |o| o.request.p999_us,
            |o| o.request.max_us,
        ];
        let line = points.iter().enumerate();
        let line = line.map(|(x, f)| (x as f64, of(outcomes, arm, f) / 1000.0));
        plot = plot.series(&arm.label(), i, line.collect());
    }
    plot.draw()
}
