//! A sensor whose figures a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_engine::sense::{Counters, Group as SensedGroup, SenseError, Sensor};

/// Two CPUs whose use a test sets; time passes 5 ms a reading.
#[derive(Clone, Default)]
pub struct FakeSensor {
    pub main_ppm: Arc<AtomicU64>,
    pub side_ppm: Arc<AtomicU64>,
    pub fails: Arc<AtomicBool>,
    /// It tells how long main waits: half as long as it runs.
    pub tells_waits: Arc<AtomicBool>,
    counters: Counters,
}

pub const STEP_NS: u64 = 5_000_000;
pub const CPUS: u64 = 2;

impl Sensor for FakeSensor {
    fn sample(&mut self, out: &mut Counters) -> Result<(), SenseError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(SenseError::TooManyGroups { count: 9, max: 8 });
        }
        let capacity_ns = CPUS * STEP_NS;
        let part = |ppm: &AtomicU64| capacity_ns * ppm.load(Ordering::Relaxed) / 1_000_000;
        let (main_ns, side_ns) = (part(&self.main_ppm), part(&self.side_ppm));
        let counters = &mut self.counters;
        counters.now_ns = counters.now_ns.max(1_000_000_000) + STEP_NS;
        counters.online_cpus = CPUS as u32;
        counters.capacity_ns += capacity_ns;
        counters.busy_ns += (main_ns + side_ns).min(capacity_ns);
        counters.side_ns += side_ns;
        counters.main_ns += main_ns;
        if self.tells_waits.load(Ordering::Relaxed) {
            counters.waits.runs += 10;
            counters.waits.wait_ns += main_ns / 2;
        }
        counters.valid = true;
        *out = *counters;
        Ok(())
    }
    fn set_groups(&mut self, _: &[SensedGroup], _: &[SensedGroup]) -> Result<(), SenseError> {
        Ok(())
    }
    fn kind(&self) -> &'static str {
        "bpf"
    }
    fn min_window_ns(&self) -> u64 {
        STEP_NS
    }
    fn tells_waits(&self) -> bool {
        self.tells_waits.load(Ordering::Relaxed)
    }
    fn online_cpus(&self) -> u32 {
        CPUS as u32
    }
}
