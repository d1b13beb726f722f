//! Side work that always wants more: threads that never sleep, and count what they did.

use std::sync::Arc;

use serde_json::json;

use super::shared_page::SharedPage;
use super::spin::{self, Spin};
use super::{Args, serve_commands};
use crate::LabError;
use crate::clock::thread_cpu_ns;

/// Turns of the inner loop between two looks at the clock: 10–20 µs of work.
const TURNS: u32 = 8_000;

/// `burner --page F --threads N`.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let threads: usize = args.number("threads", 1)?;
    for index in 0..threads {
        let page = Arc::clone(&page);
        std::thread::spawn(move || burn(&page, index));
    }
    serve_commands(
        &page,
        |_| json!({"cpu_ns": page.cpu_ns(), "loops": page.count()}),
    )
}

/// Burns until the page says stop.
pub fn burn(page: &SharedPage, index: usize) {
    page.check_in(index);
    let slot = page.slot(index);
    let nops = spin::by_nops().then(Spin::calibrated);
    let (mut x, mut loops) = (index as u64 | 1, 0u64);
    while !page.stopped() {
        match nops {
            Some(spin) => spin.a_little(),
            None => {
                for _ in 0..TURNS {
                    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (x >> 31);
                }
                x = std::hint::black_box(x);
            }
        }
        loops += 1;
        slot.publish(thread_cpu_ns(), loops);
    }
}
