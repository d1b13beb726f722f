//! The control step with a sensor and kernel files of the test's own.

use std::sync::atomic::Ordering;

use tidegate_api::Limit;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::{Apply, ApplyError};

use super::{Bed, Kind, PIDS, STEP_NS, run, run_limited, set_limited, write_quota};
use crate::agent::Agent;
use crate::process::lease::monotonic_ns;

/// Keeps what stands.
#[derive(Default)]
pub(super) struct Knob {
    stands: Option<Bandwidth>,
    writes: u32,
}

impl Apply for Knob {
    fn set_quota(
        &mut self,
        _: &GroupPath,
        from: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), ApplyError> {
        assert!(
            from.is_none() || from == self.stands,
            "the planner knows what stands"
        );
        self.stands = Some(to);
        self.writes += 1;
        Ok(())
    }

    fn set_yielding(&mut self, _: &GroupPath, _: bool) -> Result<(), ApplyError> {
        Ok(())
    }

    fn set_background(&mut self, _: &GroupPath, _: bool) -> Result<(), ApplyError> {
        Ok(())
    }
}

impl Knob {
    pub(super) fn ucpu(&self) -> u64 {
        self.stands
            .and_then(|stands| stands.rate_ucpu())
            .unwrap_or(u64::MAX)
    }
}

/// Side work uses all that it is given.
pub(super) fn steps(bed: &Bed, agent: &Agent, knob: &mut Knob, count: u32) {
    for _ in 0..count {
        agent.runtime.control().step(monotonic_ns(), 0, knob);
        let side_ppm = knob.ucpu().min(2_000_000) / super::CPUS;
        let main_ppm = bed.sensor.main_ppm.load(Ordering::Relaxed);
        bed.sensor
            .side_ppm
            .store(side_ppm.min(1_000_000 - main_ppm), Ordering::Relaxed);
    }
}

fn bed_with_side_work() -> (Bed, Agent, Knob) {
    let bed = Bed::new(Kind::Mixed);
    bed.main_uses(300_000);
    let agent = bed.agent().unwrap();
    run_limited(&agent, PIDS[0]).unwrap();
    (bed, agent, Knob::default())
}

/// Of two CPUs main has 0.6 and 20 % are kept idle: 1.0 is left.
const LEFT_UCPU: std::ops::Range<u64> = 900_000..1_010_000;

/// A build reads the quota once, for the number of its jobs.
#[test]
fn side_work_beside_a_main_that_was_seen_begins_at_what_it_leaves() {
    let bed = Bed::new(Kind::Mixed);
    bed.main_uses(300_000);
    let agent = bed.agent().unwrap();
    steps(&bed, &agent, &mut Knob::default(), 100);
    run_limited(&agent, PIDS[0]).unwrap();
    let number = |name: &str| bed.file("/tg-side", name).parse::<u64>().unwrap();
    let ucpu = number("cpu.cfs_quota_us") * 1_000_000 / number("cpu.cfs_period_us");
    assert!(LEFT_UCPU.contains(&ucpu), "{ucpu}");
}

/// The loop has planned no quota for side work of which nobody asked idle.
#[test]
fn a_second_gate_that_asks_for_idle_begins_limited() {
    let bed = Bed::new(Kind::Mixed);
    bed.main_uses(300_000);
    let agent = bed.agent().unwrap();
    let quota = || bed.file("/tg-side", "cpu.cfs_quota_us");
    run(&agent, PIDS[0], &[("class", "side")]).unwrap();
    let mut writer = agent.runtime.quota_writer();
    for nth in 1..100 {
        agent.runtime.control().step(nth * STEP_NS, 0, &mut writer);
    }
    assert_eq!(quota(), "-1");
    run(&agent, PIDS[1], &[("class", "side")]).unwrap();
    assert_eq!(quota(), "-1", "nobody asks for idle");
    run_limited(&agent, PIDS[2]).unwrap();
    assert_ne!(quota(), "-1");
}

#[test]
fn a_quota_that_is_about_to_be_raised_is_said_to_hold_side_work_back() {
    let (bed, agent, mut knob) = bed_with_side_work();
    bed.main_uses(600_000);
    steps(&bed, &agent, &mut knob, 600);
    bed.main_uses(0);
    let is_stale = (0..400).any(|_| {
        steps(&bed, &agent, &mut knob, 1);
        agent.runtime.decision().groups[0].limit == Limit::Root
    });
    assert!(is_stale);
}

#[test]
fn a_sensor_that_fails_leads_to_the_tolerance_and_is_told() {
    let (bed, agent, mut knob) = bed_with_side_work();
    steps(&bed, &agent, &mut knob, 1_000);
    bed.sensor.fails.store(true, Ordering::Relaxed);
    steps(&bed, &agent, &mut knob, 400);
    assert!(knob.ucpu() <= 20_000, "stale means cut, not hold");
    let why = agent.runtime.control().sensing_error.clone().unwrap();
    assert!(why.contains("9 root groups"), "{why}");
    assert!(agent.runtime.control().unusable.total() > 0);
}

#[test]
fn a_sample_that_fails_now_and_then_costs_side_work_nothing_and_is_told() {
    let (bed, agent, mut knob) = bed_with_side_work();
    steps(&bed, &agent, &mut knob, 1_000);
    for _ in 0..20 {
        bed.sensor.fails.store(true, Ordering::Relaxed);
        steps(&bed, &agent, &mut knob, 1);
        bed.sensor.fails.store(false, Ordering::Relaxed);
        steps(&bed, &agent, &mut knob, 99);
        assert!(LEFT_UCPU.contains(&knob.ucpu()), "{}", knob.ucpu());
    }
    let status = agent.status();
    assert!(status.control.unusable_samples >= 20);
    let told = |alert: &String| alert.contains("were impossible and left out");
    assert!(status.alerts.iter().any(told), "{:?}", status.alerts);
}

#[test]
fn the_last_gate_takes_the_limit_with_it() {
    let (bed, agent, mut knob) = bed_with_side_work();
    steps(&bed, &agent, &mut knob, 100);
    bed.fake.end_process(PIDS[0]);
    agent.leave();
    let writes = knob.writes;
    steps(&bed, &agent, &mut knob, 100);
    assert_eq!(knob.writes, writes, "none behind a restore");
    assert!(!bed.exists("/tg-side"));
}

#[test]
fn a_quota_that_is_left_alone_stays_so_until_its_gate_is_set_again() {
    let (bed, agent, mut knob) = bed_with_side_work();
    steps(&bed, &agent, &mut knob, 1_000);
    let root = agent.runtime.kernel.side_root();
    agent.runtime.control().quotas.leave_alone(&root);
    // Another gate comes: the same groups are told to the loop again.
    run_limited(&agent, PIDS[1]).unwrap();
    let writes = knob.writes;
    steps(&bed, &agent, &mut knob, 400);
    assert_eq!(knob.writes, writes, "another writer insists");
    agent.runtime.control().quotas.take_again(&root);
    run_limited(&agent, PIDS[2]).unwrap();
    steps(&bed, &agent, &mut knob, 400);
    assert!(knob.writes > writes);
}

#[test]
fn a_group_never_gets_more_than_its_administrator_gave_it() {
    let bed = Bed::new(Kind::Mixed);
    bed.main_uses(300_000);
    let agent = bed.agent().unwrap();
    write_quota(&agent, "/other", Bandwidth::limit(20_000, 100_000));
    set_limited(&agent, "cgroup:/other").unwrap();
    let mut knob = Knob::default();
    steps(&bed, &agent, &mut knob, 1_000);
    assert!(
        (150_000..=200_000).contains(&knob.ucpu()),
        "{}",
        knob.ucpu()
    );
}
