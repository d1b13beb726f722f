//! The one report of an experiment: for each part a table of medians with 95 % intervals, the
//! targets, and a drawing of the first metric.

use super::{Headline, Report, Table, plots};
use crate::experiment::{Arm, Bound, Case, Experiment, Metric, Of, Over, Part, Sample, Target};
use crate::machine::Machine;
use crate::stats::{
    bootstrap95, distinct, geometric_mean, least, mean, median, most, with_interval,
};

/// More than this of the machine for other programs, and a measurement is theirs as much as ours.
const LOUD: f64 = 0.10;

/// How the note on a loud machine begins.
pub const LOUD_NOTE: &str = "Other programs used";

/// The report on samples in the order of the experiment's design.
pub fn report(
    experiment: &Experiment,
    machine: Machine,
    parts: &[Part],
    samples: &[Sample],
) -> Report {
    let is_simulated = matches!(machine, Machine::Simulated(_));
    let mut report = Report::new(experiment.name, machine);
    report.title = experiment.question;
    report.rows = samples.iter().map(Sample::row).collect();
    for part in parts {
        let groups = groups(part, samples);
        for group in &groups {
            report.tables.push(group.table());
            report.plots.extend(group.plot());
        }
        for target in &part.targets {
            let lines = groups.iter().flat_map(|group| group.headlines(target));
            report.headline.extend(lines);
        }
    }
    let notes = experiment.notes.iter();
    let notes = notes.filter(|note| is_simulated || !note.starts_with("Simulated"));
    report.notes = notes.map(|note| (*note).to_owned()).collect();
    let others = samples.iter().map(|s| s.figures.get("other_ratio"));
    let others: Vec<f64> = others.filter(|v| !v.is_nan()).collect();
    let loud = median(&others).filter(|v| *v > LOUD);
    for headline in &mut report.headline {
        if loud.is_some() {
            headline.met = None;
        } else if is_simulated && headline.target.is_some() && headline.met.is_none() {
            // Nothing disturbs a simulation: a figure without a value misses its target.
            headline.met = Some(false);
        }
    }
    report.notes.extend(loud.map(|ratio| {
        format!(
            "{LOUD_NOTE} {:.0} % of the machine, so no target is judged: run it again on a quiet \
             machine.",
            100.0 * ratio
        )
    }));
    report
}

/// The samples of a part that share a table.
pub struct Samples<'a> {
    part: &'a Part,
    all: Vec<&'a Sample>,
    cases: Vec<&'a Case>,
    arms: Vec<&'a Arm>,
    /// What tells them from another group: `, 16 CPUs`.
    suffix: String,
    has_others: bool,
}

pub fn groups<'a>(part: &'a Part, samples: &'a [Sample]) -> Vec<Samples<'a>> {
    let of_part = || samples.iter().filter(|s| s.part == part.key);
    let names = distinct(of_part().map(|s| s.case.group.as_str()));
    let has_others = names.len() > 1;
    let group = |name: &str| {
        let all: Vec<&Sample> = of_part().filter(|s| s.case.group == name).collect();
        Samples {
            part,
            cases: distinct(all.iter().map(|s| &s.case)),
            arms: distinct(all.iter().map(|s| &s.arm)),
            all,
            suffix: match name {
                "" => String::new(),
                _ => format!(", {name}"),
            },
            has_others,
        }
    };
    names.into_iter().map(group).collect()
}

impl Samples<'_> {
    fn pick(&self, pick: impl Fn(&Sample) -> bool, name: &str) -> Vec<f64> {
        let picked = self.all.iter().filter(|s| pick(s));
        let values = picked.map(|s| s.figures.get(name));
        values.filter(|v| !v.is_nan()).collect()
    }

    fn has_run(&self, case: &Case, arm: &Arm) -> bool {
        self.all.iter().any(|s| s.case == *case && s.arm == *arm)
    }

    /// A figure over the other arm's in the same round of this case. A main that was never served
    /// is infinitely slow, not a run to leave out.
    fn ratios(&self, case: &Case, arm: &str, over: &str, name: &str) -> Vec<f64> {
        let of_case = || self.all.iter().filter(|s| s.case == *case);
        let ratio = |s: &&Sample| {
            let same = of_case().find(|b| b.arm.key == over && b.round == s.round)?;
            let (value, base) = (s.figures.get(name), same.figures.get(name));
            let ratio = value / base;
            (ratio > 0.0 && base.is_finite()).then_some(ratio)
        };
        let own = of_case().filter(|s| s.arm.key == arm);
        own.filter_map(ratio).collect()
    }

    fn title(&self) -> String {
        format!("{}{}", self.part.title, self.suffix)
    }

    pub fn table(&self) -> Table {
        let metrics = self.part.metrics.iter();
        let metrics: Vec<&Metric> = metrics
            .filter(|m| !self.pick(|_| true, m.name).is_empty())
            .collect();
        let labels = if self.part.pooled {
            &[""][..]
        } else {
            &["", "arm"]
        };
        let heads = labels.iter().copied().chain(metrics.iter().map(|m| m.head));
        let mut table = Table::new(&self.title(), &heads.collect::<Vec<_>>());
        let mut push = |labels: Vec<String>, own: &dyn Fn(&Sample) -> bool| {
            let cells = metrics.iter().map(|m| shown(&self.pick(own, m.name), m));
            table.push(labels.into_iter().chain(cells));
        };
        if self.part.pooled {
            for arm in &self.arms {
                push(vec![arm.label.clone()], &|s| s.arm == **arm);
            }
            return table;
        }
        for case in &self.cases {
            for arm in self.arms.iter().filter(|arm| self.has_run(case, arm)) {
                let labels = vec![case.label.clone(), arm.label.clone()];
                push(labels, &|s| s.case == **case && s.arm == **arm);
            }
        }
        table
    }

    pub fn headlines(&self, target: &Target) -> Vec<Headline> {
        let mut lines = Vec::new();
        for arm in &self.arms {
            if !target.arms.is_empty() && !target.arms.contains(&arm.key) {
                continue;
            }
            let Some(values) = self.values(target, arm) else {
                continue;
            };
            let mut name = target.what.replace("{arm}", &arm.label);
            if name == target.what && self.arms.len() > 1 {
                name = format!("{name}: {}", arm.label);
            }
            if self.has_others {
                name += &self.suffix;
            }
            lines.push(line(target, name, &values));
        }
        lines
    }

    /// What a target looks at; nothing if no case of it was run.
    fn values(&self, target: &Target, arm: &Arm) -> Option<Vec<f64>> {
        let is_chosen = |case: &&&Case| match &target.cases {
            None => true,
            Some((field, value)) => case.fields.iter().any(|f| f.0 == *field && f.1 == *value),
        };
        let cases: Vec<&Case> = self.cases.iter().filter(is_chosen).copied().collect();
        let metric = &target.metric;
        let of = |case: &Case| self.pick(|s| s.case == *case && s.arm == *arm, metric.name);
        if !cases.iter().any(|case| self.has_run(case, arm)) {
            return None;
        }
        let cases = cases.into_iter();
        Some(match &target.over {
            Over::Itself => cases.flat_map(of).map(|v| v * metric.scale).collect(),
            Over::Arm(over) if arm.key == *over => return None,
            Over::Arm(over) => cases
                .map(|case| self.ratios(case, &arm.key, over, metric.name))
                .filter(|ratios| !ratios.is_empty())
                .map(|ratios| together(&ratios))
                .collect(),
            Over::Case(label) => {
                let base = mean(&of(self.cases.iter().find(|c| c.label == *label)?))?;
                let others = cases.filter(|c| c.label != *label);
                others.filter_map(|c| Some(mean(&of(c))? / base)).collect()
            }
        })
    }

    pub fn plot(&self) -> Option<plots::Plot> {
        let metric = self.part.metrics.first()?;
        let mut rows = Vec::new();
        for case in &self.cases {
            for arm in &self.arms {
                let values = self.pick(|s| s.case == **case && s.arm == **arm, metric.name);
                let values = values.into_iter().map(|v| v * metric.scale).collect();
                rows.push((format!("{} {}", case.label, arm.label), values));
            }
        }
        let title = format!("{}: {}", self.title(), metric.head);
        plots::dots(&title, "Each dot is a run, the bar is the median.", &rows)
    }
}

/// The geometric mean of ratios; infinite if one is.
fn together(ratios: &[f64]) -> f64 {
    geometric_mean(ratios).unwrap_or(f64::NAN)
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
    };
    headline.target = Some(text.replace('-', "−"));
    headline.met = Some(met).filter(|_| !value.is_nan());
    headline
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Figures, metric};

    const AVG: Metric = metric("avg_us", "average, us", 1);

    /// A part with these runs: load, arm, round, average.
    fn part(runs: &[(f64, &str, u32, f64)], target: Target) -> (Part, Vec<Sample>) {
        let part = Part::new("loads", "Main", Vec::new(), |_, _| Vec::new(), &[AVG])
            .pooled()
            .targets([target]);
        let sample = |&(load, arm, round, avg_us): &(f64, &str, u32, f64)| Sample {
            part: "loads".into(),
            case: Case::new("16 CPUs", format!("load {load}")).with("load", load),
            arm: Arm::new(arm, arm),
            round,
            figures: Figures::default().with("avg_us", avg_us),
        };
        (part, runs.iter().map(sample).collect())
    }

    fn headline(runs: &[(f64, &str, u32, f64)], target: Target) -> Vec<Headline> {
        let (part, samples) = part(runs, target);
        groups(&part, &samples)[0].headlines(&part.targets[0])
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
            (Some(false), Some("≤ 2.5"))
        );
    }

    #[test]
    fn a_starved_main_is_the_worst_and_not_left_out() {
        let runs = [(1.0, "alone", 0, 1.0), (1.0, "idle", 0, f64::INFINITY)];
        let (part, samples) = part(&runs, worst());
        let group = &groups(&part, &samples)[0];
        assert_eq!(group.headlines(&part.targets[0])[0].value, f64::INFINITY);
        assert_eq!(group.table().rows[1], ["idle", "never"]);
    }

    #[test]
    fn targets_judge_only_what_was_measured() {
        let target = || Target::new("average of {arm}", &[], AVG, "us").bound(Bound::Least(1.0));
        let lines = headline(&[(1.0, "alone", 0, f64::NAN)], target());
        assert_eq!(
            (lines[0].met, lines[0].name.as_str()),
            (None, "average of alone")
        );
        let lines = headline(&[(1.0, "alone", 0, 0.5)], target());
        assert_eq!(lines[0].met, Some(false));
    }

    #[test]
    fn a_case_is_compared_with_another_of_its_group() {
        let target = Target::new("average over load 1", &["idle"], AVG, "us").over_case("load 1");
        let lines = headline(&[(1.0, "idle", 0, 2.0), (1.5, "idle", 0, 5.0)], target);
        assert_eq!(lines[0].value, 2.5);
    }
}
