//! Groups' cpusets, over trees in memory and on this machine (as root).

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidegate_cgroup::cpus;
use tidegate_cgroup::discover::discover;
use tidegate_cgroup::group::{GatherReport, GroupPath, Groups};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess};
use tidegate_cgroup::{KernelFs, RealFs};
use tidegate_engine::ledger::{Change, Fallback, Outcome};

use crate::support::{Bed, path};

const ONLINE: &str = "/sys/devices/system/cpu/online";
const PIDS: [i32; 3] = [201, 202, 203];

/// A machine of 8 CPUs with a side root that has two gates and a process in each; one process is
/// elsewhere.
fn bed(fake: FakeFs) -> (Bed, GroupPath) {
    fake.set_file(ONLINE, "0-7\n");
    for pid in PIDS {
        fake.add_process(FakeProcess::new(pid));
    }
    let bed = Bed::new(fake);
    assert_eq!(bed.groups.cpuset_refusal(), None);
    for (gate, pid) in [("/tg-side/a", PIDS[0]), ("/tg-side/b", PIDS[1])] {
        bed.groups.create(&path(gate)).unwrap();
        bed.groups.place(&path(gate), pid).unwrap();
    }
    (bed, path("/tg-side"))
}

fn v1() -> (Bed, GroupPath) {
    bed(FakeFs::mixed_with_cpuset())
}

fn v2() -> (Bed, GroupPath) {
    bed(FakeFs::v2())
}

#[test]
fn v1_leaves_a_process_in_the_cpuset_that_somebody_gave_it() {
    let (bed, root) = v1();
    let (fake, groups) = (bed.fs.inner(), &bed.groups);
    let theirs = "/sys/fs/cgroup/cpuset/theirs";
    fake.mkdir(Path::new(theirs)).unwrap();
    for (name, value) in [
        ("cpuset.mems", "0"),
        ("cpuset.cpus", "0-1"),
        ("cgroup.procs", "202"),
    ] {
        fake.write(Path::new(&format!("{theirs}/{name}")), value)
            .unwrap();
    }
    groups.open_cpuset(&root).unwrap();
    let gathered = groups.gather_cpuset(&root).unwrap();
    assert_eq!(
        gathered,
        GatherReport {
            moved: 1,
            others: 1
        }
    );
    assert_eq!(fake.text(&format!("{theirs}/cgroup.procs")), "202");
}

#[test]
fn v1_lets_out_who_has_left_the_group() {
    let (bed, root) = v1();
    let (fake, groups) = (bed.fs.inner(), &bed.groups);
    groups.open_cpuset(&root).unwrap();
    groups.gather_cpuset(&root).unwrap();
    let confined = "/sys/fs/cgroup/cpuset/tg-side/cgroup.procs";
    assert_eq!(fake.text(confined), "201\n202");
    groups.place(&GroupPath::root(), PIDS[0]).unwrap();
    assert_eq!(
        groups.gather_cpuset(&root).unwrap(),
        GatherReport::default()
    );
    assert_eq!(fake.text(confined), "202");
    assert!(fake.text("/proc/201/cgroup").contains("cpuset:/\n"));
}

#[test]
fn v2_confines_the_group_itself_within_what_its_parent_has() {
    let (bed, root) = v2();
    let (fake, groups) = (bed.fs.inner(), &bed.groups);
    assert!(!groups.has_cpuset(&root));
    groups.open_cpuset(&root).unwrap();
    assert!(
        fake.text("/sys/fs/cgroup/cgroup.subtree_control")
            .contains("cpuset")
    );
    groups.set_cpuset(&root, &[4, 5, 6, 7]).unwrap();
    assert_eq!(fake.text("/sys/fs/cgroup/tg-side/cpuset.cpus"), "4-7");
    assert_eq!(
        groups.gather_cpuset(&root).unwrap(),
        GatherReport::default()
    );
    fake.set_file(ONLINE, "0-5\n");
    assert_eq!(
        fake.text("/sys/fs/cgroup/tg-side/cpuset.cpus.effective"),
        "4-5"
    );
    groups.close_cpuset(&root).unwrap();
    // The kernel refuses to empty the list of a group that somebody is in: all that there can be.
    assert!(groups.is_every_cpu(&groups.cpuset(&root).unwrap()));
    assert_eq!(
        fake.text("/sys/fs/cgroup/tg-side/cpuset.cpus.effective"),
        "0-5"
    );
}

#[test]
fn nobody_is_confined_to_nothing() {
    for (bed, root) in [v1(), v2()] {
        bed.groups.open_cpuset(&root).unwrap();
        let message = bed.groups.set_cpuset(&root, &[]).unwrap_err().to_string();
        assert!(message.contains("without CPUs"), "{message}");
    }
}

#[test]
fn a_machine_without_the_controller_says_so() {
    let fake = Arc::new(FakeFs::mixed());
    let machine = discover(&*fake, None).unwrap();
    let groups = Groups::new(fake, &machine);
    assert!(groups.cpuset_refusal().unwrap().contains("cpuset"));
}

/// The ledger of an agent that died while it confined a group restores the group's earlier cpuset.
#[test]
fn what_stood_before_us_comes_back() {
    let (bed, root) = v2();
    bed.groups.open_cpuset(&root).unwrap();
    bed.groups.set_cpuset(&root, &[0, 1, 2]).unwrap();
    let change = Change::Cpuset {
        was: vec![0, 1, 2],
        previous: vec![0, 1, 2],
        ours: vec![6, 7],
    };
    let entry = bed.entry(&root, change, Fallback::Stay);
    let id = bed.open().0.record(entry).unwrap();
    bed.groups.set_cpuset(&root, &[6, 7]).unwrap();
    let outcomes = bed.open().0.restore(&bed.groups, &[id]);
    assert_eq!(outcomes[0].1, Outcome::Restored);
    assert_eq!(bed.groups.cpuset(&root).unwrap(), [0, 1, 2]);
}

/// On this machine, as root: a process is confined, as its own affinity tells, and let go.
#[test]
fn this_machine_confines_and_lets_go() {
    let Some(mut bed) = crate::support::host::bed() else {
        return;
    };
    if let Some(why) = bed.groups.cpuset_refusal() {
        println!("skipped: {why}");
        return;
    }
    let all = cpus::online(&RealFs::new()).unwrap();
    let last = *all.last().unwrap();
    let pid = bed.sleeper();
    let allowed = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find(|l| l.starts_with("Cpus_allowed_list:"));
        cpus::parse_list(line.unwrap().split_once(':').unwrap().1.trim()).unwrap()
    };
    let (groups, top) = (&bed.groups, &bed.top);
    groups.place(top, pid).unwrap();
    groups.open_cpuset(top).unwrap();
    groups.set_cpuset(top, &[last]).unwrap();
    let began = Instant::now();
    groups.gather_cpuset(top).unwrap();
    let gathered = began.elapsed();
    assert_eq!(allowed(), [last]);
    let began = Instant::now();
    const WRITES: u32 = 20;
    for nth in 0..WRITES {
        let cpus = if nth % 2 == 0 { &all[..] } else { &[last] };
        groups.set_cpuset(top, cpus).unwrap();
    }
    println!(
        "a process gathered in {gathered:?}, a cpuset written in {:?}",
        began.elapsed() / WRITES
    );
    groups.close_cpuset(top).unwrap();
    assert_eq!(allowed(), all);
}
