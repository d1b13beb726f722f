//! Caps by ext: accuracy, after a sleep, soft, no other work's CPU, and fork storms.

use tidegate_sim::machine::Machine;
use tidegate_sim::{CapScope, CapTerms, Class, Ctx, GroupId, GroupSpec, Op, TaskSpec};

use super::bed::{MS, SECOND, hog, machine};

const NONE: u32 = u32::MAX;

fn capped(machine: &mut Machine, hard_ppt: u32, soft_ppt: u32, scope: CapScope) -> GroupId {
    let cap = Some(CapTerms {
        hard_ppt,
        soft_ppt,
        scope,
    });
    let spec = GroupSpec {
        cap,
        ..GroupSpec::new("capped", GroupId::ROOT)
    };
    machine.add_group(spec).unwrap()
}

#[test]
fn hard_caps_hold_to_a_thousandth_over_a_second() {
    for ppt in [1, 5, 20, 100, 250, 500, 750, 999] {
        let mut machine = machine(2, 1, true, 5);
        let group = capped(&mut machine, ppt, NONE, CapScope::Group);
        machine.spawn(TaskSpec::new("hog", group, hog())).unwrap();
        let other = machine
            .add_group(GroupSpec::new("other", GroupId::ROOT))
            .unwrap();
        machine.spawn(TaskSpec::new("hog", other, hog())).unwrap();
        let mut last = 0;
        for second in 1..=5 {
            machine.run_until(second * SECOND).unwrap();
            let used = machine.usage_ns(group);
            let got_ppm = (used - last) * 1_000_000 / SECOND;
            last = used;
            println!("{ppt} thousandths: {got_ppm} ppm in second {second}");
            assert!(
                // And to a hundredth of itself: a bucket that was full lost what came in while its task ran.
                got_ppm.abs_diff(u64::from(ppt) * 1_000) <= u64::from(ppt * 10).min(1_000),
                "{ppt}: {got_ppm} ppm"
            );
        }
    }
}

/// After a sleep no more than the depth (10 ms of the rate) on top of the rate.
#[test]
fn a_sleep_saves_up_no_more_than_the_depth() {
    let mut machine = machine(1, 1, true, 5);
    let group = capped(&mut machine, 200, NONE, CapScope::Group);
    let mut sleeps = true;
    let program = move |_: &mut Ctx<'_>| {
        sleeps = !sleeps;
        if sleeps {
            Op::Sleep { for_ns: 400 * MS }
        } else {
            Op::Run { work_ns: 60 * MS }
        }
    };
    machine
        .spawn(TaskSpec::new("bursty", group, Box::new(program)))
        .unwrap();
    let mut used = vec![0];
    for step in 1..=600 {
        machine.run_until(step * 5 * MS).unwrap();
        used.push(machine.usage_ns(group));
    }
    for span in [1, 2, 10, 40] {
        let bound = span as u64 * MS + 2 * MS + 20_000;
        let most = used
            .windows(span + 1)
            .map(|w| w[span] - w[0])
            .max()
            .unwrap();
        println!("over {} ms: at most {most} ns, bound {bound}", span * 5);
        assert!(most <= bound, "{most} > {bound}");
    }
}

/// Hogs that start at different moments on several CPUs share one bound, and have the rate.
#[test]
fn hogs_that_join_keep_the_bound_of_one() {
    for (cpus, ppt) in [(2, 200), (2, 500), (2, 900), (4, 500), (4, 1_500), (8, 900)] {
        let mut machine = machine(cpus, 1, true, 5);
        let group = capped(&mut machine, ppt, NONE, CapScope::Group);
        for nth in 0..u64::from(cpus) {
            let spec = TaskSpec {
                start_ns: 100 * MS + nth * 300_000,
                ..TaskSpec::new("hog", group, hog())
            };
            machine.spawn(spec).unwrap();
        }
        let step_ns = 50_000;
        let (mut used, mut over, mut most) = (0, 0_i64, 0);
        for at in 1..=(600 * MS / step_ns) {
            machine.run_until(at * step_ns).unwrap();
            let now = machine.usage_ns(group);
            let due = step_ns * u64::from(ppt) / 1_000;
            over = (over + (now - used).cast_signed() - due.cast_signed()).max(0);
            most = most.max(over);
            used = now;
        }
        // A depth, the least loan, and a step of this reader.
        let bound = i64::from(ppt) * 10_000 + 10_000 + 50_000 * i64::from(cpus);
        println!("{cpus} CPUs, {ppt} ‰: {most} ns over rate * t, bound {bound}; {used} used");
        assert!(most <= bound, "{cpus} CPUs, {ppt}: {most} of {bound}");
        let due = 500 * MS * u64::from(ppt) / 1_000;
        assert!(used + MS >= due, "{cpus} CPUs, {ppt}: {used} of {due}");
    }
}

/// Soft: as much as there is on an idle machine, its rate on a busy one, at once.
#[test]
fn soft_caps_yield_when_other_work_wants_the_cpu() {
    for soft_ppt in [0, 100] {
        let mut machine = machine(1, 1, true, 5);
        let group = capped(&mut machine, NONE, soft_ppt, CapScope::Group);
        machine.spawn(TaskSpec::new("hog", group, hog())).unwrap();
        let other = machine
            .add_group(GroupSpec::new("other", GroupId::ROOT))
            .unwrap();
        let spec = TaskSpec {
            start_ns: SECOND,
            ..TaskSpec::new("hog", other, hog())
        };
        machine.spawn(spec).unwrap();
        machine.run_until(SECOND).unwrap();
        let alone = machine.usage_ns(group);
        assert!(
            alone >= SECOND - MS,
            "an idle machine is all its own: {alone}"
        );
        machine.run_until(SECOND + 4 * MS).unwrap();
        let tick = machine.usage_ns(group) - alone;
        assert!(tick <= 3 * MS, "it yields within a tick: {tick}");
        machine.run_until(3 * SECOND).unwrap();
        let beside = machine.usage_ns(group) - alone;
        println!("soft {soft_ppt}: {beside} ns of 2 s beside a hog");
        let due = 2 * MS * u64::from(soft_ppt);
        assert!(beside.abs_diff(due) <= 3 * MS, "{beside} for {due}");
    }
}

/// A storm of short-lived children under a cap of 100: one bucket for all, or one each.
#[test]
fn a_fork_storm_does_not_multiply_a_groups_cap() {
    for scope in [CapScope::Group, CapScope::Task] {
        let mut machine = machine(4, 1, true, 5);
        let group = capped(&mut machine, 100, NONE, scope);
        let mut step = 0;
        let storm = move |_: &mut Ctx<'_>| {
            step += 1;
            if step % 2 == 0 {
                return Op::Sleep { for_ns: 5 * MS };
            }
            let mut left = 4;
            let child = move |_: &mut Ctx<'_>| {
                left -= 1;
                if left == 0 {
                    Op::Exit
                } else {
                    Op::Run { work_ns: MS }
                }
            };
            let child = TaskSpec::new("child", GroupId::ROOT, Box::new(child));
            Op::Fork {
                child: Box::new(child),
            }
        };
        machine
            .spawn(TaskSpec::new("storm", group, Box::new(storm)))
            .unwrap();
        machine.run_until(4 * SECOND).unwrap();
        let used_ppt = machine.usage_ns(group) * 1_000 / (4 * SECOND);
        println!("{scope:?}: {used_ppt} thousandths");
        if scope == CapScope::Group {
            assert!((95..=101).contains(&used_ppt), "{used_ppt}");
        } else {
            // Each child has a rate of its own; no child exceeds it.
            assert!((101..=700).contains(&used_ppt), "{used_ppt}");
        }
    }
}

/// Background work fills every CPU that no other work wants; side work is not that, also under a soft cap.
#[test]
fn side_work_out_of_its_soft_cap_keeps_the_headroom() {
    for soft_ppt in [0, 500] {
        let mut machine = machine(8, 1, true, 5);
        let web = GroupSpec {
            class: Class::Main,
            headroom_ppm: 300_000,
            ..GroupSpec::new("web", GroupId::ROOT)
        };
        let web = machine.add_group(web).unwrap();
        let side = GroupSpec {
            class: Class::Side,
            cap: Some(CapTerms {
                hard_ppt: NONE,
                soft_ppt,
                scope: CapScope::Group,
            }),
            ..GroupSpec::new("side", GroupId::ROOT)
        };
        let side = machine.add_group(side).unwrap();
        for (group, tasks) in [(web, 2), (side, 8)] {
            for _ in 0..tasks {
                machine.spawn(TaskSpec::new("hog", group, hog())).unwrap();
            }
        }
        machine.run_until(SECOND).unwrap();
        let before = machine.usage_ns(side);
        machine.run_until(2 * SECOND).unwrap();
        // Of 8 CPUs main has 2 and 2.4 stay idle.
        let got = (machine.usage_ns(side) - before) * 1_000 / SECOND;
        assert!(got.abs_diff(3_600) <= 40, "soft {soft_ppt}: {got} ‰");
    }
}
