//! How fast the simulator is: events a second of wall time, and the wall time of
//! 80 CPUs for 60 simulated seconds. `cargo run --release -p tidegate-sim
//! --example speed [CPUS [SECONDS]]`. Prints figures; judges nothing. Rates are
//! over this process's CPU time, so that a busy machine does not blur them.

use std::time::Instant;
use tidegate_sim::{Bandwidth, Ctx, GroupId, GroupSpec, Machine, MachineConfig, Op, TaskSpec};

const SECOND: u64 = 1_000_000_000;

/// Runs about 200 µs, sleeps about 300 µs: a server's worker.
fn worker() -> impl FnMut(&mut Ctx<'_>) -> Op {
    let mut runs = false;
    move |ctx| {
        runs = !runs;
        if runs {
            Op::Run {
                work_ns: ctx.rng.between(100_000, 300_000),
            }
        } else {
            Op::Sleep {
                for_ns: ctx.rng.between(200_000, 400_000),
            }
        }
    }
}

fn spawn(
    m: &mut Machine,
    group: GroupId,
    program: impl FnMut(&mut Ctx<'_>) -> Op + Send + 'static,
) {
    if let Err(why) = m.spawn(TaskSpec::new("task", group, Box::new(program))) {
        eprintln!("{why}");
    }
}

fn group(m: &mut Machine, spec: GroupSpec) -> GroupId {
    m.add_group(spec).unwrap_or(GroupId::ROOT)
}

/// A machine with a busy main group and a side group under a quota.
fn mixed(cpus: u32) -> Machine {
    let mut m = match Machine::new(MachineConfig::new(cpus)) {
        Ok(m) => m,
        Err(why) => {
            eprintln!("{why}");
            std::process::exit(2);
        }
    };
    let main = group(&mut m, GroupSpec::new("main", GroupId::ROOT));
    let mut side = GroupSpec::new("side", GroupId::ROOT);
    side.idle = true;
    side.bandwidth = Some(Bandwidth {
        quota_us: Some(u64::from(cpus) * 3_000),
        period_us: 10_000,
        burst_us: 0,
    });
    let side = group(&mut m, side);
    for _ in 0..cpus {
        spawn(&mut m, main, worker());
        spawn(&mut m, side, |_| Op::Run { work_ns: SECOND });
    }
    m
}

/// Pairs of tasks that pass a message back and forth.
fn pipes(cpus: u32, pairs: u32) -> Machine {
    let mut m = mixed(cpus);
    for _ in 0..pairs {
        let (to, fro) = (m.add_pipe(1), m.add_pipe(1));
        for (first, second) in [(to, fro), (fro, to)] {
            let mut step = u32::from(first == fro);
            spawn(&mut m, GroupId::ROOT, move |_| {
                step += 1;
                match step % 3 {
                    1 => Op::Send { pipe: first },
                    2 => Op::Recv { pipe: second },
                    _ => Op::Run { work_ns: 2_000 },
                }
            });
        }
    }
    m
}

/// CPU time of this process; wall time where the kernel does not tell.
fn cpu_time_s(start: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    match stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()) {
        Some(ns) => ns / 1e9,
        None => start.elapsed().as_secs_f64(),
    }
}

fn time(name: &str, mut m: Machine, seconds: u64) {
    let start = Instant::now();
    let before = cpu_time_s(start);
    if let Err(violation) = m.run_until(seconds * SECOND) {
        println!("{violation}");
    }
    let wall = start.elapsed().as_secs_f64();
    let cpu = cpu_time_s(start) - before;
    println!(
        "{name:28} {:4} CPUs {seconds:3} s: {wall:6.2} s of wall, {cpu:6.2} s of CPU, {:9} events, {:9} switches, \
         {:5.2} M events/s, busy {:.1} %",
        m.cpus(),
        m.events(),
        m.switches(),
        m.events() as f64 / cpu / 1e6,
        m.busy_ns() as f64 * 100.0 / (m.now_ns() * u64::from(m.cpus())) as f64,
    );
}

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .filter_map(|arg| arg.parse::<u32>().ok());
    let (cpus, seconds) = (args.next().unwrap_or(80), args.next().unwrap_or(60));
    time("one CPU, workers", mixed(1), 20);
    time("two CPUs, pipes", pipes(2, 4), 2);
    time("servers beside a quota", mixed(cpus), u64::from(seconds));
    time(
        "and pipes",
        pipes(cpus, cpus),
        u64::from(seconds.div_ceil(20)),
    );
}
