//! An open-loop server: requests are due when a seeded plan says so, whatever the server does, and
//! a request's latency runs from when it was *due*. (A generator that waits for the last answer
//! before it sends the next would hide every stall.) The plan is a Poisson process, or batches of
//! which some ask for more than a quota.
//!
//! Worker threads take arrivals in order: a free thread takes the next one and sleeps until it is
//! due; when all are busy, arrivals wait in the order in which they came.

use std::sync::{Arc, Mutex};

use rand::RngExt as _;
use rand_distr::{Distribution as _, Exp};
use rand_xoshiro::Xoshiro256StarStar;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::work::Work;
use super::{Args, Windows, lock};
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use crate::{LabError, seeded};

/// The batches, as in the simulator: the time between two, the time over which one is due, and the
/// requests of most and of one in three.
const BATCH_GAP_NS: u64 = 40_000_000;
const BATCH_SPREAD_NS: u64 = 20_000_000;
const BATCH_SMALL: u64 = 15;
const BATCH_LARGE: u64 = 30;

struct Arrivals {
    rng: Xoshiro256StarStar,
    /// Gaps of the Poisson process in seconds; absent for batches.
    gaps: Option<Exp<f64>>,
    next_ns: u64,
    /// What is left of the batch, the latest first.
    batch_ns: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    due_ns: u64,
    /// Its work, over the mean.
    size: f64,
}

impl Arrivals {
    /// A rate of 0 means batches.
    fn new(seed: u64, start_ns: u64, per_second: f64) -> Result<Self, LabError> {
        let gaps = (per_second != 0.0)
            .then(|| Exp::new(per_second))
            .transpose();
        Ok(Arrivals {
            rng: seeded(seed),
            gaps: gaps.map_err(|e| LabError::process("server", format!("its rate: {e}")))?,
            next_ns: start_ns,
            batch_ns: Vec::new(),
        })
    }

    fn next(&mut self) -> Request {
        if let Some(gaps) = &self.gaps {
            self.next_ns += (gaps.sample(&mut self.rng) * 1e9) as u64;
            return Request {
                due_ns: self.next_ns,
                size: self.rng.random_range(0.5..1.5),
            };
        }
        loop {
            if let Some(due_ns) = self.batch_ns.pop() {
                return Request { due_ns, size: 1.0 };
            }
            let is_large = self.rng.random_ratio(1, 3);
            let count = if is_large { BATCH_LARGE } else { BATCH_SMALL };
            let due_ns = |_| self.next_ns + self.rng.random_range(0..BATCH_SPREAD_NS);
            self.batch_ns.extend((0..count).map(due_ns));
            self.batch_ns.sort_unstable_by(|a, b| b.cmp(a));
            self.next_ns += BATCH_GAP_NS;
        }
    }
}

struct Server {
    page: Arc<SharedPage>,
    arrivals: Mutex<Arrivals>,
    windows: Arc<Windows>,
    spin: Spin,
    /// A mean request: steps of [`Work`], or blocks of [`Spin`].
    amount: f64,
    in_memory: bool,
}

/// `server --page F --threads N --request-us U [--per-second R] [--steps-per-ms K] --seed X`;
/// reports `wakeup` (a free thread took the request) and `latency`. A request walks through memory
/// if the speed of that is given.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", 4)?;
    let request_us: f64 = args.number("request-us", 1000.0)?;
    let steps_per_ms: f64 = args.number("steps-per-ms", 0.0)?;
    let start_ns = monotonic_ns() + 50_000_000;
    let per_second = args.number("per-second", 0.0)?;
    let spin = Spin::calibrated();
    let in_memory = steps_per_ms > 0.0;
    let server = Arc::new(Server {
        page: Arc::clone(&page),
        arrivals: Mutex::new(Arrivals::new(
            args.number("seed", 1)?,
            start_ns,
            per_second,
        )?),
        windows: Windows::new(&["wakeup", "latency"]),
        spin,
        amount: match in_memory {
            true => request_us * steps_per_ms / 1000.0,
            false => spin.blocks_for((request_us * 1000.0) as u64) as f64,
        },
        in_memory,
    });
    for index in 0..threads {
        let server = Arc::clone(&server);
        std::thread::spawn(move || serve(&server, index));
    }
    server.windows.serve(&page)
}

fn serve(server: &Server, index: usize) {
    let page = &server.page;
    let mut memory = server.in_memory.then(|| Work::new(index as u64 + 1));
    if let Some(work) = &mut memory {
        // The buffer is touched before the first request is due.
        work.run(100_000);
    }
    page.check_in();
    let mut served = 0;
    while !page.stopped() {
        let request = lock(&server.arrivals).next();
        let late_ns = || monotonic_ns().saturating_sub(request.due_ns);
        sleep_until(request.due_ns);
        server.windows.record(0, late_ns());
        let amount = ((server.amount * request.size) as u64).max(1);
        match &mut memory {
            Some(work) => work.run(amount),
            None => server.spin.work(amount),
        }
        server.windows.record(1, late_ns());
        served += 1;
        page.slot(index).publish(thread_cpu_ns(), served);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_their_work_and_their_seed() {
        let n = 100_000;
        let batches = (2 * BATCH_SMALL + BATCH_LARGE) as f64 / 3.0 * 1e9 / BATCH_GAP_NS as f64;
        for (per_second, rate) in [(2000.0, 2000.0), (0.0, batches)] {
            let of = |seed| -> Vec<Request> {
                let mut arrivals = Arrivals::new(seed, 500, per_second).expect("a rate");
                (0..n).map(|_| arrivals.next()).collect()
            };
            let all = of(3);
            let seconds = (all[n - 1].due_ns - 500) as f64 / 1e9;
            assert!((n as f64 / seconds / rate - 1.0).abs() < 0.02, "{rate}");
            let size = all.iter().map(|r| r.size).sum::<f64>() / n as f64;
            assert!((size - 1.0).abs() < 0.01, "{size}");
            assert!(all.windows(2).all(|w| w[0].due_ns <= w[1].due_ns));
            assert!(of(3) == all && of(4) != all);
        }
    }

    #[test]
    fn some_periods_ask_for_more_than_seven_fifths_of_the_mean() {
        let mut arrivals = Arrivals::new(1, 0, 0.0).expect("batches");
        let mut asked = vec![0u64; 2000];
        while let Some(n) = asked.get_mut((arrivals.next().due_ns / 100_000_000) as usize) {
            *n += 1;
        }
        let mean = asked.iter().sum::<u64>() as f64 / asked.len() as f64;
        let over = asked.iter().filter(|n| **n as f64 > 1.4 * mean).count();
        let pct = 100.0 * over as f64 / asked.len() as f64;
        assert!((5.0..25.0).contains(&pct), "{pct} %");
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due() {
        // Requests due at once on one thread: the tenth waits for the nine before it.
        let page = Arc::new(SharedPage::create().expect("a page"));
        let arrivals = Arrivals::new(1, monotonic_ns(), 1e6).expect("a rate");
        let server = Arc::new(Server {
            page: Arc::clone(&page),
            arrivals: Mutex::new(arrivals),
            windows: Windows::new(&["wakeup", "latency"]),
            spin: Spin::calibrated(),
            amount: 2.0 * Work::new(1).calibrate(2) as f64,
            in_memory: true,
        });
        let view = Arc::clone(&server);
        let thread = std::thread::spawn(move || serve(&view, 0));
        while page.count() < 10 {
            sleep_until(monotonic_ns() + 2_000_000);
        }
        page.stop();
        thread.join().expect("the worker ends");
        let worst_ns = lock(&server.windows.named[1].1).max();
        assert!(worst_ns > 10_000_000, "the tenth waited only {worst_ns} ns");
    }
}
