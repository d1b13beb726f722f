//! A thread with a timer, as cyclictest has it: it sleeps until a moment fixed in advance, and how
//! much later it runs is its latency. Moments that it has missed are left out, as there.

use std::sync::Arc;

use super::Windows;
use super::shared_page::SharedPage;
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

const INTERVAL_NS: u64 = 1_000_000;

/// Reports `wakeup`.
pub fn run(page: Arc<SharedPage>) -> Result<(), LabError> {
    let windows = Windows::new(&["wakeup"]);
    let (own, waits) = (Arc::clone(&page), Arc::clone(&windows));
    std::thread::spawn(move || {
        own.check_in();
        tick(&own, &waits);
    });
    windows.serve(&page)
}

fn tick(page: &SharedPage, windows: &Windows) {
    let mut due_ns = monotonic_ns() + 50_000_000;
    let mut ticks = 0;
    while !page.stopped() {
        sleep_until(due_ns);
        let late_ns = monotonic_ns().saturating_sub(due_ns);
        windows.record(0, late_ns);
        ticks += 1;
        page.slot(0).publish(thread_cpu_ns(), ticks);
        due_ns += INTERVAL_NS * (1 + late_ns / INTERVAL_NS);
    }
}
