//! When requests come: the keys of an open loop.

use serde::Deserialize;

use super::document::join;
use super::workloads::Context;
use crate::values::{any_time, count, rate, share, some_time};
use crate::workloads::arrivals::Curve;
use crate::workloads::{OpenLoop, Pattern, Work};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arrivals {
    #[default]
    Poisson,
    Curve,
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
    points: Option<Vec<Point>>,
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
        let gap_ns = self.gap_ns(context.cpus, &refuse);
        match self.arrivals {
            Arrivals::Poisson => {
                for (key, is_named) in [
                    ("points", self.points.is_some()),
                    ("repeat", self.repeat.is_some()),
                ] {
                    if is_named {
                        refuse(key, "means nothing without arrivals = \"curve\"".into());
                    }
                }
                Pattern::Poisson { gap_ns }
            }
            Arrivals::Curve => Pattern::Curve {
                gap_ns,
                curve: self.curve(&refuse),
            },
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
}
