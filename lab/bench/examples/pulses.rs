//! Side work beside a main in pulses: main spins on every CPU at the same moments, two hogs run in side gates.
//!
//! ```text
//! cargo run --release -p tidegate-lab --example pulses -- [--tidegate target/release/tidegate] [--seconds 12] [ON/EVERY ...]
//! ```
//! ON and EVERY in ms; `2/10 10/50 20/100 20/107 50/250` where none is given. Headroom 30 %. Needs root and a machine that is
//! otherwise idle. CPU time is read from outside: the tasks' own schedstat, and `/proc/stat` for idle. Side work's due is what
//! the headroom and the pulses leave.

use std::error::Error;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

type Any = Box<dyn Error>;

const HEADROOM: f64 = 0.3;
const HOGS: usize = 2;
const SETTLE: Duration = Duration::from_secs(6);

fn main() -> Result<(), Any> {
    let (mut tidegate, mut seconds) = ("target/release/tidegate".to_owned(), 12.0);
    let mut cases = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--tidegate" => tidegate = value()?,
            "--seconds" => seconds = value()?.parse()?,
            case => {
                let (on, every) = case
                    .split_once('/')
                    .ok_or(format!("{case}: expected ON/EVERY, as 2/10"))?;
                cases.push((on.parse::<u64>()?, every.parse::<u64>()?));
            }
        }
    }
    if cases.is_empty() {
        cases = vec![(2, 10), (10, 50), (20, 100), (20, 107), (50, 250)];
    }
    println!(
        "{:>10} {:>8} {:>8} {:>8} {:>8}",
        "pulses ms", "side", "due", "of due", "idle %"
    );
    for (on_ms, every_ms) in cases {
        measure(&tidegate, on_ms, every_ms, Duration::from_secs_f64(seconds))?;
    }
    Ok(())
}

fn measure(tidegate: &str, on_ms: u64, every_ms: u64, window: Duration) -> Result<(), Any> {
    let cpus = thread::available_parallelism()?.get();
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now() + Duration::from_millis(50);
    let pulses: Vec<JoinHandle<()>> = (0..cpus)
        .map(|cpu| {
            let stop = stop.clone();
            thread::spawn(move || pulse(cpu, start, on_ms, every_ms, &stop))
        })
        .collect();
    let mut hogs = Vec::new();
    for _ in 0..HOGS {
        hogs.push(hog(tidegate)?);
    }
    thread::sleep(SETTLE);
    let begin = (Instant::now(), ran_ns(&hogs)?, idle_ticks()?);
    thread::sleep(window);
    let wall_s = begin.0.elapsed().as_secs_f64();
    let side_cpus = (ran_ns(&hogs)? - begin.1) as f64 / 1e9 / wall_s;
    let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    let idle = (idle_ticks()? - begin.2) as f64 * tick_s / wall_s / cpus as f64;
    stop.store(true, Ordering::Relaxed);
    for mut hog in hogs {
        hog.kill()?;
        hog.wait()?;
    }
    for pulse in pulses {
        pulse.join().map_err(|_| "a pulse panicked")?;
    }
    let main = on_ms as f64 / every_ms as f64;
    let due_cpus = cpus as f64 * (1.0 - HEADROOM - main);
    println!(
        "{:>10} {side_cpus:8.3} {due_cpus:8.3} {:7.1}% {:8.1}",
        format!("{on_ms}/{every_ms}"),
        100.0 * side_cpus / due_cpus,
        100.0 * idle
    );
    Ok(())
}

/// Spins for `on_ms` in each `every_ms` on one CPU.
fn pulse(cpu: usize, start: Instant, on_ms: u64, every_ms: u64, stop: &AtomicBool) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).expect("a thread chooses its CPU");
    let mut at = start;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        while at.elapsed() < Duration::from_millis(on_ms) {
            std::hint::spin_loop();
        }
        at += Duration::from_millis(every_ms);
    }
}

/// A shell that spins in a side gate; `run` becomes the command, so its process is the hog.
fn hog(tidegate: &str) -> Result<Child, Any> {
    let terms = [
        "run",
        "--side",
        "--headroom",
        "30%",
        "--",
        "sh",
        "-c",
        "while :; do :; done",
    ];
    let hog = Command::new(tidegate)
        .args(terms)
        .stdout(Stdio::null())
        .spawn();
    hog.map_err(|why| format!("{tidegate}: {why}; build it or name another with --tidegate").into())
}

fn ran_ns(hogs: &[Child]) -> Result<u64, Any> {
    let mut sum_ns = 0;
    for hog in hogs {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", hog.id()))?;
        sum_ns += text
            .split(' ')
            .next()
            .ok_or("an empty schedstat")?
            .parse::<u64>()?;
    }
    Ok(sum_ns)
}

/// Idle time of all CPUs, with and without outstanding I/O.
fn idle_ticks() -> Result<u64, Any> {
    let text = fs::read_to_string("/proc/stat")?;
    let mut fields = text
        .lines()
        .next()
        .ok_or("an empty /proc/stat")?
        .split_whitespace()
        .skip(4);
    let mut next =
        || -> Result<u64, Any> { Ok(fields.next().ok_or("a short /proc/stat")?.parse()?) };
    Ok(next()? + next()?)
}
