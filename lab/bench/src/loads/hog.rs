//! Work that wants the CPU: all of it, or with a sleep after each stretch, or so much in each
//! period. Each thread tells the longest time for which it wanted to run and did not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::shared_page::{SharedPage, Slot};
use super::spin::{Spin, Stops};
use super::{Args, pin, serve_commands, set_slice_us};
use crate::LabError;
use crate::clock::{monotonic_ns, sleep_until, thread_cpu_ns};

#[derive(Clone, Copy)]
struct Want {
    /// CPU time between two sleeps; 0: it never sleeps.
    work_ns: u64,
    sleep_ns: u64,
    /// ... or that it sleeps until the next multiple of this; what it missed is left out.
    period_ns: u64,
}

/// `hog --page F [--threads N] [--pin 1] [--work-us W (--sleep-us S | --period-us P)] [--slice-us
/// N]`.
///
/// `measure` forgets the stops, `report` answers with the CPU time and the longest stop.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", 1)?;
    let pinned = args.number("pin", 0)? != 0;
    let us = |name| args.number::<u64>(name, 0).map(|us| us * 1000);
    let want = Want {
        work_ns: us("work-us")?,
        sleep_ns: us("sleep-us")?,
        period_ns: us("period-us")?,
    };
    set_slice_us(args.number("slice-us", 0)?)?;
    let longest_ns = Arc::new(AtomicU64::new(0));
    for index in 0..threads {
        let (page, longest_ns) = (Arc::clone(&page), Arc::clone(&longest_ns));
        std::thread::spawn(move || {
            if pinned {
                pin(index);
            }
            page.check_in();
            burn(&page, page.slot(index), want, &longest_ns);
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

fn burn(page: &SharedPage, slot: &Slot, want: Want, longest_ns: &AtomicU64) {
    let spin = Spin::calibrated();
    let mut stops = Stops::new();
    let mut sleep_at_ns = match want.work_ns {
        0 => u64::MAX,
        ns => thread_cpu_ns() + ns,
    };
    let mut period_end_ns = monotonic_ns();
    let mut looks = 0;
    while !page.stopped() {
        spin.a_little();
        let cpu_ns = thread_cpu_ns();
        looks += 1;
        slot.publish(cpu_ns, looks);
        stops.look();
        longest_ns.fetch_max(stops.longest_ns, Ordering::Relaxed);
        stops.longest_ns = 0;
        if cpu_ns < sleep_at_ns {
            continue;
        }
        let now = monotonic_ns();
        if want.period_ns == 0 {
            sleep_until(now + want.sleep_ns);
        } else {
            period_end_ns += want.period_ns;
            period_end_ns = period_end_ns.max(now.saturating_sub(want.period_ns));
            sleep_until(period_end_ns);
        }
        stops.slept();
        sleep_at_ns = thread_cpu_ns() + want.work_ns;
    }
}
