//! Placement, one rule at a time: hogs hold CPUs, and a sleeper is placed by hand.

use super::*;
use crate::{Costs, CpuSet, Ctx, GroupId, Machine, MachineConfig, Op, Policy, TaskSpec, Topology};

const MS: u64 = 1_000_000;

fn program(sleeps: bool) -> Box<dyn crate::Program> {
    let long_ns = 1_000_000 * MS;
    Box::new(move |_: &mut Ctx<'_>| {
        if sleeps {
            Op::Sleep { for_ns: long_ns }
        } else {
            Op::Run { work_ns: long_ns }
        }
    })
}

/// A machine with hogs on these CPUs (`idle`: of idle policy on those), and a task that sleeps.
fn machine(topology: Topology, hogs: &[u32], idle: &[u32]) -> (Machine, TaskId) {
    let mut cfg = MachineConfig::new(topology.cpus());
    cfg.topology = topology;
    cfg.costs = Costs::FREE;
    let mut m = Machine::new(cfg).unwrap();
    for (&cpu, policy) in hogs
        .iter()
        .map(|cpu| (cpu, Policy::Normal))
        .chain(idle.iter().map(|cpu| (cpu, Policy::Idle)))
    {
        let mut spec = TaskSpec::new("hog", GroupId::ROOT, program(false));
        spec.cpus = Some(CpuSet::single(CpuId(cpu)));
        spec.policy = policy;
        m.spawn(spec).unwrap();
    }
    let sleeper = m
        .spawn(TaskSpec::new("sleeper", GroupId::ROOT, program(true)))
        .unwrap();
    m.run_until(10 * MS).unwrap();
    (m, sleeper)
}

/// Where the sleeper would wake, had it run on `prev`.
fn wakes_on(m: &mut Machine, task: TaskId, prev: u32, waker: Waker) -> u32 {
    m.k.task_mut(task).cpu = CpuId(prev);
    m.sched.select_wake(&m.k, task, waker).0
}

/// Eight CPUs, two threads a core, one cache.
fn eight() -> Topology {
    Topology::new(8, 2, 8)
}

#[test]
fn the_cpu_before_is_kept_while_it_is_idle() {
    let (mut m, task) = machine(eight(), &[0, 2], &[]);
    assert_eq!(
        wakes_on(&mut m, task, 1, Waker::Timer),
        1,
        "although its sibling is busy"
    );
    assert_eq!(wakes_on(&mut m, task, 6, Waker::Timer), 6);
}

#[test]
fn a_core_with_all_threads_idle_comes_before_a_sibling_of_a_busy_one() {
    let (mut m, task) = machine(eight(), &[0, 2, 4], &[]);
    assert_eq!(wakes_on(&mut m, task, 0, Waker::Timer), 6);
    assert_eq!(wakes_on(&mut m, task, 4, Waker::Timer), 6);
}

#[test]
fn without_an_idle_core_the_sibling_then_any_idle_cpu_of_the_cache() {
    let (mut m, task) = machine(eight(), &[0, 2, 4, 6], &[]);
    // The first search learns that there is no idle core and takes what it saw first.
    assert_eq!(wakes_on(&mut m, task, 2, Waker::Timer), 3);
    let (mut m, task) = machine(eight(), &[0, 1, 2, 4, 6, 7], &[]);
    wakes_on(&mut m, task, 0, Waker::Timer);
    assert_eq!(wakes_on(&mut m, task, 4, Waker::Timer), 5, "the sibling");
    assert_eq!(
        wakes_on(&mut m, task, 0, Waker::Timer),
        3,
        "the next idle one"
    );
}

#[test]
fn a_cpu_with_only_idle_policy_work_is_taken_for_idle() {
    let (mut m, task) = machine(Topology::new(4, 1, 4), &[0, 1, 2], &[3]);
    assert_eq!(wakes_on(&mut m, task, 0, Waker::Timer), 3);
    let (mut m, task) = machine(Topology::new(4, 1, 4), &[0], &[1, 2, 3]);
    assert_eq!(
        wakes_on(&mut m, task, 2, Waker::Timer),
        2,
        "and its own is kept"
    );
}

#[test]
fn an_idle_core_is_one_that_runs_not_even_idle_policy_work() {
    let (mut m, task) = machine(eight(), &[0], &[2, 4]);
    assert_eq!(wakes_on(&mut m, task, 0, Waker::Timer), 6);
}

#[test]
fn other_caches_are_not_searched_at_a_wakeup() {
    let (mut m, task) = machine(Topology::new(8, 1, 4), &[0, 1, 2, 3], &[]);
    assert_eq!(wakes_on(&mut m, task, 1, Waker::Timer), 1);
}

#[test]
fn a_waker_that_is_about_to_sleep_pulls_the_wakee_to_its_cache() {
    let (mut m, task) = machine(Topology::new(8, 1, 4), &[0, 5], &[]);
    let waker = m.k.cpus[0].curr.unwrap();
    let waker = Waker::Task {
        task: waker,
        cpu: CpuId(0),
    };
    assert_eq!(
        wakes_on(&mut m, task, 5, waker),
        1,
        "an idle CPU beside the waker"
    );
}

#[test]
fn a_wakeup_never_leaves_the_allowed_cpus() {
    let (mut m, task) = machine(eight(), &[0, 2, 4], &[]);
    m.k.task_mut(task).anywhere = false;
    m.k.cold[task.index()].allowed = CpuSet::parse("2,5").unwrap();
    for prev in 0..8 {
        let cpu = wakes_on(&mut m, task, prev, Waker::Timer);
        assert!([2, 5].contains(&cpu), "from {prev} to {cpu}");
    }
    assert_eq!(
        wakes_on(&mut m, task, 2, Waker::Timer),
        5,
        "the idle one of the two"
    );
}

#[test]
fn an_overloaded_cache_is_not_searched() {
    let (mut m, task) = machine(Topology::new(4, 1, 4), &[0, 1, 2], &[]);
    let placement = &mut m.sched.placement;
    placement.note_utilisation(&m.k, 0, 4 * 1000);
    assert_eq!(
        wakes_on(&mut m, task, 0, Waker::Timer),
        0,
        "the scan is not worth its time"
    );
    m.sched.placement.note_utilisation(&m.k, 0, 1000);
    assert_eq!(wakes_on(&mut m, task, 0, Waker::Timer), 3);
}

#[test]
fn a_new_task_goes_to_the_idlest_cache_core_and_cpu() {
    let (m, task) = machine(Topology::new(16, 2, 8), &[0, 2, 4], &[]);
    let cpu = m.sched.select_new(&m.k, task, CpuId(0)).0;
    assert!(cpu >= 8, "the other cache has more idle CPUs: {cpu}");
    let (m, task) = machine(eight(), &[0, 2, 4], &[]);
    let cpu = m.sched.select_new(&m.k, task, CpuId(0)).0;
    assert!(cpu >= 6, "the core with two idle threads: {cpu}");
}
