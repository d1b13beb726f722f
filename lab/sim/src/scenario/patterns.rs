//! When requests come: the keys of an open loop.

use serde::Deserialize;

use super::ScenarioError;
use super::document::{join, refused};
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
    pub(super) fn resolve(&self, path: &str, cpus: u32) -> Result<OpenLoop, ScenarioError> {
        let gap_ns = self.gap_ns(path, cpus)?;
        let pattern = match self.arrivals {
            Arrivals::Curve => Pattern::Curve {
                gap_ns,
                curve: self.curve(path)?,
            },
            Arrivals::Poisson if self.points.is_some() || self.repeat.is_some() => {
                let why = "is missing for points and repeat; add arrivals = \"curve\"";
                return refused(&join(path, "arrivals"), why);
            }
            Arrivals::Poisson => Pattern::Poisson { gap_ns },
        };
        Ok(OpenLoop {
            workers: self.workers,
            work: self.work,
            pattern,
        })
    }

    /// Mean time between two requests, from a rate or from the load that they make.
    fn gap_ns(&self, path: &str, cpus: u32) -> Result<u64, ScenarioError> {
        match (self.rate, self.load) {
            (Some(gap_ns), None) => Ok(gap_ns),
            (Some(_), Some(_)) => refused(
                &join(path, "load"),
                "the rate says it already; leave one out",
            ),
            (None, None) => refused(
                &join(path, "rate"),
                "is missing; add rate = \"500/s\", or load = \"20%\" of the machine",
            ),
            (None, Some(0)) => refused(
                &join(path, "load"),
                "is no load at all; write a share above 0%",
            ),
            (None, Some(ppm)) => {
                let room = u128::from(ppm) * u128::from(cpus);
                // Work of a day at most: below 2^47 · 10^6.
                let gap_ns = u128::from(self.work.mean_ns) * 1_000_000 / room;
                Ok(u64::try_from(gap_ns).unwrap_or(SECOND_NS).max(1))
            }
        }
    }

    fn curve(&self, path: &str) -> Result<Curve, ScenarioError> {
        let points = self.points.iter().flatten();
        let points: Vec<(u64, u64)> = points.map(|Point(at, share)| (*at, *share)).collect();
        let mistake = if points.is_empty() {
            "there is none"
        } else if !points.is_sorted_by(|a, b| a.0 < b.0) {
            "times do not rise"
        } else if points.iter().all(|point| point.1 == 0) {
            "no request ever comes"
        } else {
            return Ok(Curve::new(points, self.repeat));
        };
        let form = "write points = [[\"0s\", \"20%\"], [\"30s\", \"80%\"]], times rising";
        refused(&join(path, "points"), format!("{mistake}; {form}"))
    }
}
