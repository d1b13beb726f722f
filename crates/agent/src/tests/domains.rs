//! Headroom on main's own CPUs: found by its cpuset, kept by side work's, and machine-wide where that cannot be.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::testkit::FakeFs;
use tidegate_engine::clock::Clock;
use tidegate_engine::domain::Keeps;
use tidegate_engine::sync::lock;
use tidegate_terms::CpusetMode;

use super::life::steps;
use super::sim_clock::in_time;
use super::{Bed, Kind, PIDS, run_side, set};
use crate::agent::Agent;
use crate::runtime::cpuset_controller::poll_cpuset;
use crate::runtime::domains::poll_domains;
use crate::runtime::mains::poll_vacant;

const KINDS: [Kind; 2] = [Kind::Mixed, Kind::V2];

/// Two CPUs, and a main group that has the first.
fn bed(kind: Kind) -> Bed {
    let fake = match kind {
        Kind::V2 => FakeFs::v2(),
        _ => FakeFs::mixed_with_cpuset(),
    };
    let bed = Bed {
        cpuset: CpusetMode::Auto,
        ..Bed::on(kind, fake)
    };
    let write = |path: &str, text: &str| bed.fake.write(Path::new(path), text).unwrap();
    match kind {
        Kind::V2 => {
            write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
            bed.fake.mkdir(Path::new("/sys/fs/cgroup/web")).unwrap();
            write("/sys/fs/cgroup/web/cgroup.procs", &PIDS[1].to_string());
            write("/sys/fs/cgroup/web/cpuset.cpus", "0");
        }
        _ => {
            bed.fake.mkdir(Path::new("/sys/fs/cgroup/cpu/web")).unwrap();
            let own = "/sys/fs/cgroup/cpuset/first";
            bed.fake.mkdir(Path::new(own)).unwrap();
            write(&format!("{own}/cpuset.cpus"), "0");
            write(&format!("{own}/cpuset.mems"), "0");
            write(&format!("{own}/cgroup.procs"), &PIDS[1].to_string());
            write("/sys/fs/cgroup/cpu/web/cgroup.procs", &PIDS[1].to_string());
        }
    }
    bed
}

fn main_gate(agent: &Agent) {
    let terms = [("class", "main"), ("headroom", "30%")];
    set(agent, "cgroup:/web", &terms).unwrap();
}

fn side_cpus(bed: &Bed) -> String {
    let dir = match bed.kind {
        Kind::V2 => "/sys/fs/cgroup/tg-side",
        _ => "/sys/fs/cgroup/cpuset/tg-side",
    };
    let file = format!("{dir}/cpuset.cpus");
    let text = bed.fs.inner().read(Path::new(&file)).unwrap_or_default();
    // With a process in it, v2 has no group go without.
    text.trim().replace("0-1", "")
}

/// Rate of the side root's quota, percent of one CPU.
fn quota_pct(bed: &Bed) -> u64 {
    let text = match bed.kind {
        Kind::V2 => bed.file("/tg-side", "cpu.max"),
        _ => format!(
            "{} {}",
            bed.file("/tg-side", "cpu.cfs_quota_us"),
            bed.file("/tg-side", "cpu.cfs_period_us")
        ),
    };
    let words: Vec<u64> = text
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    100 * words[0] / words[1]
}

#[test]
fn side_work_leaves_mains_cpus_and_has_the_rest_without_a_quota() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        main_gate(&agent);
        run_side(&agent, PIDS[0]).unwrap();
        let domains = agent.runtime.control().demand().domains.clone();
        assert_eq!(
            (&*domains[0].cpus, domains[0].keeps),
            (&[0][..], Keeps::Cpuset)
        );
        // Not yet confined: the domain's law limits all side work.
        bed.sensor.main_ppm.store(500_000, Ordering::Relaxed);
        steps(&bed, &agent, 100);
        assert!(quota_pct(&bed) <= 20, "{kind:?}: {}", quota_pct(&bed));
        poll_cpuset(&agent.gates, &agent.runtime);
        assert_eq!(side_cpus(&bed), "1", "{kind:?}");
        steps(&bed, &agent, 100);
        assert_eq!(quota_pct(&bed), 400, "{kind:?}");
        let status = agent.status();
        assert_eq!((&*status.free_cpus, &*status.domains[0].cpus), ("1", "0"));
        let explained = agent.explain("gate:job").unwrap();
        assert_eq!(explained.binding, "demand");
        assert!(
            explained.arithmetic[1].contains("30 % by gate"),
            "{:?}",
            explained.arithmetic
        );
        // Main is let out of its cpuset: its headroom is the machine's again.
        if kind == Kind::V2 {
            bed.fake
                .write(Path::new("/sys/fs/cgroup/web/cpuset.cpus"), "0-1")
                .unwrap();
        } else {
            let all = Path::new("/sys/fs/cgroup/cpuset/cgroup.procs");
            bed.fake.write(all, &PIDS[1].to_string()).unwrap();
        }
        poll_domains(&agent.gates, &agent.runtime);
        poll_cpuset(&agent.gates, &agent.runtime);
        assert_eq!(side_cpus(&bed), "", "{kind:?}");
        steps(&bed, &agent, 100);
        assert!(quota_pct(&bed) < 50, "{kind:?}: {}", quota_pct(&bed));
        agent.leave();
    }
}

#[test]
fn the_quota_comes_back_before_the_cpuset_goes() {
    for kind in KINDS {
        let bed = bed(kind);
        let agent = bed.agent().unwrap();
        main_gate(&agent);
        run_side(&agent, PIDS[0]).unwrap();
        bed.sensor.main_ppm.store(500_000, Ordering::Relaxed);
        poll_cpuset(&agent.gates, &agent.runtime);
        steps(&bed, &agent, 100);
        assert_eq!(quota_pct(&bed), 400);
        // Another writer insists on side work's cpuset: machine-wide from then on, and said.
        lock(&agent.runtime.cpuset).leave_alone();
        poll_domains(&agent.gates, &agent.runtime);
        steps(&bed, &agent, 100);
        assert!(quota_pct(&bed) < 50, "{kind:?}: {}", quota_pct(&bed));
        let notes = agent.status().domain_notes;
        assert!(notes[0].contains("another program"), "{notes:?}");
        agent.leave();
    }
}

#[test]
fn where_side_work_is_not_to_be_confined_it_is_machine_wide() {
    for kind in KINDS {
        let bed = Bed {
            cpuset: CpusetMode::Off,
            ..bed(kind)
        };
        let agent = bed.agent().unwrap();
        main_gate(&agent);
        run_side(&agent, PIDS[0]).unwrap();
        let demand = agent.runtime.control().demand().clone();
        assert_eq!((demand.headroom_ppm, demand.domains.len()), (300_000, 0));
        let notes = agent.status().domain_notes;
        assert!(notes[0].contains("cpuset = off"), "{notes:?}");
    }
}

#[test]
fn a_dead_agents_side_work_is_at_the_floor_and_off_mains_cpus() {
    for kind in KINDS {
        let bed = bed(kind);
        {
            let agent = bed.agent().unwrap();
            main_gate(&agent);
            run_side(&agent, PIDS[0]).unwrap();
            poll_cpuset(&agent.gates, &agent.runtime);
            steps(&bed, &agent, 100);
        }
        let (_, mut journal) = bed.without_agent();
        journal.fall_back(0);
        assert!(bed.is_limited("/tg-side"));
        assert_eq!((quota_pct(&bed) <= 2, &*side_cpus(&bed)), (true, "1"));
        drop(journal);
        let next = bed.agent().unwrap();
        poll_cpuset(&next.gates, &next.runtime);
        steps(&bed, &next, 100);
        assert_eq!((quota_pct(&bed), &*side_cpus(&bed)), (400, "1"));
        next.leave();
        assert_eq!(side_cpus(&bed), "");
        assert!(bed.is_limited("/tg-side"));
    }
}

#[test]
fn a_main_gate_without_tasks_for_a_second_has_no_headroom_and_at_once_with_the_first() {
    for kind in super::KINDS {
        let (bed, clock) = in_time(Bed::new(kind));
        let agent = bed.agent().unwrap();
        let after = |ms| {
            clock.sleep(Duration::from_millis(ms));
            poll_domains(&agent.gates, &agent.runtime);
        };
        run_side(&agent, PIDS[0]).unwrap();
        let asked = || agent.runtime.control().demand().headroom_ppm;
        let enter = |group: &str| {
            let procs = format!("{}{group}/cgroup.procs", super::cpu_mount(kind));
            bed.fake
                .write(Path::new(&procs), &PIDS[1].to_string())
                .unwrap();
        };
        let terms = [("class", "main"), ("headroom", "50%")];
        set(&agent, "cgroup:/other", &terms).unwrap();
        after(500);
        assert_eq!(asked(), 500_000, "{kind:?}: it may be a restart");
        after(500);
        assert_eq!(asked(), 200_000, "{kind:?}: as without it");
        poll_vacant(&agent.gates, &agent.runtime);
        assert_eq!(asked(), 200_000, "{kind:?}: still without tasks");
        enter("/other");
        poll_vacant(&agent.gates, &agent.runtime);
        assert_eq!(asked(), 500_000, "{kind:?}: a task");
        // Two short gaps are no long one.
        for _ in 0..2 {
            enter("");
            after(900);
            assert_eq!(asked(), 500_000, "{kind:?}: a restart");
            enter("/other");
            poll_vacant(&agent.gates, &agent.runtime);
        }
        enter("");
        after(1);
        after(1_000);
        assert_eq!(asked(), 200_000, "{kind:?}: none");
        // Also where it asks for less than the machine's default.
        let terms = [("class", "main"), ("headroom", "10%")];
        set(&agent, "cgroup:/other", &terms).unwrap();
        after(1_000);
        assert_eq!(asked(), 200_000, "{kind:?}: as without it");
        agent.leave();
    }
}
