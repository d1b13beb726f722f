//! The two workers, and one quantum of one of them beside a neighbour.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use tidegate_sim::Prng;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Multiplies and adds in registers.
    Arithmetic,
    /// Reads at random inside [`BUFFER_BYTES`].
    Cache,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Arithmetic, Kind::Cache];

    /// As the file names it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Arithmetic => "arithmetic",
            Kind::Cache => "cache",
        }
    }
}

/// Eight times a core's own second-level cache on today's servers, a quarter of the shared one or less.
const BUFFER_BYTES: usize = 8 << 20;

/// The measured CPU and its neighbour.
const CPU: usize = 0;
const NEIGHBOUR: usize = 1;

/// A quantum counts only if the neighbour was idle (or busy) for at least this share of it.
const AS_IT_SHOULD_BE: f64 = 0.90;

/// What the workers share.
pub struct Bench {
    words: Vec<u64>,
}

impl Bench {
    /// Makes the buffer and asks for priority over ordinary work.
    pub fn new() -> Result<Bench, String> {
        // Without the privilege the quanta that others disturbed are dropped all the same: only fewer stay.
        if let Err(why) = rustix::process::setpriority_process(None, -20) {
            eprintln!(
                "tidegate: contention-measure: priority: {why}; a busy machine will cost more rounds"
            );
        }
        let cpus = std::thread::available_parallelism().map_err(|why| format!("CPUs: {why}"))?;
        if cpus.get() <= NEIGHBOUR {
            return Err(format!(
                "CPUs: {cpus}: a neighbour is needed; run it where there are two"
            ));
        }
        let mut rng = Prng::new(1);
        Ok(Bench {
            words: (0..BUFFER_BYTES / 8).map(|_| rng.next_u64()).collect(),
        })
    }

    /// Units of work per second of CPU time, or nothing when the quantum was disturbed.
    pub fn rate(
        &self,
        own: Kind,
        neighbour: Option<Kind>,
        quantum: Duration,
    ) -> Result<Option<f64>, String> {
        let stop = AtomicBool::new(false);
        let start = Barrier::new(2);
        let (rate, neighbour_share, idle_share) = std::thread::scope(|scope| {
            let beside = scope.spawn(|| -> Result<f64, String> {
                pin(NEIGHBOUR)?;
                start.wait();
                let began = Instant::now();
                while let (Some(kind), false) = (neighbour, stop.load(Ordering::Relaxed)) {
                    self.unit(kind, began.elapsed().subsec_nanos().into());
                }
                Ok(cpu_time_s() / began.elapsed().as_secs_f64())
            });
            let measured = scope.spawn(|| -> Result<(f64, f64), String> {
                let pinned = pin(CPU);
                start.wait();
                let result = pinned.and_then(|()| self.quantum(own, quantum));
                stop.store(true, Ordering::Relaxed);
                result
            });
            let (rate, idle) = measured
                .join()
                .map_err(|_| "the worker panicked".to_owned())??;
            let share = beside
                .join()
                .map_err(|_| "the neighbour panicked".to_owned())??;
            Ok::<_, String>((rate, share, idle))
        })?;
        let as_it_should_be = match neighbour {
            None => idle_share >= AS_IT_SHOULD_BE,
            Some(_) => neighbour_share >= AS_IT_SHOULD_BE,
        };
        Ok(as_it_should_be.then_some(rate))
    }

    /// One quantum: the rate, and the share of it in which the neighbour CPU idled.
    fn quantum(&self, own: Kind, quantum: Duration) -> Result<(f64, f64), String> {
        let idle_before = idle_s(NEIGHBOUR)?;
        let (cpu_before, began) = (cpu_time_s(), Instant::now());
        let mut units = 0u64;
        while began.elapsed() < quantum {
            self.unit(own, units);
            units += 1;
        }
        let wall_s = began.elapsed().as_secs_f64();
        let rate = units as f64 / (cpu_time_s() - cpu_before);
        Ok((rate, (idle_s(NEIGHBOUR)? - idle_before) / wall_s))
    }

    /// One unit of work, some tens of microseconds: long beside reading a clock, short beside a quantum.
    fn unit(&self, kind: Kind, salt: u64) {
        match kind {
            Kind::Arithmetic => {
                let mut chains: [u64; 8] = std::array::from_fn(|chain| salt + chain as u64);
                for _ in 0..5_000 {
                    for chain in &mut chains {
                        *chain = chain
                            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                            .wrapping_add(0x1234_5678_9abc_def1);
                    }
                }
                black_box(chains);
            }
            Kind::Cache => {
                let mask = self.words.len() - 1;
                let (mut place, mut sum) = (salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, 0u64);
                for _ in 0..5_000 {
                    // The next place does not depend on what was read, so that reads overlap as in real code.
                    place = place.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                    sum = sum.wrapping_add(self.words[(place >> 32) as usize & mask]);
                }
                black_box(sum);
            }
        }
    }
}

fn pin(cpu: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|why| format!("CPU {cpu}: {why}; it must be one we may run on"))
}

fn cpu_time_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The CPU's idle time since boot; /proc/stat counts in hundredths.
fn idle_s(cpu: usize) -> Result<f64, String> {
    let stat = std::fs::read_to_string("/proc/stat").map_err(|why| format!("/proc/stat: {why}"))?;
    let name = format!("cpu{cpu}");
    let line = stat
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name.as_str()));
    let mut fields = line
        .unwrap_or_default()
        .split_whitespace()
        .skip(4)
        .map(str::parse::<u64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(idle)), Some(Ok(iowait))) => Ok((idle + iowait) as f64 / 100.0),
        _ => Err(format!(
            "/proc/stat: {name}: no idle time there; the kernel's form has changed"
        )),
    }
}
