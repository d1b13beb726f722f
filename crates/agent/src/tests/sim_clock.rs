//! Simulated time, and the agent's threads in it: each runs its own loop, and its pauses take none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_engine::clock::Clock;
use tidegate_engine::sync::lock;

use super::life::steps;
use super::{Bed, KINDS, Kind, PIDS, run_limited};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::threads;

const S: u64 = 1_000_000_000;

/// A clock that passes only by its sleeps.
pub struct SimClock {
    now_ns: AtomicU64,
    /// From when on which flag is set.
    end: Mutex<Option<(u64, Arc<AtomicBool>)>>,
}

impl Default for SimClock {
    fn default() -> SimClock {
        // A machine that has been up for a while: nothing was looked at lately.
        SimClock {
            now_ns: AtomicU64::new(1_000 * S),
            end: Mutex::default(),
        }
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn sleep(&self, span: Duration) {
        let span_ns = u64::try_from(span.as_nanos()).unwrap();
        let now_ns = self.now_ns.fetch_add(span_ns, Ordering::Relaxed) + span_ns;
        if let Some((end_ns, flag)) = &*lock(&self.end)
            && now_ns >= *end_ns
        {
            flag.store(true, Ordering::Release);
        }
    }
}

impl SimClock {
    /// Runs one of the agent's threads for so long, as if the agent left then.
    fn run(&self, agent: &Agent, span_ns: u64, thread: impl FnOnce()) {
        let end_ns = self.now_ns() + span_ns;
        *lock(&self.end) = Some((end_ns, Arc::clone(&agent.life.leaving)));
        thread();
        *lock(&self.end) = None;
        agent.life.leaving.store(false, Ordering::Release);
    }
}

/// The bed in simulated time, and its clock.
pub(super) fn in_time(bed: Bed) -> (Bed, Arc<SimClock>) {
    let clock = Arc::new(SimClock::default());
    let bed = Bed {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..bed
    };
    (bed, clock)
}

#[test]
fn an_agent_on_demand_leaves_within_seconds_of_its_last_command() {
    for kind in KINDS {
        let (bed, clock) = in_time(Bed::new(kind));
        let agent = Arc::new(bed.agent().unwrap());
        run_limited(&agent, PIDS[0]).unwrap();
        clock.run(&agent, 30 * S, || {
            threads::housekeeping(Housekeeping::new(None), &agent)
        });
        assert_eq!(agent.gates.lock().len(), 1, "it still runs");
        bed.fake.end_process(PIDS[0]);
        let ended_ns = clock.now_ns();
        clock.run(&agent, 600 * S, || {
            threads::housekeeping(Housekeeping::new(None), &agent)
        });
        let took_s = (clock.now_ns() - ended_ns) / S;
        // Two looks for the gate's end, three without any.
        assert!((4..=6).contains(&took_s), "{took_s} s");
        assert!(!bed.exists("/tg-side"));
    }
}

#[test]
fn the_last_hour_has_a_sample_a_second() {
    let clock = Arc::new(SimClock::default());
    let mut bed = Bed::new(Kind::V2);
    bed.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let agent = bed.agent().unwrap();
    run_limited(&agent, PIDS[0]).unwrap();
    steps(&bed, &agent, 400);
    // Until the tenth second has been sampled.
    clock.run(&agent, 10 * S + S / 2, || {
        threads::housekeeping(Housekeeping::new(None), &agent)
    });
    // The wall clock is the host's.
    let view = agent.runtime.history.view(0, u64::MAX, u64::MAX);
    let [point] = view.points[..] else {
        panic!("{view:?}");
    };
    let status = agent.status();
    assert_eq!(point.samples, 10);
    for (name, sampled, shown) in [
        ("capacity", point.capacity_cpus, status.capacity_cpus),
        ("main", point.main_cpus, status.main_cpus),
        ("side", point.side_cpus, status.side_cpus),
        ("idle", point.idle_cpus, status.idle_cpus),
        ("headroom", point.headroom_ratio, status.headroom_ratio),
        ("idle kept", point.idle_kept_ratio, status.idle_kept_ratio),
        (
            "allowance",
            point.allowance_cpus,
            status.decision.allowance_cpus,
        ),
    ] {
        assert!((sampled - shown).abs() < 1e-3, "{name}: {sampled} {shown}");
    }
    assert!(point.capacity_cpus > 0.0);
}
