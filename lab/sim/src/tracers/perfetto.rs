//! A trace in the JSON form of Chrome's trace viewer, which <https://ui.perfetto.dev> opens as well.
//!
//! | in the viewer | is |
//! |---|---|
//! | process `CPUs`, one thread a CPU | a slice for each stretch that a task ran; its arguments name group and whether it could have run on |
//! | instants on a CPU | `throttled GROUP`, `unthrottled GROUP` |
//! | process `groups`, counters | `pool GROUP`: what a quota's pool holds at its turnover, ms; `quota GROUP`: what was written, % of one CPU |
//! | process `values`, counters | each recorded series, ms |
//!
//! Times are in µs with three decimals, written as integers and a fraction: no float is printed.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Sink;
use crate::Ns;
use crate::ids::{CpuId, TaskId};
use crate::names::Names;
use crate::trace::{Event, GroupFile, Tracer};

const CPUS: u32 = 1;
const GROUPS: u32 = 2;
const VALUES: u32 = 3;

/// Writes the trace. A clone writes the same one: the machine has one, the code that ends the file another.
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
        sink.write(|out| {
            write!(
                out,
                "{{\"otherData\":{{\"command\":{}}},\"traceEvents\":[",
                text(again)
            )?;
            for (process, name) in [(CPUS, "CPUs"), (GROUPS, "groups"), (VALUES, "values")] {
                meta(out, "process_name", process, 0, name)?;
                out.write_all(b",\n")?;
            }
            for cpu in 0..cpus {
                meta(out, "thread_name", CPUS, cpu, &format!("CPU {cpu}"))?;
                out.write_all(b",\n")?;
            }
            // finish() writes a last event, so that every other one may end in a comma.
            Ok(())
        });
        Perfetto(Arc::new(Mutex::new(Writer {
            sink,
            names: names.clone(),
            running: vec![None; cpus as usize],
            seen_ns: 0,
        })))
    }

    /// Ends the file: who still runs has run until the run's end, or until the last event of one that failed.
    pub fn finish(&self, end_ns: Option<Ns>) {
        let mut writer = self.writer();
        let end_ns = end_ns.unwrap_or(writer.seen_ns);
        for cpu in 0..writer.running.len() {
            // At most 1024 CPUs.
            writer.stretch(end_ns, CpuId(cpu as u32), true);
        }
        writer.sink.write(|out| {
            let end = Us(end_ns);
            writeln!(
                out,
                "{{\"ph\":\"i\",\"s\":\"g\",\"pid\":{CPUS},\"tid\":0,\"ts\":{end},\"name\":\"end\"}}]}}"
            )
        });
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // What was written before a panic elsewhere is as good as it was.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn stretch(&mut self, now_ns: Ns, cpu: CpuId, runs_on: bool) {
        let Some((task, since_ns)) = self.running[cpu.index()].take() else {
            return;
        };
        let (name, group) = (
            text(&self.names.task_name(task)),
            text(&self.names.group_name(self.names.group_of(task))),
        );
        let (start, length) = (Us(since_ns), Us(now_ns - since_ns));
        self.sink.write(|out| {
            writeln!(
                out,
                "{{\"ph\":\"X\",\"pid\":{CPUS},\"tid\":{cpu},\"ts\":{start},\"dur\":{length},\"name\":{name},\
                 \"args\":{{\"group\":{group},\"task\":{task},\"preempted\":{runs_on}}}}},"
            )
        });
    }

    fn instant(&self, now_ns: Ns, cpu: CpuId, name: &str) {
        let name = text(name);
        let at = Us(now_ns);
        self.sink.write(|out| {
            writeln!(
                out,
                "{{\"ph\":\"i\",\"s\":\"t\",\"pid\":{CPUS},\"tid\":{cpu},\"ts\":{at},\"name\":{name}}},"
            )
        });
    }

    /// A counter; `value` is in thousandths of what `unit` names.
    fn counter(&self, now_ns: Ns, process: u32, name: &str, unit: &str, thousandths: i64) {
        let name = text(name);
        let at = Us(now_ns);
        let (sign, size) = (
            if thousandths < 0 { "-" } else { "" },
            thousandths.unsigned_abs(),
        );
        let (whole, rest) = (size / 1_000, size % 1_000);
        self.sink.write(|out| {
            writeln!(
                out,
                "{{\"ph\":\"C\",\"pid\":{process},\"ts\":{at},\"name\":{name},\"args\":{{\"{unit}\":{sign}{whole}.{rest:03}}}}},"
            )
        });
    }
}

/// Microseconds with three decimals.
struct Us(Ns);

impl std::fmt::Display for Us {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

fn text(plain: &str) -> String {
    let mut out = String::from("\"");
    for c in plain.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn meta(out: &mut dyn Write, what: &str, process: u32, thread: u32, name: &str) -> io::Result<()> {
    let name = text(name);
    write!(
        out,
        "{{\"ph\":\"M\",\"pid\":{process},\"tid\":{thread},\"name\":\"{what}\",\"args\":{{\"name\":{name}}}}}"
    )
}

impl Tracer for Perfetto {
    fn event(&mut self, now_ns: Ns, event: &Event) {
        self.writer().event(now_ns, event);
    }
}

impl Writer {
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
                self.instant(
                    now_ns,
                    cpu,
                    &format!("throttled {}", self.names.group_name(group)),
                );
            }
            Event::Unthrottle { group, cpu } => {
                let name = format!("unthrottled {}", self.names.group_name(group));
                self.instant(now_ns, cpu, &name);
            }
            Event::Refill { group, runtime_ns } => {
                let name = format!("pool {}", self.names.group_name(group));
                self.counter(now_ns, GROUPS, &name, "ms", runtime_ns / 1_000);
            }
            Event::Write {
                group,
                what:
                    GroupFile::Max {
                        quota_us: Some(quota_us),
                        period_us,
                    },
            } => {
                let name = format!("quota {}", self.names.group_name(group));
                // Thousandths of a percent of one CPU; a quota is below 2^41 µs, so 2^41 · 10^5 < 2^58.
                let rate = quota_us.min(1 << 41) * 100_000 / period_us.max(1);
                self.counter(now_ns, GROUPS, &name, "percent", rate as i64);
            }
            Event::Record { series, value, .. } => {
                let name = self.names.all_series().get(series.index()).cloned();
                // A value of 2^63 µs does not happen in a run of a day.
                let thousandths = i64::try_from(value / 1_000).unwrap_or(i64::MAX);
                self.counter(now_ns, VALUES, &name.unwrap_or_default(), "ms", thousandths);
            }
            Event::Fork { .. } => self.names.learn(event),
            _ => {}
        }
    }
}
