//! The event log: one line an event, short, with every column explained here and in
//! docs/scenarios.md.
//!
//! Lines that begin with `#` are comments; the first names the form, the second the command that
//! gives the same bytes again. Lines that begin with a letter define numbers: `G number name` a
//! group, `T number group name` a task, `V number name` a series. All others are events:
//!
//! | column | holds |
//! |---|---|
//! | 1 | time since the start, ns |
//! | 2 | what happened, one letter (below) |
//! | 3 … | what it happened to, by letter |
//!
//! | letter | columns from the third on | meaning |
//! |---|---|---|
//! | `S` | cpu, task before, task after | the CPU switches; `-` is idle; `+` after the task before: it could have run on |
//! | `W` | cpu, task | the task can run again and is placed on the CPU |
//! | `B` | cpu, task | the task begins to wait |
//! | `F` | parent, child | a task is made; `-` when no task made it |
//! | `X` | task | the task ends |
//! | `M` | task, from, to | the task is moved to another CPU's queue |
//! | `T` | cpu, group | the group is out of quota on the CPU |
//! | `U` | cpu, group | it may run there again |
//! | `R` | group, ns | its quota's period turns over; what its pool holds then |
//! | `K` | group, file, value | a file of the group is written: `max QUOTA_US/PERIOD_US`, `weight`, `idle`, `cpus` (a count) |
//! | `V` | task, series, ns | a program records a value |

use super::Sink;
use crate::Ns;
use crate::ids::TaskId;
use crate::names::Names;
use crate::trace::{Event, GroupFile, Tracer};

pub struct Log {
    sink: Sink,
    names: Names,
}

impl Log {
    /// A log that begins with the names that are known; `again` is the command that repeats the
    /// run.
    pub fn new(sink: Sink, names: &Names, again: &str) -> Log {
        sink.write(|out| {
            writeln!(
                out,
                "# tidegate-lab sim log 1: docs/scenarios.md explains the columns"
            )?;
            writeln!(out, "# {again}")?;
            for (number, name) in names.groups().iter().enumerate() {
                writeln!(out, "G {number} {name}")?;
            }
            for (number, name) in names.all_series().iter().enumerate() {
                writeln!(out, "V {number} {name}")?;
            }
            for (task, player) in names.tasks() {
                writeln!(out, "T {task} {} {}", player.group, player.name)?;
            }
            Ok(())
        });
        Log {
            sink,
            names: names.clone(),
        }
    }
}

struct Shown(Option<TaskId>);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(task) => write!(f, "{task}"),
            None => f.write_str("-"),
        }
    }
}

impl Tracer for Log {
    fn event(&mut self, now_ns: Ns, event: &Event) {
        if let Event::Fork { child, .. } = *event
            && self.names.player(child).is_none()
        {
            self.names.learn(event);
            if let Some(player) = self.names.player(child) {
                self.sink
                    .write(|out| writeln!(out, "T {child} {} {}", player.group, player.name));
            }
        }
        self.sink.write(|out| match *event {
            Event::Switch {
                cpu,
                prev,
                next,
                prev_runs_on,
            } => {
                let mark = if prev_runs_on { "+" } else { "" };
                writeln!(
                    out,
                    "{now_ns} S {cpu} {}{mark} {}",
                    Shown(prev),
                    Shown(next)
                )
            }
            Event::Wake { task, cpu } => writeln!(out, "{now_ns} W {cpu} {task}"),
            Event::Sleep { task, cpu } => writeln!(out, "{now_ns} B {cpu} {task}"),
            Event::Fork { parent, child } => writeln!(out, "{now_ns} F {} {child}", Shown(parent)),
            Event::Exit { task } => writeln!(out, "{now_ns} X {task}"),
            Event::Migrate { task, from, to } => writeln!(out, "{now_ns} M {task} {from} {to}"),
            Event::Throttle { group, cpu } => writeln!(out, "{now_ns} T {cpu} {group}"),
            Event::Unthrottle { group, cpu } => writeln!(out, "{now_ns} U {cpu} {group}"),
            Event::Refill { group, runtime_ns } => writeln!(out, "{now_ns} R {group} {runtime_ns}"),
            Event::Write { group, what } => match what {
                GroupFile::Max {
                    quota_us: Some(quota_us),
                    period_us,
                } => writeln!(out, "{now_ns} K {group} max {quota_us}/{period_us}"),
                GroupFile::Max {
                    quota_us: None,
                    period_us,
                } => writeln!(out, "{now_ns} K {group} max -/{period_us}"),
                GroupFile::Weight(weight) => writeln!(out, "{now_ns} K {group} weight {weight}"),
                GroupFile::Idle(idle) => {
                    writeln!(out, "{now_ns} K {group} idle {}", u8::from(idle))
                }
                GroupFile::Cpus(count) => writeln!(out, "{now_ns} K {group} cpus {count}"),
            },
            Event::Record {
                task,
                series,
                value,
            } => writeln!(out, "{now_ns} V {task} {series} {value}"),
        });
    }
}
