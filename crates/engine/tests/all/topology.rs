//! Which CPUs belong together, read from a tree in memory and from this machine.

use tidegate_cgroup::RealFs;
use tidegate_cgroup::cpus;
use tidegate_cgroup::testkit::FakeFs;
use tidegate_cgroup::topology::{Core, Topology};

fn describe(fs: &FakeFs, cpu: u32, siblings: &str, llc: &str) {
    let base = format!("/sys/devices/system/cpu/cpu{cpu}");
    fs.set_file(&format!("{base}/topology/core_cpus_list"), siblings);
    for (index, level, kind, shared) in [
        (0, 1, "Data", siblings),
        (1, 1, "Instruction", siblings),
        (2, 2, "Unified", siblings),
        (3, 3, "Unified", llc),
    ] {
        let cache = format!("{base}/cache/index{index}");
        fs.set_file(&format!("{cache}/level"), &format!("{level}\n"));
        fs.set_file(&format!("{cache}/type"), &format!("{kind}\n"));
        fs.set_file(&format!("{cache}/shared_cpu_list"), shared);
    }
}

fn core(llc: u32, cpus: &[u32]) -> Core {
    Core {
        llc,
        cpus: cpus.to_vec(),
    }
}

/// Two caches of two cores of two threads, numbered as x86 servers do: siblings are half a machine
/// apart.
fn server() -> FakeFs {
    let fs = FakeFs::v2();
    fs.set_file("/sys/devices/system/cpu/online", "0-7\n");
    for cpu in 0..8 {
        let first = cpu % 4;
        let llc = if first < 2 { "0-1,4-5\n" } else { "2-3,6-7\n" };
        describe(&fs, cpu, &format!("{first},{}\n", first + 4), llc);
    }
    fs
}

#[test]
fn cores_and_caches_are_read() {
    let got = Topology::read(&server()).unwrap();
    assert_eq!(
        got.cores(),
        [
            core(0, &[0, 4]),
            core(0, &[1, 5]),
            core(2, &[2, 6]),
            core(2, &[3, 7])
        ]
    );
    assert!(got.shares_cores());
    assert_eq!(got.cpus(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_cpu_that_is_offline_is_no_part_of_its_core() {
    let fs = server();
    fs.set_file("/sys/devices/system/cpu/online", "0-3,5-7\n");
    let got = Topology::read(&fs).unwrap();
    assert_eq!(got.cores()[0], core(0, &[0]));
    assert_eq!(got.cpus(), [0, 1, 2, 3, 5, 6, 7]);
}

#[test]
fn a_machine_that_does_not_say_has_cores_of_one_thread_and_one_cache() {
    let fs = FakeFs::v2();
    fs.set_file("/sys/devices/system/cpu/online", "0-2\n");
    let got = Topology::read(&fs).unwrap();
    assert_eq!(got.cores(), [core(0, &[0]), core(0, &[1]), core(0, &[2])]);
    assert!(!got.shares_cores());
}

/// Siblings that do not agree with each other must not make a CPU belong to two cores.
#[test]
fn contradictions_leave_each_cpu_in_one_core() {
    let fs = FakeFs::v2();
    fs.set_file("/sys/devices/system/cpu/online", "0-3\n");
    for (cpu, siblings) in [(0, "0-1"), (1, "1-2"), (2, "0-2"), (3, "0")] {
        describe(&fs, cpu, siblings, "0-3");
    }
    let got = Topology::read(&fs).unwrap();
    assert_eq!(got.cpus(), [0, 1, 2, 3]);
    assert_eq!(
        got.cores(),
        [core(0, &[0, 1]), core(0, &[2]), core(0, &[3])]
    );
}

#[test]
fn this_machine_has_each_of_its_cpus_once() {
    let fs = RealFs::new();
    let got = Topology::read(&fs).unwrap();
    assert_eq!(got.cpus(), cpus::online(&fs).unwrap());
}
