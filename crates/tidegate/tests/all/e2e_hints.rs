//! Latency hints on the running kernel: kept across exec and fork, on every thread, and undone.
//! What the agent makes of them over its life is in its own tests, on a kernel in memory.

use crate::common::{Instance, children, or_skip, wait_for};
use tidegate_cgroup::sched::probe;
use tidegate_cgroup::{KernelFs, RealFs};

/// The instance, and the kernel's default slice; `None` with the reason printed where tasks take no
/// slices.
fn instance(name: &str) -> Option<(Instance, u64)> {
    let support = probe(&RealFs::new()).unwrap();
    if !support.slices {
        eprintln!("skipped: {name}: this kernel gives tasks no slices of their own");
        return None;
    }
    Some((Instance::new(name)?, support.base_ns))
}

/// Slices of a process's threads.
fn slices(pid: u32) -> Vec<u64> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tids = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.filter_map(|tid| Some(RealFs::new().sched(tid).ok()?.slice_ns))
        .collect()
}

const FIRST_NS: u64 = 100_000;

#[test]
fn a_command_has_it_from_its_first_instruction_and_so_has_what_it_forks() {
    let (instance, base_ns) = or_skip!(instance("hint-run"));
    let script = "sleep 60 & exec sleep 60";
    let shell = instance.background(
        &["--side", "--name", "hinted", "--latency", "-20"],
        &["sh", "-c", script],
    );
    instance.gate("hinted");
    wait_for("the exec and the fork", || {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", shell.pid()));
        comm.is_ok_and(|comm| comm == "sleep\n") && children(shell.pid()).len() == 1
    });
    let child = children(shell.pid())[0];
    assert_eq!(slices(shell.pid()), [FIRST_NS], "kept across exec");
    assert_eq!(slices(child), [FIRST_NS], "inherited by fork");
    wait_for("both to be counted", || {
        instance.gate("hinted")["latency"]["tasks"] == 2
    });
    let page = instance.ok(&["status", "hinted"]);
    assert!(page.contains("a slice of 0.100 ms"), "{page}");
    assert!(page.contains("run quantum"), "{page}");
    instance.ok(&["unset", "gate:hinted", "latency"]);
    assert_eq!(slices(shell.pid()), [base_ns]);
    assert_eq!(slices(child), [base_ns]);
}

#[test]
fn every_thread_of_a_process_has_it_and_gives_it_back() {
    let (instance, base_ns) = or_skip!(instance("hint-pid"));
    // The agent's own program with its threads, as a process that is not Tidegate's: it is another
    // instance's.
    let other = or_skip!(Instance::new("hint-other"));
    let _held = other.background(&["--side"], &["sleep", "60"]);
    let mut pid = 0;
    wait_for("an agent with threads", || {
        pid = other.agent().unwrap_or(0) as u32;
        slices(pid).len() > 2
    });
    let target = format!("pid:{pid}");
    // Its control loop may be real-time: then it has no slice, and is left alone.
    let all_have = |slice_ns: u64| {
        let fair: Vec<u64> = slices(pid).into_iter().filter(|ns| *ns > 0).collect();
        assert!(
            fair.len() > 1 && fair.iter().all(|ns| *ns == slice_ns),
            "{fair:?}"
        );
    };
    instance.ok(&["set", &target, "latency=-20"]);
    all_have(FIRST_NS);
    instance.ok(&["set", &target, "latency=3"]);
    // 1.25 to the hint, for a positive one.
    all_have((0..3).fold(base_ns, |slice_ns, _| slice_ns * 5 / 4));
    instance.ok(&["unset", &target]);
    all_have(base_ns);
    instance.gone();
}
