//! Messages to workers, as schbench sends them: each message thread wakes its workers in turn at a fixed rate, whatever
//! they do, and a worker does a request's work and waits for the next. Wakeup latency is from the message to the worker's
//! first instruction, request latency to the end of its work.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;
use serde_json::json;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{Args, attributes, lock, serve_commands};
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use crate::{LabError, dist};

/// What a message thread hands to a worker: when, and the word that it sleeps on.
#[derive(Default)]
struct Inbox {
    sent_ns: AtomicU64,
    full: AtomicU32,
}

impl Inbox {
    /// Sleeps until there is a message; returns when it was sent. A stop wakes it with none.
    fn take(&self, page: &SharedPage) -> Option<u64> {
        while self.full.swap(0, Ordering::Acquire) == 0 {
            if page.stopped() {
                return None;
            }
            wait_on(&self.full, 100_000_000);
        }
        Some(self.sent_ns.load(Ordering::Acquire))
    }

    /// Sends; a worker that has not taken its last message yet is passed over, as it is not asleep.
    fn put(&self, now_ns: u64) -> bool {
        if self.full.load(Ordering::Acquire) != 0 {
            return false;
        }
        self.sent_ns.store(now_ns, Ordering::Release);
        self.full.store(1, Ordering::Release);
        wake(&self.full);
        true
    }
}

fn wait_on(word: &AtomicU32, at_most_ns: i64) {
    let limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: at_most_ns,
    };
    // SAFETY: a futex on a word that outlives the call, with a relative limit that does too.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            0,
            &raw const limit,
        );
    }
}

fn wake(word: &AtomicU32) {
    // SAFETY: wakes at most one sleeper on a word that is alive.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}

struct Bench {
    page: Arc<SharedPage>,
    inboxes: Vec<Inbox>,
    wakeup: Mutex<Histogram<u64>>,
    request: Mutex<Histogram<u64>>,
    missed: AtomicU64,
    spin: Spin,
    amount: u64,
}

/// `schbench --page F --workers N --request-us U --per-second R [--slice-us N]`, with one message thread.
///
/// `measure` starts a window, `report` answers with `{wakeup, request, missed}`.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let workers: usize = args.number("workers", 4)?;
    let request_ns = 1000 * args.number::<u64>("request-us", 1000)?;
    let gap_ns = (1e9 / args.number::<f64>("per-second", 100.0)?.max(1.0)) as u64;
    attributes::set_slice_us(args.number("slice-us", 0)?)?;
    let spin = Spin::calibrated();
    let bench = Arc::new(Bench {
        page: Arc::clone(&page),
        inboxes: (0..workers).map(|_| Inbox::default()).collect(),
        wakeup: Mutex::new(dist::histogram_ns()),
        request: Mutex::new(dist::histogram_ns()),
        missed: AtomicU64::new(0),
        spin,
        amount: spin.blocks_for(request_ns),
    });
    for index in 0..=workers {
        let bench = Arc::clone(&bench);
        std::thread::spawn(move || {
            bench.page.check_in(index);
            match index.checked_sub(1) {
                None => send(&bench, gap_ns),
                Some(worker) => work(&bench, worker),
            }
        });
    }
    serve_commands(&page, |command| {
        let (mut wakeup, mut request) = (lock(&bench.wakeup), lock(&bench.request));
        let missed = bench.missed.load(Ordering::Relaxed);
        let answer = json!({
            "wakeup": dist::summarise_ns(&wakeup), "request": dist::summarise_ns(&request), "missed": missed,
        });
        if command == "measure" {
            wakeup.reset();
            request.reset();
            bench.missed.store(0, Ordering::Relaxed);
        }
        answer
    })
}

fn send(bench: &Bench, gap_ns: u64) {
    let mut due_ns = monotonic_ns();
    for inbox in bench.inboxes.iter().cycle() {
        if bench.page.stopped() {
            return;
        }
        due_ns += gap_ns;
        sleep_until(due_ns);
        if !inbox.put(monotonic_ns()) {
            bench.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn work(bench: &Bench, worker: usize) {
    let slot = bench.page.slot(worker + 1);
    let mut served = 0;
    while let Some(sent_ns) = bench.inboxes[worker].take(&bench.page) {
        let woke_ns = monotonic_ns();
        bench.spin.work(bench.amount);
        let done_ns = monotonic_ns();
        lock(&bench.wakeup).saturating_record(woke_ns.saturating_sub(sent_ns).max(1));
        lock(&bench.request).saturating_record(done_ns.saturating_sub(sent_ns).max(1));
        served += 1;
        slot.publish(thread_cpu_ns(), served);
    }
}
