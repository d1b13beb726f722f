//! Threads with timers, as cyclictest and the fibtest of commit de53fd7aedb1 have them: a thread
//! sleeps until a moment fixed in advance, does a little work, and how much later than the moment
//! that is done is its latency. Moments that it has missed are left out, as there. The first
//! threads may compute without end instead.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::shared_page::SharedPage;
use super::spin::Spin;
use super::{Windows, pin};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    pub interval_us: u64,
    /// Work at each moment.
    pub work_us: u64,
    /// So many threads compute without end.
    pub busy: usize,
    /// Thread n stays on CPU n.
    pub is_pinned: bool,
}

/// Reports `latency`.
pub fn run(page: Arc<SharedPage>, threads: usize, options: Options) -> Result<(), LabError> {
    let windows = Windows::new(&["latency"]);
    let spin = Spin::calibrated();
    let start_ns = monotonic_ns() + 50_000_000;
    for index in 0..threads {
        let (page, windows) = (Arc::clone(&page), Arc::clone(&windows));
        std::thread::spawn(move || {
            if options.is_pinned {
                pin(index);
            }
            page.check_in();
            match index < options.busy {
                true => compute(&page, index, spin),
                false => tick(&page, index, &windows, spin, (start_ns, options)),
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

fn tick(
    page: &SharedPage,
    index: usize,
    windows: &Windows,
    spin: Spin,
    (mut due_ns, options): (u64, Options),
) {
    let interval_ns = options.interval_us * 1000;
    let mut ticks = 0;
    while !page.stopped() {
        sleep_until(due_ns);
        if options.work_us > 0 {
            spin.work(spin.blocks_for(options.work_us * 1000));
        }
        let late_ns = monotonic_ns().saturating_sub(due_ns);
        windows.record(0, late_ns);
        ticks += 1;
        page.slot(index).publish(thread_cpu_ns(), ticks);
        due_ns += interval_ns * (1 + late_ns / interval_ns);
    }
}
