//! A real main beside real side work: nginx with gzip under open-loop Poisson arrivals, an ffmpeg encode beside it.
//!
//! ```text
//! cargo run --release -p tidegate-lab --example nginx-encode -- \
//!     [--tidegate target/release/tidegate] [--rate 133] [--rounds 3] [--seconds 20] [--settle 10] [--arms alone,idle,30,20]
//! ```
//! Arms: `alone` (no encode), `plain` (as people start it), `idle` (`cpu.idle` by hand), or a headroom (Tidegate): `30`; `m30` without the encode, `s30` with nginx in no gate.
//! Needs root, nginx and ffmpeg. Every figure is read from outside: latencies from the scheduled arrival, CPU time and run
//! delay from the tasks' own schedstat. Rounds are interleaved; the table at the end has medians over the rounds, and ratios to
//! `alone` in the same round.

#![allow(clippy::unwrap_used, reason = "a panic is its report")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_lab::beds::host::nginx::{Load, Site, TEXT_BYTES, wait_until_up};

type Any = Box<dyn Error>;

const CPU_CGROUP: &str = "/sys/fs/cgroup/cpu";

struct Options {
    tidegate: PathBuf,
    rate: f64,
    rounds: usize,
    seconds: f64,
    settle: f64,
    arms: Vec<String>,
    seed: u64,
}

fn main() -> Result<(), Any> {
    let options = options()?;
    let site = Site::new(2, TEXT_BYTES)?;
    println!(
        "{:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>7}",
        "arm", "mean ms", "p50", "p99", "side", "due", "idle %", "delay us", "ms/req", "steal%"
    );
    let mut all: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for round in 0..options.rounds {
        for arm in &options.arms {
            let seen = measure(&options, arm, &site, options.seed + round as u64)?;
            seen.print(arm);
            all.entry(arm.clone()).or_default().push(seen);
        }
    }
    summary(&options, &all);
    Ok(())
}

fn options() -> Result<Options, Any> {
    let mut o = Options {
        tidegate: "target/release/tidegate".into(),
        rate: 133.0,
        rounds: 3,
        seconds: 20.0,
        settle: 10.0,
        arms: ["alone", "idle", "30", "20"].map(String::from).into(),
        seed: 1,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--tidegate" => o.tidegate = value()?.into(),
            "--rate" => o.rate = value()?.parse()?,
            "--rounds" => o.rounds = value()?.parse()?,
            "--seconds" => o.seconds = value()?.parse()?,
            "--settle" => o.settle = value()?.parse()?,
            "--seed" => o.seed = value()?.parse()?,
            "--arms" => o.arms = value()?.split(',').map(String::from).collect(),
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    Ok(o)
}

#[derive(Clone, Copy)]
struct Seen {
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    side_cpus: f64,
    due_cpus: f64,
    idle_pct: f64,
    delay_us: f64,
    cpu_ms_per_request: f64,
    steal_pct: f64,
}

impl Seen {
    fn print(&self, arm: &str) {
        println!(
            "{arm:>6} {:8.3} {:8.3} {:8.2} {:8.3} {:8.3} {:8.1} {:9.1} {:8.2} {:7.1}",
            self.mean_ms,
            self.p50_ms,
            self.p99_ms,
            self.side_cpus,
            self.due_cpus,
            self.idle_pct,
            self.delay_us,
            self.cpu_ms_per_request,
            self.steal_pct
        );
    }
}

/// A process that is ended, with its family, when this goes.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("pkill")
            .args(["-TERM", "-P", &self.0.id().to_string()])
            .status();
        // SAFETY: a signal to a child that was not waited for yet.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

/// The headroom of a Tidegate arm, in percent.
fn headroom_of(arm: &str) -> Option<u32> {
    arm.trim_start_matches(['m', 's']).parse().ok()
}

/// What is started as main and as side work in this arm.
fn commands(o: &Options, arm: &str, site: &Site) -> [Vec<String>; 2] {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(String::from).collect() };
    let mut main = site.words();
    let mut side = words(
        "ffmpeg -v error -nostdin -f lavfi -i testsrc2=s=1280x720:r=30 -c:v libx264 -f null -",
    );
    let Some(headroom) = headroom_of(arm) else {
        return [main, side];
    };
    let tidegate = o.tidegate.display().to_string();
    let gate = |class: &str, words: &mut Vec<String>, more: &[String]| {
        let run = [&tidegate, "run", class].map(String::from);
        let command = std::mem::take(words);
        *words = [&run[..], more, &["--".to_owned()], &command].concat();
    };
    let headroom = ["--headroom".to_owned(), format!("{headroom}%")];
    if arm.starts_with('s') {
        gate("--side", &mut side, &headroom);
    } else {
        gate("--main", &mut main, &headroom);
        gate("--side", &mut side, &[]);
    }
    [main, side]
}

fn measure(o: &Options, arm: &str, site: &Site, seed: u64) -> Result<Seen, Any> {
    let [main_words, side_words] = commands(o, arm, site);
    let main = Running(spawn(&main_words, None)?);
    wait_until_up()?;
    let idle_group = Path::new(CPU_CGROUP).join("nginx-encode-idle");
    if arm == "idle" {
        let _ = fs::create_dir(&idle_group);
        fs::write(idle_group.join("cpu.idle"), "1")?;
    }
    let side = match arm {
        _ if arm == "alone" || arm.starts_with('m') => None,
        _ => Some(Running(spawn(
            &side_words,
            (arm == "idle").then_some(&idle_group),
        )?)),
    };
    let load = Load::start(o.rate, seed);
    let headroom = headroom_of(arm);
    thread::sleep(Duration::from_secs_f64(o.settle));
    load.take();
    let main_pids = family(main.0.id());
    let side_pids = side
        .as_ref()
        .map(|side| family(side.0.id()))
        .unwrap_or_default();
    let before = (schedstat(&main_pids), schedstat(&side_pids), machine()?);
    let began = Instant::now();
    thread::sleep(Duration::from_secs_f64(o.seconds));
    let wall = began.elapsed().as_secs_f64();
    let after = (schedstat(&main_pids), schedstat(&side_pids), machine()?);
    let mut latencies = load.take();
    drop(load);
    drop(side);
    drop(main);
    if headroom.is_some() {
        Command::new(&o.tidegate)
            .arg("stop")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
    }
    if arm == "idle" {
        thread::sleep(Duration::from_millis(100));
        let _ = fs::remove_dir(&idle_group);
    }
    latencies.sort_unstable();
    let cpus = thread::available_parallelism()?.get() as f64;
    let side_cpus = (after.1.ran_ns - before.1.ran_ns) as f64 / 1e9 / wall;
    let busy_cpus = (after.2.busy_ns - before.2.busy_ns) as f64 / 1e9 / wall;
    let steal = (after.2.steal_ns - before.2.steal_ns) as f64 / 1e9 / wall;
    let turns = (after.0.turns - before.0.turns).max(1) as f64;
    let ms = |ns: u64| ns as f64 / 1e6;
    let n = latencies.len().max(1);
    Ok(Seen {
        mean_ms: latencies.iter().sum::<u64>() as f64 / n as f64 / 1e6,
        p50_ms: ms(latencies.get(n / 2).copied().unwrap_or(0)),
        p99_ms: ms(latencies.get(n * 99 / 100).copied().unwrap_or(0)),
        side_cpus,
        due_cpus: ((1.0 - f64::from(headroom.unwrap_or(0)) / 100.0) * (cpus - steal)
            - (busy_cpus - side_cpus))
            .max(0.01 * cpus),
        idle_pct: 100.0 * (1.0 - (busy_cpus + steal) / cpus),
        delay_us: (after.0.delay_ns - before.0.delay_ns) as f64 / 1e3 / turns,
        cpu_ms_per_request: (after.0.ran_ns - before.0.ran_ns) as f64 / 1e6 / n as f64,
        steal_pct: 100.0 * steal / cpus,
    })
}

fn spawn(words: &[String], group: Option<&PathBuf>) -> Result<Child, Any> {
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if let Some(group) = group {
        use std::os::unix::process::CommandExt;
        let tasks = group.join("tasks");
        // SAFETY: between fork and exec only a file is written.
        unsafe { command.pre_exec(move || fs::write(&tasks, "0")) };
    }
    Ok(command
        .spawn()
        .map_err(|why| format!("{}: {why}", words[0]))?)
}

/// A process and its children.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() {
        let children =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", all[at])).unwrap_or_default();
        all.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        at += 1;
    }
    all
}

#[derive(Default, Clone, Copy)]
struct Sched {
    ran_ns: u64,
    delay_ns: u64,
    turns: u64,
}

fn schedstat(pids: &[u32]) -> Sched {
    let mut sum = Sched::default();
    for pid in pids {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let mut words = text
                .split_whitespace()
                .filter_map(|word| word.parse::<u64>().ok());
            sum.ran_ns += words.next().unwrap_or(0);
            sum.delay_ns += words.next().unwrap_or(0);
            sum.turns += words.next().unwrap_or(0);
        }
    }
    sum
}

struct Machine {
    busy_ns: u64,
    steal_ns: u64,
}

fn machine() -> Result<Machine, Any> {
    let stat = fs::read_to_string("/proc/stat")?;
    let steal: u64 = stat.split_whitespace().nth(8).unwrap_or("0").parse()?;
    Ok(Machine {
        busy_ns: fs::read_to_string("/sys/fs/cgroup/cpuacct/cpuacct.usage")?
            .trim()
            .parse()?,
        steal_ns: steal * 10_000_000,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn summary(o: &Options, all: &BTreeMap<String, Vec<Seen>>) {
    println!(
        "\nmedians of {} rounds of {} s after {} s, {} requests a second; ratios to alone in the same round",
        o.rounds, o.seconds, o.settle, o.rate
    );
    println!(
        "{:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}",
        "arm", "mean", "p99", "side", "due", "of due", "idle %", "delay us", "ms/req"
    );
    for arm in &o.arms {
        let rows = &all[arm];
        let of = |pick: fn(&Seen) -> f64| median(rows.iter().map(pick).collect());
        let ratio = |pick: fn(&Seen) -> f64| match all.get("alone") {
            Some(alone) => median(
                rows.iter()
                    .zip(alone)
                    .map(|(row, alone)| pick(row) / pick(alone))
                    .collect(),
            ),
            None => f64::NAN,
        };
        println!(
            "{arm:>6} {:8.3} {:8.3} {:8.3} {:8.3} {:7.1}% {:8.1} {:9.1} {:8.2}",
            ratio(|s| s.mean_ms),
            ratio(|s| s.p99_ms),
            of(|s| s.side_cpus),
            of(|s| s.due_cpus),
            100.0 * of(|s| s.side_cpus / s.due_cpus),
            of(|s| s.idle_pct),
            of(|s| s.delay_us),
            of(|s| s.cpu_ms_per_request)
        );
    }
}
