//! Ext on ordinary work: weights, hints that favour without unfairness, whole cores first.

use tidegate_sim::machine::Machine;
use tidegate_sim::{
    CpuId, CpuSet, Ctx, ExtConfig, GroupId, GroupSpec, MachineConfig, Op, Scheduler, SeriesId,
    TaskSpec, Topology,
};

use super::bed::{MS, SECOND, hog, machine};

fn group(machine: &mut Machine, weight: u32, parent: GroupId) -> GroupId {
    let spec = GroupSpec {
        weight,
        ..GroupSpec::new("g", parent)
    };
    machine.add_group(spec).unwrap()
}

#[test]
fn groups_share_by_weight_at_every_level() {
    for cpus in [1, 4, 16] {
        let mut machine = machine(cpus, 1, true, 9);
        let (a, b) = (
            group(&mut machine, 100, GroupId::ROOT),
            group(&mut machine, 300, GroupId::ROOT),
        );
        let (c, d) = (group(&mut machine, 50, b), group(&mut machine, 150, b));
        for (group, hogs) in [(a, 3 * cpus), (c, 3 * cpus), (d, 2 * cpus)] {
            for _ in 0..hogs {
                machine.spawn(TaskSpec::new("hog", group, hog())).unwrap();
            }
        }
        machine.run_until(SECOND).unwrap();
        let from = [a, c, d].map(|group| machine.usage_ns(group));
        machine.run_until(11 * SECOND).unwrap();
        let got: Vec<u64> = [a, c, d]
            .iter()
            .zip(from)
            .map(|(group, from)| {
                (machine.usage_ns(*group) - from) / (10 * u64::from(cpus) * MS / 1_000)
            })
            .collect();
        println!("{cpus} CPUs: {got:?} ppm of 250000, 187500, 562500");
        for (got, want) in got.iter().zip([250_000, 187_500, 562_500]) {
            assert!(got.abs_diff(want) <= 20_000, "{got} for {want}");
        }
    }
}

/// Wakes every 2 ms, runs 50 us, and records how late it was.
fn timer(series: SeriesId) -> Box<dyn tidegate_sim::Program> {
    let mut due_ns = 0;
    let mut sleeping = true;
    Box::new(move |ctx: &mut Ctx<'_>| {
        sleeping = !sleeping;
        if sleeping {
            due_ns += 2 * MS;
            return Op::SleepUntil { at_ns: due_ns };
        }
        if due_ns > 0 {
            ctx.record(series, ctx.now_ns - due_ns);
        }
        Op::Run { work_ns: 50_000 }
    })
}

/// Runs 0.2 to 1 ms and sleeps as long: many of them make a busy machine that wakes all the time.
fn waker() -> Box<dyn tidegate_sim::Program> {
    let mut sleeps = false;
    Box::new(move |ctx: &mut Ctx<'_>| {
        sleeps = !sleeps;
        let ns = ctx.rng.between(200_000, MS);
        if sleeps {
            Op::Sleep { for_ns: ns / 4 }
        } else {
            Op::Run { work_ns: ns }
        }
    })
}

fn latency_beside_wakers(hint: i8) -> (u64, u64, u64) {
    let mut machine = machine(4, 1, true, 9);
    let series = machine.add_series("late");
    let work = group(&mut machine, 100, GroupId::ROOT);
    let mut hogs = Vec::new();
    for _ in 0..16 {
        hogs.push(
            machine
                .spawn(TaskSpec::new("waker", work, waker()))
                .unwrap(),
        );
    }
    let spec = TaskSpec {
        latency: hint,
        ..TaskSpec::new("timer", work, timer(series))
    };
    let timer = machine.spawn(spec).unwrap();
    machine.run_until(10 * SECOND).unwrap();
    let used = hogs.iter().map(|task| machine.task_usage_ns(*task));
    let (least, most) = (used.clone().min().unwrap(), used.max().unwrap());
    let late = machine.series(series);
    println!(
        "hint {hint}: p50 {} p99 {} max {} us; the timer used {} ms; others {} to {} ms",
        late.percentile_ns(500_000) / 1_000,
        late.percentile_ns(990_000) / 1_000,
        late.max_ns() / 1_000,
        machine.task_usage_ns(timer) / MS,
        least / MS,
        most / MS
    );
    (late.percentile_ns(990_000), least, most)
}

#[test]
fn a_hint_favours_without_unfairness() {
    let (plain, ..) = latency_beside_wakers(0);
    let (urgent, least, most) = latency_beside_wakers(-20);
    let (lax, ..) = latency_beside_wakers(19);
    assert!(urgent <= 200_000, "p99 {urgent} ns");
    assert!(urgent <= plain && plain <= lax.max(plain));
    assert!(
        (most - least) * 100 <= 2 * most,
        "the others' parts differ: {least} to {most}"
    );
}

/// Sleeps until `due_ns`, runs `work_ns`, and records how long both took from then on; once.
fn once(series: SeriesId, due_ns: u64, work_ns: u64) -> Box<dyn tidegate_sim::Program> {
    let mut step = 0;
    Box::new(move |ctx: &mut Ctx<'_>| {
        step += 1;
        match step {
            1 => Op::SleepUntil { at_ns: due_ns },
            2 => Op::Run { work_ns },
            _ => {
                ctx.record(series, ctx.now_ns - due_ns);
                Op::Exit
            }
        }
    })
}

/// One comes 1 ms after a tick, displaces a hog and computes for long; another that comes 50 us later works 0.2 ms. How long that
/// took, in us.
fn second_comer_us(hogs: u32) -> u64 {
    let mut machine = machine(1, 1, true, 9);
    let [first, second] = ["first", "second"].map(|name| machine.add_series(name));
    let root = GroupId::ROOT;
    for _ in 0..hogs {
        machine.spawn(TaskSpec::new("hog", root, hog())).unwrap();
    }
    let due_ns = 49 * MS;
    let runs = once(first, due_ns, 10 * MS);
    machine.spawn(TaskSpec::new("first", root, runs)).unwrap();
    let comes = once(second, due_ns + 50_000, 200_000);
    machine.spawn(TaskSpec::new("second", root, comes)).unwrap();
    machine.run_until(100 * MS).unwrap();
    machine.series(second).max_ns() / 1_000
}

/// A running task is left alone for half of its slice; a task that came meanwhile is let in then, and where more than eight compete
/// for the CPU at the next tick.
#[test]
fn a_task_that_has_won_is_let_in_after_half_a_slice() {
    for hogs in [1, 6] {
        let took_us = second_comer_us(hogs);
        // A slice is 0.7 ms.
        assert!((500..550).contains(&took_us), "{hogs} hogs: {took_us} us");
    }
    let took_us = second_comer_us(7);
    assert!((3_150..3_250).contains(&took_us), "{took_us} us");
}

/// What waited for one task to have run for a while does not cut short the next: a task that came 50 us after another, which ends by
/// itself after 0.2 ms, then has its 0.5 ms in one turn, though hogs wait.
#[test]
fn a_task_that_begins_is_not_cut_short_by_a_wait_for_the_one_before() {
    let mut machine = machine(1, 1, true, 9);
    let [first, second] = ["first", "second"].map(|name| machine.add_series(name));
    let root = GroupId::ROOT;
    for _ in 0..5 {
        machine.spawn(TaskSpec::new("hog", root, hog())).unwrap();
    }
    let due_ns = 49 * MS;
    for (name, series, at_ns, work_ns) in [
        ("first", first, due_ns, 200_000),
        ("second", second, due_ns + 50_000, 500_000),
    ] {
        let work = once(series, at_ns, work_ns);
        machine.spawn(TaskSpec::new(name, root, work)).unwrap();
    }
    machine.run_until(100 * MS).unwrap();
    let took_us = machine.series(second).max_ns() / 1_000;
    assert!((650..700).contains(&took_us), "{took_us} us");
}

/// Sleeps 0.1 ms, works 0.18 ms, and records how long both took.
fn worker(series: SeriesId) -> Box<dyn tidegate_sim::Program> {
    let (mut works, mut from_ns) = (true, 0);
    Box::new(move |ctx: &mut Ctx<'_>| {
        works = !works;
        if works {
            return Op::Run { work_ns: 180_000 };
        }
        if from_ns > 0 {
            ctx.record(series, ctx.now_ns - from_ns);
        }
        from_ns = ctx.now_ns;
        Op::Sleep { for_ns: 100_000 }
    })
}

/// Of eight that share a CPU and sleep often, none goes first again and again: a turn of all takes 1.44 ms.
#[test]
fn those_that_sleep_often_take_turns() {
    let mut machine = machine(1, 1, true, 9);
    let turns = machine.add_series("turns");
    for _ in 0..8 {
        let spec = TaskSpec::new("worker", GroupId::ROOT, worker(turns));
        machine.spawn(spec).unwrap();
    }
    machine.run_until(3 * SECOND).unwrap();
    let p99_us = machine.series(turns).percentile_ns(990_000) / 1_000;
    println!("p99 {p99_us} us");
    assert!(p99_us <= 2_200, "{p99_us} us");
}

/// A hog with every hint gets its share and no more.
#[test]
fn a_hint_is_no_weight() {
    for hint in [-20, 19] {
        let mut machine = machine(1, 1, true, 9);
        let root = GroupId::ROOT;
        let hinted = TaskSpec {
            latency: hint,
            ..TaskSpec::new("hinted", root, hog())
        };
        let hinted = machine.spawn(hinted).unwrap();
        for _ in 0..3 {
            machine.spawn(TaskSpec::new("hog", root, hog())).unwrap();
        }
        machine.run_until(10 * SECOND).unwrap();
        let used_ms = machine.task_usage_ns(hinted) / MS;
        println!("hint {hint}: {used_ms} of 2500 ms");
        assert!(used_ms.abs_diff(2_500) <= 50, "{used_ms}");
    }
}

/// With threads, wakeups take whole cores while there are any.
#[test]
fn whole_cores_come_first() {
    let mut machine = machine(16, 2, true, 9);
    for _ in 0..8 {
        machine
            .spawn(TaskSpec::new("hog", GroupId::ROOT, hog()))
            .unwrap();
    }
    machine.run_until(100 * MS).unwrap();
    for core in 0..8 {
        let busy: u64 = [2 * core, 2 * core + 1]
            .map(|cpu| machine.cpu_busy_ns(CpuId(cpu)))
            .iter()
            .sum();
        assert!(busy.abs_diff(100 * MS) <= MS, "core {core}: {busy}");
    }
}

/// Eight that compute without a sleep share four cores while eight others have the rest; once those are gone, each has a core
/// of its own, in another cache too.
#[test]
fn who_shares_a_core_leaves_for_a_whole_one() {
    let mut machine = machine(16, 2, true, 9);
    for cpu in 8..16 {
        let mut done = false;
        let leaver = move |_: &mut Ctx<'_>| {
            done = !done;
            if done {
                Op::Run { work_ns: 50 * MS }
            } else {
                Op::Exit
            }
        };
        let spec = TaskSpec {
            cpus: Some(CpuSet::single(CpuId(cpu))),
            ..TaskSpec::new("leaver", GroupId::ROOT, Box::new(leaver))
        };
        machine.spawn(spec).unwrap();
    }
    for _ in 0..8 {
        machine
            .spawn(TaskSpec::new("hog", GroupId::ROOT, hog()))
            .unwrap();
    }
    machine.run_until(40 * MS).unwrap();
    let busy = |machine: &Machine| {
        let of = |core: u32| [2 * core, 2 * core + 1].map(|cpu| machine.cpu_busy_ns(CpuId(cpu)));
        (0..8)
            .map(|core| of(core).iter().sum())
            .collect::<Vec<u64>>()
    };
    assert!(
        busy(&machine)[..4].iter().all(|busy| *busy >= 79 * MS),
        "{:?}",
        busy(&machine)
    );
    // A slice is 3 ms; no task is crowded by one that has been there for less than a quarter of one.
    machine.run_until(200 * MS).unwrap();
    let from = busy(&machine);
    machine.run_until(300 * MS).unwrap();
    for (core, (to, from)) in busy(&machine).iter().zip(from).enumerate() {
        assert!(
            (to - from).abs_diff(100 * MS) <= MS,
            "core {core}: {}",
            to - from
        );
    }
}

/// For who shares a core the next sixteen CPUs of his cache are looked at, and then any of the machine.
#[test]
fn beyond_the_next_cpus_any_whole_core_will_do() {
    for (gone, goes_to) in [(50, 0), (48, 48)] {
        let mut config = MachineConfig::new(64);
        config.topology = Topology::new(64, 2, 32);
        config.scheduler = Scheduler::Ext(ExtConfig::for_cpus(64));
        config.check = true;
        let mut machine = Machine::new(config).unwrap();
        for cpu in (0..64).filter(|cpu| ![32, 33].contains(cpu)) {
            let leaves = cpu < 2 || cpu >= gone;
            let program = move |ctx: &mut Ctx<'_>| match leaves && ctx.now_ns >= 40 * MS {
                true => Op::Exit,
                false => Op::Run { work_ns: 10 * MS },
            };
            let spec = TaskSpec {
                cpus: Some(CpuSet::single(CpuId(cpu))),
                ..TaskSpec::new("stays", GroupId::ROOT, Box::new(program))
            };
            machine.spawn(spec).unwrap();
        }
        for _ in 0..2 {
            let spec = TaskSpec::new("hog", GroupId::ROOT, hog());
            machine.spawn(spec).unwrap();
        }
        machine.run_until(100 * MS).unwrap();
        let core = [goes_to, goes_to + 1].map(CpuId);
        let busy = |machine: &Machine| core.map(|cpu| machine.cpu_busy_ns(cpu)).iter().sum::<u64>();
        let from = busy(&machine);
        machine.run_until(200 * MS).unwrap();
        let got = busy(&machine) - from;
        assert!(got.abs_diff(100 * MS) <= MS, "core of {goes_to}: {got}");
    }
}
