//! What the levels and patterns of main come to.

use serde_json::{Map, Value};

use super::patterns::Varying;
use super::rows::{Constant, least_when_quiet};
use crate::LabError;
use crate::beds::host::LOUD_PCT;
use crate::beds::{Bed, HEADROOM_PCT, TOLERANCE_PCT};
use crate::report::{Headline, Met, Report, Sample, Table, bars, plots};
use crate::stats::{least, mean, most};

/// What is compared, which decides the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The knobs alone, on a real kernel.
    Knobs,
    /// Ways of placing side work, on a real kernel with ext.
    Ext,
    /// Engines and sizes, simulated.
    Sim,
}

/// Who keeps the headroom.
#[derive(Clone, Debug, PartialEq)]
pub struct Who {
    /// In JSON and CSV.
    pub key: String,
    /// In tables.
    pub label: String,
    /// Whether it keeps anything idle.
    pub keeps: bool,
    /// How far idle may be from what is due, points.
    pub bound: Option<f64>,
    /// Whether it writes quotas.
    pub writes: bool,
}

/// What one of them gave on one machine.
pub struct Visit {
    /// Who.
    pub who: Who,
    /// The machine's size.
    pub cpus: u32,
    /// At each row's level.
    pub constant: Vec<Constant>,
    /// With each pattern.
    pub varying: Vec<Varying>,
}

/// All of them.
pub struct LawRuns {
    /// What is compared.
    pub form: Form,
    /// In the order of the runs.
    pub visits: Vec<Visit>,
    /// Those that are compared, in the tables' order.
    pub who: Vec<Who>,
    /// How the agent senses, where there is one for all.
    pub sensing: Option<String>,
}

impl LawRuns {
    fn of<'a>(&'a self, who: &'a Who) -> impl Iterator<Item = &'a Visit> {
        self.visits.iter().filter(move |v| v.who == *who)
    }

    /// This head or name where the form has it.
    fn only<'a>(&self, forms: &[Form], head: &'a str) -> &'a str {
        if forms.contains(&self.form) { head } else { "" }
    }

    /// The report without its notes.
    pub fn report(&self, bed: impl Into<Bed>, shown_cpus: u32) -> Result<Report, LabError> {
        let mut report = Report::new("law", bed);
        let constant = self.visits.iter().flat_map(|v| {
            let row = |c| self.constant_row(v, c);
            v.constant.iter().map(row)
        });
        let varying = self.visits.iter().flat_map(|v| {
            let row = |p| self.varying_row(v, p);
            v.varying.iter().map(row)
        });
        report.rows = constant.chain(varying).collect();
        let mut judged: Vec<&Who> = self.who.iter().filter(|w| w.keeps).collect();
        if self.form == Form::Ext {
            judged.reverse();
        }
        let lines = judged.iter().flat_map(|who| self.headline(who));
        // Under ext an arm is left out where its scheduler was ejected.
        let whole = self.form != Form::Ext;
        let lines = lines.map(|h| h.when(whole, Headline::always_measured));
        report.headline = lines.collect();
        if self.loudest() > LOUD_PCT {
            // With the machine taken by others, nothing is due and every target is met or missed idly.
            report
                .headline
                .iter_mut()
                .for_each(|h| h.met = Met::Unknown);
        }
        let mut sizes: Vec<u32> = self.visits.iter().map(|v| v.cpus).collect();
        sizes.sort_unstable();
        sizes.dedup();
        report.tables = sizes
            .iter()
            .map(|cpus| self.constant_table(*cpus))
            .collect();
        report.tables.push(self.varying_table());
        let plotted = |who: &&Who| self.form != Form::Ext || Some(*who) == self.who.last();
        let first = |who, of: fn(&Visit, u32) -> bool| self.of(who).find(|v| of(v, shown_cpus));
        for who in self.who.iter().filter(plotted) {
            if let Some(visit) = first(who, |v, shown_cpus| v.cpus == shown_cpus) {
                report.plots.push(self.shares_plot(visit)?);
            }
        }
        for who in self.who.iter().filter(plotted) {
            if let Some(visit) = first(who, |v, _| !v.varying.is_empty()) {
                for p in &visit.varying {
                    report.plots.push(self.varying_plot(visit, p)?);
                }
            }
        }
        Ok(report)
    }

    fn constant_row(&self, v: &Visit, c: &Constant) -> Map<String, Value> {
        let s = &c.shares;
        let row = Sample::new(())
            .with("kind", "constant")
            .with("main_asked_pct", c.row.main_pct)
            .with("main_pct", s.main_pct)
            .with("side_pct", s.side_pct)
            .with("idle_pct", s.idle_pct)
            .with(
                "published_side_pct",
                c.row.published.and_then(|p| p.side_pct),
            )
            .with("published_idle_pct", c.row.published.map(|p| p.idle_pct))
            .with("due_idle_pct", v.who.keeps.then_some(c.expected_idle))
            .with("seconds", s.seconds);
        let counted = |row: Sample<()>| {
            row.with("side_threads", c.row.hogs.threads(v.cpus as usize))
                .with("reclaim_pct", c.reclaim_pct)
                .with("quota_writes_per_second", c.quota_writes)
        };
        self.of_bed(
            v,
            match self.form {
                Form::Knobs => counted(row)
                    .with("other_pct", s.other_pct)
                    .with("agent_cpu_pct", s.agent_cpu_pct)
                    .with("steal_pct", s.steal_pct),
                Form::Ext => row
                    .with("other_pct", s.other_pct)
                    .with("keeper_cpu_pct", s.agent_cpu_pct),
                Form::Sim => counted(row),
            },
        )
    }

    fn varying_row(&self, v: &Visit, p: &Varying) -> Map<String, Value> {
        let m = &p.mean;
        let row = Sample::new(())
            .with("kind", "varying")
            .with("pattern", p.name)
            .with("main_pct", m.main_pct)
            .with("side_pct", m.side_pct)
            .with("idle_pct", m.idle_pct)
            .with("worst_second_idle_pct", p.worst_idle)
            .with("worst_second_points", p.worst_points);
        self.of_bed(
            v,
            match self.form {
                Form::Knobs => row
                    .with("other_pct", m.other_pct)
                    .with("steal_pct", m.steal_pct)
                    .with("seconds", m.seconds),
                Form::Ext => row,
                Form::Sim => row.with("seconds", m.seconds),
            },
        )
    }

    fn of_bed(&self, v: &Visit, row: Sample<()>) -> Map<String, Value> {
        let key = v.who.key.as_str();
        match self.form {
            Form::Knobs => row.with("sensing", self.sensing.clone().unwrap_or_default()),
            Form::Ext => row.with("arm", key),
            Form::Sim => row.with("engine", key).with("cpus", v.cpus),
        }
        .row()
    }

    fn headline(&self, who: &Who) -> Vec<Headline> {
        let constant = || self.of(who).flat_map(|v| &v.constant);
        let line = |name: &str, value: f64, unit: &str| match self.form {
            Form::Knobs => Headline::new(name, value, unit),
            _ => Headline::new(&format!("{name}: {}", who.label), value, unit),
        };
        let off = most(constant().map(|c| c.off_points().abs()));
        let seconds = self.of(who).flat_map(|v| &v.varying);
        let second = least(seconds.map(|v| v.worst_points));
        let h = line("idle against due, constant main, worst row", off, "points");
        let mut lines = vec![
            match who.bound {
                Some(bound) => h.at_most(bound),
                None => h,
            },
            line(
                "idle against due, varying main, worst second",
                second,
                "points",
            )
            .at_least(-1.0),
        ];
        if self.form != Form::Ext {
            let published = |c: &&Constant| c.row.published.is_some() && c.row.main_pct <= 60;
            let reclaim = least(constant().filter(published).map(|c| c.reclaim_pct));
            lines.push(line("reclaim at 30–60 % main, worst row", reclaim, "%").at_least(95.0));
        }
        let quiet = least_when_quiet(constant());
        lines.push(line("reclaim at 0 and 1 % main, worst row", quiet, "%").at_least(98.0));
        let floor = constant().filter(|c| c.row.is_at_floor());
        let floor: Vec<f64> = floor.map(|c| c.shares.side_pct).collect();
        let tolerance = self.only(&[Form::Knobs, Form::Ext], " (tolerance 1 %)");
        let side = |which, value| {
            let name = format!("side at 70 and 80 % main{tolerance}, {which}");
            line(&name, value, "%")
        };
        lines.push(side("least", least(floor.iter().copied())).at_least(0.95 * TOLERANCE_PCT));
        lines.push(side("most", most(floor)).at_most(TOLERANCE_PCT + 1.0));
        if who.writes {
            let writes = most(constant().map(|c| c.quota_writes));
            let name = "quota writes in steady state, worst row";
            lines.push(line(name, writes, "per second").at_most(5.0));
        }
        if self.form == Form::Knobs {
            let cost: Vec<f64> = constant().map(|c| c.shares.agent_cpu_pct).collect();
            let cost = mean(&cost).unwrap_or(f64::NAN);
            lines.push(line("agent's cost", cost, "% of one CPU").at_most(0.5));
        }
        lines
    }

    /// What other programs used at most, where everything that is measured counts.
    pub fn loudest(&self) -> f64 {
        let of = |v: &Visit| {
            let constant = v.constant.iter().map(|c| c.shares.other_pct);
            let all = constant.chain(v.varying.iter().map(|p| p.mean.other_pct));
            all.fold(0.0, f64::max)
        };
        match self.form {
            Form::Knobs => self.visits.iter().map(of).fold(0.0, f64::max),
            _ => 0.0,
        }
    }

    /// By engine, or by level where the same level is compared.
    fn constant_table(&self, cpus: u32) -> Table {
        let of_size = self.only(&[Form::Sim], ", ");
        let named = if of_size.is_empty() {
            String::new()
        } else {
            format!("{of_size}{cpus} CPUs")
        };
        let visits = self
            .who
            .iter()
            .flat_map(|w| self.of(w).filter(|v| v.cpus == cpus));
        let mut rows: Vec<(usize, &Visit, &Constant)> = visits
            .flat_map(|v| v.constant.iter().enumerate().map(move |(at, c)| (at, v, c)))
            .collect();
        if self.form == Form::Ext {
            rows.sort_by_key(|(at, _, _)| *at);
        }
        type Cell<'a> = (usize, &'a Visit, &'a Constant);
        let digits = if self.form == Form::Knobs { 1 } else { 2 };
        let pct = |value: f64| format!("{value:.digits$}");
        // Nothing is asked of cpu.idle, and nobody keeps it.
        let due = |r: &Cell<'_>, text: String| if r.1.who.keeps { text } else { "-".into() };
        let (knobs, ext, sim) = (Form::Knobs, Form::Ext, Form::Sim);
        let agent = self.only(&[knobs], "agent, % of a CPU");
        Table::of(
            &format!("Constant main, headroom 30 %{named} (percent of the machine)"),
            rows,
            &[
                (self.only(&[sim], "engine"), &|r| r.1.who.label.clone()),
                ("main asked", &|r| r.2.row.label()),
                (self.only(&[ext], "how"), &|r| r.1.who.label.clone()),
                ("main", &|r| pct(r.2.shares.main_pct)),
                (self.only(&[knobs, ext], "other"), &|r| {
                    pct(r.2.shares.other_pct)
                }),
                ("side", &|r| pct(r.2.shares.side_pct)),
                ("published: side", &|r| r.2.row.published_cells()[0].clone()),
                ("idle", &|r| pct(r.2.shares.idle_pct)),
                ("published: idle", &|r| r.2.row.published_cells()[1].clone()),
                ("due", &|r| due(r, pct(r.2.expected_idle))),
                ("off by", &|r| due(r, format!("{:+.2}", r.2.off_points()))),
                ("reclaim", &|r| due(r, format!("{:.1} %", r.2.reclaim_pct))),
                (self.only(&[knobs, sim], "writes/s"), &|r| {
                    format!("{:.1}", r.2.quota_writes)
                }),
                (agent, &|r| format!("{:.2}", r.2.shares.agent_cpu_pct)),
                (self.only(&[ext], "keeper, % of a CPU"), &|r| {
                    due(r, format!("{:.2}", r.2.shares.agent_cpu_pct))
                }),
                (self.only(&[knobs], "steal"), &|r| {
                    format!("{:.1} %", r.2.shares.steal_pct)
                }),
            ],
        )
    }

    fn varying_table(&self) -> Table {
        let visits = self.who.iter().flat_map(|w| self.of(w));
        let mut rows: Vec<(usize, &Visit, &Varying)> = visits
            .flat_map(|v| v.varying.iter().enumerate().map(move |(at, p)| (at, v, p)))
            .collect();
        if self.form == Form::Ext {
            rows.sort_by_key(|(at, _, _)| *at);
        }
        let pct = |value: f64| format!("{value:.1}");
        Table::of(
            "Varying main, headroom 30 %: every second, looked at each 100 ms",
            rows,
            &[
                (self.only(&[Form::Sim], "engine"), &|r| {
                    r.1.who.label.clone()
                }),
                (self.only(&[Form::Sim], "CPUs"), &|r| r.1.cpus.to_string()),
                ("main", &|r| r.2.name.into()),
                (self.only(&[Form::Ext], "how"), &|r| r.1.who.label.clone()),
                ("mean main", &|r| pct(r.2.mean.main_pct)),
                ("mean side", &|r| pct(r.2.mean.side_pct)),
                (self.only(&[Form::Knobs], "mean other"), &|r| {
                    pct(r.2.mean.other_pct)
                }),
                ("mean idle", &|r| pct(r.2.mean.idle_pct)),
                ("idle in the worst second", &|r| pct(r.2.worst_idle)),
                ("against due", &|r| format!("{:+.2}", r.2.worst_points)),
            ],
        )
    }

    fn shares_plot(&self, v: &Visit) -> Result<plots::Plot, LabError> {
        let parts = |c: &Constant| {
            let s = &c.shares;
            let parts = [s.main_pct, s.side_pct, s.other_pct, s.idle_pct];
            (c.row.label(), parts)
        };
        let title = match self.form {
            Form::Knobs => "Who has the machine, main at 0…80 %".to_string(),
            Form::Ext => "Who has the machine under the ext engine, main at 0…80 %".into(),
            Form::Sim => format!("Who has the machine, {} CPUs, {}", v.cpus, v.who.label),
        };
        bars::shares(
            &title,
            "Idle (the top of each bar) stays at 30 % of the machine until main alone leaves less.",
            &v.constant.iter().map(parts).collect::<Vec<_>>(),
            100.0 - HEADROOM_PCT,
        )
    }

    /// Who had the machine while main varied, second by second.
    fn varying_plot(&self, v: &Visit, p: &Varying) -> Result<plots::Plot, LabError> {
        let title = match self.form {
            Form::Knobs => format!("Main as a {}", p.name),
            Form::Ext => format!("Main as a {}, ext engine", p.name),
            Form::Sim => format!("Main as a {}: {}", p.name, v.who.label),
        };
        let line = |i: usize| p.trace.iter().map(|r| (r[0], r[i])).collect::<Vec<_>>();
        let end = p.trace.last().map_or(1.0, |r| r[0]);
        plots::Lines::new(&title, "time, s", "percent of the machine, over 1 s")
            .see("Side mirrors main; idle does not fall below 30 % while main leaves that much.")
            .range(0.0..end, 0.0..100.0)
            .series("main", 0, line(1))
            .series("side", 1, line(2))
            .series("idle", 2, line(3))
            .level("asked", HEADROOM_PCT)
            .draw()
    }
}
