//! A service whose load comes in batches, open loop: requests are due when the batches say so, whatever the service does.
//! Every second batch or so is large, so that some periods of a quota ask for more than it while the mean does not.
//! Latency runs from when a request was *due*: to when a free thread took it up (wakeup), and to its end (request).

use std::sync::{Arc, Mutex};

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256StarStar;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{Args, Windows, lock};
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use crate::{LabError, seeded};

/// The batches' shape: the same as in the simulator's experiment.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// From one batch to the next.
    pub gap_ns: u64,
    /// A batch is due over this long.
    pub spread_ns: u64,
    /// Requests of most batches.
    pub small: u64,
    /// ... and of one in three.
    pub large: u64,
}

impl Batches {
    /// The simulator's.
    pub const PLAN: Batches = Batches {
        gap_ns: 40_000_000,
        spread_ns: 20_000_000,
        small: 15,
        large: 30,
    };

    /// Mean requests a second.
    pub fn per_second(&self) -> f64 {
        let mean = (2 * self.small + self.large) as f64 / 3.0;
        mean * 1e9 / self.gap_ns as f64
    }
}

/// When requests are due, in order, without end.
struct Arrivals {
    plan: Batches,
    rng: Xoshiro256StarStar,
    next_batch_ns: u64,
    /// The batch at hand, latest first.
    due_ns: Vec<u64>,
}

impl Arrivals {
    fn new(plan: Batches, seed: u64, start_ns: u64) -> Self {
        Arrivals {
            plan,
            rng: seeded(seed),
            next_batch_ns: start_ns,
            due_ns: Vec::new(),
        }
    }

    fn next(&mut self) -> u64 {
        loop {
            if let Some(due_ns) = self.due_ns.pop() {
                return due_ns;
            }
            let size = if self.rng.random_ratio(1, 3) {
                self.plan.large
            } else {
                self.plan.small
            };
            let from_ns = self.next_batch_ns;
            self.due_ns
                .extend((0..size).map(|_| from_ns + self.rng.random_range(0..self.plan.spread_ns)));
            self.due_ns.sort_unstable_by(|a, b| b.cmp(a));
            self.next_batch_ns += self.plan.gap_ns;
        }
    }
}

struct Service {
    page: Arc<SharedPage>,
    arrivals: Mutex<Arrivals>,
    windows: Arc<Windows>,
    spin: Spin,
    amount: u64,
}

/// `bursty --page F --threads N --request-us U --seed X`; reports `wakeup` and `request`.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", 30)?;
    let request_ns = 1000 * args.number::<u64>("request-us", 571)?;
    let spin = Spin::calibrated();
    let start_ns = monotonic_ns() + 50_000_000;
    let arrivals = Arrivals::new(Batches::PLAN, args.number("seed", 1)?, start_ns);
    let service = Arc::new(Service {
        page: Arc::clone(&page),
        arrivals: Mutex::new(arrivals),
        windows: Windows::new(&["wakeup", "request"]),
        spin,
        amount: spin.blocks_for(request_ns),
    });
    for index in 0..threads {
        let service = Arc::clone(&service);
        std::thread::spawn(move || serve(&service, index));
    }
    service.windows.serve(&page)
}

fn serve(service: &Service, index: usize) {
    service.page.check_in();
    let mut served = 0;
    while !service.page.stopped() {
        let due_ns = lock(&service.arrivals).next();
        sleep_until(due_ns);
        service
            .windows
            .record(0, monotonic_ns().saturating_sub(due_ns));
        service.spin.work(service.amount);
        service
            .windows
            .record(1, monotonic_ns().saturating_sub(due_ns));
        served += 1;
        service.page.slot(index).publish(thread_cpu_ns(), served);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_their_rate_their_order_and_their_seed() {
        let of = |seed| {
            let mut a = Arrivals::new(Batches::PLAN, seed, 7);
            (0..50_000).map(|_| a.next()).collect::<Vec<u64>>()
        };
        let due = of(3);
        assert!(due.windows(2).all(|w| w[0] <= w[1]));
        let rate = due.len() as f64 / (due[due.len() - 1] as f64 / 1e9);
        assert!(
            (rate / Batches::PLAN.per_second() - 1.0).abs() < 0.02,
            "{rate} a second"
        );
        assert_eq!(due, of(3));
        assert_ne!(due, of(4));
    }

    #[test]
    fn some_periods_ask_for_more_than_seven_fifths_of_the_mean() {
        let mut arrivals = Arrivals::new(Batches::PLAN, 1, 0);
        let mut asked = vec![0u64; 2000];
        loop {
            let period = (arrivals.next() / 100_000_000) as usize;
            match asked.get_mut(period) {
                Some(n) => *n += 1,
                None => break,
            }
        }
        let mean = asked.iter().sum::<u64>() as f64 / asked.len() as f64;
        let over = asked.iter().filter(|n| **n as f64 > 1.4 * mean).count();
        let pct = 100.0 * over as f64 / asked.len() as f64;
        assert!((5.0..25.0).contains(&pct), "{pct} %");
    }
}
