//! Side work where no agent can be had: what a process may do to itself, without a privilege, and
//! all that it starts inherits.

use std::os::unix::net::UnixStream;

use tidegate_cgroup::discover::discover;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::sched::{SchedWrite, TaskSched};
use tidegate_cgroup::{KernelFs, RealFs};

use crate::connect;

const NICE: i32 = 19;
/// So long that a task which waits has its deadline behind main's, however many wait: SCHED_IDLE,
/// which has no slices of its own, and shorter slices let main wait longer
/// (docs/decisions/turns.md).
const SLICE_NS: u64 = 20_000_000;
/// `IOPRIO_WHO_PROCESS`, and the class `IOPRIO_CLASS_IDLE` in the bits above 13
/// (include/uapi/linux/ioprio.h).
const IOPRIO_PROCESS: libc::c_int = 1;
const IOPRIO_IDLE: libc::c_int = 3 << 13;

/// Whether nothing listens where an agent would, and no group can be made where this process is. An
/// agent that does not answer is there.
///
/// A user's session is no place for groups. The user's own systemd has one, beside it: what goes
/// there has limits, and no longer yields to the session.
pub fn is_needed() -> bool {
    let can_have_one = || {
        let machine = discover(&RealFs::new(), None);
        machine.is_ok_and(|machine| machine.refusal().is_none())
    };
    UnixStream::connect(connect::socket()).is_err() && !can_have_one()
}

/// Makes this process yield as far as it may, by the levels that any process may give itself, and
/// says how.
pub fn take_last_place() -> String {
    let mut has = Vec::new();
    let low = SchedWrite::Slice {
        nice: NICE,
        slice_ns: SLICE_NS,
    };
    // 0 is this thread, the only one, which becomes the command.
    let kernel = RealFs::new();
    if kernel.set_sched(0, &low).is_ok() {
        has.push(format!("nice {NICE}"));
        let has_slice = |task: TaskSched| task.slice_ns == SLICE_NS;
        if kernel.sched(0).is_ok_and(has_slice) {
            has.push("slices of 20 ms".to_owned());
        }
    }
    if take_last_io() {
        has.push("idle I/O".to_owned());
    }
    // The group is the whole session's: a shell in it would stay behind everything.
    let group = own_group();
    let is_in_autogroup = is_in_autogroup(group.as_ref());
    if is_in_autogroup
        && leads_its_session()
        && std::fs::write("/proc/self/autogroup", NICE.to_string()).is_ok()
    {
        has.push(format!("its autogroup at nice {NICE}"));
    }
    let to = group.and_then(|group| yields_to(&group, is_in_autogroup));
    let to = to.map_or_else(String::new, |to| format!(", which yields to {to}"));
    has.join(", ") + &to
}

/// Whether this process, and all that it starts, now has the disk after all others, where the
/// disk's scheduler minds that (bfq, mq-deadline).
pub fn take_last_io() -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_PROCESS, 0, IOPRIO_IDLE) == 0 }
}

/// Where it yields to some work only: to which, and what would change that.
fn yields_to(group: &GroupPath, is_in_autogroup: bool) -> Option<String> {
    match group.is_root() {
        true if is_in_autogroup && !leads_its_session() => {
            Some("its own session (put setsid before tidegate to have it yield to all)".to_owned())
        }
        true => None,
        false => Some(format!(
            "its own group, {group}, which has its weight beside others"
        )),
    }
}

fn leads_its_session() -> bool {
    // SAFETY: no memory is passed. A leader in another PID namespace is 0, which rustix has not.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// The kernel puts each session into a group of its own, unless its cgroup has the cpu controller;
/// what the task itself has then counts within the session alone (sched(7)).
fn is_in_autogroup(group: Option<&GroupPath>) -> bool {
    let enabled = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    enabled.is_ok_and(|enabled| enabled.trim() == "1") && group.is_none_or(GroupPath::is_root)
}

/// The group in which it shares the CPU with others.
fn own_group() -> Option<GroupPath> {
    discover(&RealFs::new(), None).ok()?.cpu.own
}
