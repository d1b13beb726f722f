//! The report of simulated machines: both kinds of slices by size, tick and slice.

use super::sim_cells::{CPUS, DEFAULT_SLICE_US, Kernel, TICKS_NS, config};
use super::{QUOTA_US, Used};
use crate::LabError;
use crate::beds::sim::{MS, Stage};
use crate::experiments::published::{SLICES_EXCESS_MS_PER_CPU, SLICES_SPEEDUP};
use crate::report::{Headline, Report, Sample, Samples, Table, cell, plots};
use crate::stats::{least, most};

const BUSY: &str = "busy_thread_ms_per_s";

/// A run's row.
pub fn sample(k: Kernel, round: u32, used: &Used) -> Sample<Kernel> {
    used.sample(k, round)
        .with("cpus", k.cpus)
        .with("hz", hz(k.tick_ns))
        .with("slices_expire", k.expire)
        .with("slice_us", k.slice_us)
        .with("quota_us", QUOTA_US)
}

/// A kernel's rounds, where slices expire or stay.
fn busy(samples: &Samples<Kernel>, kernel: Kernel, expire: bool) -> Vec<f64> {
    let kernel = Kernel { expire, ..kernel };
    samples.all(BUSY, |k| *k == kernel)
}

/// What the busy thread gets, over what it gets where slices expire; NaN where one was not run.
fn speedup(samples: &Samples<Kernel>, kernel: Kernel) -> f64 {
    let mean = |expire| {
        let values = busy(samples, kernel, expire);
        crate::stats::mean(&values).unwrap_or(f64::NAN)
    };
    mean(false) / mean(true)
}

fn stock(cpus: u32, tick_ns: u64) -> Kernel {
    Kernel {
        cpus,
        tick_ns,
        expire: false,
        slice_us: DEFAULT_SLICE_US,
    }
}

fn hz(tick_ns: u64) -> u64 {
    1_000 * MS / tick_ns
}

/// Builds the report.
pub fn report(stage: &Stage<'_>, samples: Samples<Kernel>) -> Result<Report, LabError> {
    let sizes = samples.chosen(|k| k.cpus);
    let shown = if sizes.contains(&CPUS) {
        CPUS
    } else {
        sizes[0]
    };
    let example = config(samples.0[0].key, stage.options.seed);
    let scheduler = "EEVDF, cpu.max as the kernel does it, HZ 1000 and 250";
    let mut report = Report::new("slices", stage.bed(&sizes, &example, scheduler));
    report.rows = samples.rows();
    report.add_always_measured(headline(&samples, shown));
    report.tables.push(table(&samples));
    report.plots.push(plot(&samples, shown)?);
    report.notes.push(
        "A group with 10 ms in 100 ms: one thread computes without end, on each other CPU one runs a \
         moment and sleeps for 10 ms (fibtest's own figures). Mechanism: pool, silos, slices, return of all but \
         1 ms and turnover as in the kernel, once with the expiry that de53fd7aedb1 removed. The model's: the costs of \
         a switch and a wakeup, which the group pays, and no contention between CPUs. Excess is the most that the group \
         used above its quota over any number of whole periods, divided by the CPUs: what silos held back (at most 1 ms each), and what the busy \
         thread overran until a tick."
            .into(),
    );
    report.notes.push(
        "Where slices expire, the sleepers' CPUs hold the quota when the period ends, and what the busy thread gets is \
         mostly what it overruns until the next tick; so the ratio depends on HZ and on where in a tick the periods \
         begin (each round has another phase; shown is the mean). The commit names neither."
            .into(),
    );
    Ok(report)
}

fn headline(samples: &Samples<Kernel>, cpus: u32) -> Vec<Headline> {
    let mut lines = Vec::new();
    for tick_ns in TICKS_NS {
        let (stock, hz) = (stock(cpus, tick_ns), hz(tick_ns));
        let ratio = speedup(samples, stock);
        if ratio.is_nan() {
            continue;
        }
        let name = format!(
            "the busy thread, slices that stay over ones that expire, {cpus} CPUs, HZ {hz}"
        );
        let h = Headline::new(&name, ratio, "×").at_least(30.0);
        lines.push(h.published((cpus == CPUS).then_some(SLICES_SPEEDUP)));
        let (stay, expire) = (busy(samples, stock, false), busy(samples, stock, true));
        let ratios: Vec<f64> = stay.iter().zip(expire).map(|(a, b)| a / b).collect();
        let by_phase = |which: &str, value| {
            let name = format!("... by the periods' phase to the ticks, HZ {hz}, {which}");
            Headline::new(&name, value, "×")
        };
        lines.push(by_phase("least", least(ratios.clone())));
        lines.push(by_phase("most", most(ratios)));
    }
    let excess = |of_shown: bool| {
        let chosen = |k: &Kernel| {
            !k.expire && k.slice_us == DEFAULT_SLICE_US && (k.cpus == cpus) == of_shown
        };
        let each = samples.all("excess_us_per_cpu", chosen);
        (!each.is_empty()).then(|| most(each) / 1000.0)
    };
    lines.extend(excess(true).map(|most| {
        let name = format!("use above the quota over whole periods, {cpus} CPUs, worst run");
        Headline::new(&name, most, "ms a CPU")
            .published(Some(SLICES_EXCESS_MS_PER_CPU))
            .at_most(1.0)
    }));
    let name = "the same on other sizes, worst run";
    lines.extend(excess(false).map(|most| Headline::new(name, most, "ms a CPU")));
    let kernels = samples.chosen(|k| *k).into_iter().filter(|k| !k.expire);
    let used = kernels.map(|kernel| samples.mean("used_pct_of_quota", |k| *k == kernel));
    let name = "quota that is used where slices stay, worst kernel";
    lines.push(Headline::new(name, least(used), "%"));
    lines
}

fn table(samples: &Samples<Kernel>) -> Table {
    let f = |kernel: &Kernel, name| samples.mean(name, |k| k == kernel);
    let ratio = |k: &Kernel| (!k.expire).then(|| speedup(samples, *k));
    Table::of(
        "fibtest, 10 ms in 100 ms (means of the rounds)",
        samples.chosen(|k| *k),
        &[
            ("CPUs", &|k| k.cpus.to_string()),
            ("HZ", &|k| hz(k.tick_ns).to_string()),
            ("slice, ms", &|k| {
                format!("{:.1}", k.slice_us as f64 / 1000.0)
            }),
            ("slices", &|k| {
                if k.expire { "expire" } else { "stay" }.into()
            }),
            ("busy thread, ms/s", &|k| cell(f(k, BUSY), 2, "")),
            ("over expiring", &|k| cell(ratio(k), 1, " ×")),
            ("of the quota used", &|k| {
                cell(f(k, "used_pct_of_quota"), 1, " %")
            }),
            ("periods throttled", &|k| {
                cell(f(k, "throttled_periods_pct"), 0, " %")
            }),
            ("excess, ms a CPU", &|k| {
                cell(f(k, "excess_us_per_cpu") / 1000.0, 3, "")
            }),
        ],
    )
}

fn plot(samples: &Samples<Kernel>, cpus: u32) -> Result<plots::Plot, LabError> {
    let mut plot = plots::Lines::new(
        &format!("What the busy thread gets on {cpus} CPUs"),
        "slice, ms",
        "CPU of the busy thread, ms a second",
    )
    .see("Of 100 ms a second that the quota gives; what is missing is the sleepers' own use, or has expired in their silos.")
    .range(0.0..21.0, 0.0..1.0)
    .dots()
    .log_y();
    let kinds = TICKS_NS
        .into_iter()
        .flat_map(|tick_ns| [(tick_ns, true), (tick_ns, false)]);
    for (colour, (tick_ns, expire)) in kinds.enumerate() {
        let of_kind = |k: &Kernel| (k.cpus, k.tick_ns, k.expire) == (cpus, tick_ns, expire);
        let kernels = samples.chosen(|k| *k).into_iter().filter(of_kind);
        let point = |kernel: Kernel| {
            let busy = samples.mean(BUSY, |k| *k == kernel);
            (kernel.slice_us as f64 / 1000.0, busy)
        };
        let name = if expire { "expire" } else { "stay" };
        let name = format!("slices {name}, HZ {}", hz(tick_ns));
        plot = plot.series(&name, colour, kernels.map(point).collect());
    }
    plot.draw()
}
