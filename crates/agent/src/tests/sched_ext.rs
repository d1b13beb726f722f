//! The engine sched_ext with a kernel of the test's own: copies before loading, takeover in one
//! turn, the way back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_cgroup::KernelFs;
use tidegate_engine::sync::lock;
use tidegate_sched_ext::{CapScope, CapTerms, Kind as Work, SchedulerEnd};

use super::fake_scheduler::FakeKernel;
use super::sched_ext_outside::{supervise, view_at};
use super::sim_clock::SimClock;
use super::{
    Bed, KINDS, Kind, PIDS, at, path, run, run_limited, run_side, set, set_limited, unset,
};
use crate::agent::Agent;
use crate::runtime::control_thread::follow_engine;
use crate::runtime::demand::poll_demand;
use crate::runtime::demand::poll_vacant;
use crate::sched_ext::kernel::Kernel;

const S: u64 = 1_000_000_000;

fn stall() -> SchedulerEnd {
    SchedulerEnd {
        kind: 1026,
        code: 0,
        reason: "runnable task stall".to_owned(),
        message: "job[501] failed to run for 30.001s".to_owned(),
        dump: "CPU states\n".to_owned(),
    }
}

/// An agent with the engine sched_ext on that kind of machine.
pub(super) fn bed(kind: Kind) -> (Bed, Arc<FakeKernel>) {
    let kernel = Arc::new(FakeKernel::default());
    let mut bed = Bed::new(kind);
    bed.kernel = Some(Arc::clone(&kernel) as Arc<dyn Kernel>);
    bed.clock = Arc::new(SimClock::default());
    (bed, kernel)
}

fn probe_side_root(agent: &Agent, kernel: &FakeKernel) {
    let machine = &agent.runtime.kernel;
    let (groups, root) = (Arc::clone(&machine.groups), machine.side_root());
    *lock(&kernel.probe) = Some(Arc::new(move || {
        let quota = groups.bandwidth(&root).ok();
        let idle = groups.idle(&root).ok().flatten() == Some(true);
        (quota, idle)
    }));
}

/// One turn of the loop; the side root's rate afterwards.
fn turn(agent: &Agent) -> Option<u64> {
    let mut writer = agent.runtime.quota_writer();
    let mut control = agent.runtime.control();
    follow_engine(&agent.runtime.sched_ext, &mut control);
    control.step(crate::process::lease::monotonic_ns(), 0, &mut writer);
    drop(control);
    let machine = &agent.runtime.kernel;
    let limit = machine.groups.bandwidth(&machine.side_root()).ok()?;
    limit.rate_ucpu()
}

pub(super) fn eject(kernel: &FakeKernel) {
    lock(&kernel.told).ended = Some(stall());
    kernel.in_force.store(false, Ordering::Relaxed);
}

pub(super) fn id(agent: &Agent, group: &str) -> u64 {
    agent.groups().id(&path(group)).unwrap()
}

/// 1 % of two CPUs.
const FLOOR_UCPU: Option<u64> = Some(20_000);

#[test]
fn copies_stand_before_the_scheduler_and_act_in_the_turn_that_finds_it_gone() {
    for kind in KINDS {
        let (bed, kernel) = bed(kind);
        bed.main_uses(300_000);
        let agent = bed.agent().unwrap();
        let group = run_limited(&agent, PIDS[0]).unwrap().cgroup;
        for _ in 0..400 {
            turn(&agent);
        }
        assert!(turn(&agent) > FLOOR_UCPU, "cgroup until it is loaded");
        probe_side_root(&agent, &kernel);
        supervise(&agent, S);
        let at_attach = lock(&kernel.told).at_attach.clone();
        let (quota, idle) = at_attach[0];
        assert_eq!(quota.unwrap().rate_ucpu(), FLOOR_UCPU);
        assert!(idle);
        {
            let told = lock(&kernel.told);
            assert!(told.mirrors.contains(&id(&agent, "/tg-side")));
            assert_eq!(told.gates[&id(&agent, &group)].kind, Some(Work::Side));
            assert_eq!(told.machine, (200_000, 10_000), "the default headroom");
        }
        let status = agent.status();
        assert!(status.engine == "sched_ext" && status.sched_ext.unwrap().on);
        let counts = status.gates[0]
            .sched_ext
            .as_ref()
            .expect("what the scheduler counts");
        assert_eq!((counts.used_seconds, counts.wakeups), (2.5, 10));
        assert_eq!(
            (counts.delay_mean_us, counts.delay_longest_us),
            (10.0, 16.0)
        );
        for _ in 0..400 {
            assert_eq!(turn(&agent), FLOOR_UCPU, "the copy is not moved");
        }

        eject(&kernel);
        assert!(
            turn(&agent) > FLOOR_UCPU,
            "the law has gone on: its allowance at once"
        );
        assert_eq!(agent.status().engine, "cgroup");
        assert!(
            agent.status().gates[0].sched_ext.is_none(),
            "it counts no more"
        );
        let off = agent.status().sched_ext.unwrap().off.unwrap();
        assert!(off.starts_with("sched_ext off: "), "{off}");
        supervise(&agent, 2 * S);
        let view = view_at(&agent, 2 * S);
        let off = "sched_ext off: runnable task stall (job[501] failed to run for 30.001s); reload in 1 s";
        assert_eq!(view.off.as_deref(), Some(off));
        assert_eq!((view.last_kind, view.ends), (Some(1026), 1));
        assert_eq!(view.last_dump.as_deref(), Some("CPU states\n"));

        supervise(&agent, 2 * S + S / 2);
        assert!(!agent.runtime.sched_ext.is_loaded(), "not before its time");
        supervise(&agent, 3 * S);
        assert!(view_at(&agent, 3 * S).on, "again");
        assert_eq!(turn(&agent), FLOOR_UCPU, "with copies");
        agent.leave();
        assert_eq!(lock(&kernel.told).unloads, 2);
    }
}

#[test]
fn what_cannot_be_loaded_is_told_and_tried_again_until_it_is_enough() {
    let (bed, kernel) = bed(Kind::V2);
    bed.main_uses(300_000);
    let agent = bed.agent().unwrap();
    run_limited(&agent, PIDS[0]).unwrap();
    for refuses in ["prepare", "attach", "gate"] {
        lock(&kernel.told).refuses = Some(refuses);
        let before = view_at(&agent, 0).reload_in_seconds.unwrap();
        let now_ns = (before * 1e9) as u64 + 1;
        supervise(&agent, now_ns);
        let view = view_at(&agent, now_ns);
        assert!(!view.on && view.off.is_some(), "{refuses}: {view:?}");
        let sched_ext = &agent.runtime.sched_ext;
        assert!(!sched_ext.is_loaded() && !sched_ext.holds(), "{refuses}");
        for _ in 0..400 {
            turn(&agent);
        }
        assert!(turn(&agent) > FLOOR_UCPU, "{refuses}: kernel files go on");
    }
    let mut now_ns = 0;
    while let Some(seconds) = view_at(&agent, now_ns).reload_in_seconds {
        now_ns += (seconds * 1e9) as u64 + 1;
        supervise(&agent, now_ns);
    }
    let off = view_at(&agent, now_ns).off.unwrap();
    assert!(off.contains("not loaded again after 12 ends"), "{off}");
    supervise(&agent, now_ns + 7_200 * S);
    assert!(!agent.runtime.sched_ext.is_loaded(), "and it is not");
}

#[test]
fn a_cpu_of_an_unknown_place_has_it_loaded_again_at_once() {
    let (bed, kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    let group = run(&agent, PIDS[0], &[("latency", "-5")]).unwrap();
    supervise(&agent, S);
    lock(&kernel.told).misplaced = Some(1);
    supervise(&agent, 3 * S);
    let off = view_at(&agent, 3 * S).off.unwrap();
    assert!(off.contains("CPU 1 has come online"), "{off}");
    supervise(&agent, 3 * S + S / 10);
    assert!(view_at(&agent, 4 * S).on);
    let told = lock(&kernel.told);
    assert_eq!(told.gates[&id(&agent, &group)].hint, Some(-5));
    assert_eq!(told.unloads, 1);
}

#[test]
fn gates_that_come_change_and_go_are_told() {
    let (bed, kernel) = bed(Kind::V2);
    let fresh = bed.values("/other");
    let agent = bed.agent().unwrap();
    supervise(&agent, S);
    let side = run_side(&agent, PIDS[0]).unwrap().cgroup;
    let terms = [("class", "main"), ("latency", "-5"), ("headroom", "30%")];
    let main = run(&agent, PIDS[1], &terms).unwrap();
    {
        let told = lock(&kernel.told);
        assert_eq!(told.gates[&id(&agent, &main)].kind, Some(Work::Main));
        assert_eq!(told.gates[&id(&agent, &main)].hint, Some(-5));
        assert_eq!(told.machine, (300_000, 10_000));
        assert!(told.gates.contains_key(&id(&agent, &side)));
        let root = id(&agent, "/tg-side");
        assert!(told.mirrors.contains(&root), "before its quota was written");
    }
    // Main without tasks: what the machine keeps without it, until there is one.
    let enter = |group: &str| {
        let procs = format!("/sys/fs/cgroup{group}/cgroup.procs");
        bed.fake
            .write(Path::new(&procs), &PIDS[1].to_string())
            .unwrap();
    };
    enter("/other");
    for _ in 0..2 {
        poll_demand(&agent.gates, &agent.runtime);
        bed.clock.sleep(Duration::from_secs(1));
    }
    supervise(&agent, 2 * S);
    assert_eq!(
        lock(&kernel.told).machine,
        (0, 10_000),
        "no main, and no headroom asked"
    );
    enter(&main);
    poll_vacant(&agent.gates, &agent.runtime);
    assert_eq!(lock(&kernel.told).machine, (300_000, 10_000));
    // A group that is not ours: its cap is the scheduler's and its quota a copy; a quota of its own
    // is enforced as it stands.
    set(&agent, "cgroup:/other", &[("cap_hard", "300‰")]).unwrap();
    let other = id(&agent, "/other");
    let cap = CapTerms {
        hard_ppt: Some(300),
        soft_ppt: None,
        scope: CapScope::Group,
    };
    {
        let told = lock(&kernel.told);
        assert!(told.mirrors.contains(&other));
        assert_eq!(told.gates[&other].cap, Some(cap));
    }
    assert_eq!(bed.file("/other", "cpu.max"), "2400 8000");
    set(&agent, "cgroup:/other", &[("quota", "20ms")]).unwrap();
    {
        let told = lock(&kernel.told);
        assert!(!told.mirrors.contains(&other), "the lower one is the quota");
        assert_eq!(told.gates[&other].cap, None);
    }
    unset(&agent, "cgroup:/other").unwrap();
    assert!(!lock(&kernel.told).gates.contains_key(&other));
    assert!(!lock(&kernel.told).mirrors.contains(&other));
    assert_eq!(bed.values("/other"), fresh);
    set_limited(&agent, "cgroup:/other").unwrap();
    assert!(lock(&kernel.told).mirrors.contains(&other), "the floor");
    unset(&agent, "cgroup:/other").unwrap();
    assert_eq!(bed.values("/other"), fresh);
}

#[test]
fn caps_for_each_have_no_copy_and_come_when_the_scheduler_goes() {
    let (bed, kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    let each = [("cap_hard", "200‰"), ("cap_scope", "task")];
    let group = run(&agent, PIDS[0], &each).unwrap();
    assert_ne!(at(&agent, PIDS[0]), group, "divided by the cgroup engine");
    supervise(&agent, S);
    assert_eq!(
        at(&agent, PIDS[0]),
        group,
        "the scheduler needs no groups for that"
    );
    let cap = lock(&kernel.told).gates[&id(&agent, &group)].cap.unwrap();
    assert_eq!((cap.hard_ppt, cap.scope), (Some(200), CapScope::Task));
    eject(&kernel);
    supervise(&agent, 2 * S);
    assert_ne!(at(&agent, PIDS[0]), group, "divided again");
}

#[test]
fn terms_that_the_watchdog_makes_impossible_are_refused_with_the_sum() {
    let (bed, _kernel) = bed(Kind::V2);
    let agent = bed.agent().unwrap();
    let terms = [("class", "side"), ("tolerance", "0.001%")];
    let refused = run(&agent, PIDS[0], &terms).unwrap_err();
    assert!(refused.to_string().contains("1 x 67 = 67"), "{}", refused);
    assert!(bed.is_home(0), "and nothing was moved");
    let without = Bed::new(Kind::V2).agent().unwrap();
    run(&without, PIDS[0], &terms).unwrap();
}

#[test]
fn leaving_takes_the_scheduler_out_and_leaves_what_it_always_leaves() {
    for kind in KINDS {
        let (bed, kernel) = bed(kind);
        let fresh = bed.values("/other");
        let agent = bed.agent().unwrap();
        supervise(&agent, S);
        run_limited(&agent, PIDS[0]).unwrap();
        set(&agent, "cgroup:/other", &[("cap_hard", "300‰")]).unwrap();
        set_limited(&agent, &format!("pid:{}", PIDS[1])).unwrap();
        bed.fake.end_process(PIDS[0]);
        agent.leave();
        assert_eq!(lock(&kernel.told).unloads, 1);
        assert!(!kernel.in_force.load(Ordering::Relaxed));
        assert_eq!(bed.left_behind(&fresh), Vec::<String>::new());
    }
}
