//! Main gates: what they ask for while they have no tasks, and what `explain` says of CPUs of their
//! own.

use std::path::Path;
use std::time::Duration;

use tidegate_cgroup::KernelFs;
use tidegate_engine::clock::Clock;

use super::sim_clock::in_time;
use super::{Bed, Kind, PIDS, run_limited, run_side, set};
use crate::runtime::demand::poll_demand;
use crate::runtime::demand::poll_vacant;

#[test]
fn a_main_gate_without_tasks_for_a_second_has_no_headroom_and_at_once_with_the_first() {
    for kind in super::KINDS {
        let (bed, clock) = in_time(Bed::new(kind));
        let agent = bed.agent().unwrap();
        let after = |ms| {
            clock.sleep(Duration::from_millis(ms));
            poll_demand(&agent.gates, &agent.runtime);
        };
        run_limited(&agent, PIDS[0]).unwrap();
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
        assert_eq!(asked(), 500_000, "it may be a restart");
        after(500);
        assert_eq!(asked(), 200_000, "as without it");
        poll_vacant(&agent.gates, &agent.runtime);
        assert_eq!(asked(), 200_000, "still without tasks");
        enter("/other");
        poll_vacant(&agent.gates, &agent.runtime);
        assert_eq!(asked(), 500_000, "a task");
        // Two short gaps are no long one.
        for _ in 0..2 {
            enter("");
            after(900);
            assert_eq!(asked(), 500_000, "a restart");
            enter("/other");
            poll_vacant(&agent.gates, &agent.runtime);
        }
        enter("");
        after(1);
        after(1_000);
        assert_eq!(asked(), 200_000, "none");
        // Also where it asks for less than the machine's default.
        let terms = [("class", "main"), ("headroom", "10%")];
        set(&agent, "cgroup:/other", &terms).unwrap();
        after(1_000);
        assert_eq!(asked(), 200_000, "as without it");
        agent.leave();
    }
}

#[test]
fn explain_says_how_to_keep_side_work_off_mains_cpus() {
    let bed = Bed::new(Kind::V2);
    let write = |path: &str, text: &str| bed.fake.write(Path::new(path), text).unwrap();
    write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
    bed.fake.mkdir(Path::new("/sys/fs/cgroup/web")).unwrap();
    write("/sys/fs/cgroup/web/cgroup.procs", &PIDS[1].to_string());
    write("/sys/fs/cgroup/web/cpuset.cpus", "0");
    let agent = bed.agent().unwrap();
    let terms = [("class", "main"), ("headroom", "30%")];
    set(&agent, "cgroup:/web", &terms).unwrap();
    run_side(&agent, PIDS[0]).unwrap();
    for target in ["gate:job", "gate:web"] {
        let notes = agent.explain(target).unwrap().gate.notes.join("; ");
        assert!(
            notes.contains("gate web has CPUs 0, side work has CPUs 0-1,")
                && notes.contains("taskset -c 1 tidegate run --side"),
            "{target}: {notes}"
        );
    }
    agent.leave();
}
