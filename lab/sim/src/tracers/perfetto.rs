//! A trace in the JSON form of Chrome's trace viewer, which <https://ui.perfetto.dev> opens as
//! well.
//!
//! | in the viewer | is |
//! |---|---|
//! | process `CPUs`, one thread a CPU | a slice for each stretch that a task ran; its arguments name group and whether it could have run on |
//! | instants on a CPU | `throttled GROUP`, `unthrottled GROUP` |
//! | process `groups`, counters | `pool GROUP`: what a quota's pool holds at its turnover, ms; `quota GROUP`: what was written, % of one CPU |
//! | process `values`, counters | each recorded series, ms |
//!
//! Times are in µs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::Sink;
use crate::Ns;
use crate::ids::{CpuId, TaskId};
use crate::names::Names;
use crate::trace::{Event, Tracer};

const CPUS: u32 = 1;
const GROUPS: u32 = 2;
const VALUES: u32 = 3;

/// Writes the trace. A clone writes the same one: the machine has one, the code that ends the file
/// another.
#[derive(Clone)]
pub struct Perfetto(Arc<Mutex<Writer>>);

struct Writer {
    sink: Sink,
    names: Names,
    /// Who has run on each CPU since when.
    running: Vec<Option<(TaskId, Ns)>>,
    /// The last event's time.
    seen_ns: Ns,
}

impl Perfetto {
    /// A trace of a machine of this many CPUs; `again` is the command that repeats the run.
    pub fn new(sink: Sink, names: &Names, cpus: u32, again: &str) -> Perfetto {
        let writer = Writer {
            sink,
            names: names.clone(),
            running: vec![None; cpus as usize],
            seen_ns: 0,
        };
        let head = json!({ "command": again });
        writer
            .sink
            .write(|out| write!(out, "{{\"otherData\":{head},\"traceEvents\":["));
        let name = |what: &str, pid: u32, tid: u32, name: &str| {
            writer.put(&json!({
                "ph": "M", "pid": pid, "tid": tid, "name": what, "args": { "name": name },
            }));
        };
        for (process, words) in [(CPUS, "CPUs"), (GROUPS, "groups"), (VALUES, "values")] {
            name("process_name", process, 0, words);
        }
        for cpu in 0..cpus {
            name("thread_name", CPUS, cpu, &format!("CPU {cpu}"));
        }
        Perfetto(Arc::new(Mutex::new(writer)))
    }

    /// Ends the file: who still runs has run until the run's end, or until the last event of one
    /// that failed.
    pub fn finish(&self, end_ns: Option<Ns>) {
        let mut writer = self.writer();
        let end_ns = end_ns.unwrap_or(writer.seen_ns);
        for cpu in 0..writer.running.len() {
            // At most 1024 CPUs.
            writer.stretch(end_ns, CpuId(cpu as u32), true);
        }
        let end = json!({
            "ph": "i", "s": "g", "pid": CPUS, "tid": 0, "ts": us(end_ns), "name": "end",
        });
        writer.sink.write(|out| writeln!(out, "{end}]}}"));
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // What was written before a panic elsewhere is as good as it was.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracer for Perfetto {
    fn event(&mut self, now_ns: Ns, event: &Event) {
        self.writer().event(now_ns, event);
    }
}

/// Exact to the nanosecond for three months.
fn us(ns: Ns) -> f64 {
    ns as f64 / 1e3
}

impl Writer {
    /// An event that is not the last.
    fn put(&self, event: &Value) {
        self.sink.write(|out| writeln!(out, "{event},"));
    }

    fn stretch(&mut self, now_ns: Ns, cpu: CpuId, runs_on: bool) {
        let Some((task, since_ns)) = self.running[cpu.index()].take() else {
            return;
        };
        let group = self.names.group_name(self.names.group_of(task));
        self.put(&json!({
            "ph": "X", "pid": CPUS, "tid": cpu.0, "ts": us(since_ns), "dur": us(now_ns - since_ns),
            "name": self.names.task_name(task),
            "args": { "group": group, "task": task.0, "preempted": runs_on },
        }));
    }

    fn instant(&self, now_ns: Ns, cpu: CpuId, name: &str) {
        self.put(&json!({
            "ph": "i", "s": "t", "pid": CPUS, "tid": cpu.0, "ts": us(now_ns), "name": name,
        }));
    }

    fn counter(&self, now_ns: Ns, process: u32, name: &str, unit: &str, value: f64) {
        self.put(&json!({
            "ph": "C", "pid": process, "ts": us(now_ns), "name": name, "args": { unit: value },
        }));
    }

    fn event(&mut self, now_ns: Ns, event: &Event) {
        self.seen_ns = now_ns;
        match *event {
            Event::Switch {
                cpu,
                next,
                prev_runs_on,
                ..
            } => {
                self.stretch(now_ns, cpu, prev_runs_on);
                self.running[cpu.index()] = next.map(|task| (task, now_ns));
            }
            Event::Throttle { group, cpu } => {
                let name = format!("throttled {}", self.names.group_name(group));
                self.instant(now_ns, cpu, &name);
            }
            Event::Unthrottle { group, cpu } => {
                let name = format!("unthrottled {}", self.names.group_name(group));
                self.instant(now_ns, cpu, &name);
            }
            Event::Refill { group, runtime_ns } => {
                let name = format!("pool {}", self.names.group_name(group));
                self.counter(now_ns, GROUPS, &name, "ms", runtime_ns as f64 / 1e6);
            }
            Event::Write {
                group,
                limit_us: Some((quota_us, period_us)),
            } => {
                let name = format!("quota {}", self.names.group_name(group));
                let percent = quota_us as f64 * 100.0 / period_us as f64;
                self.counter(now_ns, GROUPS, &name, "percent", percent);
            }
            Event::Record { series, value, .. } => {
                let name = self.names.all_series().get(series.index());
                let name = name.map_or("", String::as_str);
                self.counter(now_ns, VALUES, name, "ms", value as f64 / 1e6);
            }
            Event::Fork { .. } => self.names.learn(event),
            _ => {}
        }
    }
}
