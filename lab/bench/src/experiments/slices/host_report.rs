//! The report of a real kernel, beside slices that expire, simulated.

use super::host_cells::{BURST_US, GAP_US, Kernel, Load, Run};
use super::{PERIOD_US, QUOTA_US};
use crate::LabError;
use crate::beds::host::Setup;
use crate::experiments::published::SLICES_EXCESS_MS_PER_CPU;
use crate::report::{Headline, Report, Samples, Table, bars, cell};
use crate::stats::most;

const MEASURED: [Kernel; 2] = [Kernel::Eevdf, Kernel::Ext];

struct SliceRuns {
    samples: Samples<Run>,
    cpus: usize,
}

/// Builds the report.
pub fn report(
    setup: Setup,
    samples: Samples<Run>,
    missing: Vec<String>,
) -> Result<Report, LabError> {
    if samples
        .of(|run| MEASURED.contains(&run.kernel))
        .next()
        .is_none()
    {
        return Err(LabError::process("slices", missing.join(" ")));
    }
    let cpus = setup.machine.cpus;
    let found = SliceRuns { samples, cpus };
    let mut report = Report::new("slices", setup.machine);
    report.rows = found.samples.rows();
    report.headline = found.headline();
    report.tables = vec![found.fibtest(), found.bursts()];
    let strip = |kernel: Kernel| {
        let load = Load::Fibtest;
        let run = Run { kernel, load };
        let rounds = found.samples.all("busy_thread_ms_per_s", |key| *key == run);
        (kernel.label().to_string(), rounds)
    };
    report.plots.push(bars::strips(
        "What the busy thread of fibtest gets",
        "Each dot is a round, the bar is the median; the dashed line is the quota, of which the sleepers have their part.",
        "CPU, ms a second (logarithmic)",
        &Kernel::ALL.map(strip),
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

impl SliceRuns {
    fn mean(&self, kernel: Kernel, load: Load, name: &str) -> f64 {
        let run = Run { kernel, load };
        self.samples.mean(name, |key| *key == run)
    }

    fn over_expiring(&self, kernel: Kernel) -> f64 {
        let busy = |kernel| self.mean(kernel, Load::Fibtest, "busy_thread_ms_per_s");
        busy(kernel) / busy(Kernel::Expire)
    }

    fn headline(&self) -> Vec<Headline> {
        let mut lines = Vec::new();
        let line = |name: &str, kernel: Kernel, value, unit| {
            Headline::new(&format!("{name}: {}", kernel.label()), value, unit)
        };
        for kernel in MEASURED {
            let name = "the busy thread over slices that expire";
            lines.push(line(name, kernel, self.over_expiring(kernel), "×"));
        }
        for kernel in MEASURED {
            let limited = |run: &Run| run.kernel == kernel && run.load != Load::Free;
            let excess = most(self.samples.all("excess_us_per_cpu", limited)) / 1000.0;
            let name = "use above the quota over whole periods, worst";
            let h = line(name, kernel, excess, "ms a CPU");
            lines.push(h.published(Some(SLICES_EXCESS_MS_PER_CPU)).at_most(1.0));
        }
        for kernel in MEASURED {
            let throttled = self.mean(kernel, Load::Bursts, "throttled_periods_pct");
            let name = "periods throttled by bursts whose mean is below the quota";
            lines.push(line(name, kernel, throttled, "%"));
            let p99 = |load| self.mean(kernel, load, "burst_p99_us");
            let ratio = p99(Load::Bursts) / p99(Load::Free);
            lines.push(line("p99 of a burst over no limit", kernel, ratio, "×"));
        }
        lines
    }

    fn fibtest(&self) -> Table {
        let f = |k: &Kernel, name| self.mean(*k, Load::Fibtest, name);
        let excess_ms = |k: &Kernel| f(k, "excess_us_per_cpu") / 1000.0;
        Table::of(
            &format!("fibtest on {} CPUs, 10 ms in 100 ms", self.cpus),
            Kernel::ALL,
            &[
                ("scheduler", &|k| k.label().into()),
                ("busy thread, ms/s", &|k| {
                    cell(f(k, "busy_thread_ms_per_s"), 1, "")
                }),
                ("over expiring", &|k| cell(self.over_expiring(*k), 1, " ×")),
                ("of the quota used", &|k| {
                    cell(f(k, "used_pct_of_quota"), 1, " %")
                }),
                ("periods throttled", &|k| {
                    cell(f(k, "throttled_periods_pct"), 0, " %")
                }),
                ("excess, ms a CPU", &|k| cell(excess_ms(k), 3, "")),
            ],
        )
    }

    fn bursts(&self) -> Table {
        let f = |r: &(Kernel, Load), name| self.mean(r.0, r.1, name);
        let limit = |load| if load == Load::Free { "none" } else { "quota" };
        let both = |kernel| [Load::Free, Load::Bursts].map(|load| (kernel, load));
        Table::of(
            &format!(
                "Bursts of {BURST_US} us on {} CPUs at once, 10 ms in 100 ms",
                self.cpus
            ),
            MEASURED.into_iter().flat_map(both),
            &[
                ("scheduler", &|r| r.0.label().into()),
                ("limit", &|r| limit(r.1).into()),
                ("of the quota used", &|r| {
                    cell(f(r, "used_pct_of_quota"), 1, " %")
                }),
                ("periods throttled", &|r| {
                    cell(f(r, "throttled_periods_pct"), 0, " %")
                }),
                ("burst, mean us", &|r| cell(f(r, "burst_avg_us"), 0, "")),
                ("p99", &|r| cell(f(r, "burst_p99_us"), 0, "")),
                ("longest", &|r| cell(f(r, "burst_max_us"), 0, "")),
                ("excess, ms a CPU", &|r| {
                    cell(f(r, "excess_us_per_cpu") / 1000.0, 3, "")
                }),
            ],
        )
    }
}
