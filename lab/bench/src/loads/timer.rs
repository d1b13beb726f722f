//! Threads with timers, as cyclictest and the fibtest of commit de53fd7aedb1 have them: a thread
//! sleeps until a moment fixed in advance, does a little work, and how much later than the moment
//! that is done is its latency. Moments that it has missed are left out, as there. The first
//! threads may compute without end instead.

use std::sync::Arc;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{Args, Windows, pin, set_slice_us};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

struct Timer {
    start_ns: u64,
    interval_ns: u64,
    /// Blocks of [`Spin`] at each moment.
    amount: u64,
    spin: Spin,
}

/// `timer --page F [--threads N] [--busy B] [--work-us W] [--interval-us P] [--pin 1] [--slice-us
/// N]`; reports `latency`. Pinned, thread n is on CPU n.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", 1)?;
    let busy: usize = args.number("busy", 0)?;
    let pinned = args.number("pin", 0)? != 0;
    let work_ns = 1000 * args.number::<u64>("work-us", 0)?;
    set_slice_us(args.number("slice-us", 0)?)?;
    let windows = Windows::new(&["latency"]);
    let spin = Spin::calibrated();
    let timer = Arc::new(Timer {
        start_ns: monotonic_ns() + 50_000_000,
        interval_ns: 1000 * args.number::<u64>("interval-us", 1000)?.max(10),
        amount: if work_ns == 0 {
            0
        } else {
            spin.blocks_for(work_ns)
        },
        spin,
    });
    for index in 0..threads {
        let (page, windows, timer) = (Arc::clone(&page), Arc::clone(&windows), Arc::clone(&timer));
        std::thread::spawn(move || {
            if pinned {
                pin(index);
            }
            page.check_in();
            match index < busy {
                true => compute(&page, index, spin),
                false => tick(&page, index, &windows, &timer),
            }
        });
    }
    windows.serve(&page)
}

fn compute(page: &SharedPage, index: usize, spin: Spin) {
    while !page.stopped() {
        spin.a_little();
        page.slot(index).publish(thread_cpu_ns(), 0);
    }
}

fn tick(page: &SharedPage, index: usize, windows: &Windows, timer: &Timer) {
    let (mut due_ns, mut ticks) = (timer.start_ns, 0);
    while !page.stopped() {
        sleep_until(due_ns);
        timer.spin.work(timer.amount);
        let late_ns = monotonic_ns().saturating_sub(due_ns);
        windows.record(0, late_ns);
        ticks += 1;
        page.slot(index).publish(thread_cpu_ns(), ticks);
        due_ns += timer.interval_ns * (1 + late_ns / timer.interval_ns);
    }
}
