//! The one report of an experiment: for each part a table of medians with 95 % intervals, ratios in
//! pairs against the strongest simple alternative, the targets, and a drawing of the first metric.

use super::{Headline, Met, Report, Table, plots};
use crate::experiment::{Arm, Bound, Case, Experiment, Metric, Of, Over, Part, Sample, Target};
use crate::machine::Machine;
use crate::options::On;
use crate::stats::{bootstrap95, geometric_mean, least, mean, median, most, with_interval};

/// More than this of the machine for other programs, and a measurement is theirs as much as ours.
pub const LOUD: f64 = 0.10;

pub fn report(
    experiment: &Experiment,
    on: On,
    machine: Machine,
    parts: &[Part],
    samples: &[Sample],
) -> Report {
    let mut report = Report::new(experiment.name, machine);
    report.title = experiment.question;
    report.rows = samples.iter().map(Sample::row).collect();
    for part in parts {
        let of_part = Samples::of(part, samples);
        if of_part.all.is_empty() {
            continue;
        }
        for group in of_part.groups() {
            report.tables.extend(of_part.tables(&group));
            report.plots.extend(of_part.plot(&group));
        }
        let targets = part.targets.iter().flat_map(|t| of_part.headlines(t));
        report.headline.extend(targets);
    }
    report.notes = experiment.notes.iter().map(|n| (*n).to_string()).collect();
    let others: Vec<f64> = samples
        .iter()
        .map(|s| s.figures.get("other_ratio"))
        .collect();
    let others: Vec<f64> = others.into_iter().filter(|v| !v.is_nan()).collect();
    let loud = median(&others).filter(|v| *v > LOUD);
    for headline in &mut report.headline {
        if loud.is_some() {
            headline.met = Met::Unknown;
        } else if on == On::Sim {
            // Nothing disturbs a simulation: a figure without a value misses its target.
            headline.missed_without_a_value();
        }
    }
    report.notes.extend(loud.map(|ratio| {
        format!(
            "Other programs used {:.0} % of the machine, so no target is judged: run it again on a quiet machine.",
            100.0 * ratio
        )
    }));
    report
}

struct Samples<'a> {
    part: &'a Part,
    all: Vec<&'a Sample>,
}

/// Each once, in the order of appearance.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

impl<'a> Samples<'a> {
    fn of(part: &'a Part, samples: &'a [Sample]) -> Self {
        Samples {
            part,
            all: samples.iter().filter(|s| s.part == part.key).collect(),
        }
    }

    fn groups(&self) -> Vec<String> {
        distinct(self.all.iter().map(|s| s.case.group.clone()))
    }

    fn cases(&self, group: &str) -> Vec<&'a Case> {
        // The design's order; runs are shuffled.
        let planned = self.part.cells.iter().map(|c| &c.case);
        let planned = distinct(planned.filter(|c| c.group == group));
        let all = self.all.iter().map(|s| &s.case);
        let run = distinct(all.filter(|c| c.group == group));
        let at = |case: &&Case| planned.iter().position(|p| p == case);
        let mut cases = run;
        cases.sort_by_key(at);
        cases
    }

    fn arms(&self, group: &str) -> Vec<&'a Arm> {
        let planned = distinct(self.part.cells.iter().map(|c| &c.arm));
        let all = self.all.iter().filter(|s| s.case.group == group);
        let mut arms = distinct(all.map(|s| &s.arm));
        arms.sort_by_key(|arm| planned.iter().position(|p| p == arm));
        arms
    }

    fn pick(&self, pick: impl Fn(&Sample) -> bool, name: &str) -> Vec<f64> {
        let picked = self.all.iter().filter(|s| pick(s));
        let values = picked.map(|s| s.figures.get(name));
        values.filter(|v| !v.is_nan()).collect()
    }

    /// A figure over the other arm's in the same round of this case. A main that was never served
    /// is infinitely slow, not a run to leave out.
    fn ratios(&self, case: &Case, arm: &str, over: &str, name: &str) -> Vec<f64> {
        let of = |key: &str| -> Vec<&&Sample> {
            let own = self
                .all
                .iter()
                .filter(|s| s.case == *case && s.arm.key == key);
            own.collect()
        };
        let (own, base) = (of(arm), of(over));
        let ratio = |s: &&Sample| {
            let same = base.iter().find(|b| b.round == s.round)?;
            let (value, base) = (s.figures.get(name), same.figures.get(name));
            let ratio = value / base;
            (ratio > 0.0 && base.is_finite()).then_some(ratio)
        };
        own.into_iter().filter_map(ratio).collect()
    }

    fn tables(&self, group: &str) -> Vec<Table> {
        let mut tables = vec![self.table(group)];
        let cases = self.cases(group);
        for (over, figures) in self.part.over {
            tables.extend(
                figures
                    .iter()
                    .map(|name| self.pairs(group, &cases, over, name)),
            );
        }
        tables.retain(|t| !t.rows.is_empty());
        tables
    }

    fn title(&self, group: &str) -> String {
        match group {
            "" => self.part.title.clone(),
            _ => format!("{}, {group}", self.part.title),
        }
    }

    fn table(&self, group: &str) -> Table {
        let metrics = self.part.metrics.iter().filter(|m| {
            let of_group = |s: &Sample| s.case.group == group;
            !self.pick(of_group, m.name).is_empty()
        });
        let metrics: Vec<&Metric> = metrics.collect();
        let mut heads = if self.part.pooled {
            vec![""]
        } else {
            vec!["", "arm"]
        };
        heads.extend(metrics.iter().map(|m| m.head));
        let mut table = Table::new(&self.title(group), &heads);
        let arms = self.arms(group);
        if self.part.pooled {
            for arm in arms {
                let own = |s: &Sample| s.case.group == group && s.arm == *arm;
                let cells = metrics.iter().map(|m| shown(&self.pick(own, m.name), m));
                table.push(std::iter::once(arm.label.clone()).chain(cells));
            }
            return table;
        }
        for case in self.cases(group) {
            for arm in &arms {
                let own = |s: &Sample| s.case == *case && s.arm == **arm;
                if !self.all.iter().any(|s| own(s)) {
                    continue;
                }
                let cells = metrics.iter().map(|m| shown(&self.pick(own, m.name), m));
                let labels = [case.label.clone(), arm.label.clone()];
                table.push(labels.into_iter().chain(cells));
            }
        }
        table
    }

    /// Ratios to the alternative, a column for each case.
    fn pairs(&self, group: &str, cases: &[&Case], over: &str, name: &str) -> Table {
        let base = self.arms(group).into_iter().find(|arm| arm.key == over);
        let head = self.part.metrics.iter().find(|m| m.name == name);
        let head = head.map_or(name, |m| m.head.split(',').next().unwrap_or(m.head));
        let base = base.map_or(over, |arm| &arm.label);
        let title = format!("{}: {head} over {base}, in pairs", self.title(group));
        let mut heads = vec![""];
        heads.extend(cases.iter().map(|c| c.label.as_str()));
        if cases.len() > 1 {
            heads.push("all");
        }
        let mut table = Table::new(&title, &heads);
        for arm in self.arms(group).into_iter().filter(|arm| arm.key != over) {
            let by_case = cases.iter().map(|c| self.ratios(c, &arm.key, over, name));
            let by_case: Vec<Vec<f64>> = by_case.collect();
            let all = by_case.concat();
            if all.is_empty() {
                continue;
            }
            let mut cells: Vec<String> = by_case.iter().map(|r| ratio_cell(r)).collect();
            if cases.len() > 1 {
                cells.push(ratio_cell(&all));
            }
            table.push(std::iter::once(arm.label.clone()).chain(cells));
        }
        table
    }

    fn headlines(&self, target: &Target) -> Vec<Headline> {
        let groups = self.groups();
        let mut lines = Vec::new();
        for group in &groups {
            for arm in self.arms(group).into_iter() {
                if !target.arms.is_empty() && !target.arms.contains(&arm.key) {
                    continue;
                }
                let values = self.values(target, group, arm);
                let Some(values) = values else { continue };
                let mut name = target.what.replace("{arm}", &arm.label);
                if name == target.what && self.part.cells.iter().any(|c| c.arm != *arm) {
                    name = format!("{name}: {}", arm.label);
                }
                if groups.len() > 1 && !group.is_empty() {
                    name = format!("{name}, {group}");
                }
                lines.push(line(target, name, &values));
            }
        }
        lines
    }

    /// What a target looks at; nothing if no case of it was run.
    fn values(&self, target: &Target, group: &str, arm: &Arm) -> Option<Vec<f64>> {
        let chosen = |case: &Case| match &target.cases {
            None => true,
            Some((field, value)) => case.fields.iter().any(|f| f.0 == *field && f.1 == *value),
        };
        let cases = self.cases(group);
        let cases: Vec<&Case> = cases.into_iter().filter(|c| chosen(c)).collect();
        let metric = &target.metric;
        let of = |case: &Case| self.pick(|s| s.case == *case && s.arm == *arm, metric.name);
        let was_run = |case: &&Case| {
            let mut all = self.all.iter();
            all.any(|s| s.case == **case && s.arm == *arm)
        };
        if !cases.iter().any(was_run) {
            return None;
        }
        Some(match &target.over {
            Over::Itself => {
                let all = cases.iter().flat_map(|c| of(c));
                all.map(|v| v * metric.scale).collect()
            }
            Over::Arm(over) if arm.key == *over => return None,
            Over::Arm(over) => {
                let pairs = cases
                    .iter()
                    .map(|c| self.ratios(c, &arm.key, over, metric.name));
                pairs
                    .filter(|r| !r.is_empty())
                    .map(|r| together(&r))
                    .collect()
            }
            Over::Case(label) => {
                let base = self.cases(group).into_iter().find(|c| c.label == *label)?;
                let base = mean(&of(base))?;
                let others = cases.iter().filter(|c| c.label != *label);
                others.filter_map(|c| Some(mean(&of(c))? / base)).collect()
            }
        })
    }

    fn plot(&self, group: &str) -> Option<plots::Plot> {
        let metric = self.part.metrics.first()?;
        let mut rows = Vec::new();
        for case in self.cases(group) {
            for arm in self.arms(group) {
                let values = self.pick(|s| s.case == *case && s.arm == *arm, metric.name);
                let values = values.into_iter().map(|v| v * metric.scale).collect();
                rows.push((format!("{} {}", case.label, arm.label), values));
            }
        }
        let title = format!("{}: {}", self.title(group), metric.head);
        plots::dots(&title, "Each dot is a run, the bar is the median.", &rows)
    }
}

/// The geometric mean of ratios; infinite if one is.
fn together(ratios: &[f64]) -> f64 {
    geometric_mean(ratios).unwrap_or(f64::NAN)
}

fn ratio_cell(ratios: &[f64]) -> String {
    match ratios {
        [] => "-".into(),
        _ if !together(ratios).is_finite() => "never".into(),
        _ => with_interval(together(ratios), bootstrap95(ratios, 1, geometric_mean), 2),
    }
}

fn shown(values: &[f64], metric: &Metric) -> String {
    let values: Vec<f64> = values.iter().map(|v| v * metric.scale).collect();
    match median(&values) {
        None => "-".into(),
        Some(m) if !m.is_finite() => "never".into(),
        Some(m) => {
            let interval = bootstrap95(&values, 1, median).filter(|i| i.1.is_finite());
            with_interval(m, interval.filter(|i| i.0 < i.1), metric.digits)
        }
    }
}

fn line(target: &Target, name: String, values: &[f64]) -> Headline {
    let all = values.iter().copied();
    let value = match target.of {
        Of::Median => median(values).unwrap_or(f64::NAN),
        Of::Mean => mean(values).unwrap_or(f64::NAN),
        Of::Most => most(all),
        Of::Least => least(all),
    };
    let mut headline = Headline::new(&name, value, target.unit);
    if target.of == Of::Median {
        headline.interval95 = bootstrap95(values, 1, median).filter(|i| i.1.is_finite());
    }
    headline.published = target.published;
    let (text, met) = match target.bound {
        Bound::None => return headline,
        Bound::Most(limit) => (format!("≤ {limit}"), value <= limit),
        Bound::Least(limit) => (format!("≥ {limit}"), value >= limit),
        Bound::Within(low, high) => (format!("{low} to {high}"), (low..=high).contains(&value)),
    };
    headline.target = Some(text.replace('-', "−"));
    headline.met = if value.is_nan() {
        Met::Unknown
    } else {
        Met::of(met)
    };
    headline
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Cell, Figures, metric};
    use crate::scene::{Model, Scene};

    const AVG: Metric = metric("avg_us", "average, us", 1);

    fn cell(load: f64, arm: &str, round: u32) -> Cell {
        let case = Case::new("16 CPUs", format!("load {load}")).with("load", load);
        Cell {
            case,
            arm: Arm::new(arm, arm),
            round,
            due: Vec::new(),
            scene: Scene::new(Model::plain(1), 0, 0, 1),
        }
    }

    /// A part with these runs: load, arm, round, average.
    fn part(runs: &[(f64, &str, u32, f64)], target: Target) -> (Part, Vec<Sample>) {
        let part = Part {
            pooled: true,
            over: &[("alone", &["avg_us"])],
            targets: vec![target],
            ..Part::new(
                "loads",
                "Main",
                runs.iter().map(|r| cell(r.0, r.1, r.2)).collect(),
                |_, _| Vec::new(),
                &[AVG],
            )
        };
        let sample = |(cell, run): (&Cell, &(f64, &str, u32, f64))| Sample {
            part: "loads".into(),
            case: cell.case.clone(),
            arm: cell.arm.clone(),
            round: cell.round,
            figures: Figures::default().with("avg_us", run.3),
        };
        let samples = part.cells.iter().zip(runs).map(sample).collect();
        (part, samples)
    }

    fn headline(runs: &[(f64, &str, u32, f64)], target: Target) -> Vec<Headline> {
        let (part, samples) = part(runs, target);
        let of_part = Samples::of(&part, &samples);
        of_part.headlines(&part.targets[0])
    }

    fn worst() -> Target {
        let worst = Target::new("average, worst load", &["idle"], AVG, "us");
        worst.over("alone").of(Of::Most).bound(Bound::Most(2.5))
    }

    #[test]
    fn ratios_pair_by_case_and_round() {
        let lines = headline(
            &[
                (1.0, "alone", 0, 1.0),
                (1.0, "idle", 0, 2.0),
                (1.0, "alone", 1, 10.0),
                (1.0, "idle", 1, 20.0),
                (1.2, "alone", 0, 1.0),
                (1.2, "idle", 0, 3.0),
                (1.4, "idle", 0, 99.0),
            ],
            worst(),
        );
        assert_eq!(lines.len(), 1);
        assert!(
            (lines[0].value - 3.0).abs() < 1e-9,
            "an unpaired cell does not count"
        );
        assert_eq!(
            (lines[0].met, lines[0].target.as_deref()),
            (Met::No, Some("≤ 2.5"))
        );
    }

    #[test]
    fn a_starved_main_is_the_worst_and_not_left_out() {
        let runs = [(1.0, "alone", 0, 1.0), (1.0, "idle", 0, f64::INFINITY)];
        let (part, samples) = part(&runs, worst());
        let of_part = Samples::of(&part, &samples);
        assert_eq!(of_part.headlines(&part.targets[0])[0].value, f64::INFINITY);
        let tables = of_part.tables("16 CPUs");
        assert_eq!(tables[1].rows, [["idle", "never"]]);
    }

    #[test]
    fn targets_judge_only_what_was_measured() {
        let target = || Target::new("average of {arm}", &[], AVG, "us").bound(Bound::Least(1.0));
        let lines = headline(&[(1.0, "alone", 0, f64::NAN)], target());
        assert_eq!(
            (lines[0].met, lines[0].name.as_str()),
            (Met::Unknown, "average of alone")
        );
        let lines = headline(&[(1.0, "alone", 0, 0.5)], target());
        assert_eq!(lines[0].met, Met::No);
    }

    #[test]
    fn a_case_is_compared_with_another_of_its_group() {
        let target = Target::new("average over load 1", &["idle"], AVG, "us").over_case("load 1");
        let lines = headline(&[(1.0, "idle", 0, 2.0), (1.5, "idle", 0, 5.0)], target);
        assert_eq!(lines[0].value, 2.5);
    }
}
