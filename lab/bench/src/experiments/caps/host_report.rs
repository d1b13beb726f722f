//! The report of a real kernel: how exactly, how smoothly and at what cost caps are kept.

use serde_json::Value;

use super::host_cells::{Keeper, Lengths, Load, Run};
use super::soft::{Cell, Soft};
use super::tables::{self, Rate, Series};
use crate::LabError;
use crate::beds::host::Setup;
use crate::report::samples::whole_ms;
use crate::report::{Headline, Report, Sample, Samples, Table, cell, num};
use crate::stats::{median, most};

/// On a machine that others use; in virtual time it is one part per thousand.
const TARGET_HOST_PPT: f64 = 5.0;
const TARGET_VIRTUAL_PPT: f64 = 1.0;
const TARGET_YIELD_MS: f64 = 20.0;

/// What was run.
struct CapRuns<'a> {
    samples: Samples<Run>,
    /// In the tables' order.
    keepers: Vec<Keeper>,
    soft_caps: &'a [Soft],
    cpus: usize,
    window: String,
}

impl<'a> CapRuns<'a> {
    fn new(samples: Vec<Sample<Run>>, soft_caps: &'a [Soft], cpus: usize, window_s: f64) -> Self {
        let was_run = |k: &Keeper| samples.iter().any(|s| s.key.keeper == *k);
        CapRuns {
            keepers: Keeper::ALL.into_iter().filter(was_run).collect(),
            samples: Samples(samples),
            soft_caps,
            cpus,
            window: format!("{window_s:.0} s"),
        }
    }
}

/// Builds the report.
pub fn report(
    setup: Setup,
    lengths: &Lengths,
    samples: Vec<Sample<Run>>,
    soft_caps: &[Soft],
    missing: Vec<String>,
) -> Result<Report, LabError> {
    if samples.is_empty() && soft_caps.is_empty() {
        return Err(LabError::process("caps", missing.join(" ")));
    }
    let found = CapRuns::new(samples, soft_caps, setup.machine.cpus, lengths.window_s);
    let window = &found.window;
    let mut report = Report::new("caps", setup.machine);
    report.rows = found.samples.rows();
    let soft = |s: &Soft| soft_sample(s, found.cpus).row();
    report.rows.extend(soft_caps.iter().map(soft));
    report.headline = found.headline();
    for load in Load::ALL {
        let title = format!("Hard caps on {}, ‰ of one CPU", load.label());
        let table = tables::accuracy(&title, &found.series(load));
        report.tables.push(table);
    }
    report.tables.push(found.manners_table());
    report.tables.push(found.soft_table());
    report.plots.push(tables::plot(
        "How far use is from the cap in the worst window, a hog",
        &found.series(Load::Hog),
    )?);
    report.notes.push(format!(
        "Caps are in ‰ of one CPU; windows of {window}, {} of them, after {:.0} s to settle. The group that forks is two \
         parents with four children of 5 ms each at a time; the task that sleeps works 4 ms and sleeps 1 ms, so that it \
         wants 800 ‰: under a higher cap that is what it is due. {} The longest \
         stop is the longest time for which a hog wanted to run and did not, seen by itself. Cost is the CPU of what \
         keeps the cap: the agent's process, or the thread that sends cpulimit's signals; what the kernel's own \
         accounting costs is not in it.",
        lengths.windows,
        lengths.settle_s,
        found.read_from()
    ));
    report.notes.push(
        "Soft caps: one hog and one newcomer on each CPU. The hogs have yielded when they are within 5 points of what they \
         may have, over the next 20 ms and over the next 200 (the same measure as in `tidegate lab step`). Reading their clocks each \
         millisecond takes CPU as well: a tenth of the bed's."
            .into(),
    );
    report.notes.extend(missing);
    Ok(report)
}

fn soft_sample(s: &Soft, cpus: usize) -> Sample<()> {
    let yields: Vec<Value> = s.yields_ms.iter().map(|ms| num(*ms)).collect();
    Sample::new(())
        .with("kind", "soft")
        .with("keeper", s.cell.key())
        .with("due_pct", s.cell.due_pct(cpus))
        .with("alone_pct", s.alone_pct)
        .with("beside_pct", s.beside_pct)
        .with("yields_ms", yields)
}

impl CapRuns<'_> {
    /// Whose clock the use is read from.
    fn read_from(&self) -> String {
        const GROUP: &str = "Use is perf's clock of the load's group: all that its tasks ran, forks and switches included";
        let told = |k: &&Keeper| {
            let by_group = self.samples.all("by_group", |run| run.keeper == **k);
            by_group.contains(&0.0)
        };
        let told: Vec<&str> = self
            .keepers
            .iter()
            .filter(told)
            .map(|k| k.label())
            .collect();
        if told.is_empty() {
            return format!("{GROUP}.");
        }
        let rest = "what the loads tell of themselves, which misses the end of what is forked (perf's events of a group of \
                    cgroup v2 are not available)";
        if told.len() == self.keepers.len() {
            return format!("Use is {rest}.");
        }
        format!("{GROUP}; of {} it is {rest}.", told.join(" and "))
    }

    fn series(&self, load: Load) -> Vec<Series> {
        let of = |keeper: &Keeper| {
            let own = self
                .samples
                .of(|run| (run.keeper, run.load) == (*keeper, load));
            Series {
                label: keeper.label(),
                window: self.window.clone(),
                rates: own.map(Rate::from).collect(),
            }
        };
        self.keepers.iter().map(of).collect()
    }

    fn headline(&self) -> Vec<Headline> {
        let mut lines = Vec::new();
        let target = match crate::loads::spin::by_nops() {
            true => TARGET_VIRTUAL_PPT,
            false => TARGET_HOST_PPT,
        };
        let all = |name, keeper, load: Option<Load>| {
            let own = |run: &Run| run.keeper == keeper && load.is_none_or(|l| run.load == l);
            most(self.samples.all(name, own))
        };
        for &keeper in &self.keepers {
            for load in Load::ALL {
                let off = all("off_ppt", keeper, Some(load));
                let name = format!(
                    "hard caps against use, {}: {}",
                    load.label(),
                    keeper.label()
                );
                let ours = matches!(keeper, Keeper::Tidegate | Keeper::Ext);
                let h = Headline::new(&name, off, "‰");
                lines.push(h.when(ours, |h| h.at_most(target)));
            }
        }
        for &keeper in &self.keepers {
            let stop = all("longest_stop_ms", keeper, Some(Load::Hog));
            let name = format!("longest stop of a hog at any cap: {}", keeper.label());
            lines.push(Headline::new(&name, stop, "ms"));
            let name = format!("cost of the keeper, most: {}", keeper.label());
            lines.push(Headline::new(&name, all("cost_ppt", keeper, None), "‰"));
        }
        for s in self.soft_caps {
            let (by, ppt) = match s.cell {
                Cell::Tidegate(ppt) => ("", ppt),
                Cell::Ext(ppt) => ("ext engine: ", ppt),
                _ => continue,
            };
            let worst = most(s.yields_ms.iter().copied());
            let name = format!("{by}a soft cap of {ppt} ‰ yields to a newcomer, worst");
            lines.push(Headline::new(&name, worst, "ms").at_most(TARGET_YIELD_MS));
            let beside = s.beside_pct * 10.0 * self.cpus as f64;
            let name = format!("{by}a soft cap of {ppt} ‰ beside newcomers gets");
            lines.push(Headline::new(&name, beside, "‰"));
        }
        lines
    }

    /// How smoothly, and at what cost.
    fn manners_table(&self) -> Table {
        let of = |what: &str| {
            let head = |k: &Keeper| format!("{}: {what}", k.label());
            self.keepers.iter().map(head).collect::<Vec<String>>()
        };
        let heads = [vec!["cap, ‰".into()], of("longest stop, ms"), of("cost, ‰")].concat();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut t = Table::new("A hog: how smoothly, and at what cost", &heads);
        let mut caps = self.samples.chosen(|run| run.cap_ppt);
        caps.sort_unstable();
        for cap_ppt in caps {
            let mut cells = vec![cap_ppt.to_string()];
            for (name, digits) in [("longest_stop_ms", 1), ("cost_ppt", 2)] {
                let load = Load::Hog;
                cells.extend(self.keepers.iter().map(|&keeper| {
                    let run = Run {
                        keeper,
                        load,
                        cap_ppt,
                    };
                    cell(self.samples.mean(name, |key| *key == run), digits, "")
                }));
            }
            t.push(cells);
        }
        t
    }

    fn soft_table(&self) -> Table {
        let ppt = |pct: f64| format!("{:.1}", pct * 10.0 * self.cpus as f64);
        let middle = |s: &Soft| median(&s.yields_ms).unwrap_or(f64::NAN);
        Table::of(
            "Soft caps, ‰ of one CPU",
            self.soft_caps,
            &[
                ("held back by", &|s| s.cell.label()),
                ("alone", &|s| ppt(s.alone_pct)),
                ("may have beside", &|s| ppt(s.cell.due_pct(self.cpus))),
                ("has beside", &|s| ppt(s.beside_pct)),
                ("yields, ms", &|s| whole_ms(middle(s))),
                ("worst", &|s| whole_ms(most(s.yields_ms.iter().copied()))),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(keeper: Keeper, by_group: bool) -> Sample<Run> {
        let (load, cap_ppt) = (Load::Forks, 200);
        let run = Run {
            keeper,
            load,
            cap_ppt,
        };
        run.sample(&[200.0], by_group)
    }

    #[test]
    fn the_report_says_whose_clock_the_use_is_read_from() {
        let said = |tidegate, quota| {
            let all = [(Keeper::Tidegate, tidegate), (Keeper::Quota, quota)];
            let all = all.map(|(keeper, by_group)| sample(keeper, by_group));
            CapRuns::new(all.to_vec(), &[], 2, 1.0).read_from()
        };
        assert!(
            said(true, true).starts_with("Use is perf's clock")
                && !said(true, true).contains("tell")
        );
        assert!(said(false, false).starts_with("Use is what the loads tell"));
        let mixed = said(true, false);
        assert!(
            mixed.contains("perf's clock of the load's group")
                && mixed.contains("of quota by hand it is what the loads tell"),
            "{mixed}"
        );
        assert_eq!(sample(Keeper::Ext, true).row()["clock"], "group");
        assert_eq!(sample(Keeper::Ext, false).row()["clock"], "loads");
    }
}
