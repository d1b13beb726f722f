//! RCU's grace-period thread is in the real-time class while the scheduler is loaded.
//!
//! A scheduler ends in the kernel by waiting for RCU. Where real-time tasks withhold all CPUs from
//! ordinary ones, that thread would wait for them with all others, and the scheduler could not
//! leave (`bpf/timers/realtime.h`); from 7.0 on the kernel's deadline server runs it, unless that
//! is off. What it was before is set again when the scheduler is unloaded; after SIGKILL by the
//! guardian or `repair`, which know it by its priority ([`restore_rcu_thread`]), or by the next
//! agent that loads the scheduler.

use std::fs;
use std::io;
use std::path::Path;

/// Just above the kernel's thread that ends a scheduler, which has `sched_set_fifo`'s 50.
const PRIORITY: i32 = 51;
/// The parent of all the kernel's threads.
const KTHREADD: &str = "2";
const STATE: &str = "/sys/kernel/sched_ext/state";
/// The priority that the kernel's command line gives it.
const KERNELS_PRIORITY: &str = "/sys/module/rcutree/parameters/kthread_prio";
/// What RCU's thread is called with and without preemption of readers.
const NAMES: [&str; 2] = ["rcu_preempt", "rcu_sched"];

#[derive(Debug)]
pub struct RcuThread {
    pid: libc::pid_t,
}

impl RcuThread {
    /// `None`: there is none (it is hidden in a container), it is real-time already
    /// (rcutree.kthread_prio), or the kernel refuses.
    pub fn raise() -> Option<RcuThread> {
        let pid = find(Path::new("/proc"))?;
        // One that an agent left behind when it was killed is taken over.
        let ours = is_ordinary(pid) || is_raised(pid);
        let raised = ours.then(|| set(pid, libc::SCHED_FIFO, PRIORITY))?;
        match raised {
            Ok(()) => Some(RcuThread { pid }),
            Err(why) => {
                tracing::warn!("RCU's thread {pid} does not become real-time: {why}");
                None
            }
        }
    }
}

impl Drop for RcuThread {
    fn drop(&mut self) {
        if let Err(why) = set(self.pid, libc::SCHED_OTHER, 0) {
            tracing::warn!("RCU's thread {} stays real-time: {why}", self.pid);
        }
    }
}

/// Where no scheduler is loaded and RCU's thread has the priority that a killed agent gave it:
/// makes it an ordinary task. A line of what was done.
pub fn restore_rcu_thread() -> Option<String> {
    if fs::read_to_string(STATE).is_ok_and(|state| state.trim() != "disabled") {
        return None;
    }
    let pid = find(Path::new("/proc")).filter(|&pid| is_raised(pid))?;
    Some(match set(pid, libc::SCHED_OTHER, 0) {
        Ok(()) => format!("RCU's thread {pid} is an ordinary task again"),
        Err(why) => {
            format!("RCU's thread {pid} stays real-time: {why}; chrt --other --pid 0 {pid}")
        }
    })
}

fn is_ordinary(pid: libc::pid_t) -> bool {
    // SAFETY: the call takes a number and returns one.
    unsafe { libc::sched_getscheduler(pid) == libc::SCHED_OTHER }
}

/// It has our priority, and not by the kernel's command line.
fn is_raised(pid: libc::pid_t) -> bool {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, which writes to it alone.
    let known = unsafe { libc::sched_getparam(pid, &raw mut parameters) } == 0;
    let kernels = fs::read_to_string(KERNELS_PRIORITY).unwrap_or_default();
    known && parameters.sched_priority == PRIORITY && kernels.trim().parse() != Ok(PRIORITY)
}

fn set(pid: libc::pid_t, policy: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the structure outlives the call, which only reads it.
    match unsafe { libc::sched_setscheduler(pid, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A program may take the name, but not the parent.
fn find(proc: &Path) -> Option<libc::pid_t> {
    fs::read_dir(proc).ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        is_rcu(&stat).then_some(pid)
    })
}

/// `PID (NAME) STATE PARENT ...`
fn is_rcu(stat: &str) -> bool {
    let Some((head, tail)) = stat.rsplit_once(')') else {
        return false;
    };
    let name = head.split_once('(').map_or("", |(_, name)| name);
    NAMES.contains(&name) && tail.split_whitespace().nth(1) == Some(KTHREADD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_thread_is_taken() {
        assert!(is_rcu("15 (rcu_preempt) I 2 0 0 0 -1 2129984"));
        assert!(is_rcu("14 (rcu_sched) I 2 0 0"));
        assert!(!is_rcu("815 (rcu_preempt) S 814 0 0"));
        assert!(!is_rcu("16 (rcu_exp_par_gp_kthread_worker/0) S 2 0"));
        assert!(!is_rcu(""));
    }
}
