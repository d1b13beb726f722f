//! Live counters of a sensor, and what it costs.
//!
//! ```text
//! cargo run -p tidegate-engine --example sense -- [--usage] [--ms 1000] [--side DIR]... [--main DIR]...
//! cargo run -p tidegate-engine --example sense -- --bench [--rounds 10]
//! ```
//! DIR is a cgroup in the cpu controller's hierarchy. `--bench` times a reading, and a pair of
//! processes that wake each other over pipes with and without the programs attached, interleaved,
//! and asks the kernel how long the program itself runs (`kernel.bpf_stats_enabled`, whose own
//! cost is inside that figure).

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidegate_engine::sense::{self, Counters, Group, SenseConfig};
use tidegate_terms::Sense;

type Any = Box<dyn std::error::Error>;

fn main() -> Result<(), Any> {
    let mut args = std::env::args().skip(1);
    let (mut side, mut main) = (vec![], vec![]);
    let (mut prefer, mut period_ms, mut bench, mut rounds) = (Sense::Auto, 1000, false, 10);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--usage" => prefer = Sense::Usage,
            "--bench" => bench = true,
            "--rounds" => rounds = value()?.parse()?,
            "--ms" => period_ms = value()?.parse()?,
            "--side" => side.push(group(&value()?)?),
            "--main" => main.push(group(&value()?)?),
            "--ping" => return ping(),
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    match bench {
        true => benchmark(rounds),
        false => live(&side, &main, prefer, period_ms),
    }
}

fn group(dir: &str) -> Result<Group, Any> {
    // On v1 with cpuacct mounted apart, usage is told by the twin in that hierarchy.
    let twin = SenseConfig::detect().cpuacct_root.and_then(|root| {
        let below = Path::new(dir).strip_prefix("/sys/fs/cgroup/cpu").ok()?;
        Some(root.join(below))
    });
    Ok(Group::new(
        Path::new(dir),
        &twin.unwrap_or(PathBuf::from(dir)),
    )?)
}

fn live(side: &[Group], main: &[Group], prefer: Sense, period_ms: u64) -> Result<(), Any> {
    let (mut sensor, note) = sense::open(&SenseConfig::detect(), side, main, prefer)?;
    println!("{note}");
    println!(
        "{:>8} {:>5} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "s", "cpus", "idle%", "side%", "main%", "other%", "steal%"
    );
    let (mut last, mut now) = (Counters::default(), Counters::default());
    sensor.sample(&mut last)?;
    let start_ns = last.now_ns;
    loop {
        sleep(Duration::from_millis(period_ms));
        sensor.sample(&mut now)?;
        let capacity = (now.capacity_ns - last.capacity_ns).max(1) as f64;
        let part = |now: u64, last: u64| (now - last) as f64 / capacity * 100.0;
        let busy = part(now.busy_ns, last.busy_ns);
        let (side, main) = (
            part(now.side_ns, last.side_ns),
            part(now.main_ns, last.main_ns),
        );
        println!(
            "{:8.2} {:5} {:7.2} {:7.2} {:7.2} {:7.2} {:7.2}{}",
            (now.now_ns - start_ns) as f64 / 1e9,
            now.online_cpus,
            100.0 - busy,
            side,
            main,
            busy - side - main,
            part(now.steal_ns, last.steal_ns),
            if now.valid { "" } else { "  invalid" }
        );
        last = now;
    }
}

const ROUND_TRIPS: u32 = 50_000;

/// Both ends of the ping-pong run pinned to CPU 0, so that each message is one switch.
fn ping() -> Result<(), Any> {
    let mut byte = [0];
    let (mut input, mut output) = (std::io::stdin(), std::io::stdout());
    while input.read(&mut byte)? == 1 {
        output.write_all(&byte)?;
        output.flush()?;
    }
    Ok(())
}

fn pin(command: &mut Command) -> &mut Command {
    // SAFETY: runs between fork and exec; one system call on a local value.
    unsafe {
        command.pre_exec(|| {
            pin_self();
            Ok(())
        })
    }
}

fn pin_self() {
    // SAFETY: cpu_set_t is plain bits; CPU_SET writes inside it, and the kernel only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

struct PingPong {
    child: std::process::Child,
}

impl PingPong {
    fn start() -> Result<Self, Any> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--ping")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Ok(Self {
            child: pin(&mut command).spawn()?,
        })
    }

    /// Nanoseconds a round trip: two switches.
    fn round(&mut self) -> Result<f64, Any> {
        let (Some(to), Some(from)) = (&mut self.child.stdin, &mut self.child.stdout) else {
            return Err("no pipes".into());
        };
        let mut byte = [7];
        let start = Instant::now();
        for _ in 0..ROUND_TRIPS {
            to.write_all(&byte)?;
            from.read_exact(&mut byte)?;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUND_TRIPS))
    }
}

impl Drop for PingPong {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn benchmark(rounds: usize) -> Result<(), Any> {
    let config = SenseConfig::detect();
    pin_self();
    let mut pair = PingPong::start()?;
    pair.round()?;
    let (mut without, mut with) = (vec![], vec![]);
    for _ in 0..rounds {
        without.push(pair.round()?);
        let sensor = sense::BpfSensor::open(&config, &[], &[])?;
        with.push(pair.round()?);
        drop(sensor);
    }
    let (without, with) = (median(&mut without), median(&mut with));
    println!("pipe round trip (2 switches): {without:.0} ns without, {with:.0} ns with the sensor");
    println!("difference: {:.0} ns a switch", (with - without) / 2.0);

    let mut sensor = sense::BpfSensor::open(&config, &[], &[])?;
    let before = sensor.tally();
    stats(true)?;
    pair.round()?;
    let (run_ns, runs) = program_stats()?;
    stats(false)?;
    let after = sensor.tally();
    println!(
        "the kernel's statistics: {:.0} ns a run over {runs} runs, {} group look-ups in {} switches",
        run_ns as f64 / runs.max(1) as f64,
        after.lookups - before.lookups,
        after.switches - before.switches
    );
    reading("bpf", &mut sensor)?;
    reading("usage", &mut sense::UsageSensor::open(&config, &[], &[])?)
}

fn reading(name: &str, sensor: &mut dyn sense::Sensor) -> Result<(), Any> {
    let mut out = Counters::default();
    let mut times = vec![];
    for _ in 0..2000 {
        let start = Instant::now();
        sensor.sample(&mut out)?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    let worst = times.iter().copied().fold(0.0, f64::max);
    println!(
        "a {name} sample: median {:.0} ns, worst {worst:.0} ns",
        median(&mut times)
    );
    Ok(())
}

fn stats(on: bool) -> Result<(), Any> {
    Ok(std::fs::write(
        "/proc/sys/kernel/bpf_stats_enabled",
        if on { "1" } else { "0" },
    )?)
}

/// Run time and runs of `on_switch`, of the newest sensor: summed over loaded programs, as only
/// one is attached here.
fn program_stats() -> Result<(u64, u64), Any> {
    let mut sum = (0, 0);
    for program in libbpf_rs::query::ProgInfoIter::default() {
        if program.name == "on_switch" {
            sum = (sum.0 + program.run_time_ns, sum.1 + program.run_cnt);
        }
    }
    Ok(sum)
}
