//! What the arms come to.

use super::{Arm, Limit, Run};
use crate::LabError;
use crate::beds::Bed;
use crate::dist::Latency;
use crate::experiments::published::BURST;
use crate::report::{Headline, Report, Sample, Samples, Table, cell, plots};
use crate::stats::most;

/// What all runs of a bed have in common.
pub struct Service {
    /// The quota.
    pub quota_us: u64,
    /// Its period.
    pub period_us: u64,
    /// A request's own work.
    pub work_us: f64,
}

/// Statistics that a row has.
const SHOWN: [&str; 5] = ["avg", "p50", "p99", "p999", "max"];

impl Service {
    /// A run's latencies; what its bed counted follows.
    pub fn sample(&self, run: Run, wakeup: &Latency, request: &Latency) -> Sample<Run> {
        Sample::new(run)
            .with("arm", run.arm.key)
            .with("round", run.round + 1)
            .with("quota_us", self.quota_us)
            .with("period_us", self.period_us)
            .latency("wakeup", wakeup, &SHOWN)
            .latency("request", request, &SHOWN)
            .with("requests", request.completed)
    }
}

/// The runs of a bed.
pub struct BurstRuns<'a> {
    /// All of them.
    pub samples: Samples<Run>,
    /// Those of its arms that were run, in the tables' order.
    pub arms: Vec<Arm>,
    /// What they have in common.
    pub service: &'a Service,
}

impl<'a> BurstRuns<'a> {
    /// Of a bed with these arms.
    pub fn new(samples: Vec<Sample<Run>>, arms: &[Arm], service: &'a Service) -> Self {
        let was_run = |arm: &&Arm| samples.iter().any(|s| s.key.arm == **arm);
        BurstRuns {
            arms: arms.iter().filter(was_run).copied().collect(),
            samples: Samples(samples),
            service,
        }
    }

    fn mean(&self, arm: Arm, name: &str) -> f64 {
        self.samples.mean(name, |run| run.arm == arm)
    }

    /// The arm with this limit.
    pub fn with(&self, limit: Limit, ext: bool) -> impl Fn(&str) -> f64 {
        let arm = self.arms.iter().find(|a| a.limit == limit && a.ext == ext);
        move |name| arm.map_or(f64::NAN, |arm| self.mean(*arm, name))
    }

    fn limited(&self) -> impl Iterator<Item = Arm> {
        let limited = |arm: &Arm| arm.limit != Limit::None;
        self.arms.iter().copied().filter(limited)
    }

    /// The report without its headline and notes; `published` is the title of the table beside the burst series'.
    pub fn report(
        &self,
        bed: impl Into<Bed>,
        title: &str,
        published: &str,
    ) -> Result<Report, LabError> {
        let mut report = Report::new("burst", bed);
        report.rows = self.samples.rows();
        report.tables = vec![self.limits(title), self.beside_published(published)];
        report.plots.push(self.plot()?);
        Ok(report)
    }

    fn limits(&self, title: &str) -> Table {
        let f = |arm: &Arm, name, scale: f64, digits, unit| {
            format!("{:.digits$}{unit}", self.mean(*arm, name) / scale)
        };
        Table::of(
            title,
            self.arms.clone(),
            &[
                ("limit", &|a| a.label.into()),
                ("wakeup p50, us", &|a| f(a, "wakeup_p50_us", 1.0, 1, "")),
                ("p99", &|a| f(a, "wakeup_p99_us", 1.0, 1, "")),
                ("p99.9", &|a| f(a, "wakeup_p999_us", 1.0, 1, "")),
                ("max", &|a| f(a, "wakeup_max_us", 1.0, 0, "")),
                ("request p50, ms", &|a| f(a, "request_p50_us", 1e3, 2, "")),
                ("p99", &|a| f(a, "request_p99_us", 1e3, 2, "")),
                ("max", &|a| f(a, "request_max_us", 1e3, 1, "")),
                ("of the quota used", &|a| {
                    f(a, "used_pct_of_quota", 1.0, 1, " %")
                }),
                ("periods throttled", &|a| {
                    f(a, "throttled_periods_pct", 1.0, 1, " %")
                }),
                ("burst at the end, ms", &|a| {
                    f(a, "burst_ms_at_end", 1.0, 0, "")
                }),
            ],
        )
    }

    /// What a request waits for, beside its own work: CPUs and quota.
    fn waiting_us(&self, arm: Arm, statistic: &str) -> f64 {
        let latency_us = self.mean(arm, &format!("request_{statistic}_us"));
        (latency_us - self.service.work_us).max(0.0)
    }

    /// Waiting beside the burst series' wakeup latencies, in its order: no limit last, where there is no more than it has.
    fn beside_published(&self, title: &str) -> Table {
        let mut arms = self.arms.clone();
        if arms.iter().all(|a| super::SIM.contains(a)) {
            arms.sort_by_key(|a| a.limit == Limit::None);
        }
        let mut heads = vec!["statistic", "published: burst 0", "published: burst 400 ms"];
        heads.extend(arms.iter().map(|a| a.label));
        let mut t = Table::new(title, &heads);
        for r in &BURST {
            if !["p50", "p90", "p99", "p99.9", "max"].contains(&r.stat) {
                continue;
            }
            let statistic = r.stat.replace('.', "");
            let waits = arms.iter().map(|a| self.waiting_us(*a, &statistic));
            let published = [r.without_us, r.with_us].map(|us| format!("{us:.0}"));
            t.push(
                std::iter::once(r.stat.to_string())
                    .chain(published)
                    .chain(waits.map(|us| format!("{us:.1}"))),
            );
        }
        t
    }

    /// A request's latency over its percentiles.
    fn plot(&self) -> Result<plots::Plot, LabError> {
        let mut plot = plots::Lines::new(
            "A request's latency",
            "percentile (50, 90, 99, 99.9 and the worst, evenly spaced)",
            "latency, ms",
        )
        .see("Burst brings the tail back to where it is without a limit; the mean use stays below the quota.")
        .range(0.0..4.0, 0.0..1.0)
        .dots()
        .log_y();
        for (i, arm) in self.arms.iter().enumerate() {
            let ms = |stat| self.mean(*arm, &format!("request_{stat}_us")) / 1000.0;
            let line = ["p50", "p90", "p99", "p999", "max"].iter().map(ms);
            let points = line.enumerate().map(|(x, ms)| (x as f64, ms));
            plot = plot.series(arm.label, i, points.collect());
        }
        plot.draw()
    }

    /// The p99 of a request over that without a limit, under the same scheduler.
    fn over_no_limit(&self, has_target: impl Fn(Arm) -> bool) -> Vec<Headline> {
        let line = |arm: Arm| {
            let alone = self.with(Limit::None, arm.ext)("request_p99_us");
            let name = format!("p99 of a request over no limit: {}", arm.label);
            Headline::new(&name, self.mean(arm, "request_p99_us") / alone, "×")
                .when(has_target(arm), |h| h.at_most(1.2))
        };
        self.limited().map(line).collect()
    }

    /// The gain from burst that the burst series has.
    fn published_gain() -> Option<f64> {
        let row = BURST.iter().find(|r| r.stat == "p99");
        row.map(|r| r.without_us / r.with_us)
    }

    /// On a real kernel, where the group's own counters tell how long it was throttled.
    pub fn host_headline(&self) -> Vec<Headline> {
        let promised = |arm: Arm| arm.limit == Limit::Auto || arm.ext && arm.limit == Limit::Burst;
        let mut lines = self.over_no_limit(promised);
        // A tenth of what the quota alone gives.
        let tenth = self.with(Limit::Quota, false)("throttled_ms_per_second") / 10.0;
        lines.extend(self.limited().map(|arm| {
            let ms = self.mean(arm, "throttled_ms_per_second");
            let h = Headline::new(&format!("throttled time: {}", arm.label), ms, "ms/s");
            let met = crate::report::Met::judged(ms - tenth, ms <= tenth);
            h.when(arm.limit == Limit::Auto, |h| {
                h.target(&format!("≤ {tenth:.2}"), met)
            })
        }));
        let p99 = |limit| self.with(limit, false)("request_p99_us");
        let gain = p99(Limit::Quota) / p99(Limit::Auto);
        let name = "p99 of a request, quota alone over burst auto";
        lines.push(Headline::new(name, gain, "×").published(Self::published_gain()));
        for arm in self.limited().filter(|a| a.ext || a.limit != Limit::Quota) {
            let used = self.mean(arm, "used_pct_of_quota");
            let name = format!("mean use of the quota that was given: {}", arm.label);
            let h = Headline::new(&name, used, "%");
            lines.push(h.when(promised(arm), |h| h.at_most(100.0)));
        }
        lines
    }

    /// Simulated, in the proportions of the burst series' machine.
    pub fn sim_headline(&self) -> Vec<Headline> {
        let mut lines = self.over_no_limit(|arm| arm.limit != Limit::Quota);
        let p99 = |limit| self.with(limit, false)("request_p99_us");
        let auto = p99(Limit::Auto) / p99(Limit::Burst);
        let name = "p99 of a request, auto over the kernel's burst 400 ms";
        lines.push(Headline::new(name, auto, "×").at_most(1.05));
        let waiting = |limit| (p99(limit) - self.service.work_us).max(0.0);
        let gain = waiting(Limit::Quota) / waiting(Limit::Burst);
        let name = "p99 of a request's waiting, burst 0 over burst 400 ms";
        lines.push(Headline::new(name, gain, "×").published(Self::published_gain()));
        // No target: arrivals ask for 500 ms of 700 on average, so no arm could miss it.
        let used = most(
            self.limited()
                .map(|arm| self.mean(arm, "used_pct_of_quota")),
        );
        lines.push(Headline::new("mean use of the quota, worst arm", used, "%"));
        lines
    }

    /// Every run with a limit.
    pub fn counters(&self) -> Table {
        let runs = self
            .limited()
            .flat_map(|arm| self.samples.of(move |r| r.arm == arm));
        let f = |s: &&Sample<Run>, name, digits| format!("{:.digits$}", s.get(name));
        Table::of(
            "What the group counted",
            runs,
            &[
                ("limit", &|s| s.key.arm.label.into()),
                ("round", &|s| f(s, "round", 0)),
                ("throttled, ms/s", &|s| f(s, "throttled_ms_per_second", 2)),
                ("periods", &|s| f(s, "periods", 0)),
                ("throttled", &|s| f(s, "throttled_periods", 0)),
                ("bursts", &|s| f(s, "bursts", 0)),
                ("quota at the end, ms", &|s| {
                    cell(s.get("quota_us_at_end") / 1000.0, 1, "")
                }),
            ],
        )
    }
}
