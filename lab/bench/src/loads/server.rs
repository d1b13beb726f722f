//! An open-loop server: requests are due when a seeded Poisson process says so, whatever the server
//! does, and a request's latency runs from when it was *due*. (A generator that waits for the last
//! answer before it sends the next would hide every stall.)
//!
//! Worker threads take arrivals in order: a free thread takes the next one and sleeps until it is
//! due; when all are busy, arrivals wait in the order in which they came.

use std::sync::{Arc, Mutex};

use rand::RngExt as _;
use rand_distr::{Distribution as _, Exp};
use rand_xoshiro::Xoshiro256StarStar;

use super::shared_page::SharedPage;
use super::work::Work;
use super::{Args, Windows, lock};
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use crate::{LabError, seeded};

/// Arrivals: each call gives the next request, when it is due and how much work it is.
pub struct Arrivals {
    rng: Xoshiro256StarStar,
    due_ns: u64,
    /// Gaps in seconds.
    gaps: Exp<f64>,
    /// Steps of [`Work::run`] of a mean request.
    steps: f64,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When it is due, on the monotonic clock.
    pub due_ns: u64,
    /// Its work in steps of [`Work::run`].
    pub steps: u64,
}

impl Arrivals {
    /// Requests of so many steps on average (uniform in 0.5…1.5 of it), `per_second` of them, from `start_ns` on.
    pub fn new(seed: u64, start_ns: u64, per_second: f64, steps: f64) -> Result<Self, LabError> {
        let gaps = Exp::new(per_second);
        let gaps = gaps.map_err(|e| LabError::process("server", format!("its rate: {e}")))?;
        Ok(Arrivals {
            rng: seeded(seed),
            due_ns: start_ns,
            gaps,
            steps,
        })
    }
}

impl Iterator for Arrivals {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.due_ns += (self.gaps.sample(&mut self.rng) * 1e9) as u64;
        let steps = self.steps * self.rng.random_range(0.5..1.5);
        Some(Request {
            due_ns: self.due_ns,
            steps: (steps as u64).max(1),
        })
    }
}

struct Shared {
    page: Arc<SharedPage>,
    arrivals: Mutex<Arrivals>,
    windows: Arc<Windows>,
}

/// `server --page F --threads N --per-second R --service-us S --steps-per-ms K --seed X`; reports `latency`.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", 4)?;
    let service_us: f64 = args.number("service-us", 1000.0)?;
    let per_ms: f64 = args.number("steps-per-ms", 10_000.0)?;
    let start_ns = monotonic_ns() + 20_000_000;
    let arrivals = Arrivals::new(
        args.number("seed", 1)?,
        start_ns,
        args.number("per-second", 100.0)?,
        service_us * per_ms / 1000.0,
    )?;
    let shared = Arc::new(Shared {
        page: Arc::clone(&page),
        arrivals: Mutex::new(arrivals),
        windows: Windows::new(&["latency"]),
    });
    for index in 0..threads {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || serve(&shared, index));
    }
    shared.windows.serve(&page)
}

fn serve(shared: &Shared, index: usize) {
    let page = &shared.page;
    let mut work = Work::new(index as u64 + 1);
    // Touch the buffer before the first request is due.
    work.run(100_000);
    page.check_in();
    let mut served = 0;
    while !page.stopped() {
        let Some(request) = lock(&shared.arrivals).next() else {
            return;
        };
        sleep_until(request.due_ns);
        work.run(request.steps);
        shared
            .windows
            .record(0, monotonic_ns().saturating_sub(request.due_ns));
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
        let of = |seed| {
            Arrivals::new(seed, 500, 2000.0, 10_000.0)
                .expect("a rate")
                .take(n)
        };
        let all: Vec<Request> = of(3).collect();
        let seconds = (all[n - 1].due_ns - 500) as f64 / 1e9;
        assert!((n as f64 / seconds / 2000.0 - 1.0).abs() < 0.02);
        let steps = all.iter().map(|r| r.steps as f64).sum::<f64>() / n as f64;
        assert!((steps / 10_000.0 - 1.0).abs() < 0.01);
        assert!(all.windows(2).all(|w| w[0].due_ns <= w[1].due_ns));
        assert!(of(3).map(|r| r.due_ns).eq(all.iter().map(|r| r.due_ns)));
        assert!(!of(4).map(|r| r.due_ns).eq(all.iter().map(|r| r.due_ns)));
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due() {
        // Requests due at once on one thread: the tenth waits for the nine before it.
        let page = Arc::new(SharedPage::create().expect("a page"));
        let steps = 2.0 * Work::new(1).calibrate(2) as f64;
        let arrivals = Arrivals::new(1, monotonic_ns(), 1e6, steps).expect("a rate");
        let shared = Arc::new(Shared {
            page: Arc::clone(&page),
            arrivals: Mutex::new(arrivals),
            windows: Windows::new(&["latency"]),
        });
        let view = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(&view, 0));
        while page.count() < 10 {
            sleep_until(monotonic_ns() + 2_000_000);
        }
        page.stop();
        thread.join().expect("the worker ends");
        let worst_ns = lock(&shared.windows.named[0].1).max();
        assert!(worst_ns > 10_000_000, "the tenth waited only {worst_ns} ns");
    }
}
