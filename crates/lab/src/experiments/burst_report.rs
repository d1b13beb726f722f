//! What `tidegate lab burst` makes of its arms.

use serde_json::json;

use super::burst::{Arm, Outcome, PERIOD_US, Sizes, WORKERS};
use super::published::BURST;
use super::{Setup, num, row};
use crate::LabError;
use crate::dist::{self, Latency};
use crate::report::{Headline, Met, Report, Table};
use crate::stats;
use crate::tables::burst;
use crate::worker::bursty::Batches;

fn of(outcomes: &[Outcome], arm: Arm, f: impl Fn(&Outcome) -> f64) -> f64 {
    let values: Vec<f64> = outcomes.iter().filter(|o| o.arm == arm).map(f).collect();
    stats::mean(&values).unwrap_or(f64::NAN)
}

/// Where nobody counted, nothing is known: no figure, rather than a zero.
fn uncounted(o: &Outcome) -> bool {
    o.arm.is_ext() && o.counted.periods == 0
}

fn throttled_ms_per_s(o: &Outcome) -> f64 {
    if uncounted(o) {
        return f64::NAN;
    }
    o.counted.throttled_ns as f64 / 1e6 / o.seconds
}

/// Builds the report.
pub fn report(
    setup: Setup,
    sizes: &Sizes,
    outcomes: &[Outcome],
    missing: Vec<String>,
) -> Result<Report, LabError> {
    if outcomes.is_empty() {
        return Err(LabError::process("burst", missing.join(" ")));
    }
    let mut report = Report::new("burst", setup.machine);
    report.rows = outcomes.iter().map(|o| json_row(o, sizes)).collect();
    report.headline = headline(outcomes);
    let rows = rows(outcomes);
    let ms = |us: u64| us as f64 / 1000.0;
    let (quota, work) = (ms(sizes.quota_us), ms(sizes.request_us));
    let mean = Batches::PLAN.per_second() * work / 10.0;
    let columns: Vec<&burst::Row> = rows.iter().collect();
    report.tables = vec![
        burst::table(
            &format!("Quota {quota:.0} ms in 100 ms, mean use {mean:.0} ms"),
            &rows,
        ),
        burst::seed_table(
            &format!(
                "What a request waits (its latency less its own {work:.2} ms) beside the burst series' wakeup latency, us"
            ),
            sizes.request_us as f64,
            &columns,
        ),
    ];
    report.tables.push(counters_table(outcomes));
    report.plots.push(burst::plot(&rows)?);
    let b = Batches::PLAN;
    report.notes.push(format!(
        "{WORKERS} threads, requests of {work:.2} ms, a batch each 40 ms over 20 ms: {} requests, or {} with odds of one \
         in three: the proportions of the simulator's experiment, whose quota is 700 ms. Each arm runs for {:.0} s, of \
         which the last {:.0} count. Throttling is what the group itself counts, over all its CPUs; use is the \
         service's own clocks over the quota that was given (koordlet's law raises it). koordlet's law: × 1.2 each \
         second in which the group was throttled, × 0.8 while half of the machine is in use, up to three times.",
        b.small,
        b.large,
        sizes.warm_s + sizes.seconds,
        sizes.seconds,
    ));
    if outcomes.iter().any(|o| o.arm.is_ext()) {
        report.notes.push(
            "Under the ext engine the group's quota and burst are the files that the fair class has, cpu.max and \
             cpu.max.burst; what was throttled is counted by the scheduler, once a second, over what had to wait. Each \
             arm's p99 stands over no limit under the same scheduler."
                .into(),
        );
    }
    report.notes.extend(missing);
    Ok(report)
}

/// The mean over the rounds, for each arm that was measured.
fn rows(outcomes: &[Outcome]) -> Vec<burst::Row> {
    let row = |arm: Arm| {
        let own: Vec<&Outcome> = outcomes.iter().filter(|o| o.arm == arm).collect();
        let latency = |f: fn(&Outcome) -> &Latency| {
            let windows: Vec<&Latency> = own.iter().map(|o| f(o)).collect();
            dist::mean(&windows)
        };
        (!own.is_empty()).then(|| burst::Row {
            label: arm.label().into(),
            wakeup: latency(|o| &o.wakeup),
            request: latency(|o| &o.request),
            used_pct: of(outcomes, arm, |o| o.used_pct),
            throttled_pct: of(outcomes, arm, |o| {
                if uncounted(o) {
                    return f64::NAN;
                }
                100.0 * o.counted.throttled as f64 / o.counted.periods.max(1) as f64
            }),
            burst_ms_end: of(outcomes, arm, |o| o.counted.burst_us as f64 / 1000.0),
        })
    };
    Arm::ALL.into_iter().filter_map(row).collect()
}

fn json_row(o: &Outcome, sizes: &Sizes) -> serde_json::Map<String, serde_json::Value> {
    let (w, r, c) = (&o.wakeup, &o.request, &o.counted);
    row(json!({
        "arm": o.arm.key(), "round": o.round + 1, "quota_us": sizes.quota_us, "period_us": PERIOD_US,
        "wakeup_avg_us": num(w.avg_us), "wakeup_p50_us": num(w.p50_us), "wakeup_p99_us": num(w.p99_us),
        "wakeup_p999_us": num(w.p999_us), "wakeup_max_us": num(w.max_us),
        "request_avg_us": num(r.avg_us), "request_p50_us": num(r.p50_us), "request_p99_us": num(r.p99_us),
        "request_p999_us": num(r.p999_us), "request_max_us": num(r.max_us), "requests": r.completed,
        "used_pct_of_quota": num(o.used_pct), "periods": c.periods, "throttled_periods": c.throttled,
        "throttled_ms_per_second": num(throttled_ms_per_s(o)), "bursts": c.bursts,
        "quota_us_at_end": c.quota_us, "burst_us_at_end": c.burst_us, "seconds": num(o.seconds),
    }))
}

fn headline(outcomes: &[Outcome]) -> Vec<Headline> {
    let mut lines = Vec::new();
    let p99 = |arm| of(outcomes, arm, |o| o.request.p99_us);
    let was_run = |arm: &Arm| outcomes.iter().any(|o| o.arm == *arm);
    for arm in Arm::ALL.into_iter().filter(was_run) {
        let alone = match arm {
            Arm::NoLimit | Arm::ExtNoLimit => continue,
            arm if arm.is_ext() => Arm::ExtNoLimit,
            _ => Arm::NoLimit,
        };
        let ratio = p99(arm) / p99(alone);
        let name = format!("p99 of a request over no limit: {}", arm.label());
        let h = Headline::new(&name, ratio, "×");
        lines.push(match arm {
            Arm::Auto | Arm::ExtFixed => h.target("≤ 1.2", Met::judged(ratio, ratio <= 1.2)),
            _ => h,
        });
    }
    let throttled = |arm| of(outcomes, arm, throttled_ms_per_s);
    let tenth = throttled(Arm::Quota) / 10.0;
    for arm in Arm::ALL.into_iter().filter(was_run) {
        if matches!(arm, Arm::NoLimit | Arm::ExtNoLimit) {
            continue;
        }
        let ms = throttled(arm);
        let name = format!("throttled time: {}", arm.label());
        let h = Headline::new(&name, ms, "ms/s");
        lines.push(match arm {
            // A tenth of what the quota alone gives.
            Arm::Auto => h.target(
                &format!("≤ {tenth:.2}"),
                Met::judged(ms - tenth, ms <= tenth),
            ),
            _ => h,
        });
    }
    let seed = BURST.iter().find(|r| r.stat == "p99");
    let gain = p99(Arm::Quota) / p99(Arm::Auto);
    lines.push(
        Headline::new("p99 of a request, quota alone over burst auto", gain, "×")
            .published(seed.map(|r| r.without_us / r.with_us)),
    );
    let keepers = [
        Arm::Fixed,
        Arm::Koordlet,
        Arm::Auto,
        Arm::ExtQuota,
        Arm::ExtFixed,
    ];
    for arm in keepers.into_iter().filter(was_run) {
        let used = of(outcomes, arm, |o| o.used_pct);
        let name = format!("mean use of the quota that was given: {}", arm.label());
        let h = Headline::new(&name, used, "%");
        lines.push(match arm {
            Arm::Auto | Arm::ExtFixed => h.target("≤ 100", Met::judged(used, used <= 100.0)),
            _ => h,
        });
    }
    lines
}

fn counters_table(outcomes: &[Outcome]) -> Table {
    let mut t = Table::new(
        "What the group counted",
        &[
            "limit",
            "round",
            "throttled, ms/s",
            "periods",
            "throttled",
            "bursts",
            "quota at the end, ms",
        ],
    );
    for arm in Arm::ALL {
        for o in outcomes
            .iter()
            .filter(|o| o.arm == arm && !matches!(arm, Arm::NoLimit | Arm::ExtNoLimit))
        {
            let c = &o.counted;
            t.push([
                arm.label().to_string(),
                (o.round + 1).to_string(),
                format!("{:.2}", throttled_ms_per_s(o)),
                c.periods.to_string(),
                c.throttled.to_string(),
                c.bursts.to_string(),
                c.quota_us
                    .map_or("-".into(), |us| format!("{:.1}", us as f64 / 1000.0)),
            ]);
        }
    }
    t
}
