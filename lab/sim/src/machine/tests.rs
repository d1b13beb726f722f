//! The checker sees what it is there for.

use super::Machine;
use crate::{Bandwidth, CpuId, Ctx, GroupId, GroupSpec, MachineConfig, Op, TaskSpec};

const MS: u64 = 1_000_000;

/// The checker is told of less quota than the class was: what the class then gives must be called
/// too much.
#[test]
fn too_much_quota_is_seen() {
    for told_us in [50_000, 49_000] {
        let mut config = MachineConfig::new(2);
        config.check = true;
        let mut machine = Machine::new(config).unwrap();
        let limited = GroupSpec {
            bandwidth: Some(Bandwidth {
                quota_us: Some(50_000),
                period_us: 100_000,
                burst_us: 0,
            }),
            ..GroupSpec::new("limited", GroupId::ROOT)
        };
        let group = machine.add_group(limited).unwrap();
        for _ in 0..2 {
            let hog = Box::new(|_: &mut Ctx<'_>| Op::Run { work_ns: 10 * MS });
            machine.spawn(TaskSpec::new("hog", group, hog)).unwrap();
        }
        machine.k.groups[group.index()].bandwidth.quota_us = Some(told_us);
        let checker = machine.checker.as_mut().unwrap();
        checker.limit_changed(&machine.k, group);
        // 1 ms a period too much passes 49 ms + 2 · (5 + 4) ms in some 70 periods.
        let ran = machine.run_until(20_000 * MS);
        let name = ran.map_err(|violation| violation.rule);
        let expected = if told_us == 50_000 {
            Ok(())
        } else {
            Err("bandwidth")
        };
        assert_eq!(name, expected);
    }
}

#[test]
fn a_task_that_is_forgotten_beside_an_idle_cpu_is_seen() {
    for pretend in [false, true] {
        let mut config = MachineConfig::new(2);
        config.check = true;
        let mut machine = Machine::new(config).unwrap();
        // The last hog waits for seconds.
        for nice in [-20, -20, 19] {
            let hog = Box::new(|_: &mut Ctx<'_>| Op::Run { work_ns: 10 * MS });
            let spec = TaskSpec {
                nice,
                ..TaskSpec::new("hog", GroupId::ROOT, hog)
            };
            machine.spawn(spec).unwrap();
        }
        machine.run_until(50 * MS).unwrap();
        if pretend {
            machine.k.idle.insert(CpuId(1));
            machine.k.cpus[1].idle_since = 0;
        }
        let ran = machine.run_until(2_000 * MS);
        let rule = ran.map_err(|violation| violation.rule);
        let expected = if pretend {
            Err("work conservation")
        } else {
            Ok(())
        };
        assert_eq!(rule, expected);
    }
}
