//! What sensing does on the running kernel without rights.

use tidegate_cgroup::discover::CgroupVersion;
use tidegate_cgroup::{KernelFs, RealFs};
use tidegate_engine::sense::{self, SenseConfig};
use tidegate_terms::Sense;

use crate::support::host::bed;

/// Without rights BPF is refused; Auto goes on with usage and says why and what would help.
#[test]
fn without_rights_sensing_falls_back_with_a_note() {
    let Some(_bed) = bed() else { return };
    let child = std::thread::spawn(|| {
        let user = 65534;
        // SAFETY: the raw system call changes the ids of this thread alone, which then ends.
        let dropped = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
        assert_eq!(dropped, 0);
        let config = SenseConfig::detect();
        let refused = sense::open(&config, &[], &[], Sense::Bpf)
            .err()
            .unwrap()
            .to_string();
        let (sensor, note) = sense::open(&config, &[], &[], Sense::Auto).unwrap();
        (sensor.kind(), note, refused)
    });
    let (kind, note, refused) = child.join().unwrap();
    assert_eq!(kind, "usage");
    assert!(
        note.contains("run as root") && note.contains("bpf"),
        "{note}"
    );
    assert!(refused.contains("run as root"), "{refused}");
}

#[test]
fn a_group_made_again_is_read_anew() {
    let Some(bed) = bed() else { return };
    let fs = RealFs::with_roots(bed.machine.roots()).unwrap();
    let (file, other) = match bed.machine.version {
        CgroupVersion::V1 => ("cpu.shares", "512"),
        CgroupVersion::V2 => ("cpu.weight", "50"),
    };
    let dir = bed.groups.dir(&bed.top);
    let first = fs.read(&dir.join(file)).unwrap();
    fs.write(&dir.join(file), other).unwrap();
    assert_eq!(fs.read(&dir.join(file)).unwrap().trim(), other);
    fs.rmdir(&dir).unwrap();
    assert_eq!(fs.read(&dir.join(file)).unwrap_err().errno, libc::ENOENT);
    fs.mkdir(&dir).unwrap();
    assert_eq!(fs.read(&dir.join(file)).unwrap(), first);
}
