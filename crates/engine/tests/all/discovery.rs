//! Discovery on fake machines of every layout, and on damaged ones.

use std::path::Path;

use tidegate_cgroup::discover::{CgroupVersion, DiscoverError, Writable, discover, probe_features};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess, Fault, FaultFs, Rule, SELF_PID};
use tidegate_cgroup::{KernelFs, Op};

#[test]
fn mixed_as_on_the_build_machine() {
    let machine = discover(&FakeFs::mixed(), None).unwrap();
    assert_eq!(machine.version, CgroupVersion::V1);
    assert_eq!(machine.cpu.mount, Path::new("/sys/fs/cgroup/cpu"));
    assert_eq!(
        machine.cpuacct.as_ref().unwrap().mount,
        Path::new("/sys/fs/cgroup/cpuacct")
    );
    assert!(machine.cpu.base.is_root());
    assert_eq!(machine.refusal(), None);
    assert_eq!(machine.online_cpus, [0, 1]);
    assert!(machine.features.idle.is_present() && machine.features.burst.is_present());
    assert!(machine.features.rt_group_sched.is_present());
}

#[test]
fn v1_with_cpu_and_cpuacct_together() {
    let machine = discover(&FakeFs::v1(), None).unwrap();
    assert_eq!(machine.version, CgroupVersion::V1);
    assert!(machine.cpuacct.is_none(), "one group serves both");
    assert_eq!(machine.used().count(), 1);
}

#[test]
fn v1_without_cpuacct_says_so() {
    let machine = discover(&FakeFs::with_mounts(&[(1, "/c", &["cpu"])]), None).unwrap();
    assert!(machine.cpuacct.is_none());
    assert!(
        machine
            .notes
            .iter()
            .any(|note| note.contains("no cpuacct hierarchy")),
        "{:?}",
        machine.notes
    );
}

#[test]
fn v2_without_and_with_cpu_handed_down() {
    let fs = FakeFs::v2();
    let machine = discover(&fs, None).unwrap();
    assert_eq!(machine.version, CgroupVersion::V2);
    assert!(
        machine.cpu_enabled.is_present(),
        "{}",
        machine.cpu_enabled.how
    );
    assert!(
        machine
            .features
            .idle
            .how
            .contains("no group shows its files"),
        "{:?}",
        machine.features.idle
    );

    let mut features = machine.features.clone();
    fs.write(Path::new("/sys/fs/cgroup/cgroup.subtree_control"), "+cpu")
        .unwrap();
    fs.hide_file("cpu.idle");
    probe_features(
        &fs,
        machine.version,
        &machine.cpu,
        "tidegate-probe",
        &mut features,
    )
    .unwrap();
    assert!(features.burst.is_present());
    assert_eq!(features.idle.present, Some(false));
    assert!(
        !fs.exists(Path::new("/sys/fs/cgroup/tidegate-probe")),
        "the probe is gone"
    );
}

#[test]
fn cpu_on_v2_beside_other_controllers_on_v1() {
    let fs = FakeFs::with_mounts(&[
        (1, "/sys/fs/cgroup/memory", &["memory"]),
        (2, "/sys/fs/cgroup/unified", &["cpu", "io"]),
    ]);
    let machine = discover(&fs, None).unwrap();
    assert_eq!(machine.version, CgroupVersion::V2);
    assert_eq!(machine.cpu.mount, Path::new("/sys/fs/cgroup/unified"));
}

#[test]
fn no_cpu_controller_anywhere() {
    let fs = FakeFs::with_mounts(&[
        (1, "/sys/fs/cgroup/memory", &["memory"]),
        (2, "/v2", &["io"]),
    ]);
    let message = discover(&fs, None).unwrap_err().to_string();
    assert!(
        message.contains("v1 /sys/fs/cgroup/memory [memory]"),
        "{message}"
    );
    assert!(message.contains("mount one"), "{message}");
    let message = discover(&FakeFs::with_mounts(&[]), None)
        .unwrap_err()
        .to_string();
    assert!(message.contains("no cgroup mount at all"), "{message}");
}

#[test]
fn a_read_only_tree_is_named() {
    let fs = FakeFs::mixed();
    fs.set_read_only(true);
    let machine = discover(&fs, None).unwrap();
    let why = machine.refusal().unwrap();
    assert!(
        why.contains("/sys/fs/cgroup/cpu") && why.contains("mount the cgroup tree read-write"),
        "{why}"
    );
}

#[test]
fn a_kernel_without_limits_is_refused_with_its_option() {
    let fs = FakeFs::mixed();
    fs.hide_file("cpu.cfs_quota_us");
    let why = discover(&fs, None).unwrap().refusal().unwrap();
    assert!(
        why.contains("cpu.cfs_quota_us is not there") && why.contains("CONFIG_CFS_BANDWIDTH"),
        "{why}"
    );
}

/// Access is refused everywhere but in and below one directory: what a user has whom systemd
/// delegated a subtree to.
fn delegated(dirs: &[&str], own: &str) -> FaultFs<FakeFs> {
    let fake = FakeFs::v2();
    let root = "/sys/fs/cgroup";
    let mut at = root.to_owned();
    for dir in dirs {
        fake.write(Path::new(&format!("{at}/cgroup.subtree_control")), "+cpu")
            .unwrap();
        at = format!("{at}/{dir}");
        fake.mkdir(Path::new(&at)).unwrap();
    }
    fake.write(
        Path::new(&format!("{root}/{own}/cgroup.procs")),
        &SELF_PID.to_string(),
    )
    .unwrap();
    let fs = FaultFs::new(fake);
    for suffix in [
        "/cgroup",
        "/user.slice",
        "group/cgroup.procs",
        "user.slice/cgroup.procs",
    ] {
        fs.add(Rule::on(Op::Access, suffix, Fault::Errno(libc::EACCES)));
    }
    fs
}

#[test]
fn a_delegated_subtree_is_the_base() {
    let fs = delegated(
        &["user.slice", "app.scope", "run"],
        "user.slice/app.scope/run",
    );
    let machine = discover(&fs, None).unwrap();
    assert_eq!(machine.cpu.base.as_str(), "/user.slice/app.scope");
    assert_eq!(machine.cpu.writable, Writable::Yes);
    assert_eq!(
        machine.cpu.own.as_ref().unwrap().as_str(),
        "/user.slice/app.scope/run"
    );
    assert!(
        machine.cpu_enabled.is_present(),
        "{}",
        machine.cpu_enabled.how
    );
}

#[test]
fn a_base_that_holds_processes_cannot_hand_cpu_down() {
    let fs = delegated(&["user.slice", "app.scope"], "user.slice/app.scope");
    let machine = discover(&fs, None).unwrap();
    assert_eq!(machine.cpu.base.as_str(), "/user.slice/app.scope");
    let why = machine.refusal().unwrap();
    assert!(
        why.contains("holds processes") && why.contains("move them into a child group"),
        "{why}"
    );
}

#[test]
fn a_base_by_choice() {
    let fs = FakeFs::mixed();
    fs.mkdir(Path::new("/sys/fs/cgroup/cpu/mine")).unwrap();
    let machine = discover(&fs, Some("/mine")).unwrap();
    assert_eq!(machine.cpu.base.as_str(), "/mine");
    for wrong in ["/other", "mine", "/../x"] {
        assert!(
            matches!(discover(&fs, Some(wrong)), Err(DiscoverError::Base { .. })),
            "{wrong}"
        );
    }
}

#[test]
fn a_container_that_sees_its_part_of_the_hosts_tree() {
    // docker on v1 without a cgroup namespace: the mount's root is the container's group.
    let fs = FakeFs::mixed();
    fs.set_file(
        "/proc/self/mountinfo",
        "31 23 0:28 /docker/abc /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
         32 23 0:29 /docker/abc /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n",
    );
    fs.set_file(
        "/proc/self/cgroup",
        "2:cpuacct:/docker/abc\n1:cpu:/docker/abc\n0::/\n",
    );
    let machine = discover(&fs, None).unwrap();
    assert_eq!(machine.cpu.own.as_ref().unwrap().as_str(), "/");
    assert_eq!(machine.cpu.root, "/docker/abc");
    assert!(machine.cpu.base.is_root());

    // A process elsewhere on the host cannot be named from here.
    fs.add_process(FakeProcess::new(7));
    fs.set_file("/proc/7/cgroup", "1:cpu:/system.slice/x\n");
    assert_eq!(machine.group_of(&fs, 7).unwrap(), None);
    fs.set_file("/proc/7/cgroup", "1:cpu:/docker/abc/job\n");
    assert_eq!(machine.group_of(&fs, 7).unwrap().unwrap().as_str(), "/job");
}

#[test]
fn a_namespace_whose_own_root_has_no_name_here() {
    let fs = FakeFs::v2();
    fs.set_file(
        "/proc/self/mountinfo",
        "31 23 0:28 /.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );
    fs.set_file("/proc/self/cgroup", "0::/\n");
    let machine = discover(&fs, None).unwrap();
    assert_eq!(machine.cpu.own, None);
    assert!(
        machine
            .notes
            .iter()
            .any(|note| note.contains("cannot be named")),
        "{:?}",
        machine.notes
    );
}

#[test]
fn damage_is_named_and_never_a_panic() {
    let garbage = [
        "",
        "\n\n",
        "x",
        "1 2 3",
        ":::",
        "\u{0}\u{1}",
        "31 23 0:28 / / rw",
        "99999999999999999999:a:/",
    ];
    for file in [
        "/proc/self/mountinfo",
        "/proc/self/cgroup",
        "/sys/devices/system/cpu/online",
    ] {
        for text in garbage {
            let fs = FakeFs::mixed();
            fs.set_file(file, text);
            if let Err(error) = discover(&fs, None) {
                let message = error.to_string();
                assert!(
                    message.starts_with("discovery: ") && message.contains(';'),
                    "{file} {text:?}: {message}"
                );
            }
        }
    }
}

#[test]
fn every_operation_may_fail() {
    for make in [FakeFs::mixed, FakeFs::v1, FakeFs::v2] {
        let fs = FaultFs::new(make());
        discover(&fs, None).unwrap();
        let operations = fs.count();
        assert!(operations > 10);
        for nth in 1..=operations {
            for errno in [libc::ENOENT, libc::ENODEV, libc::EACCES, libc::EIO] {
                let fs = FaultFs::new(make());
                fs.add(Rule::nth(nth, errno));
                if let Err(error) = discover(&fs, None) {
                    assert!(error.to_string().starts_with("discovery: "), "{error}");
                }
            }
        }
    }
}
