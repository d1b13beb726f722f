//! Ext on machines with several caches, or with large ones: side work is dealt out over them, and main displaces it wherever it is.

use tidegate_sim::machine::Machine;
use tidegate_sim::{
    CapScope, CapTerms, Class, CpuSet, Ctx, ExtConfig, GroupId, GroupSpec, MachineConfig, Op,
    Program, Scheduler, TaskId, TaskSpec, Topology,
};

use super::bed::{MS, SECOND, hog};

fn machine(cpus: u32, cpus_per_llc: u32) -> Machine {
    let mut config = MachineConfig::new(cpus);
    config.topology = Topology::new(cpus, 1, cpus_per_llc);
    config.scheduler = Scheduler::Ext(ExtConfig::for_cpus(cpus));
    config.check = true;
    Machine::new(config).unwrap()
}

fn group(machine: &mut Machine, name: &str, class: Class) -> GroupId {
    let spec = GroupSpec {
        class,
        ..GroupSpec::new(name, GroupId::ROOT)
    };
    machine.add_group(spec).unwrap()
}

/// Tasks that take all they get, on some CPUs only.
fn hogs(machine: &mut Machine, group: GroupId, count: u32, cpus: Option<CpuSet>) -> Vec<TaskId> {
    let mut spawn = || {
        let mut spec = TaskSpec::new("hog", group, hog());
        spec.cpus = cpus;
        machine.spawn(spec).unwrap()
    };
    (0..count).map(|_| spawn()).collect()
}

#[test]
fn side_work_is_dealt_out_over_the_caches_that_run_it() {
    let mut machine = machine(8, 4);
    let main = group(&mut machine, "main", Class::Main);
    let side = group(&mut machine, "side", Class::Side);
    // Main leaves one CPU of the first cache and all of the second.
    hogs(&mut machine, main, 3, Some(CpuSet::range(0..3)));
    let side = hogs(&mut machine, side, 32, None);
    machine.run_until(2 * SECOND).unwrap();
    let from: Vec<u64> = side.iter().map(|&t| machine.task_usage_ns(t)).collect();
    machine.run_until(12 * SECOND).unwrap();
    let to = side.iter().map(|&t| machine.task_usage_ns(t));
    let used: Vec<u64> = to.zip(from).map(|(to, from)| (to - from) / MS).collect();
    let mean = used.iter().sum::<u64>() / used.len() as u64;
    println!("{used:?} ms, {mean} on average");
    assert!(mean > 1_500, "{mean} ms of 10 s for each of 32 on 5 CPUs");
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    assert!(10 * least >= 8 * mean, "{least} of {mean} ms");
    // To within two tasks on the first cache's one CPU.
    assert!(10 * most <= 14 * mean, "{most} of {mean} ms");
}

/// Wakes every 10 ms and runs 1 ms.
fn waker() -> Box<dyn Program> {
    let mut due_ns = 0;
    let mut sleeping = true;
    Box::new(move |_: &mut Ctx<'_>| {
        sleeping = !sleeping;
        if sleeping {
            due_ns += 10 * MS;
            return Op::SleepUntil { at_ns: due_ns };
        }
        Op::Run { work_ns: MS }
    })
}

/// What four tasks of main's take from the last `soft` CPUs, which are not main's, in parts per million of what they use; and how long
/// they wait at a wakeup on average, in ns.
fn taken(cpus: u32, cpus_per_llc: u32, soft: u32, class: Class) -> (u64, u64) {
    let mut machine = machine(cpus, cpus_per_llc);
    let main = group(&mut machine, "main", Class::Main);
    let spec = GroupSpec {
        class,
        // Background, if it is no side work.
        cap: (class != Class::Side).then_some(CapTerms {
            hard_ppt: u32::MAX,
            soft_ppt: 0,
            scope: CapScope::Group,
        }),
        ..GroupSpec::new("soft", GroupId::ROOT)
    };
    let soft_group = machine.add_group(spec).unwrap();
    for cpu in 0..cpus - soft {
        hogs(&mut machine, main, 1, Some(CpuSet::range(cpu..cpu + 1)));
    }
    hogs(
        &mut machine,
        soft_group,
        soft,
        Some(CpuSet::range(cpus - soft..cpus)),
    );
    // Where a first one wakes up depends on the first moment; from the second on, on the engine.
    let spawn = |machine: &mut Machine| {
        machine
            .spawn(TaskSpec::new("waker", main, waker()))
            .unwrap()
    };
    let wakers: Vec<TaskId> = (0..4).map(|_| spawn(&mut machine)).collect();
    let used_ns =
        |machine: &Machine| -> u64 { wakers.iter().map(|&t| machine.task_usage_ns(t)).sum() };
    // The headroom law's start, from the tolerance, is over by then.
    machine.run_until(2 * SECOND).unwrap();
    let from = (machine.usage_ns(soft_group), used_ns(&machine));
    machine.run_until(12 * SECOND).unwrap();
    let soft_ns = machine.usage_ns(soft_group) - from.0;
    let taken_ns = u64::from(soft) * 10 * SECOND - soft_ns;
    (
        taken_ns * 1_000_000 / (used_ns(&machine) - from.1),
        wakers
            .iter()
            .map(|&t| machine.task_run_delay_ns(t))
            .sum::<u64>()
            / 4_800,
    )
}

#[test]
fn main_displaces_side_work_and_background_wherever_they_are() {
    for (cpus, cpus_per_llc, what) in [(64, 64, "one cache"), (16, 8, "another cache")] {
        for class in [Class::Side, Class::Neutral] {
            let (taken_ppm, delay_ns) = taken(cpus, cpus_per_llc, 8, class);
            println!("{what}, {class:?}: {taken_ppm} ppm, {delay_ns} ns");
            assert!(taken_ppm > 900_000, "{what}, {class:?}: {taken_ppm} ppm");
            assert!(delay_ns < 20_000, "{what}, {class:?}: {delay_ns} ns");
        }
    }
}
