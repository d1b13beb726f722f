//! The report of a real kernel: what each way of hinting gives, and what it costs hackbench.

use super::host_cells::{How, Lengths};
use super::report::{BESIDE_TASKS, HintRuns, Run, Way};
use super::{BESIDE_GROUPS, Beside, Part, YIELDING};
use crate::LabError;
use crate::beds::host::Setup;
use crate::experiments::published::{CYCLICTEST, HACKBENCH};
use crate::report::{Headline, Report, Sample, Samples, Table, cell};

/// What was run.
struct Ways {
    found: HintRuns,
    /// In the tables' order.
    hows: Vec<How>,
    /// Tidegate's own way.
    ours: How,
    /// The same without a hint.
    without: How,
}

/// Builds the report.
pub fn report(
    setup: Setup,
    lengths: &Lengths,
    samples: Vec<Sample<Run>>,
    missing: Vec<String>,
) -> Result<Report, LabError> {
    if samples.is_empty() {
        return Err(LabError::process("latency", missing.join(" ")));
    }
    let preemption = setup.machine.preemption.clone();
    let was_run = |how: &How| samples.iter().any(|s| s.key.way == how.way());
    let hows: Vec<How> = How::ALL.into_iter().filter(was_run).collect();
    let (ours, without) = match hows.contains(&How::Ext) {
        true => (How::Ext, How::ExtNothing),
        false => (How::Tidegate, How::Nothing),
    };
    let ways = Ways {
        found: HintRuns {
            samples: Samples(samples),
            head: "hinted by",
        },
        hows,
        ours,
        without,
    };
    let found = &ways.found;
    let mut report = Report::new("latency", setup.machine);
    report.rows = found.samples.rows();
    report.headline = ways.headline();
    let timers: Vec<(Way, Beside)> = Beside::ALL
        .into_iter()
        .flat_map(|beside| ways.hows.iter().map(move |how| (how.way(), beside)))
        .collect();
    report.tables = vec![
        found.cyclictest(&timers),
        ways.beside_table(),
        found.hackbench(&ways.compared()),
        found.fairness(&ways.fair()),
        ways.schbench_table(),
    ];
    report.plots.push(found.plot(&timers)?);
    report.notes.push(format!(
        "cyclictest is one thread with a timer each millisecond; beside it runs hackbench -p -g {BESIDE_GROUPS} ({} tasks) \
         without end, in the same group, or apart in another group of the same weight. hackbench alone sends {}/group messages from each sender to each receiver, \
         with a hint of {YIELDING} for all its tasks. By hand: sched_setattr with the kernel's shortest slice (100 us), \
         or for {YIELDING} its longest (100 ms), which is the most that a stock kernel offers. Fairness: three hogs and the \
         hinting task on one CPU, worst share against its fair one: an equal part where a hog hints; where a task hints \
         that sleeps in between and asks for more than its quarter, each hog's against their mean, and against a quarter \
         where it has less. schbench: one thread that wakes four workers in turn, 100 requests of 1 ms a second on each \
         CPU, beside two hogs a CPU. Windows of {:.0} s ({:.0} s for shares). The slice shown is what the kernel tells of \
         the thread from outside.",
        BESIDE_TASKS,
        lengths.loops,
        lengths.window_s,
        lengths.shares_s,
    ));
    report.notes.push(format!(
        "What a hint cannot do on a stock kernel. A fair class lets nobody run who has had more than a fair share: beside \
         {} tasks in one group, a timer task that runs for some microseconds in each millisecond has, so that it waits \
         until the others have caught up, however short its slice is (EEVDF's eligibility). In a group of its own its \
         share is half of the machine, and it runs at once. Preemption here is '{preemption}': unless it is full, a task \
         that is in a system call finishes it first.",
        BESIDE_TASKS,
    ));
    if ways.ours == How::Ext {
        report.notes.push(
            "Under the ext engine a hint is a group's: what hints is in a group of its own, whose weight makes it one of \
             as many equals as it is in one group with the others (cyclictest 15 beside 10000, the fourth of four hogs \
             100 beside 300). Apart, and schbench beside its hogs, both groups weigh the same. Gains of hackbench are over \
             the fair class without a hint."
                .into(),
        );
    }
    report.notes.extend(missing);
    Ok(report)
}

impl Ways {
    /// Those whose shares are compared: preemption has no part in shares.
    fn fair(&self) -> Vec<Way> {
        let hows = self.hows.iter().filter(|how| **how != How::SliceFull);
        hows.map(|how| how.way()).collect()
    }

    /// Each beside the kernel's own way without a hint.
    fn compared(&self) -> Vec<(Way, Way)> {
        let nothing = How::Nothing.way();
        let ways = self.fair().into_iter().filter(|way| *way != nothing);
        ways.map(|way| (nothing, way)).collect()
    }

    /// The timer's p99 over that of an idle machine, beside each neighbour.
    fn over_idle(&self) -> Vec<Headline> {
        let mut lines = Vec::new();
        for beside in [Beside::Together, Beside::Apart] {
            for how in &self.hows {
                let p99 = |beside| self.found.p99(how.way(), beside);
                let over = p99(beside) / p99(Beside::Nothing);
                let name = format!(
                    "cyclictest p99 beside {} over an idle machine: {}",
                    beside.label(),
                    how.way().label
                );
                let h = Headline::new(&name, over, "×");
                match how {
                    How::Tidegate | How::Ext => lines.push(h.at_most(2.0)),
                    How::SliceFull if over.is_nan() => {}
                    _ => lines.push(h),
                }
            }
        }
        lines
    }

    fn headline(&self) -> Vec<Headline> {
        let mut lines = self.over_idle();
        let (ours, without) = (self.ours.way(), self.without.way());
        let p99 = |way, beside| self.found.p99(way, beside);
        for beside in [Beside::Together, Beside::Apart] {
            let against = p99(ours, beside) / p99(How::Slice.way(), beside);
            let name = format!(
                "the p99 beside {}, {} over the shortest slice by hand",
                beside.label(),
                ours.label
            );
            // Two runs of the same thing differ by the phase of the ticks.
            lines.push(Headline::new(&name, against, "×").at_most(1.05));
        }
        let together = Beside::Together;
        let published = CYCLICTEST.iter().find(|r| r.stat == "p99").map(|r| r.b);
        let ratio = p99(without, together) / p99(ours, together);
        let name = "cyclictest p99 beside hackbench, hint 0 over −20";
        lines.push(
            Headline::new(name, ratio, "×")
                .published(published.map(|(a, b)| f64::from(a) / f64::from(b))),
        );
        let part = Part::Cyclictest { beside: together };
        let rate = |way| self.found.mean(part, way, "messages_per_s");
        let loss = 100.0 * (1.0 - rate(ours) / rate(without));
        if !loss.is_nan() {
            let name = "hackbench's messages fewer beside a hint of −20";
            lines.push(Headline::new(name, loss, "%"));
        }
        for way in self.fair() {
            let name = format!("worst share against its fair one: {}", way.label);
            let h = Headline::new(&name, self.found.unfair_pct(way), "%");
            let promised = [How::Tidegate, How::Ext].map(How::way).contains(&way);
            lines.push(h.when(promised, |h| h.at_most(1.0)));
        }
        for groups in self.found.groups() {
            let gain = self.found.gain_pct(groups, How::Nothing.way(), ours);
            if !gain.is_nan() {
                let published = HACKBENCH.iter().find(|r| r.groups == groups);
                let name = format!("hackbench, {groups} groups, faster with hints");
                let h = Headline::new(&name, gain, "%");
                lines.push(h.published(published.map(|r| r.gain_pct)));
            }
        }
        lines
    }

    /// What hackbench does beside cyclictest, and the slice that is really in force.
    fn beside_table(&self) -> Table {
        let part = |beside: Beside| Part::Cyclictest { beside };
        let f = |r: &(Beside, Way), name| self.found.mean(part(r.0), r.1, name);
        let slice = |r: &(Beside, Way)| {
            let run = Run {
                part: part(r.0),
                way: r.1,
            };
            let all = self.found.samples.all("slice_us", |key| *key == run);
            cell(all.into_iter().find(|us| !us.is_nan()), 0, "")
        };
        let against = |r: &(Beside, Way)| {
            let without = self
                .found
                .mean(part(r.0), How::Nothing.way(), "messages_per_s");
            let more = 100.0 * (f(r, "messages_per_s") / without - 1.0);
            if more.is_nan() {
                "-".into()
            } else {
                format!("{more:+.2} %")
            }
        };
        let all = [Beside::Together, Beside::Apart].into_iter();
        let rows = all.flat_map(|beside| self.hows.iter().map(move |how| (beside, how.way())));
        Table::of(
            "hackbench beside cyclictest",
            rows.filter(|r| !f(r, "messages_per_s").is_nan()),
            &[
                ("where", &|r| r.0.label().into()),
                ("cyclictest hinted by", &|r| r.1.label.into()),
                ("its slice, us", &slice),
                ("its own use", &|r| cell(f(r, "own_pct"), 2, " %")),
                ("moments that it kept", &|r| cell(f(r, "kept_pct"), 2, " %")),
                ("messages a second", &|r| {
                    cell(f(r, "messages_per_s"), 0, "")
                }),
                ("against no hint", &against),
            ],
        )
    }

    fn schbench_table(&self) -> Table {
        let all = self.hows.iter().flat_map(|how| {
            let run = Run {
                part: Part::Schbench,
                way: how.way(),
            };
            self.found.samples.of(move |key| *key == run)
        });
        let f = |s: &&Sample<Run>, name| format!("{:.1}", s.get(name));
        Table::of(
            "schbench beside two hogs a CPU",
            all,
            &[
                ("hinted by", &|s| s.key.way.label.into()),
                ("hint", &|s| s.get("hint").to_string()),
                ("wakeup p50, us", &|s| f(s, "p50_us")),
                ("p99", &|s| f(s, "p99_us")),
                ("max", &|s| f(s, "max_us")),
                ("request p50, us", &|s| f(s, "request_p50_us")),
                ("p99", &|s| f(s, "request_p99_us")),
                ("max", &|s| f(s, "request_max_us")),
            ],
        )
    }
}
