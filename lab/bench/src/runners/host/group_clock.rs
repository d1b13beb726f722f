//! A group's CPU time by perf's events: a clock that the context switch itself starts and stops,
//! whatever the scheduler.
//!
//! It counts what the group's tasks did from switch to switch, also those that have come and gone
//! meanwhile; the loads' own clocks ([`crate::loads::shared_page`]) miss what a child does after it
//! has told its last, and tell the rest when its parent looks. `cpu.stat` is the scheduling class'
//! own account, which would measure itself.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

/// `struct perf_event_attr` as its first version had it, which every kernel takes:
/// include/uapi/linux/perf_event.h.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    unused: [u64; 6],
}

const TYPE_SOFTWARE: u32 = 1;
const SOFTWARE_CPU_CLOCK: u64 = 0;
const FLAG_PID_IS_A_GROUP: u64 = 1 << 2;
const FLAG_CLOSE_ON_EXEC: u64 = 1 << 3;

/// Counts from when it was opened.
pub struct GroupClock {
    events: Vec<File>,
}

impl GroupClock {
    /// Of the group that is this directory of version 2 (or of version 1's `perf_event`), and of
    /// all below it.
    pub fn open(group: &Path) -> Result<Self> {
        let directory = File::open(group)?;
        // SAFETY: sysconf takes a number and touches no memory of ours.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let mut events = Vec::new();
        for cpu in 0..cpus {
            match event(&directory, cpu) {
                Ok(event) => events.push(event),
                // It is not on line.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                Err(e) => return Err(e),
            }
        }
        if events.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "no CPU has such an event"));
        }
        Ok(GroupClock { events })
    }

    /// CPU time since then.
    pub fn ns(&self) -> Result<u64> {
        let mut sum_ns = 0;
        for mut event in &self.events {
            let mut value = [0; 8];
            event.read_exact(&mut value)?;
            sum_ns += u64::from_ne_bytes(value);
        }
        Ok(sum_ns)
    }
}

fn event(group: &File, cpu: i64) -> Result<File> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: SOFTWARE_CPU_CLOCK,
        ..Attributes::default()
    };
    let no_leader = -1i64;
    // SAFETY: the structure is as long as it says and lives across the call; the rest are numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            i64::from(group.as_raw_fd()),
            cpu,
            no_leader,
            FLAG_PID_IS_A_GROUP | FLAG_CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::clock;
    use crate::runners::host::groups::{Group, Tree};
    use crate::runners::host::proc::Guarded;

    #[test]
    fn a_directory_that_is_no_group_is_an_error() {
        let made = GroupClock::open(Path::new("/"));
        assert!(made.is_err(), "the root of the file system has no clock");
        assert!(GroupClock::open(Path::new("/proc/no/such")).is_err());
    }

    #[test]
    fn what_a_group_forks_is_counted_when_it_has_gone_too() {
        let made = Tree::find().and_then(|tree| tree.writable().map(|()| tree));
        let tree = match made {
            Ok(tree) if tree.version() == 2 => tree,
            _ => return println!("skipped: no group of version 2 can be made"),
        };
        let group = Group::create(&tree, "clock").expect("a group");
        let clock = match GroupClock::open(&tree.dir(&group.path)) {
            Ok(clock) => clock,
            Err(why) => return println!("skipped: perf's events are not available: {why}"),
        };
        assert_eq!(clock.ns().expect("a count"), 0, "nobody has been there");
        let from_ns = clock::monotonic_ns();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "for n in 1 2 3; do sh -c 'seq 100000 >/dev/null'; done",
        ]);
        let mut guard = Guarded::start("sh", command, &group.membership()).expect("sh starts");
        while guard.ended().is_none() {
            clock::sleep_until(clock::monotonic_ns() + 1_000_000);
        }
        let (used_ns, wall_ns) = (
            clock.ns().expect("a count"),
            clock::monotonic_ns() - from_ns,
        );
        // It is a shell and one child at a time.
        assert!(
            used_ns > 1_000_000 && used_ns < 2 * wall_ns,
            "{used_ns} ns in {wall_ns}"
        );
    }
}
