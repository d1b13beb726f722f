//! What each recorded work wanted, as far as a recording tells: what it used where nothing held it
//! back, and more than it got where something did.

use tidegate_api::Limit as Binding;
use tidegate_recording::{Recording, Second, WorkSecond};
use tidegate_terms::Class;

use crate::replay::recorded_terms::limit_cpus;

/// A request of a work whose turns were not counted.
pub(crate) const REQUEST_US: f64 = 1_000.0;
/// The shortest and the longest request that turns are taken for.
const REQUEST_US_RANGE: (f64, f64) = (50.0, 20_000.0);

/// CPU time between two pauses of a task that wants more than it gets.
pub(crate) const ROUND_US: f64 = 10_000.0;
/// Shorter pauses are none.
const PAUSE_MIN_US: f64 = 200.0;

/// Less is nothing.
const USED_MIN_CPUS: f64 = 0.005;
/// A span in which a work was held back ends with so many seconds in which it was not, or did
/// nothing.
const PAUSE_SECONDS: usize = 4;
/// A shorter span is a burst.
const SPAN_MIN_SECONDS: usize = 3;
/// Of what it was allowed, a work that was held back used at least this.
const NEARLY: f64 = 0.9;
/// Throttled for less, all CPUs added up, is the end of a burst.
const THROTTLED_US: u32 = 50_000;
/// Of the largest, a work that shares a full machine with it used at least this, or had enough.
const FAIR: f64 = 0.8;
/// The least that a group without a limit used, in CPUs, to have filled the machine.
const FILLS_MIN_CPUS: f64 = 0.2;

#[derive(Clone, Debug)]
pub struct Demand {
    pub seconds: usize,
    /// The recorded works, then what no work accounts for.
    pub works: Vec<WorkDemand>,
}

#[derive(Clone, Debug)]
pub struct WorkDemand {
    /// The gate's name; of a group without a gate its unit or its path.
    pub name: String,
    /// Its number in the recording; none for what no work accounts for.
    pub id: Option<u32>,
    /// Its group; empty for what no work accounts for.
    pub cgroup: String,
    /// CPUs that it used in each second, without works within it.
    pub own_cpus: Vec<f64>,
    /// The mean of what it used, with works within it.
    pub used_cpus: f64,
    pub wants: Wants,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Wants {
    /// What it used, in requests of this length.
    Used { request_us: f64 },
    /// More than it got while it was held back, and what it used else.
    More {
        tasks: u32,
        /// When they ran: from a second on, up to another.
        spans: Vec<(usize, usize)>,
        /// How long each pauses after [`ROUND_US`] of CPU time, waiting for itself: nothing where
        /// it never did.
        pause_us: f64,
        /// CPU time of a request else.
        request_us: f64,
    },
}

impl WorkDemand {
    /// The CPUs of each second that it wanted as requests, and how long each is.
    pub(crate) fn requests(&self) -> (Vec<f64>, f64) {
        let mut cpus = self.own_cpus.clone();
        match &self.wants {
            Wants::Used { request_us } => (cpus, *request_us),
            Wants::More {
                spans, request_us, ..
            } => {
                for (from, to) in spans {
                    cpus[*from..*to].fill(0.0);
                }
                (cpus, *request_us)
            }
        }
    }
}

/// The name of what no work accounts for.
pub const EVERYTHING_ELSE: &str = "everything else";

/// A work's seconds, one for each of the recording's; zero where it did nothing.
fn seconds_of(recording: &Recording, id: u32) -> Vec<WorkSecond> {
    let of = |second: &Second| {
        let found = second.works.iter().find(|work| work.id == id);
        found.copied().unwrap_or_default()
    };
    recording.seconds.iter().map(of).collect()
}

/// Whether `cgroup` lies in `around`. All lie in the root, which is no gate's; what no work
/// accounts for has no group.
fn is_within(cgroup: &str, around: &str) -> bool {
    let around = around.trim_end_matches('/');
    let rest = cgroup.strip_prefix(around);
    !around.is_empty() && rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

/// The place of the nearest of `groups` around this one.
pub(crate) fn nearest_around(groups: &[&str], cgroup: &str) -> Option<usize> {
    let around = (0..groups.len()).filter(|at| is_within(cgroup, groups[*at]));
    around.max_by_key(|at| groups[*at].len())
}

impl Demand {
    pub fn of(recording: &Recording) -> Demand {
        let works: Vec<_> = recording.works.values().collect();
        let cgroups: Vec<&str> = works.iter().map(|work| work.cgroup.as_str()).collect();
        let all: Vec<Vec<WorkSecond>> = works
            .iter()
            .map(|work| seconds_of(recording, work.id))
            .collect();
        let fullest = fullest(recording, &all);
        let mut own: Vec<Vec<f64>> = all.iter().map(|seconds| used(seconds)).collect();
        for (at, cgroup) in cgroups.iter().enumerate() {
            if let Some(around) = nearest_around(&cgroups, cgroup) {
                for (second, one) in all[at].iter().enumerate() {
                    let left = own[around][second] - f64::from(one.used_cpus);
                    own[around][second] = left.max(0.0);
                }
            }
        }
        let mut demand = Demand {
            seconds: recording.seconds.len(),
            works: Vec::new(),
        };
        let requests = Requests::of(recording, &own);
        for (at, work) in works.iter().enumerate() {
            let seconds = &all[at];
            if seconds.iter().all(|one| one.used_cpus == 0.0) {
                continue;
            }
            let limit = Limit {
                cpus: limit_cpus(work),
                is_main: work.class == Class::Main.name(),
            };
            let spans = limit.spans(recording, seconds, &fullest);
            let request_us = requests.request_us(&work.class);
            demand.works.push(WorkDemand {
                name: work.name.clone(),
                id: Some(work.id),
                cgroup: work.cgroup.clone(),
                used_cpus: mean(&used(seconds)),
                wants: wants(recording, seconds, spans, request_us),
                own_cpus: own[at].clone(),
            });
        }
        demand.add_everything_else(recording, &own, &requests, &fullest);
        demand
    }

    /// What main and neutral works leave of what everything but side used.
    fn add_everything_else(
        &mut self,
        recording: &Recording,
        own: &[Vec<f64>],
        requests: &Requests,
        fullest: &[f64],
    ) {
        let works: Vec<_> = recording.works.values().collect();
        let is_side = |at: &usize| works[*at].class == Class::Side.name();
        let others: Vec<usize> = (0..works.len()).filter(|at| !is_side(at)).collect();
        let left = recording.seconds.iter().enumerate().map(|(nth, second)| {
            let known: f64 = others.iter().map(|at| own[*at][nth]).sum();
            (f64::from(second.main_cpus) - known).max(0.0)
        });
        let left: Vec<f64> = left.collect();
        if left.iter().any(|cpus| *cpus >= USED_MIN_CPUS) {
            let second = |cpus: &f64| WorkSecond {
                used_cpus: *cpus as f32,
                ..WorkSecond::default()
            };
            let seconds: Vec<WorkSecond> = left.iter().map(second).collect();
            let limit = Limit {
                cpus: None,
                is_main: false,
            };
            let spans = limit.spans(recording, &seconds, fullest);
            let request_us = requests.request_us(Class::Neutral.name());
            let wants = wants(recording, &seconds, spans, request_us);
            self.works.push(WorkDemand {
                name: EVERYTHING_ELSE.to_owned(),
                id: None,
                cgroup: String::new(),
                used_cpus: mean(&left),
                own_cpus: left,
                wants,
            });
        }
    }
}

fn used(seconds: &[WorkSecond]) -> Vec<f64> {
    seconds.iter().map(|one| f64::from(one.used_cpus)).collect()
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The largest use, in each second, of a work that nothing but the others limited.
fn fullest(recording: &Recording, all: &[Vec<WorkSecond>]) -> Vec<f64> {
    let works: Vec<_> = recording.works.values().collect();
    let free: Vec<usize> = (0..works.len())
        .filter(|at| works[*at].class != Class::Main.name())
        .collect();
    let of = |nth: usize| {
        let unlimited = free
            .iter()
            .map(|at| &all[*at][nth])
            .filter(|one| one.allowance_cpus.is_none());
        unlimited
            .map(|one| f64::from(one.used_cpus))
            .fold(0.0, f64::max)
    };
    (0..recording.seconds.len()).map(of).collect()
}

struct Limit {
    cpus: Option<f64>,
    is_main: bool,
}

impl Limit {
    /// When the work was held back: from a second on, up to another.
    fn spans(
        &self,
        recording: &Recording,
        seconds: &[WorkSecond],
        fullest: &[f64],
    ) -> Vec<(usize, usize)> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for (nth, one) in seconds.iter().enumerate() {
            let idle_cpus = f64::from(recording.seconds[nth].idle_cpus);
            if !self.holds_in(one, idle_cpus, fullest[nth]) {
                continue;
            }
            match spans.last_mut() {
                Some(span) if nth - span.1 < PAUSE_SECONDS => span.1 = nth + 1,
                _ => spans.push((nth, nth + 1)),
            }
        }
        spans.retain(|(from, to)| to - from >= SPAN_MIN_SECONDS);
        spans
    }

    fn holds_in(&self, one: &WorkSecond, idle_cpus: f64, fullest_cpus: f64) -> bool {
        let used_cpus = f64::from(one.used_cpus);
        let nearly = |limit: f64| used_cpus >= NEARLY * limit;
        let by_own = match self.cpus {
            Some(limit) => nearly(limit),
            None => one.throttled_us >= THROTTLED_US,
        };
        match one.allowance_cpus {
            _ if by_own => true,
            // Gates that share it use it together.
            Some(allowance) => {
                nearly(f64::from(allowance))
                    || matches!(one.limit, Binding::Headroom | Binding::Tolerance)
            }
            None if self.is_main => false,
            // Nothing but the others held it back: it took what they left, and no less than any
            // other of its kind.
            None => {
                used_cpus >= FILLS_MIN_CPUS
                    && nearly(used_cpus + idle_cpus)
                    && used_cpus >= FAIR * fullest_cpus
            }
        }
    }
}

/// As many endless tasks as the work had processes, while it was held back.
fn wants(
    recording: &Recording,
    seconds: &[WorkSecond],
    spans: Vec<(usize, usize)>,
    request_us: f64,
) -> Wants {
    if spans.is_empty() {
        return Wants::Used { request_us };
    }
    let cpus = recording.machine.cpus.max(1);
    let processes = seconds.iter().map(|one| one.processes).max().unwrap_or(0);
    let mut used = used(seconds);
    used.sort_by(f64::total_cmp);
    let most_cpus = used.get(used.len() * 95 / 100).copied().unwrap_or(0.0);
    // A machine has at most some thousand CPUs; a second of wall time is off by a few per cent.
    let least = (most_cpus - 0.05).ceil().max(1.0) as u32;
    let tasks = match processes {
        0 => cpus,
        _ => processes.max(least).min(cpus),
    };
    Wants::More {
        tasks,
        pause_us: pause_us(recording, seconds, &spans, tasks),
        spans,
        request_us,
    }
}

/// A task that got a share `got` of a CPU where it could have had `room` pauses for itself: a round
/// takes `1 / room` of its CPU time and the pause, and came to `1 / got`. Where a limit held it, it
/// is not known to pause.
fn pause_us(
    recording: &Recording,
    seconds: &[WorkSecond],
    spans: &[(usize, usize)],
    tasks: u32,
) -> f64 {
    let nths = || spans.iter().flat_map(|(from, to)| *from..*to);
    if nths().any(|nth| seconds[nth].allowance_cpus.is_some() || seconds[nth].throttled_us > 0) {
        return 0.0;
    }
    let count = nths().count().max(1) as f64;
    let each = |sum: f64| (sum / count / f64::from(tasks.max(1))).min(1.0);
    let got = each(nths().map(|nth| f64::from(seconds[nth].used_cpus)).sum());
    let idle: f64 = nths()
        .map(|nth| f64::from(recording.seconds[nth].idle_cpus))
        .sum();
    let room = (got + idle / count / f64::from(tasks.max(1))).min(1.0);
    if got <= 0.0 {
        return 0.0;
    }
    let pause_us = ROUND_US * (1.0 / got - 1.0 / room);
    match pause_us < PAUSE_MIN_US {
        true => 0.0,
        false => pause_us,
    }
}

/// How long requests are.
struct Requests {
    /// Of main's works, where their turns were counted.
    main_us: Option<f64>,
    /// No gate is main: everything but side is.
    is_all: bool,
}

impl Requests {
    fn of(recording: &Recording, own: &[Vec<f64>]) -> Requests {
        let is_main = |class: &str| class == Class::Main.name();
        let works = recording.works.values().zip(own);
        let of_gates: f64 = works
            .filter(|(work, _)| is_main(&work.class))
            .map(|(_, own)| own.iter().sum::<f64>())
            .sum();
        let all: f64 = recording
            .seconds
            .iter()
            .map(|second| f64::from(second.main_cpus))
            .sum();
        let turns: f64 = recording
            .seconds
            .iter()
            .map(|second| f64::from(second.main_turns))
            .sum();
        let is_all = of_gates <= 0.0;
        let cpu_seconds = if is_all { all } else { of_gates };
        let (shortest, longest) = REQUEST_US_RANGE;
        Requests {
            main_us: (turns > 0.0).then(|| (cpu_seconds * 1e6 / turns).clamp(shortest, longest)),
            is_all,
        }
    }

    fn request_us(&self, class: &str) -> f64 {
        let is_main = class == Class::Main.name() || self.is_all && class != Class::Side.name();
        self.main_us.filter(|_| is_main).unwrap_or(REQUEST_US)
    }
}

#[cfg(test)]
mod tests;
