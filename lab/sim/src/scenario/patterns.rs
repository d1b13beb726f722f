//! When requests come: the keys of an open loop.

use serde::Deserialize;
use tidegate_terms::{TimeSpan, quoted};

use super::document::join;
use super::listed;
use super::workloads::Context;
use crate::values::{any_time, count, rate, share, some_time};
use crate::workloads::arrivals::Curve;
use crate::workloads::{OpenLoop, Pattern, Work};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arrivals {
    #[default]
    Poisson,
    Regular,
    Bursts,
    Diurnal,
    Curve,
    File,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phases {
    #[default]
    Random,
    Fixed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenLoopKeys {
    #[serde(deserialize_with = "count")]
    workers: u32,
    work: Work,
    #[serde(default)]
    arrivals: Arrivals,
    #[serde(default, deserialize_with = "rate")]
    rate: Option<u64>,
    #[serde(default, deserialize_with = "share")]
    load: Option<u32>,
    #[serde(default, deserialize_with = "some_time")]
    on: Option<u64>,
    #[serde(default, deserialize_with = "any_time")]
    off: Option<u64>,
    phases: Option<Phases>,
    #[serde(default, deserialize_with = "some_time")]
    period: Option<u64>,
    #[serde(default, deserialize_with = "share")]
    low: Option<u32>,
    #[serde(default, deserialize_with = "share")]
    high: Option<u32>,
    points: Option<Vec<Point>>,
    file: Option<String>,
    #[serde(default, deserialize_with = "some_time")]
    repeat: Option<u64>,
}

/// A time of a curve, and the share of the rate then.
#[derive(Deserialize)]
struct Point(
    #[serde(deserialize_with = "any_time")] u64,
    #[serde(deserialize_with = "share")] u64,
);

const SECOND_NS: u64 = 1_000_000_000;

impl OpenLoopKeys {
    pub(super) fn resolve(&self, path: &str, context: &Context<'_>) -> OpenLoop {
        OpenLoop {
            workers: self.workers,
            work: self.work,
            pattern: self.pattern(path, context),
        }
    }

    fn pattern(&self, path: &str, context: &Context<'_>) -> Pattern {
        let refuse = |key: &str, why: String| context.findings.refuse(&join(path, key), why);
        self.refuse_others(&refuse);
        if self.arrivals == Arrivals::File {
            return self.listed(context, &refuse);
        }
        let gap_ns = self.gap_ns(context.cpus, &refuse);
        match self.arrivals {
            Arrivals::Regular => Pattern::Regular { gap_ns },
            Arrivals::Bursts => self.bursts(gap_ns),
            Arrivals::Diurnal => {
                let period_ns = self.period.unwrap_or(60 * SECOND_NS);
                let low_ppm = self.low.unwrap_or(200_000);
                let high_ppm = self.high.unwrap_or(1_000_000);
                if low_ppm > high_ppm {
                    refuse("low", "is above high; make it at most high".into());
                }
                let curve = Curve::diurnal(period_ns, low_ppm.into(), high_ppm.into());
                Pattern::Curve { gap_ns, curve }
            }
            Arrivals::Curve => Pattern::Curve {
                gap_ns,
                curve: self.curve(&refuse),
            },
            Arrivals::Poisson | Arrivals::File => Pattern::Poisson { gap_ns },
        }
    }

    /// Refuses the keys of other patterns.
    fn refuse_others(&self, refuse: &dyn Fn(&str, String)) {
        use Arrivals::{Bursts, Curve, Diurnal, File, Poisson, Regular};
        let rated: &[Arrivals] = &[Poisson, Regular, Bursts, Diurnal, Curve];
        for (key, is_named, patterns) in [
            ("rate", self.rate.is_some(), rated),
            ("load", self.load.is_some(), rated),
            ("on", self.on.is_some(), &[Bursts]),
            ("off", self.off.is_some(), &[Bursts]),
            ("phases", self.phases.is_some(), &[Bursts]),
            ("period", self.period.is_some(), &[Diurnal]),
            ("low", self.low.is_some(), &[Diurnal]),
            ("high", self.high.is_some(), &[Diurnal]),
            ("points", self.points.is_some(), &[Curve]),
            ("file", self.file.is_some(), &[File]),
            ("repeat", self.repeat.is_some(), &[Curve, File]),
        ] {
            if is_named && !patterns.contains(&self.arrivals) {
                let name = format!("{:?}", self.arrivals).to_lowercase();
                let why =
                    format!("means nothing with {name} arrivals; leave it out, or change arrivals");
                refuse(key, why);
            }
        }
    }

    /// Mean time between two requests, from a rate or from the load that they make.
    fn gap_ns(&self, cpus: u32, refuse: &dyn Fn(&str, String)) -> u64 {
        match (self.rate, self.load) {
            (Some(gap_ns), None) => return gap_ns,
            (Some(_), Some(_)) => refuse("load", "the rate says it already; leave one out".into()),
            (None, None) => refuse(
                "rate",
                "is missing; add rate = \"500/s\", or load = \"20%\" of the machine".into(),
            ),
            (None, Some(0)) => {
                refuse("load", "is no load at all; write a share above 0%".into());
            }
            (None, Some(ppm)) => {
                let room = u128::from(ppm) * u128::from(cpus);
                // Work of a day at most: below 2^47 · 10^6.
                let gap_ns = u128::from(self.work.mean_ns) * 1_000_000 / room;
                return u64::try_from(gap_ns).unwrap_or(SECOND_NS).max(1);
            }
        }
        SECOND_NS
    }

    fn bursts(&self, mean_gap_ns: u64) -> Pattern {
        let on_ns = self.on.unwrap_or(SECOND_NS / 10);
        let off_ns = self.off.unwrap_or(SECOND_NS / 10);
        // The rate is the mean over both phases, so while on it is that much higher; times are
        // below 2^47, gaps below 2^87.
        let gap_ns =
            u128::from(mean_gap_ns) * u128::from(on_ns) / (u128::from(on_ns) + u128::from(off_ns));
        Pattern::Bursts {
            gap_ns: u64::try_from(gap_ns).unwrap_or(u64::MAX).max(1),
            on_ns,
            off_ns,
            fixed_phases: self.phases == Some(Phases::Fixed),
        }
    }

    fn curve(&self, refuse: &dyn Fn(&str, String)) -> Curve {
        let points = self.points.iter().flatten();
        let points: Vec<(u64, u64)> = points.map(|Point(at, share)| (*at, *share)).collect();
        let form = "write points = [[\"0s\", \"20%\"], [\"30s\", \"80%\"]], times rising";
        let mistake = if points.is_empty() {
            Some("there is none")
        } else if !points.is_sorted_by(|a, b| a.0 < b.0) {
            Some("times do not rise")
        } else if points.iter().all(|point| point.1 == 0) {
            Some("no request ever comes")
        } else {
            None
        };
        if let Some(mistake) = mistake {
            refuse("points", format!("{mistake}; {form}"));
            return Curve::new(vec![(0, 1_000_000)], None);
        }
        Curve::new(points, self.repeat)
    }

    fn listed(&self, context: &Context<'_>, refuse: &dyn Fn(&str, String)) -> Pattern {
        let repeat_ns = self.repeat;
        let read = match &self.file {
            None => Err("is missing; add file = \"arrivals.txt\"".to_owned()),
            Some(name) => context
                .text
                .file(name)
                .map_err(|why| {
                    let name = quoted(name);
                    format!("\"{name}\" cannot be read: {why}; put it beside the scenario")
                })
                .and_then(|content| listed::parse(name, &content)),
        };
        let requests = read.unwrap_or_else(|why| {
            refuse("file", why);
            Vec::new()
        });
        if let (Some(repeat_ns), Some(last)) = (repeat_ns, requests.last())
            && last.due_ns > repeat_ns
        {
            let last = TimeSpan::from_nanos(last.due_ns);
            let why = format!("the list's last request comes later, at {last}; make it longer");
            refuse("repeat", why);
        }
        Pattern::Listed {
            requests: requests.into(),
            repeat_ns,
        }
    }
}
