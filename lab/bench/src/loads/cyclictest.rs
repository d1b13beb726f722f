//! A timer task as cyclictest is one: it sleeps until a moment fixed in advance, and how much later it really runs is
//! its latency. Moments that it has missed are left out, as there.

use std::sync::{Arc, Mutex};

use hdrhistogram::Histogram;

use super::shared_page::SharedPage;
use super::{Args, attributes, lock, pin, serve_window};
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use crate::{LabError, dist};

/// `cyclictest --page F [--interval-us 1000] [--pin 1] [--slice-us N]`.
///
/// `measure` starts a window, `report` answers with a [`dist::Latency`] of it.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let interval_ns = 1000 * args.number::<u64>("interval-us", 1000)?.max(10);
    let pinned = args.number("pin", 0)? != 0;
    attributes::set_slice_us(args.number("slice-us", 0)?)?;
    let window = Arc::new(Mutex::new(dist::histogram_ns()));
    let (theirs, shared) = (Arc::clone(&window), Arc::clone(&page));
    std::thread::spawn(move || {
        if pinned {
            pin(0);
        }
        tick(&shared, &theirs, interval_ns);
    });
    serve_window(&page, &window, Some(interval_ns))
}

fn tick(page: &SharedPage, window: &Mutex<Histogram<u64>>, interval_ns: u64) {
    page.check_in(0);
    let slot = page.slot(0);
    let mut due_ns = monotonic_ns() + interval_ns;
    let mut wakeups = 0;
    while !page.stopped() {
        sleep_until(due_ns);
        let now = monotonic_ns();
        let late_ns = now.saturating_sub(due_ns);
        lock(window).saturating_record(late_ns.max(1));
        due_ns += interval_ns * (1 + late_ns / interval_ns);
        wakeups += 1;
        slot.publish(thread_cpu_ns(), wakeups);
    }
}
