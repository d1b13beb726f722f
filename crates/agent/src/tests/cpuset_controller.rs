//! Idle kept by the cpuset: confined while side work runs, in the journal first, taken off
//! whichever process dies and whatever fails.

use std::path::Path;

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::testkit::{FakeFs, Rule};
use tidegate_engine::ledger::Change;
use tidegate_engine::sync::lock;
use tidegate_terms::CpusetMode;

use super::life::steps;
use super::{Bed, Kind, PIDS, run, run_limited, set};
use crate::After;
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::runtime::cpuset_controller::poll_cpuset;

const V1_CPUSET: &str = "/sys/fs/cgroup/cpuset/tg-side";

/// v1 with a cpuset hierarchy, and v2.
fn beds() -> [Bed; 2] {
    [Kind::Mixed, Kind::V2].map(bed_of)
}

pub(super) fn bed_of(kind: Kind) -> Bed {
    let fake = match kind {
        Kind::V2 => FakeFs::v2(),
        _ => FakeFs::mixed_with_cpuset(),
    };
    Bed {
        cpuset: CpusetMode::On,
        ..Bed::on(kind, fake)
    }
}

/// The CPUs that side work is confined to; `None` for all.
pub(super) fn confined(bed: &Bed) -> Option<String> {
    let dir = match bed.kind {
        Kind::V2 => "/sys/fs/cgroup/tg-side",
        _ => V1_CPUSET,
    };
    let text = bed
        .fake
        .read(Path::new(&format!("{dir}/cpuset.cpus")))
        .ok()?;
    // With a process in it, v2 has no group go without.
    Some(text.trim().to_owned()).filter(|text| !text.is_empty() && text != "0-1")
}

fn polls(agent: &Agent, count: u32) {
    for _ in 0..count {
        poll_cpuset(&agent.gates, &agent.runtime);
    }
}

/// Side work that runs, confined: main takes 60 % of two CPUs, and a fifth is kept.
fn risen(bed: &Bed, agent: &Agent) {
    bed.main_uses(600_000);
    let terms = [("class", "side"), ("headroom", "20%")];
    run(agent, PIDS[0], &terms).unwrap();
    steps(bed, agent, 40);
    polls(agent, 1);
}

#[test]
fn side_work_is_confined_and_let_go() {
    for bed in beds() {
        let agent = bed.agent().unwrap();
        polls(&agent, 3);
        assert_eq!(confined(&bed), None, "nobody is there");
        // Main takes 60 % of two CPUs, a fifth is kept: side work needs one core.
        bed.main_uses(600_000);
        risen(&bed, &agent);
        assert_eq!(confined(&bed).as_deref(), Some("1"), "{:?}", bed.kind);
        assert_eq!(
            bed.file("/tg-side", "cpu.idle"),
            "0",
            "the least weight instead"
        );
        let sentence = lock(&agent.runtime.cpuset).sentence();
        assert!(
            sentence.starts_with("by cpuset: side work on one whole core, CPUs 1, weight 1"),
            "{sentence}"
        );
        if bed.kind == Kind::Mixed {
            assert!(bed.place(PIDS[0]).contains("cpuset:/tg-side"));
            // A second command is in before it runs.
            run_limited(&agent, PIDS[1]).unwrap();
            assert!(bed.place(PIDS[1]).contains("cpuset:/tg-side"));
        }
        agent.leave();
        assert_eq!(confined(&bed), None);
        assert_eq!(bed.file("/tg-side", "cpu.idle"), "1", "orphans yield");
        assert!(bed.place(PIDS[0]).contains("cpuset:/\n") || bed.kind == Kind::V2);
    }
}

/// Main's wakeups would wait behind work of weight 1 on CPUs that nothing keeps free.
#[test]
fn where_no_idle_is_to_be_kept_side_work_has_every_cpu_and_is_in_the_idle_class() {
    for bed in beds() {
        let agent = bed.agent().unwrap();
        bed.main_uses(600_000);
        let terms = [("class", "side"), ("headroom", "0%")];
        run(&agent, PIDS[0], &terms).unwrap();
        let seen = |headroom: &str| {
            set(&agent, "gate:job", &[("headroom", headroom)]).unwrap();
            steps(&bed, &agent, 40);
            polls(&agent, 11);
            (confined(&bed), bed.file("/tg-side", "cpu.idle"))
        };
        let free = (None, "1".to_owned());
        assert_eq!(seen("0%"), free, "{:?}", bed.kind);
        assert!(
            lock(&agent.runtime.cpuset)
                .sentence()
                .starts_with("by the idle class alone")
        );
        assert_eq!(seen("20%"), (Some("1".to_owned()), "0".to_owned()));
        // Not at once: main may be busy again in a moment.
        assert_eq!(seen("0%"), (Some("1".to_owned()), "0".to_owned()));
    }
}

#[test]
fn with_the_last_gate_nothing_of_it_is_left() {
    for bed in beds() {
        let agent = bed.agent().unwrap();
        risen(&bed, &agent);
        assert!(confined(&bed).is_some());
        bed.fake.end_process(PIDS[0]);
        let mut housekeeping = Housekeeping::new(None);
        for _ in 0..3 {
            housekeeping.poll_gates(&agent.gates, &agent.runtime);
        }
        polls(&agent, 11);
        assert_eq!(confined(&bed), None);
        let journal = agent.runtime.journal();
        let left = |change: &Change| matches!(change, Change::Cpuset { .. });
        assert!(!journal.entries().any(|entry| left(&entry.change)));
        assert!(!bed.fake.exists(Path::new(V1_CPUSET)));
    }
}

#[test]
fn an_outside_cpuset_is_written_again_once_and_then_left_alone() {
    let bed = bed_of(Kind::V2);
    let agent = bed.agent().unwrap();
    risen(&bed, &agent);
    let mut housekeeping = Housekeeping::new(None);
    let theirs = Path::new("/sys/fs/cgroup/tg-side/cpuset.cpus");
    bed.fake.write(theirs, "0").unwrap();
    housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
    assert_eq!(confined(&bed).as_deref(), Some("1"));
    bed.fake.write(theirs, "0").unwrap();
    housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
    polls(&agent, 12);
    assert_eq!(confined(&bed).as_deref(), Some("0"));
    let sentence = lock(&agent.runtime.cpuset).sentence();
    assert!(sentence.contains("another program"), "{sentence}");
    assert_eq!(
        bed.file("/tg-side", "cpu.idle"),
        "1",
        "it yields as without"
    );
    agent.leave();
    assert_eq!(confined(&bed).as_deref(), Some("0"), "theirs");
}

#[test]
fn a_dead_agents_side_work_yields_and_the_next_goes_on_or_lets_go() {
    for mode in [CpusetMode::On, CpusetMode::Off] {
        for mut bed in beds() {
            risen(&bed, &bed.agent().unwrap());
            let stood = confined(&bed);
            assert!(stood.is_some());
            let (_, mut journal) = bed.without_agent();
            journal.fall_back(0);
            assert_eq!(bed.file("/tg-side", "cpu.idle"), "1");
            assert!(bed.is_limited("/tg-side"));
            assert_eq!(confined(&bed), stood, "that costs main nothing");
            drop(journal);
            bed.cpuset = mode;
            let next = bed.agent().unwrap();
            steps(&bed, &next, 40);
            polls(&next, 11);
            let out_of_idle = bed.file("/tg-side", "cpu.idle") == "0";
            assert_eq!(
                (confined(&bed).is_some(), out_of_idle),
                (mode == CpusetMode::On, mode == CpusetMode::On),
                "{mode}"
            );
        }
    }
}

#[test]
fn repair_takes_it_off() {
    for bed in beds() {
        risen(&bed, &bed.agent().unwrap());
        bed.fake.end_process(PIDS[0]);
        bed.repair(After::End).unwrap();
        assert_eq!(confined(&bed), None);
        assert!(!bed.fake.exists(Path::new(V1_CPUSET)));
    }
}

/// Each operation fails once, with each answer: side work keeps its quota, and nothing is left
/// behind in the end.
#[test]
fn whatever_fails_side_work_is_limited_and_nothing_stays() {
    let mut faults = 0;
    for kind in [Kind::Mixed, Kind::V2] {
        for errno in [libc::ENOENT, libc::EACCES, libc::ENOSPC, libc::EIO] {
            for nth in 0.. {
                let bed = bed_of(kind);
                let agent = bed.agent().unwrap();
                bed.main_uses(600_000);
                let terms = [("class", "side"), ("headroom", "20%")];
                run(&agent, PIDS[0], &terms).unwrap();
                steps(&bed, &agent, 40);
                let before = bed.fs.count();
                bed.fs.add(Rule::nth(before + nth, errno));
                polls(&agent, 11);
                let done = bed.fs.count() - before;
                bed.fs.clear();
                let what = format!("errno {errno}, operation {nth}");
                let quota = if kind == Kind::V2 {
                    "cpu.max"
                } else {
                    "cpu.cfs_quota_us"
                };
                let limit = bed.file("/tg-side", quota);
                assert!(!limit.starts_with("max") && limit != "-1", "{what}");
                polls(&agent, 11);
                assert!(confined(&bed).is_some(), "{what}: it goes on");
                bed.fake.end_process(PIDS[0]);
                agent.leave();
                assert_eq!(confined(&bed), None, "{what}");
                assert!(!bed.fake.exists(Path::new(V1_CPUSET)), "{what}");
                faults += 1;
                if nth > done {
                    break;
                }
            }
        }
    }
    println!("{faults} faults");
}
