//! One scenario in the simulator, read as the kernels' runner reads it (`tests/check/bed.c`).

use crate::figures::{Description, Figures, Of};
use crate::programs::{Hog, Receiver, Sender, Sleeper, SleeperState};
use crate::scenario::{Gate, Kind, Policy, Scenario, Task, What, Whom};
use tidegate_law::cap::NONE as NO_CAP;
use tidegate_sim::{
    Bandwidth, CapScope, CapTerms, CpuSet, GroupId, GroupSpec, Machine, Program, SeriesId, TaskId,
    TaskSpec,
};

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
        .map_err(|e| format!("{}: {e}", scenario.name))?;
    bed.go(span_max_ms, into)
        .map_err(|e| format!("{}: {e}", scenario.name))
}

type Failure = Box<dyn std::error::Error>;

/// What the group asks of the ext engine; other schedulers do not look at it.
fn lay_gate(gate: &Gate, spec: &mut GroupSpec) {
    spec.class = gate.class.unwrap_or(spec.class);
    spec.latency = gate.latency;
    spec.headroom_ppm = gate.headroom_ppm.unwrap_or(0);
    spec.tolerance_ppm = gate.tolerance_ppm;
    if gate.cap_hard_ppt.is_some() || gate.cap_soft_ppt.is_some() {
        spec.cap = Some(CapTerms {
            hard_ppt: gate.cap_hard_ppt.unwrap_or(NO_CAP),
            soft_ppt: gate.cap_soft_ppt.unwrap_or(NO_CAP),
            scope: gate.cap_scope.unwrap_or(CapScope::Group),
        });
    }
}

impl<'a> Bed<'a> {
    fn new(
        scenario: &'a Scenario,
        description: &'a Description,
        scheduler: Of,
    ) -> Result<Self, Failure> {
        let mut bed = Bed {
            scenario,
            description,
            machine: Machine::new(description.config(scenario.silo_slice_us, scheduler))?,
            groups: Vec::new(),
            tasks: Vec::new(),
            series: Vec::new(),
            done: Vec::new(),
        };
        let mut own = GroupSpec::new("bed", GroupId::ROOT);
        own.weight = 10_000;
        let own = bed.machine.add_group(own)?;
        for group in &scenario.groups {
            let parent = group.parent.map_or(own, |parent| bed.groups[parent]);
            let mut spec = GroupSpec::new(&group.name, parent);
            spec.weight = group.weight;
            spec.idle = group.idle;
            spec.bandwidth = group.quota_us.map(|quota_us| Bandwidth {
                quota_us: Some(quota_us),
                period_us: group.period_us,
                burst_us: group.burst_us,
            });
            lay_gate(&group.gate, &mut spec);
            bed.groups.push(bed.machine.add_group(spec)?);
        }
        for task in &scenario.tasks {
            let series = bed.machine.add_series(&task.name);
            let done = bed.machine.add_series(&format!("{}'s ends", task.name));
            bed.series.push(series);
            bed.done.push(done);
            let ids = bed.spawn(task, series, done)?;
            bed.tasks.push(ids);
        }
        Ok(bed)
    }

    fn spawn(
        &mut self,
        task: &Task,
        series: SeriesId,
        done: SeriesId,
    ) -> Result<Vec<TaskId>, Failure> {
        let mut ids = Vec::new();
        match task.kind {
            Kind::Hog => {
                for _ in 0..task.count {
                    ids.push(self.spawn_one(task, Box::new(Hog))?);
                }
            }
            Kind::Sleeper {
                period_us,
                run_us,
                then,
            } => {
                for _ in 0..task.count {
                    let sleeper = Sleeper {
                        then: then.map(|(us, ms)| (us * 1_000, ms * 1_000_000)),
                        done: Some(done),
                        ..self.sleeper(period_us * 1_000, run_us * 1_000, Some(series))
                    };
                    ids.push(self.spawn_one(task, Box::new(sleeper))?);
                }
            }
            Kind::Messages {
                teams,
                pairs,
                loops,
            } => {
                for _ in 0..teams {
                    ids.extend(self.spawn_team(task, pairs, loops, series)?);
                }
            }
        }
        Ok(ids)
    }

    fn sleeper(&self, period_ns: u64, run_ns: u64, series: Option<SeriesId>) -> Sleeper {
        Sleeper {
            period_ns,
            run_ns,
            timer_ns: self.description.timer_ns,
            count_from_ns: self.scenario.warm_ms * 1_000_000,
            series,
            then: None,
            done: None,
            at_ns: 0,
            woken: false,
            state: SleeperState::Worked,
        }
    }

    fn spawn_team(
        &mut self,
        task: &Task,
        pairs: u32,
        loops: u64,
        finished: SeriesId,
    ) -> Result<Vec<TaskId>, Failure> {
        let pipes: Vec<_> = (0..pairs)
            .map(|_| self.machine.add_paged_pipe(PIPE_MESSAGES, PAGE_MESSAGES))
            .collect();
        let left = (loops > 0).then(|| loops * u64::from(pairs));
        let mut ids = Vec::new();
        for &pipe in &pipes {
            let receiver = Receiver {
                pipe,
                left,
                finished,
            };
            ids.push(self.spawn_one(task, Box::new(receiver))?);
            let sender = Sender {
                pipes: pipes.clone(),
                next: 0,
                left,
                finished,
            };
            ids.push(self.spawn_one(task, Box::new(sender))?);
        }
        Ok(ids)
    }

    fn spawn_one(&mut self, task: &Task, program: Box<dyn Program>) -> Result<TaskId, Failure> {
        let cpus = match task.cpu {
            Some(cpu) => cpu..cpu + 1,
            None => 0..self.scenario.cpus,
        };
        let mut spec = TaskSpec::new(&task.name, self.groups[task.group], program);
        spec.policy = match task.policy {
            Policy::Normal => tidegate_sim::Policy::Normal,
            Policy::Batch => tidegate_sim::Policy::Batch,
            Policy::Idle => tidegate_sim::Policy::Idle,
        };
        spec.nice = task.nice;
        spec.slice_ns = task.slice_us.map(|us| us * 1_000);
        spec.cpus = Some(CpuSet::range(cpus));
        Ok(self.machine.spawn(spec)?)
    }

    fn go(&mut self, span_max_ms: u64, into: &mut Figures) -> Result<(), Failure> {
        let span_ms = self.scenario.span_ms.min(span_max_ms);
        let from_ns = self.scenario.warm_ms * 1_000_000;
        let to_ns = from_ns + span_ms * 1_000_000;
        if self.scenario.rewrite.is_some() && self.description.cpus == 1 {
            self.add_writer()?;
        }
        let reads = self.scenario.reads.clone();
        self.run_until(from_ns)?;
        let before: Vec<Reading> = reads.iter().map(|read| self.reading(read.1)).collect();
        self.run_until(to_ns)?;
        for ((what, whom, name), before) in reads.into_iter().zip(before) {
            let after = self.reading(whom);
            let put = |into: &mut Figures, word: &str, value: f64, unit: &str| {
                into.put(
                    &format!("{}.{word}.{name}", self.scenario.name),
                    value,
                    unit,
                );
            };
            let count = |pick: fn(&Reading) -> u64| (pick(&after) - pick(&before)) as f64;
            match what {
                What::Share => {
                    let share = 100.0 * count(|r| r.usage_ns) / (to_ns - from_ns) as f64;
                    put(into, "share", share, "%");
                }
                What::Periods => put(into, "periods", count(|r| r.periods), "count"),
                What::Throttled => put(into, "throttled", count(|r| r.throttled), "count"),
                What::Bursts => put(into, "bursts", count(|r| r.bursts), "count"),
                What::Latency | What::Done => {
                    let (series, prefix) = match what {
                        What::Done => (self.done_of(whom), "done_"),
                        _ => (self.series_of(whom), ""),
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
                    let ends = self.machine.series(self.series_of(whom));
                    if ends.count() != self.tasks_of(whom).len() as u64 {
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
        let every_us = self.scenario.rewrite.map_or(0, |(_, every_us)| every_us);
        let writer = self.sleeper(every_us * 1_000, WRITER_NS, None);
        let mut spec = TaskSpec::new("writer", GroupId::ROOT, Box::new(writer));
        spec.nice = -20;
        self.machine.spawn(spec)?;
        Ok(())
    }

    /// Runs on, with the writes that fall due.
    fn run_until(&mut self, end_ns: u64) -> Result<(), Failure> {
        if let Some((group, every_us)) = self.scenario.rewrite {
            let every_ns = every_us * 1_000;
            let of = &self.scenario.groups[group];
            let bandwidth = Bandwidth {
                quota_us: of.quota_us,
                period_us: of.period_us,
                burst_us: of.burst_us,
            };
            // After the writer's wakeup, before it sleeps again.
            let delay_ns = self.description.timer_ns + WRITER_NS / 2;
            let mut turn = self.machine.now_ns() / every_ns + 1;
            while turn * every_ns + delay_ns < end_ns {
                self.machine.run_until(turn * every_ns + delay_ns)?;
                self.machine.set_bandwidth(self.groups[group], bandwidth)?;
                turn += 1;
            }
        }
        Ok(self.machine.run_until(end_ns)?)
    }

    fn series_of(&self, whom: Whom) -> SeriesId {
        match whom {
            Whom::Task(task) => self.series[task],
            Whom::Group(_) => self.series[0],
        }
    }

    fn done_of(&self, whom: Whom) -> SeriesId {
        match whom {
            Whom::Task(task) => self.done[task],
            Whom::Group(_) => self.done[0],
        }
    }

    fn tasks_of(&self, whom: Whom) -> &[TaskId] {
        match whom {
            Whom::Task(task) => &self.tasks[task],
            Whom::Group(_) => &[],
        }
    }

    fn reading(&self, whom: Whom) -> Reading {
        match whom {
            Whom::Task(_) => {
                let tasks = self.tasks_of(whom).iter();
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
