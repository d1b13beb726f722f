//! What an event of the simulator costs, against the number of CPUs and of runnable tasks.
//!
//! `cargo run --release -p tidegate-sim --example bench -- [--svg FILE] [--csv FILE] [--quick]`
//! (`make bench-sim` writes docs/sim-cost.svg and docs/sim-cost.csv.)
//!
//! Two curves. *CPUs*: a machine of 2 to 1024 CPUs, caches of 16 CPUs, two threads a core; for each CPU three
//! tasks that run about 200 µs and sleep about 600 µs, and one pair that passes a byte to and fro.
//! *Runnable*: 8 CPUs and 16 to 65,536 tasks that are always runnable, with slices of 0.1 ms, so that every
//! tick is a choice among them. An event is what the machine's event loop handles: the end of a run, a timer,
//! a tick. Each point is the best of several runs (noise only ever adds), after a warm-up; a run's events are
//! the same every time. Costs are of this process's CPU time, so that a busy machine blurs them less.
//!
//! Growth is judged as the issue asks: the cost of an event must grow no faster than log2 of the tasks that
//! are runnable. The last column says how much it grew against the first row, over how much the log grew.

mod plot;
mod workloads;

use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};
use tidegate_sim::Machine;

/// One point of a curve.
pub struct Point {
    /// CPUs or runnable tasks.
    pub size: u32,
    /// Events handled in one run.
    pub events: u64,
    /// CPU time of the fastest run.
    pub ns: u64,
}

impl Point {
    /// CPU time per event, in ns.
    pub fn cost_ns(&self) -> f64 {
        self.ns as f64 / self.events as f64
    }
}

struct Options {
    svg: Option<std::path::PathBuf>,
    csv: Option<std::path::PathBuf>,
    quick: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        svg: None,
        csv: None,
        quick: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{flag}: no value; give a file's name"))
        };
        match flag.as_str() {
            "--svg" => options.svg = Some(value()?.into()),
            "--csv" => options.csv = Some(value()?.into()),
            "--quick" => options.quick = true,
            _ => {
                return Err(format!(
                    "{flag}: no such option; there are --svg FILE, --csv FILE, --quick"
                ));
            }
        }
    }
    Ok(options)
}

/// Runs a machine for so many events, after a tenth as many to warm up.
fn measure(
    size: u32,
    events: u64,
    runs: u32,
    build: impl Fn() -> Result<Machine, String>,
) -> Result<Point, String> {
    let mut best: Option<Point> = None;
    for _ in 0..runs {
        let mut machine = build()?;
        advance(&mut machine, events / 10)?;
        let (before, began_ns) = (machine.events(), cpu_time_ns());
        advance(&mut machine, events)?;
        let ns = cpu_time_ns() - began_ns;
        let handled = machine.events() - before;
        if best.as_ref().is_none_or(|best| ns < best.ns) {
            best = Some(Point {
                size,
                events: handled,
                ns,
            });
        }
    }
    best.ok_or_else(|| "runs: 0: nothing to measure; ask for at least one".to_owned())
}

fn cpu_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn advance(machine: &mut Machine, events: u64) -> Result<(), String> {
    let enough = machine.events() + events;
    while machine.events() < enough {
        machine
            .run_until(machine.now_ns() + 1_000_000)
            .map_err(|violation| violation.to_string())?;
    }
    Ok(())
}

fn table(title: &str, unit: &str, points: &[Point]) -> String {
    let mut text = format!(
        "{title}\n{unit:>10} {:>12} {:>10} {:>14} {:>10}\n",
        "events", "ns/event", "events/s", "growth/log"
    );
    let first = &points[0];
    for point in points {
        let cost = point.cost_ns();
        let growth = (cost / first.cost_ns())
            / (f64::from(point.size).log2() / f64::from(first.size).log2());
        let rate = 1e9 / cost;
        text += &format!(
            "{:>10} {:>12} {cost:>10.0} {rate:>14.0} {growth:>10.2}\n",
            point.size, point.events
        );
    }
    text
}

fn csv(curves: &[(&str, &[Point])]) -> String {
    let mut text = String::from("curve,size,events,cpu_ns,ns_per_event\n");
    for (name, points) in curves {
        for point in *points {
            text += &format!(
                "{name},{},{},{},{:.1}\n",
                point.size,
                point.events,
                point.ns,
                point.cost_ns()
            );
        }
    }
    text
}

fn run() -> Result<(), String> {
    let options = options()?;
    let (events, runs) = if options.quick {
        (100_000, 1)
    } else {
        (1_000_000, 3)
    };
    let mut cpus = Vec::new();
    for power in 1..=10 {
        let size = 1u32 << power;
        cpus.push(measure(size, events, runs, || workloads::machine_of(size))?);
    }
    print!(
        "{}",
        table(
            "A machine's CPUs (4 sleepers and talkers a CPU)",
            "CPUs",
            &cpus
        )
    );
    let mut runnable = Vec::new();
    for power in (4..=16).step_by(2) {
        let size = 1u32 << power;
        runnable.push(measure(size, events, runs, || workloads::crowd_of(size))?);
    }
    print!("{}", table("Runnable tasks on 8 CPUs", "tasks", &runnable));
    if let Some(path) = options.csv {
        let text = csv(&[("cpus", &cpus), ("runnable", &runnable)]);
        std::fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    if let Some(path) = options.svg {
        plot::draw(&path, &cpus, &runnable)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("tidegate: bench: {message}");
            ExitCode::FAILURE
        }
    }
}
