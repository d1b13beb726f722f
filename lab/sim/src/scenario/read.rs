//! Reading one table: typed values with their ranges, and what is left over.

use std::cell::RefCell;

use tidegate_terms::{Share, TimeSpan, mend_for_unknown, quoted};

use super::error::{Place, ScenarioError};
use super::tree::{Leaf, Node, Table, Value};
use crate::cpuset::CpuSet;
use crate::workloads::{Shape, Work};

/// What was found wrong so far.
#[derive(Debug, Default)]
pub(super) struct Findings(RefCell<Vec<ScenarioError>>);

impl Findings {
    pub(super) fn add(&self, error: ScenarioError) {
        self.0.borrow_mut().push(error);
    }

    pub(super) fn into_vec(self) -> Vec<ScenarioError> {
        self.0.into_inner()
    }
}

/// One table being read. Every getter names what it expects; what is wrong goes to the findings, and the caller goes on
/// with its default, so that one run tells everything that is wrong.
pub(super) struct Section<'t> {
    table: &'t Table,
    path: String,
    findings: &'t Findings,
    /// CPUs of the machine, for counts that are given in them.
    pub(super) cpus: u32,
}

impl<'t> Section<'t> {
    /// A table whose keys are all in `keys`.
    pub(super) fn new(
        table: &'t Table,
        path: &str,
        keys: &[&[&str]],
        findings: &'t Findings,
        cpus: u32,
    ) -> Section<'t> {
        let section = Section {
            table,
            path: path.to_owned(),
            findings,
            cpus,
        };
        let known = keys.concat();
        for (key, node) in &table.entries {
            if !known.contains(&key.as_str()) {
                let place = match node {
                    Node::Leaf(leaf) => &leaf.place,
                    Node::Table(table) => &table.place,
                };
                let mend = mend_for_unknown(key, &known);
                section.refuse(key, place, "no such key here".into(), mend);
            }
        }
        section
    }

    pub(super) fn place(&self) -> &'t Place {
        &self.table.place
    }

    pub(super) fn key(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    pub(super) fn refuse(&self, key: &str, place: &Place, why: String, mend: String) {
        self.findings.add(ScenarioError {
            key: self.key(key),
            place: place.clone(),
            why,
            mend,
        });
    }

    /// Refuses the table itself.
    pub(super) fn refuse_table(&self, why: &str, mend: &str) {
        self.findings.add(ScenarioError {
            key: self.path.clone(),
            place: self.place().clone(),
            why: why.to_owned(),
            mend: mend.to_owned(),
        });
    }

    /// Refuses a key's value, or its absence.
    pub(super) fn refuse_key(&self, key: &str, why: String, mend: &str) {
        let place = match self.table.get(key) {
            Some(Node::Leaf(leaf)) => &leaf.place,
            Some(Node::Table(table)) => &table.place,
            None => self.place(),
        };
        self.refuse(key, place, why, mend.to_owned());
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// A key that must be there.
    pub(super) fn must(&self, key: &str, example: &str) -> bool {
        if !self.has(key) {
            self.refuse_key(key, "is missing".into(), &format!("add {key} = {example}"));
        }
        self.has(key)
    }

    pub(super) fn leaf(&self, key: &str) -> Option<&'t Leaf> {
        match self.table.get(key)? {
            Node::Leaf(leaf) => Some(leaf),
            Node::Table(table) => {
                let why = "a table, where a value is expected".into();
                self.refuse(key, &table.place, why, format!("write {key} = …"));
                None
            }
        }
    }

    /// A value by its own rule; `write` says what is accepted.
    pub(super) fn one<T>(
        &self,
        key: &str,
        write: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let leaf = self.leaf(key)?;
        let Value::One(text) = &leaf.value else {
            let why = "a list, where one value is expected".into();
            self.refuse(key, &leaf.place, why, format!("write {write}"));
            return None;
        };
        match parse(text.trim()) {
            Ok(value) => Some(value),
            Err(why) => {
                let why = format!("\"{}\" {why}", quoted(text));
                self.refuse(key, &leaf.place, why, format!("write {write}"));
                None
            }
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.one(key, "a text", |text| Ok(text.to_owned()))
    }

    pub(super) fn truth(&self, key: &str) -> Option<bool> {
        self.one(key, "true or false", |text| {
            text.parse()
                .map_err(|_| "is neither true nor false".to_owned())
        })
    }

    /// A whole number; also in CPUs of the machine, as in `cpus`, `2*cpus` or `cpus/2`.
    pub(super) fn count(&self, key: &str, low: u32, high: u32) -> Option<u32> {
        let write = format!(
            "a whole number from {low} to {high}, or one that follows the machine, as in cpus, 2*cpus or cpus/2"
        );
        self.one(key, &write, |text| {
            let count = count_of(text, self.cpus)?;
            within(count, u64::from(low), u64::from(high)).map(|count| count as u32)
        })
    }

    pub(super) fn number(&self, key: &str, low: i64, high: i64) -> Option<i64> {
        let write = format!("a whole number from {low} to {high}");
        self.one(key, &write, |text| {
            let number: i64 = text
                .parse()
                .map_err(|_| "is not a whole number".to_owned())?;
            if (low..=high).contains(&number) {
                Ok(number)
            } else {
                Err("is out of range".into())
            }
        })
    }

    pub(super) fn seed(&self, key: &str) -> Option<u64> {
        self.one(
            key,
            "a whole number from 0 to 18446744073709551615",
            |text| {
                text.parse()
                    .map_err(|_| "is not a whole number in range".to_owned())
            },
        )
    }

    /// A time within bounds, both included, in nanoseconds.
    pub(super) fn time(&self, key: &str, low: TimeSpan, high: TimeSpan) -> Option<u64> {
        let write = format!("a time from {low} to {high}, as in 5ms");
        self.one(key, &write, |text| {
            let span = TimeSpan::parse(text).map_err(|refusal| refusal.0)?;
            within(span.ns(), low.ns(), high.ns())
        })
    }

    /// Any time up to the longest run.
    pub(super) fn any_time(&self, key: &str) -> Option<u64> {
        self.time(key, TimeSpan::from_nanos(0), TIME_MAX)
    }

    /// A time of at least a nanosecond.
    pub(super) fn some_time(&self, key: &str) -> Option<u64> {
        self.time(key, TimeSpan::from_nanos(1), TIME_MAX)
    }

    pub(super) fn share(&self, key: &str) -> Option<u32> {
        self.one(key, "a share from 0% to 100%, as in 30% or 0.3", |text| {
            Share::parse(text)
                .map(Share::ppm)
                .map_err(|refusal| refusal.0)
        })
    }

    pub(super) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
        let write = match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => names.concat(),
        };
        self.one(key, &write, |text| {
            let found = choices.iter().find(|choice| choice.0 == text);
            found
                .map(|choice| choice.1)
                .ok_or_else(|| "is none of what is known here".to_owned())
        })
    }

    pub(super) fn cpu_list(&self, key: &str) -> Option<CpuSet> {
        let cpus = self.cpus;
        let write = format!(
            "CPUs of the machine, as in 0-3,8; it has 0-{}",
            cpus.max(1) - 1
        );
        self.one(key, &write, |text| {
            let set = CpuSet::parse(text).map_err(|_| "is no list of CPUs".to_owned())?;
            if set.is_subset(&CpuSet::first_n(cpus)) {
                Ok(set)
            } else {
                Err("names CPUs that the machine does not have".into())
            }
        })
    }

    /// Work with its shape, from the keys `key` and `key_shape`.
    pub(super) fn work(&self, key: &str, default: Work) -> Work {
        Work {
            mean_ns: self.any_time(key).unwrap_or(default.mean_ns),
            shape: self
                .choice(
                    &format!("{key}_shape"),
                    &[
                        ("fixed", Shape::Fixed),
                        ("uniform", Shape::Uniform),
                        ("exponential", Shape::Exponential),
                    ],
                )
                .unwrap_or(default.shape),
        }
    }

    /// Mean time between two events, from a rate such as `500/s`.
    pub(super) fn gap(&self, key: &str) -> Option<u64> {
        let write = "a rate from 0.001/s to 10000000/s, as in 500/s or 12/ms";
        self.one(key, write, gap_of)
    }
}

/// The longest run: a day.
pub(super) const TIME_MAX: TimeSpan = TimeSpan::from_secs(86_400);

fn within(value: u64, low: u64, high: u64) -> Result<u64, String> {
    if value < low {
        Err("is too little".into())
    } else if value > high {
        Err("is too much".into())
    } else {
        Ok(value)
    }
}

fn count_of(text: &str, cpus: u32) -> Result<u64, String> {
    let whole = |text: &str| {
        text.trim()
            .parse::<u32>()
            .map_err(|_| "is not a whole number in range".to_owned())
    };
    let cpus = u64::from(cpus);
    if text == "cpus" {
        Ok(cpus)
    } else if let Some(factor) = text.strip_suffix("cpus") {
        let factor = factor.trim_end().strip_suffix('*').unwrap_or("");
        Ok(u64::from(whole(factor)?) * cpus)
    } else if let Some(divisor) = text.strip_prefix("cpus") {
        let divisor = divisor.trim_start().strip_prefix('/').unwrap_or("");
        // At least one task, also on a small machine.
        match whole(divisor)? {
            0 => Err("divides by 0".into()),
            divisor => Ok((cpus / u64::from(divisor)).max(1)),
        }
    } else {
        whole(text).map(u64::from)
    }
}

fn gap_of(text: &str) -> Result<u64, String> {
    let (number, per_ns) = if let Some(number) = text.strip_suffix("/s") {
        (number, 1_000_000_000)
    } else if let Some(number) = text.strip_suffix("/ms") {
        (number, 1_000_000)
    } else if text.contains('/') {
        return Err("is neither per second nor per millisecond".into());
    } else {
        return Err("has no unit".into());
    };
    // In thousandths: TimeSpan reads decimals exactly, and a microsecond has a thousand of its unit.
    let thousandths = TimeSpan::parse(&format!("{}us", number.trim()))
        .map_err(|_| "is not a decimal number with at most three decimals".to_owned())?
        .ns();
    if thousandths == 0 {
        return Err("is no rate".into());
    }
    // per_ns · 1000 ≤ 10^12.
    let gap_ns = per_ns * 1_000 / thousandths;
    within(gap_ns, 100, 1_000_000_000_000).map_err(|_| "is out of range".to_owned())
}
