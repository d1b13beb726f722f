//! The fibtest of commit de53fd7aedb1: a thread on each CPU, of which the first few compute without end and the others do a
//! little work, all at the same moments, and sleep. How long that little takes from the moment at which it was due is what a quota can spoil.

use std::sync::Arc;

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{Args, Windows, pin};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

/// `fibtest --page F --threads N [--busy B] [--work-us W] [--period-us P]`; thread n is on CPU n, and the busy ones are
/// the first. Reports `latency`.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", 1)?;
    let busy: usize = args.number("busy", 1)?;
    let work_ns = 1000 * args.number::<u64>("work-us", 1)?;
    let period_ns = 1000 * args.number::<u64>("period-us", 10_000)?.max(100);
    let windows = Windows::new(&["latency"]);
    let spin = Spin::calibrated();
    let start_ns = monotonic_ns() + 50_000_000;
    for index in 0..threads {
        let (page, windows) = (Arc::clone(&page), Arc::clone(&windows));
        std::thread::spawn(move || {
            pin(index);
            page.check_in();
            match index < busy {
                true => compute(&page, index, spin),
                false => now_and_then(&page, index, &windows, spin, (start_ns, work_ns, period_ns)),
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

fn now_and_then(
    page: &SharedPage,
    index: usize,
    windows: &Windows,
    spin: Spin,
    (start_ns, work_ns, period_ns): (u64, u64, u64),
) {
    let amount = spin.blocks_for(work_ns);
    let (mut due_ns, mut turns) = (start_ns, 0);
    while !page.stopped() {
        sleep_until(due_ns);
        spin.work(amount);
        let late_ns = monotonic_ns().saturating_sub(due_ns);
        windows.record(0, late_ns);
        turns += 1;
        page.slot(index).publish(thread_cpu_ns(), turns);
        // Moments that it has missed are left out, as fibtest's sleeps are.
        due_ns += period_ns * (1 + late_ns / period_ns);
    }
}
