//! How the values of a scenario are read: times, shares, rates, counts, all from text, as a flag
//! gives it. Each function reads a value or, of the same name, an optional one.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tidegate_terms::{Share, TimeSpan};

use crate::cpuset::CpuSet;
use crate::ids::CPUS_MAX;

/// The longest run: a day.
const DAY_NS: u64 = 86_400_000_000_000;
const MS_NS: u64 = 1_000_000;

/// More tasks of one workload than anyone runs; a mistyped count should not fill the memory.
pub(crate) const TASKS_MAX: u32 = 100_000;

/// A value as it is written. Numbers and booleans read like the text of a flag.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "no value of a scenario; write a text in quotes, a decimal number, true or false"
)]
enum Written {
    Text(String),
    Whole(i64),
    Decimal(f64),
    Truth(bool),
}

pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Written::deserialize(from)? {
        Written::Text(text) => text,
        Written::Whole(number) => number.to_string(),
        Written::Decimal(number) => number.to_string(),
        Written::Truth(truth) => truth.to_string(),
    })
}

/// Reads a value by its rule; `write` is what the rule accepts.
pub(crate) fn by<'de, D: Deserializer<'de>, V, T: From<V>>(
    from: D,
    write: &str,
    rule: impl FnOnce(&str) -> Result<V, String>,
) -> Result<T, D::Error> {
    let text = text(from)?;
    rule(text.trim()).map(T::from).map_err(|why| {
        let text = tidegate_terms::quoted(&text);
        D::Error::custom(format!("\"{text}\" {why}; write {write}"))
    })
}

fn time<'de, D: Deserializer<'de>, T: From<u64>>(
    from: D,
    low_ns: u64,
    high_ns: u64,
) -> Result<T, D::Error> {
    let [low, high] = [low_ns, high_ns].map(TimeSpan::from_nanos);
    by(
        from,
        &format!("a time from {low} to {high}, as in 5ms"),
        |text| {
            let span = TimeSpan::parse(text).map_err(|refusal| refusal.to_string())?;
            within(span.ns(), low_ns, high_ns)
        },
    )
}

/// Any time up to the longest run.
pub(crate) fn any_time<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    time(from, 0, DAY_NS)
}

/// A time of at least a nanosecond.
pub(crate) fn some_time<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    time(from, 1, DAY_NS)
}

/// A time of at least a millisecond.
pub(crate) fn long<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    time(from, MS_NS, DAY_NS)
}

/// A slice of a scheduler.
pub(crate) fn slice<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    time(from, MS_NS / 10, 100 * MS_NS)
}

/// A timer tick.
pub(crate) fn tick<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    time(from, MS_NS, 10 * MS_NS)
}

/// A share in millionths.
pub(crate) fn share<'de, D: Deserializer<'de>, T: From<u32>>(from: D) -> Result<T, D::Error> {
    by(from, "a share from 0% to 100%, as in 30% or 0.3", |text| {
        let share = Share::parse(text).map_err(|refusal| refusal.to_string())?;
        Ok(share.ppm())
    })
}

pub(crate) fn truth<'de, D: Deserializer<'de>, T: From<bool>>(from: D) -> Result<T, D::Error> {
    by(from, "true or false", |text| {
        text.parse()
            .map_err(|_| "is neither true nor false".to_owned())
    })
}

pub(crate) fn number<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    by(from, "a whole number", whole)
}

/// From −20 to 19: nice levels and hints.
pub(crate) fn level<'de, D: Deserializer<'de>, T: From<i8>>(from: D) -> Result<T, D::Error> {
    by(from, "a whole number from -20 to 19", |text| {
        within(whole(text)?, -20, 19)
    })
}

pub(crate) fn cpus<'de, D: Deserializer<'de>, T: From<u32>>(from: D) -> Result<T, D::Error> {
    let write = format!("a whole number from 1 to {CPUS_MAX}");
    by(from, &write, |text| within(whole(text)?, 1, CPUS_MAX))
}

/// A number of tasks or of anything that they do.
pub(crate) fn count<'de, D: Deserializer<'de>, T: From<u32>>(from: D) -> Result<T, D::Error> {
    let write = format!(
        "a whole number from 1 to {TASKS_MAX}, or one that follows the machine, as in cpus, 2*cpus \
         or cpus/2"
    );
    by(from, &write, |text| within(whole(text)?, 1, TASKS_MAX))
}

/// A count that follows the machine, as in `cpus`, `2*cpus` or `cpus/2`; none for any other text.
pub(crate) fn of_cpus(text: &str, cpus: u32) -> Option<u32> {
    if text == "cpus" {
        Some(cpus)
    } else if let Some(factor) = text.strip_suffix("cpus") {
        let factor: u32 = factor.trim_end().strip_suffix('*')?.trim().parse().ok()?;
        factor.checked_mul(cpus)
    } else {
        let divisor = text.strip_prefix("cpus")?.trim_start().strip_prefix('/')?;
        // At least one task, also on a small machine.
        Some(cpus.checked_div(divisor.trim().parse().ok()?)?.max(1))
    }
}

/// The mean time between two events in nanoseconds, from a rate such as `500/s`.
pub(crate) fn rate<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    by(
        from,
        "a rate from 0.001/s to 10000000/s, as in 500/s or 12/ms",
        gap_ns,
    )
}

fn gap_ns(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_once('/').ok_or("has no unit")?;
    let unit_ns: u64 = match unit {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        _ => return Err("is neither per second nor per millisecond".into()),
    };
    // In thousandths: TimeSpan reads decimals exactly, and a microsecond has a thousand of its
    // unit.
    let thousandths = TimeSpan::parse(&format!("{}us", number.trim()))
        .map_err(|_| "is not a decimal number with at most three decimals".to_owned())?
        .ns();
    // unit_ns · 1000 ≤ 10^12.
    let gap_ns = (unit_ns * 1_000)
        .checked_div(thousandths)
        .ok_or("is no rate")?;
    within(gap_ns, 100, 1_000_000_000_000)
}

pub(crate) fn cpu_list<'de, D: Deserializer<'de>, T: From<CpuSet>>(from: D) -> Result<T, D::Error> {
    by(from, "a list of CPUs, as in 0-3,8", |text| {
        CpuSet::parse(text).ok_or_else(|| "is no list of CPUs".to_owned())
    })
}

fn within<T: PartialOrd>(value: T, low: T, high: T) -> Result<T, String> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err("is out of range".into())
    }
}

fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "is not a whole number in range".to_owned())
}
