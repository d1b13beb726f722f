//! A timer task as cyclictest is one: it sleeps until a moment fixed in advance, and how much later it really runs is
//! its latency. Moments that it has missed are left out, as there.

use std::sync::Arc;

use super::shared_page::SharedPage;
use super::{Args, Windows, set_slice_us};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

/// `cyclictest --page F [--interval-us 1000] [--slice-us N]`; reports `wakeup`.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let interval_ns = 1000 * args.number::<u64>("interval-us", 1000)?.max(10);
    set_slice_us(args.number("slice-us", 0)?)?;
    let windows = Windows::new(&["wakeup"]);
    let (theirs, shared) = (Arc::clone(&windows), Arc::clone(&page));
    std::thread::spawn(move || tick(&shared, &theirs, interval_ns));
    windows.serve(&page)
}

fn tick(page: &SharedPage, windows: &Windows, interval_ns: u64) {
    page.check_in();
    let mut due_ns = monotonic_ns() + interval_ns;
    let mut wakeups = 0;
    while !page.stopped() {
        sleep_until(due_ns);
        let late_ns = monotonic_ns().saturating_sub(due_ns);
        windows.record(0, late_ns);
        due_ns += interval_ns * (1 + late_ns / interval_ns);
        wakeups += 1;
        page.slot(0).publish(thread_cpu_ns(), wakeups);
    }
}
