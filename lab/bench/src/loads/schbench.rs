//! Messages to workers, as schbench sends them: each message thread wakes its workers in turn at a fixed rate, whatever
//! they do, and a worker does a request's work and waits for the next. Wakeup latency is from the message to the worker's
//! first instruction, request latency to the end of its work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{Args, Windows, set_slice_us};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

#[derive(Default)]
struct Inbox {
    /// When the message was sent; 0: there is none.
    sent_ns: AtomicU64,
    worker: OnceLock<Thread>,
}

impl Inbox {
    /// Sleeps until there is a message; returns when it was sent. A stop wakes it with none.
    fn take(&self, page: &SharedPage) -> Option<u64> {
        self.worker.get_or_init(thread::current);
        loop {
            match self.sent_ns.swap(0, Ordering::AcqRel) {
                0 if page.stopped() => return None,
                0 => thread::park_timeout(Duration::from_millis(100)),
                sent_ns => return Some(sent_ns),
            }
        }
    }

    /// Sends; a worker that has not taken its last message yet is passed over, as it is not asleep.
    fn put(&self, now_ns: u64) {
        if self.sent_ns.load(Ordering::Acquire) == 0 {
            self.sent_ns.store(now_ns, Ordering::Release);
            if let Some(worker) = self.worker.get() {
                worker.unpark();
            }
        }
    }
}

struct Bench {
    page: Arc<SharedPage>,
    inboxes: Vec<Inbox>,
    windows: Arc<Windows>,
    spin: Spin,
    amount: u64,
}

/// `schbench --page F --workers N --request-us U --per-second R [--slice-us N]`, with one message thread; reports `wakeup` and
/// `request`.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let workers: usize = args.number("workers", 4)?;
    let request_ns = 1000 * args.number::<u64>("request-us", 1000)?;
    let gap_ns = (1e9 / args.number::<f64>("per-second", 100.0)?.max(1.0)) as u64;
    set_slice_us(args.number("slice-us", 0)?)?;
    let spin = Spin::calibrated();
    let bench = Arc::new(Bench {
        page: Arc::clone(&page),
        inboxes: (0..workers).map(|_| Inbox::default()).collect(),
        windows: Windows::new(&["wakeup", "request"]),
        spin,
        amount: spin.blocks_for(request_ns),
    });
    for index in 0..=workers {
        let bench = Arc::clone(&bench);
        thread::spawn(move || {
            bench.page.check_in();
            match index.checked_sub(1) {
                None => send(&bench, gap_ns),
                Some(worker) => work(&bench, worker),
            }
        });
    }
    bench.windows.serve(&page)
}

fn send(bench: &Bench, gap_ns: u64) {
    let mut due_ns = monotonic_ns();
    for inbox in bench.inboxes.iter().cycle() {
        if bench.page.stopped() {
            return;
        }
        due_ns += gap_ns;
        sleep_until(due_ns);
        inbox.put(monotonic_ns());
    }
}

fn work(bench: &Bench, worker: usize) {
    let slot = bench.page.slot(worker + 1);
    let mut served = 0;
    while let Some(sent_ns) = bench.inboxes[worker].take(&bench.page) {
        bench
            .windows
            .record(0, monotonic_ns().saturating_sub(sent_ns));
        bench.spin.work(bench.amount);
        bench
            .windows
            .record(1, monotonic_ns().saturating_sub(sent_ns));
        served += 1;
        slot.publish(thread_cpu_ns(), served);
    }
}
