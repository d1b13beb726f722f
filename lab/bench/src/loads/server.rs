//! An open-loop server: requests are due when a seeded plan says so, whatever the server does, and
//! a request's latency runs from when it was *due*. (A generator that waits for the last answer
//! before it sends the next would hide every stall.) The plan is a Poisson process, or batches of
//! which some ask for more than a quota.
//!
//! Worker threads take arrivals in order: a free thread takes the next one and sleeps until it is
//! due; when all are busy, arrivals wait in the order in which they came.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tidegate_sim::Prng;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{Windows, lock};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

/// The batches: the time between two, the time over which one is due, and the requests of most and
/// of one in three.
const BATCH_GAP_NS: u64 = 40_000_000;
const BATCH_SPREAD_NS: u64 = 20_000_000;
const BATCH_SMALL: u64 = 15;
const BATCH_LARGE: u64 = 30;
/// Longer than any window.
const BATCHES_NS: u64 = 600_000_000_000;

/// When the requests of batches are due, here and on the simulator.
pub fn batches(seed: u64, length_ns: u64) -> Vec<u64> {
    let mut rng = Prng::new(seed);
    let mut due_ns = Vec::new();
    for from_ns in (0..length_ns).step_by(BATCH_GAP_NS as usize) {
        let is_large = rng.below(3) == 0;
        let count = if is_large { BATCH_LARGE } else { BATCH_SMALL };
        due_ns.extend((0..count).map(|_| from_ns + rng.below(BATCH_SPREAD_NS)));
    }
    due_ns.sort_unstable();
    due_ns
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    due_ns: u64,
    /// Its work, in parts per thousand of the mean.
    size_ppt: u64,
}

type Arrivals = Box<dyn Iterator<Item = Request> + Send>;

/// A rate of 0 means batches.
fn arrivals(seed: u64, start_ns: u64, per_second: f64) -> Arrivals {
    if per_second == 0.0 {
        let due = batches(seed, BATCHES_NS).into_iter();
        return Box::new(due.map(move |due_ns| Request {
            due_ns: start_ns + due_ns,
            size_ppt: 1_000,
        }));
    }
    let gap_ns = (1e9 / per_second) as u64;
    let (mut rng, mut due_ns) = (Prng::new(seed), start_ns);
    Box::new(std::iter::repeat_with(move || {
        due_ns += rng.exp_ns(gap_ns);
        let size_ppt = rng.between(500, 1_500);
        Request { due_ns, size_ppt }
    }))
}

struct Server {
    page: Arc<SharedPage>,
    arrivals: Mutex<Arrivals>,
    windows: Arc<Windows>,
    spin: Spin,
    /// A mean request, in blocks of [`Spin`].
    blocks: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Options {
    /// 0: batches.
    pub per_second: f64,
    pub request_us: f64,
    pub seed: u64,
}

/// Reports `wakeup` (a free thread took the request) and `latency`.
pub fn run(page: Arc<SharedPage>, threads: usize, options: Options) -> Result<(), LabError> {
    let start_ns = monotonic_ns() + 50_000_000;
    let arrivals = arrivals(options.seed, start_ns, options.per_second);
    let spin = Spin::calibrated();
    let server = Arc::new(Server {
        page: Arc::clone(&page),
        arrivals: Mutex::new(arrivals),
        windows: Windows::new(&["wakeup", "latency"]),
        spin,
        blocks: spin.blocks_for((options.request_us * 1000.0) as u64),
    });
    for index in 0..threads {
        let server = Arc::clone(&server);
        std::thread::spawn(move || serve(&server, index));
    }
    server.windows.serve(&page)
}

fn serve(server: &Server, index: usize) {
    let page = &server.page;
    page.check_in();
    let mut served = 0;
    while !page.stopped() {
        let Some(request) = lock(&server.arrivals).next() else {
            return;
        };
        let late_ns = || monotonic_ns().saturating_sub(request.due_ns);
        sleep_until(request.due_ns);
        server.windows.record(0, late_ns());
        // A request is below a second: fewer than 2^30 blocks.
        server
            .spin
            .work((server.blocks * request.size_ppt / 1_000).max(1));
        server.windows.record(1, late_ns());
        served += 1;
        page.slot(index).publish(thread_cpu_ns(), served);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{MS, S};

    #[test]
    fn arrivals_keep_their_rate_their_work_and_their_seed() {
        let n = 100_000;
        let batches = (2 * BATCH_SMALL + BATCH_LARGE) as f64 / 3.0 * 1e9 / BATCH_GAP_NS as f64;
        for (per_second, rate) in [(2000.0, 2000.0), (0.0, batches)] {
            let of = |seed| -> Vec<Request> { arrivals(seed, 500, per_second).take(n).collect() };
            let all = of(3);
            let seconds = (all[n - 1].due_ns - 500) as f64 / 1e9;
            assert!((n as f64 / seconds / rate - 1.0).abs() < 0.02, "{rate}");
            let size = all.iter().map(|r| r.size_ppt as f64).sum::<f64>() / n as f64;
            assert!((size - 1e3).abs() < 10.0, "{size}");
            assert!(all.windows(2).all(|w| w[0].due_ns <= w[1].due_ns));
            assert!(of(3) == all && of(4) != all);
        }
    }

    #[test]
    fn batches_exceed_the_quota_now_and_then_and_not_on_average() {
        let length_ns = 600 * S;
        let due = batches(1, length_ns);
        let mean = due.len() as f64 * 10e6 / length_ns as f64;
        assert!((4.8..5.2).contains(&mean), "{mean} CPUs");
        let mut asked = vec![0u64; 6000];
        for due_ns in due {
            if let Some(period) = asked.get_mut((due_ns / (100 * MS)) as usize) {
                *period += 10 * MS;
            }
        }
        let over = asked.iter().filter(|ns| **ns > 700 * MS).count() as f64 / 6000.0;
        assert!((0.05..0.25).contains(&over), "{over} of the periods");
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due() {
        // Requests due at once on one thread: the tenth waits for the nine before it.
        let page = Arc::new(SharedPage::create().expect("a page"));
        let arrivals = arrivals(1, monotonic_ns(), 1e6);
        let spin = Spin::calibrated();
        let server = Arc::new(Server {
            page: Arc::clone(&page),
            arrivals: Mutex::new(arrivals),
            windows: Windows::new(&["wakeup", "latency"]),
            spin,
            blocks: spin.blocks_for(2_000_000),
        });
        let view = Arc::clone(&server);
        let thread = std::thread::spawn(move || serve(&view, 0));
        while page.count() < 10 {
            sleep_until(monotonic_ns() + 2_000_000);
        }
        page.stop();
        thread.join().expect("the worker ends");
        let worst_ns = lock(&server.windows.named[1].1).max_ns();
        assert!(worst_ns > 10_000_000, "the tenth waited only {worst_ns} ns");
    }
}
