//! The limit that holds a gate back, for each reason, by what the kernel counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_api::Limit;
use tidegate_engine::clock::Clock;

use super::life::steps;
use super::sim_clock::{SimClock, in_time};
use super::{Bed, KINDS, Kind, PIDS, cpu_mount, path, run, set};
use crate::agent::Agent;

/// Between two polls; a gate that was measured lately is not measured again for a call.
const POLL: Duration = Duration::from_secs(2);
const SIDE: (&str, &str) = ("class", "side");

struct Held {
    bed: Bed,
    clock: Arc<SimClock>,
    agent: Agent,
}

impl Held {
    fn on(kind: Kind) -> Self {
        let (bed, clock) = in_time(Bed::new(kind));
        let agent = bed.agent().unwrap();
        Self { bed, clock, agent }
    }

    /// The first process's task: its state, and how long it has run and waited for a CPU.
    fn task(&self, state: &str, run_ns: u64, delay_ns: u64) {
        let dir = format!("/proc/{0}/task/{0}", PIDS[0]);
        let stat = format!("{} (work) {state} 1 1", PIDS[0]);
        let fake = &self.bed.fake;
        fake.set_file(&format!("{dir}/stat"), &stat);
        fake.set_file(
            &format!("{dir}/schedstat"),
            &format!("{run_ns} {delay_ns} {run_ns}"),
        );
    }

    fn dir(&self, group: &str) -> String {
        format!("{}{group}", cpu_mount(self.bed.kind))
    }

    fn throttle(&self, group: &str) {
        self.bed
            .fake
            .add_throttled(&self.dir(group), 20, 700_000_000);
    }

    /// The gate's limit after another poll.
    fn limit(&self, target: &str) -> Limit {
        self.clock.sleep(POLL);
        let page = self.agent.explain(target).unwrap();
        assert!(page.summary.contains("CPUs: "), "{}", page.summary);
        assert_eq!(page.gate.held.meaning, page.gate.held.limit.meaning());
        page.gate.held.limit
    }

    /// Of the only gate, whose group used both CPUs meanwhile.
    fn limit_of_all(&self, group: &str) -> Limit {
        self.use_all(group);
        self.limit("gate:job")
    }

    fn use_all(&self, group: &str) {
        let used_ns = 4 * POLL.as_nanos() as u64;
        self.bed.fake.add_usage_ns(&self.dir(group), used_ns);
        let accounts = format!("/sys/fs/cgroup/cpuacct{group}");
        self.bed.fake.add_usage_ns(&accounts, used_ns);
    }
}

/// A side gate that ran while main used so much of the machine, and its group.
fn side(kind: Kind, main_ppm: u64, headroom: &str) -> (Held, String) {
    let held = Held::on(kind);
    held.bed.main_uses(main_ppm);
    let group = run(&held.agent, PIDS[0], &[SIDE, ("headroom", headroom)]).unwrap();
    steps(&held.bed, &held.agent, 600);
    held.task("R", 0, 0);
    held.limit("gate:job");
    (held, group)
}

#[test]
fn side_work_is_held_by_the_headroom_and_by_the_tolerance() {
    for kind in KINDS {
        for (main_ppm, limit) in [(300_000, Limit::Headroom), (1_000_000, Limit::Tolerance)] {
            let (held, group) = side(kind, main_ppm, "30%");
            held.throttle("/tg-side");
            assert_eq!(held.limit_of_all(&group), limit);
            // Also where the kernel counts no period: its task waits.
            held.task("R", 1_000_000, 1_000_000_000);
            held.limit("gate:job");
            held.task("R", 2_000_000, 2_000_000_000);
            assert_eq!(held.limit_of_all(&group), limit);
        }
    }
}

#[test]
fn without_a_headroom_side_work_is_held_by_main_s_use_alone() {
    for kind in KINDS {
        let (held, group) = side(kind, 300_000, "0");
        held.task("R", 2_000_000, 2_000_000_000);
        assert_eq!(held.limit_of_all(&group), Limit::IdleClass);
        let page = held.agent.explain("gate:job").unwrap();
        assert!(
            page.summary.contains("main uses 0.60 of 2.00"),
            "{}",
            page.summary
        );
        assert!(page.arithmetic.is_empty(), "{:?}", page.arithmetic);
        held.task("R", 2_000_000_000, 2_000_000_000);
        assert_eq!(held.limit_of_all(&group), Limit::None);
        held.task("S", 2_000_000_000, 2_000_000_000);
        assert_eq!(held.limit_of_all(&group), Limit::Demand);

        // It starved where main takes all, and is out of the idle class.
        let (held, _) = side(kind, 1_000_000, "0");
        held.throttle("/tg-side");
        assert_eq!(held.limit("gate:job"), Limit::Tolerance);
    }
}

#[test]
fn side_work_is_held_by_its_weight_where_other_side_work_runs() {
    for kind in KINDS {
        let (held, _) = side(kind, 300_000, "30%");
        held.bed.sensor.side_ppm.store(400_000, Ordering::Relaxed);
        steps(&held.bed, &held.agent, 400);
        held.throttle("/tg-side");
        assert_eq!(held.limit("gate:job"), Limit::Weight);
    }
}

#[test]
fn side_work_is_held_by_a_quota_that_is_about_to_be_raised() {
    for kind in KINDS {
        let (held, group) = side(kind, 600_000, "30%");
        held.bed.main_uses(0);
        let is_stale = |held: &Held| {
            let decision = held.agent.runtime.decision();
            decision.groups[0].limit == Limit::Root
        };
        let found = (0..400).any(|_| {
            steps(&held.bed, &held.agent, 1);
            is_stale(&held)
        });
        assert!(found);
        held.throttle("/tg-side");
        assert_eq!(held.limit_of_all(&group), Limit::Root);
    }
}

#[test]
fn work_is_held_by_its_own_quota_and_caps() {
    for kind in KINDS {
        for (term, limit) in [
            (("quota", "30ms"), Limit::Quota),
            (("cap_hard", "200‰"), Limit::Cap),
        ] {
            let held = Held::on(kind);
            let group = run(&held.agent, PIDS[0], &[term]).unwrap();
            held.task("R", 0, 0);
            held.limit("gate:job");
            held.throttle(&group);
            assert_eq!(held.limit("gate:job"), limit);
        }
        let held = Held::on(kind);
        run(&held.agent, PIDS[0], &[("cap_soft", "0")]).unwrap();
        held.task("R", 0, 0);
        assert_eq!(held.limit("gate:job"), Limit::SoftCap);
    }
}

#[test]
fn work_is_held_by_limits_that_are_not_ours() {
    for kind in KINDS {
        let held = Held::on(kind);
        set(&held.agent, "cgroup:/other", &[("class", "main")]).unwrap();
        held.limit("cgroup:/other");
        held.throttle("/other");
        assert_eq!(held.limit("cgroup:/other"), Limit::Outside);

        held.agent.groups().create(&path("/other/app")).unwrap();
        set(&held.agent, "cgroup:/other/app", &[("class", "main")]).unwrap();
        held.limit("cgroup:/other/app");
        held.throttle("/other");
        held.use_all("/other/app");
        assert_eq!(held.limit("cgroup:/other/app"), Limit::Parent);
    }
}

#[test]
fn a_frozen_gate_is_called_frozen() {
    let (held, group) = side(Kind::V2, 300_000, "30%");
    held.bed.fake.freeze(&held.dir(&group));
    assert_eq!(held.limit("gate:job"), Limit::Frozen);
}

#[test]
fn a_gate_whose_tasks_sleep_wants_nothing_and_one_that_never_sleeps_is_never_called_idle() {
    for kind in KINDS {
        for main_ppm in [0, 300_000, 1_000_000] {
            let (held, group) = side(kind, main_ppm, "30%");
            held.task("S", 0, 0);
            // Other side work is throttled meanwhile.
            held.throttle("/tg-side");
            assert_eq!(held.limit("gate:job"), Limit::Demand);
            let mut run_ns = 0;
            for _ in 0..3 {
                run_ns += POLL.as_nanos() as u64;
                held.task("R", run_ns, 0);
                let limit = held.limit_of_all(&group);
                assert_eq!(limit, Limit::None, "it runs all the time");
            }
            // It is not given a CPU any more.
            assert_ne!(held.limit("gate:job"), Limit::Demand);
        }
    }
}
