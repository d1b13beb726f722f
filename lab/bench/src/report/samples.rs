//! Samples: what one run of one arm gave, each figure under one name. The JSON rows are the samples; tables and headlines take
//! their figures by name, as means over the rounds.

use serde_json::{Map, Value, json};

use super::{Headline, Met, Table, num};
use crate::dist::Latency;
use crate::stats;

/// A figure, or a word or a count that goes with it.
#[derive(Clone, Debug)]
pub enum Figure {
    /// Measured; NaN where it was not.
    Measured(f64),
    /// Told as it is.
    Told(Value),
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Figure::Measured(value)
    }
}

impl From<Option<f64>> for Figure {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Figure::Told(Value::Null), Figure::Measured)
    }
}

/// What is told as it is.
macro_rules! told {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Figure {
            fn from(value: $kind) -> Self {
                Figure::Told(json!(value))
            }
        }
    )*};
}
told!(
    u64,
    u32,
    usize,
    i8,
    bool,
    &str,
    String,
    Option<u64>,
    Option<u32>,
    Vec<Value>
);

/// A statistic of a latency.
type Statistic = (&'static str, fn(&Latency) -> f64);

/// All of them, by the names that the figures have.
const STATISTICS: [Statistic; 6] = [
    ("avg", |l| l.avg_us),
    ("p50", |l| l.p50_us),
    ("p90", |l| l.p90_us),
    ("p99", |l| l.p99_us),
    ("p999", |l| l.p999_us),
    ("max", |l| l.max_us),
];

/// One run of one arm. `K` says which: the arm, and what else was chosen for the run (the load, the round, the machine's size).
#[derive(Clone, Debug)]
pub struct Sample<K> {
    /// What was run.
    pub key: K,
    figures: Vec<(String, Figure)>,
    /// For tables and headlines alone.
    aside: Vec<(String, f64)>,
}

impl<K> Sample<K> {
    /// Nothing yet.
    pub fn new(key: K) -> Self {
        Sample {
            key,
            figures: Vec::new(),
            aside: Vec::new(),
        }
    }

    /// Adds a figure; the row has them in this order.
    pub fn with(mut self, name: &str, figure: impl Into<Figure>) -> Self {
        self.figures.push((name.into(), figure.into()));
        self
    }

    /// Adds a figure that is in no row.
    pub fn aside(mut self, name: &str, value: f64) -> Self {
        self.aside.push((name.into(), value));
        self
    }

    /// Adds these statistics, and the others aside: `p99_us`, or `wakeup_p99_us` of `wakeup`.
    pub fn latency(mut self, of: &str, latency: &Latency, shown: &[&str]) -> Self {
        let prefix = if of.is_empty() {
            String::new()
        } else {
            format!("{of}_")
        };
        for (name, value) in STATISTICS {
            let full = format!("{prefix}{name}_us");
            self = match shown.contains(&name) {
                true => self.with(&full, value(latency)),
                false => self.aside(&full, value(latency)),
            };
        }
        self
    }

    /// A figure by its name; NaN where there is none.
    pub fn get(&self, name: &str) -> f64 {
        let figure = self.figures.iter().find(|f| f.0 == name);
        match figure.map(|f| &f.1) {
            Some(Figure::Measured(value)) => *value,
            Some(Figure::Told(value)) => value.as_f64().unwrap_or(f64::NAN),
            None => {
                let aside = self.aside.iter().find(|f| f.0 == name);
                aside.map_or(f64::NAN, |f| f.1)
            }
        }
    }

    /// In JSON and CSV.
    pub fn row(&self) -> Map<String, Value> {
        let value = |figure: &Figure| match figure {
            Figure::Measured(value) => num(*value),
            Figure::Told(value) => value.clone(),
        };
        let cells = self.figures.iter().map(|(n, f)| (n.clone(), value(f)));
        cells.collect()
    }
}

/// All runs of an experiment.
#[derive(Clone, Debug)]
pub struct Samples<K>(pub Vec<Sample<K>>);

impl<K> Samples<K> {
    /// The rows.
    pub fn rows(&self) -> Vec<Map<String, Value>> {
        self.0.iter().map(Sample::row).collect()
    }

    /// Those with such a key.
    pub fn of(&self, pick: impl Fn(&K) -> bool) -> impl Iterator<Item = &Sample<K>> {
        self.0.iter().filter(move |s| pick(&s.key))
    }

    /// A figure of each.
    pub fn all(&self, name: &str, pick: impl Fn(&K) -> bool) -> Vec<f64> {
        self.of(pick).map(|s| s.get(name)).collect()
    }

    /// Its mean; NaN of none.
    pub fn mean(&self, name: &str, pick: impl Fn(&K) -> bool) -> f64 {
        stats::mean(&self.all(name, pick)).unwrap_or(f64::NAN)
    }

    /// What was chosen, each once, in the order of the runs.
    pub fn chosen<T: PartialEq>(&self, of: impl Fn(&K) -> T) -> Vec<T> {
        let mut all = Vec::new();
        for one in self.0.iter().map(|s| of(&s.key)) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }
}

/// A column of a table: its head, and the cell of a row. Without a head it is left out: what a bed does not have.
pub type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

impl Table {
    /// A row of cells for each of these.
    pub fn of<R>(
        title: &str,
        rows: impl IntoIterator<Item = R>,
        columns: &[Column<'_, R>],
    ) -> Self {
        let columns: Vec<_> = columns.iter().filter(|c| !c.0.is_empty()).collect();
        let heads: Vec<&str> = columns.iter().map(|c| c.0).collect();
        let mut table = Table::new(title, &heads);
        for row in rows {
            table.push(columns.iter().map(|c| c.1(&row)));
        }
        table
    }
}

/// A cell: a dash where nothing was measured.
pub fn cell(value: impl Into<Option<f64>>, digits: usize, unit: &str) -> String {
    match value.into() {
        Some(value) if !value.is_nan() => format!("{value:.digits$}{unit}"),
        _ => "-".into(),
    }
}

/// A time, or that it was not seen to end.
pub fn whole_ms(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.0}")
    } else {
        "not seen".into()
    }
}

/// A median with its interval; `digits` from the median.
pub fn with_median(values: &[f64], digits: impl Fn(f64) -> usize) -> String {
    match stats::median(values) {
        None => "-".into(),
        Some(m) if !m.is_finite() => "not seen".into(),
        Some(m) => stats::with_interval(m, median95(values), digits(m)),
    }
}

/// The interval of a median, where both ends of it were seen.
pub fn median95(values: &[f64]) -> Option<(f64, f64)> {
    stats::bootstrap95(values, 1, stats::median).filter(|(_, b)| b.is_finite())
}

impl Headline {
    /// With the target that the value is no larger.
    pub fn at_most(self, limit: f64) -> Self {
        let met = Met::judged(self.value, self.value <= limit);
        self.target(&format!("≤ {limit}").replace('-', "−"), met)
    }

    /// With the target that the value is no smaller.
    pub fn at_least(self, limit: f64) -> Self {
        let met = Met::judged(self.value, self.value >= limit);
        self.target(&format!("≥ {limit}").replace('-', "−"), met)
    }

    /// Where every run measures it: without a value the target is missed.
    pub fn always_measured(mut self) -> Self {
        if self.target.is_some() && self.met == Met::Unknown {
            self.met = Met::No;
        }
        self
    }

    /// The same where it is so, else as it is.
    pub fn when(self, is: bool, then: impl FnOnce(Self) -> Self) -> Self {
        if is { then(self) } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_its_row_and_gives_its_figures_by_name() {
        let latency = Latency {
            p99_us: 2.0,
            max_us: 3.0,
            ..Latency::default()
        };
        let one = |round: u32| {
            Sample::new(round)
                .with("arm", "a")
                .with("used", f64::from(round) + 0.00049)
                .aside("lost", f64::INFINITY)
                .latency("wakeup", &latency, &["p99"])
        };
        let row = one(1).row();
        assert_eq!(
            json!(row),
            json!({"arm": "a", "used": 1.0, "wakeup_p99_us": 2.0})
        );
        assert_eq!(one(1).get("wakeup_max_us"), 3.0);
        assert!(one(1).get("arm").is_nan() && one(1).get("none").is_nan());
        let all = Samples(vec![one(1), one(3), one(5)]);
        assert!((all.mean("used", |round| *round < 5) - 2.00049).abs() < 1e-9);
        assert!(all.mean("used", |_| false).is_nan());
        assert_eq!(all.chosen(|round| round / 3), [0, 1]);
    }

    #[test]
    fn targets_say_their_direction_and_judge_only_what_was_measured() {
        let of = |value| Headline::new("x", value, "ms");
        let h = of(0.5).at_most(0.5);
        assert_eq!((h.target.as_deref(), h.met), (Some("≤ 0.5"), Met::Yes));
        let h = of(-2.0).at_least(-1.0);
        assert_eq!((h.target.as_deref(), h.met), (Some("≥ −1"), Met::No));
        assert_eq!(of(f64::NAN).at_most(1.0).met, Met::Unknown);
        assert_eq!(of(f64::INFINITY).at_most(1.0).met, Met::No);
        let always = |value| of(value).at_most(1.0).always_measured().met;
        assert_eq!((always(f64::NAN), always(0.5)), (Met::No, Met::Yes));
        assert_eq!(
            of(f64::NAN).always_measured().met,
            Met::Unknown,
            "no target"
        );
    }

    #[test]
    fn a_table_is_its_columns() {
        let t = Table::of("t", [1.0, f64::NAN], &[("a", &|v| cell(*v, 1, " %"))]);
        assert_eq!(t.rows, [["1.0 %"], ["-"]]);
        assert_eq!(whole_ms(f64::INFINITY), "not seen");
    }
}
