//! Work that wants the CPU: all of it, or with a sleep after each stretch. Each thread tells the
//! longest time for which it wanted to run and did not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shared_page::{SharedPage, Slot};
use super::spin::Spin;
use super::{pin, serve_commands};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    /// Thread n stays on CPU n.
    pub is_pinned: bool,
    /// CPU time between two sleeps; 0: it never sleeps.
    pub work_us: u64,
    pub sleep_us: u64,
}

/// `measure` forgets the stops, `report` answers with the CPU time and the longest stop.
pub fn run(page: Arc<SharedPage>, threads: usize, options: Options) -> Result<(), LabError> {
    let longest_ns = Arc::new(AtomicU64::new(0));
    for index in 0..threads {
        let (page, longest_ns) = (Arc::clone(&page), Arc::clone(&longest_ns));
        std::thread::spawn(move || {
            if options.is_pinned {
                pin(index);
            }
            page.check_in();
            burn(&page, page.slot(index), options, &longest_ns);
        });
    }
    serve_commands(&page, |command| {
        if command == "measure" {
            longest_ns.store(0, Ordering::Relaxed);
        }
        let us = longest_ns.load(Ordering::Relaxed) as f64 / 1000.0;
        json!({"cpu_ns": page.cpu_ns(), "longest_stop_us": us})
    })
}

fn burn(page: &SharedPage, slot: &Slot, options: Options, longest_ns: &AtomicU64) {
    let work_ns = options.work_us * 1000;
    let spin = Spin::calibrated();
    // When it was last seen to run, or to end a sleep of its own.
    let mut last_ns = monotonic_ns();
    let mut sleep_at_ns = match work_ns {
        0 => u64::MAX,
        ns => thread_cpu_ns() + ns,
    };
    let mut looks = 0;
    while !page.stopped() {
        spin.a_little();
        let cpu_ns = thread_cpu_ns();
        looks += 1;
        slot.publish(cpu_ns, looks);
        let now = monotonic_ns();
        longest_ns.fetch_max(now.saturating_sub(last_ns), Ordering::Relaxed);
        last_ns = now;
        if cpu_ns < sleep_at_ns {
            continue;
        }
        sleep_until(now + options.sleep_us * 1000);
        last_ns = monotonic_ns();
        sleep_at_ns = thread_cpu_ns() + work_ns;
    }
}
