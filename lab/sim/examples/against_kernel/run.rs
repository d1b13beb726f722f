//! One scenario in the simulator, read as the kernels' runner reads it (`tests/check/bed.c`).

use crate::figures::{Description, Figures, Of};
use crate::programs::{Hog, Receiver, Sender, Sleeper, SleeperState};
use crate::scenario::{Scenario, What, Whom};
use tidegate_sim::scenario::Workload;
use tidegate_sim::workloads::{Cyclictest, Hackbench, Kind};
use tidegate_sim::{CpuSet, GroupId, GroupSpec, Machine, Program, SeriesId, TaskId, TaskSpec};

/// 16 pages of 40 messages of 100 bytes: a message never spans two.
const PIPE_MESSAGES: u32 = 16 * PAGE_MESSAGES;
const PAGE_MESSAGES: u32 = 40;
/// What a write of a quota takes from the one CPU that writer and written share.
const WRITER_NS: u64 = 20_000;

/// A scenario's machine while it runs.
struct Bed<'a> {
    scenario: &'a Scenario,
    description: &'a Description,
    machine: Machine,
    groups: Vec<GroupId>,
    tasks: Vec<Vec<TaskId>>,
    /// Wakeup latencies of a sleeper, or the times at which a team's tasks ended.
    series: Vec<SeriesId>,
    /// From when a sleeper was to wake to its work's end.
    done: Vec<SeriesId>,
}

/// Runs it on a machine like `description`; the span is cut to `span_max_ms`.
pub fn run(
    scenario: &Scenario,
    description: &Description,
    scheduler: Of,
    span_max_ms: u64,
    into: &mut Figures,
) -> Result<(), String> {
    let mut bed = Bed::new(scenario, description, scheduler)
        .map_err(|e| format!("{}: {e}", scenario.of.name))?;
    bed.go(span_max_ms, into)
        .map_err(|e| format!("{}: {e}", scenario.of.name))
}

type Failure = Box<dyn std::error::Error>;

impl<'a> Bed<'a> {
    fn new(
        scenario: &'a Scenario,
        description: &'a Description,
        scheduler: Of,
    ) -> Result<Self, Failure> {
        let slice_us = scenario.of.machine.bandwidth_slice_us;
        let mut bed = Bed {
            scenario,
            description,
            machine: Machine::new(description.config(slice_us, scheduler))?,
            groups: Vec::new(),
            tasks: Vec::new(),
            series: Vec::new(),
            done: Vec::new(),
        };
        let mut own = GroupSpec::new("bed", GroupId::ROOT);
        own.weight = 10_000;
        let own = bed.machine.add_group(own)?;
        for group in &scenario.of.groups {
            let mut spec = group.spec.clone();
            spec.parent = group.parent.map_or(own, |parent| bed.groups[parent]);
            bed.groups.push(bed.machine.add_group(spec)?);
        }
        for workload in &scenario.of.workloads {
            let name = &workload.common.name;
            let series = bed.machine.add_series(name);
            let done = bed.machine.add_series(&format!("{name}'s ends"));
            bed.series.push(series);
            bed.done.push(done);
            let ids = bed.spawn(workload, series, done)?;
            bed.tasks.push(ids);
        }
        Ok(bed)
    }

    fn spawn(
        &mut self,
        workload: &Workload,
        series: SeriesId,
        done: SeriesId,
    ) -> Result<Vec<TaskId>, Failure> {
        let mut ids = Vec::new();
        match &workload.kind {
            Kind::Hog(hog) => {
                for _ in 0..hog.tasks {
                    ids.push(self.spawn_one(workload, Hog)?);
                }
            }
            Kind::Cyclictest(timer) => {
                let sleeper = Sleeper {
                    done: Some(done),
                    ..self.sleeper(timer.clone(), Some(series))
                };
                ids.push(self.spawn_one(workload, sleeper)?);
            }
            Kind::Hackbench(teams) => {
                for _ in 0..teams.groups {
                    ids.extend(self.spawn_team(workload, teams, series)?);
                }
            }
            _ => return Err("the C program has no such workload".into()),
        }
        Ok(ids)
    }

    fn sleeper(&self, timer: Cyclictest, series: Option<SeriesId>) -> Sleeper {
        Sleeper {
            timer,
            timer_ns: self.description.timer_ns,
            count_from_ns: self.scenario.of.warmup_ns,
            series,
            done: None,
            at_ns: 0,
            woken: false,
            state: SleeperState::Worked,
        }
    }

    fn spawn_team(
        &mut self,
        workload: &Workload,
        teams: &Hackbench,
        finished: SeriesId,
    ) -> Result<Vec<TaskId>, Failure> {
        let pipes: Vec<_> = (0..teams.pairs)
            .map(|_| self.machine.add_paged_pipe(PIPE_MESSAGES, PAGE_MESSAGES))
            .collect();
        let left = u64::from(teams.loops) * u64::from(teams.pairs);
        let mut ids = Vec::new();
        for &pipe in &pipes {
            let receiver = Receiver {
                pipe,
                left,
                finished,
            };
            ids.push(self.spawn_one(workload, receiver)?);
            let sender = Sender {
                pipes: pipes.clone(),
                next: 0,
                left,
                finished,
            };
            ids.push(self.spawn_one(workload, sender)?);
        }
        Ok(ids)
    }

    fn spawn_one(
        &mut self,
        workload: &Workload,
        program: impl Program + 'static,
    ) -> Result<TaskId, Failure> {
        let mut common = workload.common.clone();
        common.group = workload.group.map_or(GroupId::ROOT, |at| self.groups[at]);
        common.cpus = common.cpus.or(Some(CpuSet::first_n(self.scenario.cpus())));
        Ok(self.machine.spawn(common.task("check", program))?)
    }

    fn go(&mut self, span_max_ms: u64, into: &mut Figures) -> Result<(), Failure> {
        let span_ns = (self.scenario.span_ns()).min(span_max_ms.saturating_mul(1_000_000));
        let from_ns = self.scenario.of.warmup_ns;
        let to_ns = from_ns + span_ns;
        if self.scenario.rewrite_ns.is_some() && self.description.cpus == 1 {
            self.add_writer()?;
        }
        let reads = self.scenario.reads.clone();
        self.run_until(from_ns)?;
        let before: Vec<Reading> = reads.iter().map(|read| self.reading(read.whom)).collect();
        self.run_until(to_ns)?;
        for (read, before) in reads.into_iter().zip(before) {
            let (at, after) = (read.whom.index(), self.reading(read.whom));
            let put = |into: &mut Figures, word: &str, value: f64, unit: &str| {
                into.put(
                    &format!("{}.{word}.{}", self.scenario.of.name, read.name),
                    value,
                    unit,
                );
            };
            let count = |pick: fn(&Reading) -> u64| (pick(&after) - pick(&before)) as f64;
            match read.what {
                What::Share => {
                    let share = 100.0 * count(|r| r.usage_ns) / (to_ns - from_ns) as f64;
                    put(into, "share", share, "%");
                }
                What::Periods => put(into, "periods", count(|r| r.periods), "count"),
                What::Throttled => put(into, "throttled", count(|r| r.throttled), "count"),
                What::Bursts => put(into, "bursts", count(|r| r.bursts), "count"),
                What::Latency | What::Done => {
                    let (series, prefix) = match read.what {
                        What::Done => (self.done[at], "done_"),
                        _ => (self.series[at], ""),
                    };
                    let latencies = self.machine.series(series);
                    for (word, ppm) in [("p50", 500_000), ("p90", 900_000), ("p99", 990_000)] {
                        let value_ns = latencies.percentile_ns(ppm);
                        put(
                            into,
                            &format!("{prefix}{word}"),
                            value_ns as f64 / 1e3,
                            "us",
                        );
                    }
                }
                What::Duration => {
                    let ends = self.machine.series(self.series[at]);
                    if ends.count() != self.tasks[at].len() as u64 {
                        return Err("it was not over in its time".into());
                    }
                    put(into, "duration", ends.max_ns() as f64 / 1e6, "ms");
                }
            }
        }
        Ok(())
    }

    /// On one CPU the writer itself is a task that interrupts what it writes about.
    fn add_writer(&mut self) -> Result<(), Failure> {
        let timer = Cyclictest {
            threads: 1,
            interval_ns: self.scenario.rewrite_ns.unwrap_or(0),
            distance_ns: 0,
            pinned: false,
            work_ns: WRITER_NS,
            step: None,
        };
        let writer = self.sleeper(timer, None);
        let mut spec = TaskSpec::new("writer", GroupId::ROOT, Box::new(writer));
        spec.nice = -20;
        self.machine.spawn(spec)?;
        Ok(())
    }

    /// Runs on, with the writes that fall due.
    fn run_until(&mut self, end_ns: u64) -> Result<(), Failure> {
        if let Some(every_ns) = self.scenario.rewrite_ns {
            // After the writer's wakeup, before it sleeps again.
            let delay_ns = self.description.timer_ns + WRITER_NS / 2;
            let mut turn = self.machine.now_ns() / every_ns + 1;
            while turn * every_ns + delay_ns < end_ns {
                self.machine.run_until(turn * every_ns + delay_ns)?;
                for (&id, group) in self.groups.iter().zip(&self.scenario.of.groups) {
                    if let Some(bandwidth) = group.spec.bandwidth {
                        self.machine.set_bandwidth(id, bandwidth)?;
                    }
                }
                turn += 1;
            }
        }
        Ok(self.machine.run_until(end_ns)?)
    }

    fn reading(&self, whom: Whom) -> Reading {
        match whom {
            Whom::Workload(at) => {
                let tasks = self.tasks[at].iter();
                let of = |&task: &TaskId| match self.description.own_count {
                    true => self.machine.task_work_done_ns(task),
                    false => self.machine.task_usage_ns(task),
                };
                Reading {
                    usage_ns: tasks.map(of).sum(),
                    ..Reading::default()
                }
            }
            Whom::Group(group) => {
                let stat = self.machine.bandwidth_stat(self.groups[group]);
                Reading {
                    usage_ns: match self.description.own_count {
                        true => self.machine.work_done_ns(self.groups[group]),
                        false => self.machine.usage_ns(self.groups[group]),
                    },
                    periods: stat.nr_periods,
                    throttled: stat.nr_throttled,
                    bursts: stat.nr_bursts,
                }
            }
        }
    }
}

/// What a group's files would say.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    usage_ns: u64,
    periods: u64,
    throttled: u64,
    bursts: u64,
}
