//! When requests come: the keys of an open loop.

use tidegate_terms::{Share, TimeSpan};

use super::Text;
use super::listed;
use super::read::Section;
use super::tree::Value;
use crate::workloads::Pattern;
use crate::workloads::arrivals::Curve;

pub(super) const PATTERN: &[&str] = &[
    "arrivals", "rate", "load", "on", "off", "phases", "period", "low", "high", "points", "file",
    "repeat",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Poisson,
    Regular,
    Bursts,
    Diurnal,
    Curve,
    File,
}

const NAMES: &[(&str, Name)] = &[
    ("poisson", Name::Poisson),
    ("regular", Name::Regular),
    ("bursts", Name::Bursts),
    ("diurnal", Name::Diurnal),
    ("curve", Name::Curve),
    ("file", Name::File),
];

const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn read(section: &Section<'_>, text: &Text, work_ns: u64) -> Pattern {
    let name = section.choice("arrivals", NAMES).unwrap_or(Name::Poisson);
    let belongs: &[(&str, &[Name])] = &[
        ("on", &[Name::Bursts]),
        ("off", &[Name::Bursts]),
        ("phases", &[Name::Bursts]),
        ("period", &[Name::Diurnal]),
        ("low", &[Name::Diurnal]),
        ("high", &[Name::Diurnal]),
        ("points", &[Name::Curve]),
        ("file", &[Name::File]),
        ("repeat", &[Name::Curve, Name::File]),
    ];
    for (key, _) in belongs
        .iter()
        .filter(|(key, names)| section.has(key) && !names.contains(&name))
    {
        let shown = NAMES
            .iter()
            .find(|one| one.1 == name)
            .map_or("", |one| one.0);
        let why = format!("means nothing with {shown} arrivals");
        section.refuse_key(key, why, "leave it out, or change arrivals");
    }
    if name == Name::File {
        return listed(section, text);
    }
    let gap_ns = gap(section, work_ns);
    match name {
        Name::Regular => Pattern::Regular { gap_ns },
        Name::Bursts => bursts(section, gap_ns),
        Name::Diurnal => {
            let period_ns = section.some_time("period").unwrap_or(60 * SECOND_NS);
            let low = section.share("low").unwrap_or(200_000);
            let high = section.share("high").unwrap_or(1_000_000);
            if low > high {
                section.refuse_key("low", "is above high".into(), "make it at most high");
            }
            let curve = Curve::diurnal(period_ns, low.into(), high.into());
            Pattern::Curve { gap_ns, curve }
        }
        Name::Curve => Pattern::Curve {
            gap_ns,
            curve: curve(section),
        },
        Name::Poisson | Name::File => Pattern::Poisson { gap_ns },
    }
}

/// Mean time between two requests, from a rate or from the load that they make.
fn gap(section: &Section<'_>, work_ns: u64) -> u64 {
    let example = "rate = \"500/s\", or load = \"20%\" of the machine";
    match (section.has("rate"), section.has("load")) {
        (true, true) => section.refuse_key(
            "load",
            "the rate says it already".into(),
            "leave one of them out",
        ),
        (false, false) => {
            section.refuse_key("rate", "is missing".into(), &format!("add {example}"))
        }
        _ => {}
    }
    let by_load = section.share("load").and_then(|ppm| {
        let room = u128::from(ppm) * u128::from(section.cpus);
        if room == 0 {
            section.refuse_key("load", "is no load at all".into(), "write a share above 0%");
            return None;
        }
        // Work of a day at most: below 2^47 · 10^6.
        u64::try_from(u128::from(work_ns) * 1_000_000 / room).ok()
    });
    section.gap("rate").or(by_load).unwrap_or(SECOND_NS).max(1)
}

fn bursts(section: &Section<'_>, mean_gap_ns: u64) -> Pattern {
    let on_ns = section.some_time("on").unwrap_or(SECOND_NS / 10);
    let off_ns = section.any_time("off").unwrap_or(SECOND_NS / 10);
    let fixed = section.choice("phases", &[("fixed", true), ("random", false)]);
    // The rate is the mean over both phases, so while on it is that much higher; times are below 2^47, gaps below 2^87.
    let gap_ns =
        u128::from(mean_gap_ns) * u128::from(on_ns) / (u128::from(on_ns) + u128::from(off_ns));
    Pattern::Bursts {
        gap_ns: u64::try_from(gap_ns).unwrap_or(u64::MAX).max(1),
        on_ns,
        off_ns,
        fixed_phases: fixed.unwrap_or(false),
    }
}

fn curve(section: &Section<'_>) -> Curve {
    let flat = || Curve::new(vec![(0, 1_000_000)], None);
    let form = "points = [[\"0s\", \"20%\"], [\"30s\", \"80%\"]], times rising";
    if !section.must("points", &form["points = ".len()..]) {
        return flat();
    }
    let repeat_ns = section.some_time("repeat");
    let Some(leaf) = section.leaf("points") else {
        return flat();
    };
    let points = match &leaf.value {
        Value::List(points) if !points.is_empty() => points.iter().map(point).collect(),
        _ => Err("is no list of points".to_owned()),
    };
    let points: Vec<(u64, u64)> = match points {
        Ok(points) => points,
        Err(why) => {
            section.refuse_key("points", why, &format!("write {form}"));
            return flat();
        }
    };
    if !points.is_sorted_by(|a, b| a.0 < b.0) {
        section.refuse_key(
            "points",
            "times do not rise".into(),
            &format!("write {form}"),
        );
        return flat();
    }
    if points.iter().all(|point| point.1 == 0) {
        section.refuse_key(
            "points",
            "no request ever comes".into(),
            "make one point more than 0%",
        );
        return flat();
    }
    Curve::new(points, repeat_ns)
}

fn point(point: &Value) -> Result<(u64, u64), String> {
    let Value::List(pair) = point else {
        return Err("holds what is no pair of a time and a share".into());
    };
    let [Value::One(time), Value::One(share)] = pair.as_slice() else {
        return Err("holds what is no pair of a time and a share".into());
    };
    let quoted = tidegate_terms::quoted;
    let time_ns = TimeSpan::parse(time)
        .map_err(|refusal| format!("\"{}\" {refusal}", quoted(time)))?
        .ns();
    let share =
        Share::parse(share).map_err(|refusal| format!("\"{}\" {refusal}", quoted(share)))?;
    Ok((time_ns, u64::from(share.ppm())))
}

fn listed(section: &Section<'_>, text: &Text) -> Pattern {
    for key in ["rate", "load"].into_iter().filter(|key| section.has(key)) {
        section.refuse_key(
            key,
            "the file says when requests come".into(),
            "leave it out",
        );
    }
    let nothing = || Pattern::Listed {
        requests: [].into(),
        repeat_ns: None,
    };
    if !section.must("file", "\"arrivals.txt\"") {
        return nothing();
    }
    let Some(name) = section.text("file") else {
        return nothing();
    };
    let content = match text.file(&name) {
        Ok(content) => content,
        Err(why) => {
            let shown = tidegate_terms::quoted(&name);
            let why = format!("\"{shown}\" cannot be read: {why}");
            let mend = "put a text file of that name beside the scenario, or give its whole path";
            section.refuse_key("file", why, mend);
            return nothing();
        }
    };
    let requests = match listed::parse(&name, &content) {
        Ok(requests) => requests,
        Err(why) => {
            section.refuse_key("file", why, "write one request a line: its time, and its work when it has its own, as in 12.5ms 800us");
            return nothing();
        }
    };
    let repeat_ns = section.some_time("repeat");
    if let (Some(repeat_ns), Some(last)) = (repeat_ns, requests.last())
        && last.due_ns > repeat_ns
    {
        let why = format!(
            "the list's last request comes later, at {}",
            TimeSpan::from_nanos(last.due_ns)
        );
        section.refuse_key("repeat", why, "make it at least as long as the list");
    }
    Pattern::Listed {
        requests: requests.into(),
        repeat_ns,
    }
}
