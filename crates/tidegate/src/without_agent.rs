//! Side work where no agent can be had: what a process may do to itself, without a privilege, and
//! all that it starts inherits.

use std::os::unix::net::UnixStream;

use tidegate_agent::systemd::bus::is_booted;
use tidegate_agent::systemd::own_unit::user_scope;
use tidegate_cgroup::RealFs;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::discover;
use tidegate_engine::limit::of_terms;
use tidegate_terms::Terms;

use crate::connect;

const NICE: i32 = 19;
/// `IOPRIO_WHO_PROCESS`, and the class `IOPRIO_CLASS_IDLE` in the bits above 13
/// (include/uapi/linux/ioprio.h).
const IOPRIO_PROCESS: libc::c_int = 1;
const IOPRIO_IDLE: libc::c_int = 3 << 13;

/// Whether nothing listens where an agent would, and this user cannot have one: root only where no
/// group can be made. An agent that does not answer is there.
pub fn is_needed() -> bool {
    let can_have_one = || {
        let machine = discover(&RealFs::new(), None);
        rustix::process::geteuid().is_root()
            && machine.is_ok_and(|machine| machine.refusal().is_none())
    };
    !connect::is_other_host() && UnixStream::connect(connect::socket()).is_err() && !can_have_one()
}

/// What this process has taken.
pub struct Place {
    pub words: String,
    /// The user's own systemd holds the quota and the cap.
    pub is_limited: bool,
}

/// Makes this process yield as far as it may: by the idle class of a scope of the user's own
/// systemd, and by the policy and levels that any process may give itself.
pub fn take_last_place(command: &str, terms: &Terms) -> Place {
    let mut has = Vec::new();
    let limit = of_terms(terms, 0).unwrap_or(Bandwidth::unlimited());
    let in_scope = is_booted() && user_scope(command, limit).is_ok() && is_in_idle_group();
    if in_scope {
        has.push("the idle class of a scope of your systemd".to_owned());
    }
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` is alive during the call; 0 is this thread, the only one that execs.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) } == 0 {
        has.push("SCHED_IDLE".to_owned());
    }
    // SAFETY: no memory is passed.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } == 0 {
        has.push(format!("nice {NICE}"));
    }
    // SAFETY: no memory is passed.
    if unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_PROCESS, 0, IOPRIO_IDLE) } == 0 {
        has.push("idle I/O".to_owned());
    }
    // The group is the whole session's: a shell in it would stay behind everything.
    if is_in_autogroup()
        && leads_its_session()
        && std::fs::write("/proc/self/autogroup", NICE.to_string()).is_ok()
    {
        has.push(format!("its autogroup at nice {NICE}"));
    }
    let to = yields_to(in_scope).map_or_else(String::new, |to| format!(", which yields to {to}"));
    Place {
        words: has.join(", ") + &to,
        is_limited: in_scope,
    }
}

/// Whether the user's systemd has the cpu controller for its units.
fn is_in_idle_group() -> bool {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = format!("/sys/fs/cgroup{}/cpu.idle", cpu_group(&cgroups));
    std::fs::read_to_string(path).is_ok_and(|idle| idle.trim() == "1")
}

/// Where it yields to some work only: to which, and what would change that.
fn yields_to(in_scope: bool) -> Option<String> {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match cpu_group(&cgroups) {
        "/" if is_in_autogroup() && !leads_its_session() => {
            Some("its own session (put setsid before tidegate to have it yield to all)".to_owned())
        }
        "/" => None,
        group if in_scope => {
            let parent = group.rsplit_once('/').map_or(group, |(parent, _)| parent);
            Some(format!("what else is in {parent}"))
        }
        group => Some(format!(
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
fn is_in_autogroup() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    read("/proc/sys/kernel/sched_autogroup_enabled").trim() == "1"
        && cpu_group(&read("/proc/self/cgroup")) == "/"
}

/// The group that the process shares the CPU in, of the text of /proc/self/cgroup; v2 has a line
/// without controllers.
fn cpu_group(text: &str) -> &str {
    let lines = || {
        text.lines()
            .filter_map(|line| line.split_once(':')?.1.split_once(':'))
    };
    let of_cpu = lines().find(|(controllers, _)| controllers.split(',').any(|one| one == "cpu"));
    let group = of_cpu.or_else(|| lines().find(|(controllers, _)| controllers.is_empty()));
    group.map_or("/", |(_, group)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_cpu_controller_is_found_on_each_version() {
        assert_eq!(cpu_group("0::/user.slice/x.scope\n"), "/user.slice/x.scope");
        assert_eq!(
            cpu_group("4:cpuacct,cpu:/a:b\n1:name=systemd:/c\n0::/d\n"),
            "/a:b"
        );
        assert_eq!(cpu_group(""), "/");
    }
}
