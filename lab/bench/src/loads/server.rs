//! An open-loop server: requests are due when a seeded Poisson process says so, whatever the server
//! does, and a request's latency runs from when it was *due*. (A generator that waits for the last
//! answer before it sends the next would hide every stall.)
//!
//! Worker threads take arrivals in order: a free thread takes the next one and sleeps until it is
//! due; when all are busy, arrivals wait in the order in which they came.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;
use serde_json::json;

use super::shared_page::SharedPage;
use super::work::Work;
use super::{Args, lock, serve_commands};
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use crate::rng::Rng;
use crate::{LabError, dist};

/// Arrivals: each call gives the next request, when it is due and how much work it is.
pub struct Arrivals {
    rng: Rng,
    due_ns: u64,
    gap_mean_ns: f64,
    steps_per_ms: u64,
    service_us: f64,
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
    /// Requests of `service_us` on average (uniform in 0.5…1.5 of it), `per_second` of them, from
    /// `start_ns` on.
    pub fn new(
        seed: u64,
        start_ns: u64,
        per_second: f64,
        service_us: f64,
        steps_per_ms: u64,
    ) -> Self {
        let gap_mean_ns = 1e9 / per_second.max(0.001);
        Arrivals {
            rng: Rng::new(seed),
            due_ns: start_ns,
            gap_mean_ns,
            steps_per_ms,
            service_us,
        }
    }
}

impl Iterator for Arrivals {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.due_ns += self.rng.exponential_ns(self.gap_mean_ns);
        let us = self.service_us * (0.5 + self.rng.unit());
        let steps = (us * self.steps_per_ms as f64 / 1000.0) as u64;
        Some(Request {
            due_ns: self.due_ns,
            steps: steps.max(1),
        })
    }
}

struct Shared {
    page: Arc<SharedPage>,
    arrivals: Mutex<Arrivals>,
    window: Mutex<Histogram<u64>>,
    offered: AtomicU64,
}

/// `server --page F --threads N --per-second R --service-us S --steps-per-ms K --seed X`.
///
/// `measure` starts a window, `report` ends it and answers with a [`dist::Latency`].
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", 4)?;
    let service_us: f64 = args.number("service-us", 1000.0)?;
    let start_ns = monotonic_ns() + 20_000_000;
    let arrivals = Arrivals::new(
        args.number("seed", 1)?,
        start_ns,
        args.number("per-second", 100.0)?,
        service_us,
        args.number("steps-per-ms", 10_000)?,
    );
    let shared = Arc::new(Shared {
        page: Arc::clone(&page),
        arrivals: Mutex::new(arrivals),
        window: Mutex::new(dist::histogram()),
        offered: AtomicU64::new(0),
    });
    for index in 0..threads {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || serve(&shared, index));
    }
    let (mut wall_ns, mut cpu_ns, mut offered) = (monotonic_ns(), 0, 0);
    serve_commands(&page, |command| {
        let mut window = lock(&shared.window);
        let mut latency = dist::summarise(&window);
        let now = monotonic_ns();
        latency.window_ns = now - wall_ns;
        latency.cpu_ns = page.cpu_ns() - cpu_ns;
        latency.offered = shared.offered.load(Ordering::Relaxed) - offered;
        if command == "measure" {
            window.reset();
            (wall_ns, cpu_ns) = (now, page.cpu_ns());
            offered = shared.offered.load(Ordering::Relaxed);
        }
        json!(latency)
    })
}

fn serve(shared: &Shared, index: usize) {
    let page = &shared.page;
    let slot = page.slot(index);
    let mut work = Work::new(index as u64 + 1);
    // Touch the buffer before the first request is due.
    work.run(100_000);
    page.check_in(index);
    let mut served = 0;
    while !page.stopped() {
        let Some(request) = lock(&shared.arrivals).next() else {
            return;
        };
        sleep_until(request.due_ns);
        shared.offered.fetch_add(1, Ordering::Relaxed);
        work.run(request.steps);
        let latency_us = monotonic_ns().saturating_sub(request.due_ns).div_ceil(1000);
        // Past the histogram's ten minutes the value saturates instead of being lost.
        lock(&shared.window).saturating_record(latency_us);
        served += 1;
        slot.publish(thread_cpu_ns(), served);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_and_their_work() {
        let n = 100_000;
        let all: Vec<Request> = Arrivals::new(3, 500, 2000.0, 1000.0, 10_000)
            .take(n)
            .collect();
        let seconds = (all[n - 1].due_ns - 500) as f64 / 1e9;
        assert!((n as f64 / seconds / 2000.0 - 1.0).abs() < 0.02);
        let steps = all.iter().map(|r| r.steps as f64).sum::<f64>() / n as f64;
        assert!((steps / 10_000.0 - 1.0).abs() < 0.01);
        assert!(all.windows(2).all(|w| w[0].due_ns <= w[1].due_ns));
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let due = |seed| {
            Arrivals::new(seed, 0, 500.0, 1000.0, 10_000)
                .take(50)
                .map(|r| r.due_ns)
                .collect::<Vec<_>>()
        };
        assert_eq!(due(4), due(4));
        assert_ne!(due(4), due(5));
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due() {
        // Ten requests due at once on one thread: the last waits for the nine before it.
        let page = Arc::new(SharedPage::create().expect("a page"));
        let steps_per_ms = Work::new(1).calibrate(2);
        let shared = Arc::new(Shared {
            page: Arc::clone(&page),
            arrivals: Mutex::new(Arrivals::new(1, monotonic_ns(), 1e6, 2000.0, steps_per_ms)),
            window: Mutex::new(dist::histogram()),
            offered: AtomicU64::new(0),
        });
        let view = Arc::clone(&shared);
        let thread = std::thread::spawn(move || serve(&view, 0));
        while lock(&shared.window).len() < 10 {
            sleep_until(monotonic_ns() + 2_000_000);
        }
        page.stop();
        thread.join().expect("the worker ends");
        let worst = lock(&shared.window).max();
        assert!(worst > 10_000, "the tenth waited only {worst} us");
    }
}
