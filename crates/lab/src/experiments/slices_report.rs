//! What `tidegate lab slices --engine ext` makes of its loads.

use serde_json::{Map, Value, json};

use super::published::SLICES_EXCESS_MS_PER_CPU;
use super::slices::{BURST_US, GAP_US, Kernel, Load, Outcome, PERIOD_US, QUOTA_US};
use super::{Setup, num, row};
use crate::LabError;
use crate::report::{Headline, Met, Report, Table, bars};
use crate::stats::{mean, most};

fn all(outcomes: &[Outcome], kernel: Kernel, load: Load) -> impl Iterator<Item = &Outcome> {
    outcomes
        .iter()
        .filter(move |o| o.kernel == kernel && o.load == load)
}

/// The mean over the rounds; NaN of none.
fn of(outcomes: &[Outcome], kernel: Kernel, load: Load, f: impl Fn(&Outcome) -> f64) -> f64 {
    let values: Vec<f64> = all(outcomes, kernel, load).map(f).collect();
    mean(&values).unwrap_or(f64::NAN)
}

fn busy(outcomes: &[Outcome], kernel: Kernel) -> f64 {
    of(outcomes, kernel, Load::Fibtest, |o| o.busy_ms_per_s)
}

fn p99_us(outcomes: &[Outcome], kernel: Kernel, load: Load) -> f64 {
    of(outcomes, kernel, load, |o| {
        o.burst.as_ref().map_or(f64::NAN, |b| b.p99_us)
    })
}

/// Builds the report.
pub fn report(
    setup: Setup,
    outcomes: &[Outcome],
    missing: Vec<String>,
) -> Result<Report, LabError> {
    let ran = |o: &&Outcome| matches!(o.kernel, Kernel::Eevdf | Kernel::Ext);
    if !outcomes.iter().any(|o| ran(&o)) {
        return Err(LabError::process("slices", missing.join(" ")));
    }
    let cpus = setup.machine.cpus;
    let mut report = Report::new("slices", setup.machine);
    report.rows = outcomes.iter().map(json_row).collect();
    report.headline = headline(outcomes);
    report.tables = vec![fibtest(outcomes, cpus), bursts(outcomes, cpus)];
    let strips: Vec<(String, Vec<f64>)> = Kernel::ALL
        .into_iter()
        .map(|kernel| {
            let rounds = all(outcomes, kernel, Load::Fibtest).map(|o| o.busy_ms_per_s);
            (kernel.label().to_string(), rounds.collect())
        })
        .collect();
    report.plots.push(bars::strips(
        "What the busy thread of fibtest gets",
        "Each dot is a round, the bar is the median; the dashed line is the quota, of which the sleepers have their part.",
        "CPU, ms a second (logarithmic)",
        &strips,
        &[QUOTA_US as f64 / PERIOD_US as f64 * 1000.0],
    )?);
    let ms = |us: u64| us as f64 / 1000.0;
    let (quota, period, gap) = (ms(QUOTA_US), ms(PERIOD_US), ms(GAP_US));
    report.notes.push(format!(
        "A group with {quota:.0} ms in {period:.0} ms on {cpus} CPUs. fibtest: one thread computes without end, on each other CPU \
         one works a moment each {gap:.0} ms. Bursts: on each CPU {BURST_US} us of work each {gap:.0} ms, all due at the same moments; \
         their latency is from then to their end. Slices that expire are in no kernel since 5.4, so they are simulated, as \
         `tidegate lab slices --on sim` does, beside ones that stay on the same simulated machine of {cpus} CPUs."
    ));
    report.notes.push(
        "Excess is the most that the group used above its quota over any number of whole periods, by its threads' own clocks, \
         divided by the CPUs. Periods of the ext engine are counted by the scheduler, those in which something had to wait as \
         throttled."
            .into(),
    );
    report.notes.extend(missing);
    Ok(report)
}

fn json_row(o: &Outcome) -> Map<String, Value> {
    let latency = |f: fn(&crate::dist::Latency) -> f64| {
        let known = o.burst.as_ref().filter(|b| b.completed > 0);
        known.map_or(Value::Null, |b| num(f(b)))
    };
    row(json!({
        "slices": o.kernel.key(), "load": o.load.key(), "round": o.round + 1,
        "quota_us": (o.load != Load::Free).then_some(QUOTA_US), "period_us": PERIOD_US,
        "busy_thread_ms_per_s": num(o.busy_ms_per_s), "used_pct_of_quota": num(o.used_pct),
        "throttled_periods_pct": num(o.throttled_pct), "excess_us_per_cpu": num(o.excess_us_per_cpu),
        "burst_avg_us": latency(|b| b.avg_us), "burst_p50_us": latency(|b| b.p50_us),
        "burst_p99_us": latency(|b| b.p99_us), "burst_max_us": latency(|b| b.max_us),
        "seconds": num(o.seconds),
    }))
}

fn headline(outcomes: &[Outcome]) -> Vec<Headline> {
    let mut lines = Vec::new();
    for kernel in [Kernel::Eevdf, Kernel::Ext] {
        let ratio = busy(outcomes, kernel) / busy(outcomes, Kernel::Expire);
        let name = format!(
            "the busy thread over slices that expire: {}",
            kernel.label()
        );
        lines.push(Headline::new(&name, ratio, "×"));
    }
    for kernel in [Kernel::Eevdf, Kernel::Ext] {
        let limited = outcomes
            .iter()
            .filter(|o| o.kernel == kernel && o.load != Load::Free);
        let excess = most(limited.map(|o| o.excess_us_per_cpu)) / 1000.0;
        let name = format!(
            "use above the quota over whole periods, worst: {}",
            kernel.label()
        );
        lines.push(
            Headline::new(&name, excess, "ms a CPU")
                .published(Some(SLICES_EXCESS_MS_PER_CPU))
                .target("≤ 1", Met::judged(excess, excess <= 1.0)),
        );
    }
    for kernel in [Kernel::Eevdf, Kernel::Ext] {
        let throttled = of(outcomes, kernel, Load::Bursts, |o| o.throttled_pct);
        let name = format!(
            "periods throttled by bursts whose mean is below the quota: {}",
            kernel.label()
        );
        lines.push(Headline::new(&name, throttled, "%"));
        let ratio = p99_us(outcomes, kernel, Load::Bursts) / p99_us(outcomes, kernel, Load::Free);
        let name = format!("p99 of a burst over no limit: {}", kernel.label());
        lines.push(Headline::new(&name, ratio, "×"));
    }
    lines
}

fn fibtest(outcomes: &[Outcome], cpus: usize) -> Table {
    let title = format!("fibtest on {cpus} CPUs, 10 ms in 100 ms");
    let mut t = Table::new(
        &title,
        &[
            "scheduler",
            "busy thread, ms/s",
            "over expiring",
            "of the quota used",
            "periods throttled",
            "excess, ms a CPU",
        ],
    );
    for kernel in Kernel::ALL {
        let f = |f: fn(&Outcome) -> f64| of(outcomes, kernel, Load::Fibtest, f);
        let ratio = busy(outcomes, kernel) / busy(outcomes, Kernel::Expire);
        t.push([
            kernel.label().to_string(),
            shown(f(|o| o.busy_ms_per_s), 1, ""),
            shown(ratio, 1, " ×"),
            shown(f(|o| o.used_pct), 1, " %"),
            shown(f(|o| o.throttled_pct), 0, " %"),
            shown(f(|o| o.excess_us_per_cpu / 1000.0), 3, ""),
        ]);
    }
    t
}

fn bursts(outcomes: &[Outcome], cpus: usize) -> Table {
    let title = format!("Bursts of {BURST_US} us on {cpus} CPUs at once, 10 ms in 100 ms");
    let mut t = Table::new(
        &title,
        &[
            "scheduler",
            "limit",
            "of the quota used",
            "periods throttled",
            "burst, mean us",
            "p99",
            "longest",
            "excess, ms a CPU",
        ],
    );
    for kernel in [Kernel::Eevdf, Kernel::Ext] {
        for load in [Load::Free, Load::Bursts] {
            let f = |f: fn(&Outcome) -> f64| of(outcomes, kernel, load, f);
            let latency = |part: fn(&crate::dist::Latency) -> f64| {
                let us = of(outcomes, kernel, load, |o| {
                    o.burst.as_ref().map_or(f64::NAN, part)
                });
                shown(us, 0, "")
            };
            t.push([
                kernel.label().to_string(),
                if load == Load::Free { "none" } else { "quota" }.to_string(),
                shown(f(|o| o.used_pct), 1, " %"),
                shown(f(|o| o.throttled_pct), 0, " %"),
                latency(|b| b.avg_us),
                latency(|b| b.p99_us),
                latency(|b| b.max_us),
                shown(f(|o| o.excess_us_per_cpu / 1000.0), 3, ""),
            ]);
        }
    }
    t
}

/// A figure, or a dash for one that was not measured.
fn shown(value: f64, digits: usize, unit: &str) -> String {
    if value.is_finite() {
        format!("{value:.digits$}{unit}")
    } else {
        "-".into()
    }
}
