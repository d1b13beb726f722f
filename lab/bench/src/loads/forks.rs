//! A group that forks without end, as a build does: each of a few parents keeps some children
//! running, each child burns a few milliseconds and ends, and another takes its place.
//!
//! A child tells its CPU time on the page as it goes; when it has ended, what the kernel has
//! charged it in all stands in its place, so that forking and ending are counted too.

use serde_json::json;

use super::serve_commands;
use super::shared_page::SharedPage;
use super::spin::Spin;
use crate::LabError;
use crate::clock::thread_cpu_ns;

const LANES: usize = 4;

/// `report` answers with the CPU time and how many were forked.
pub fn run(page: &SharedPage, parents: usize, work_ns: u64) -> Result<(), LabError> {
    let spin = Spin::calibrated();
    let mut pids = Vec::new();
    for index in 0..parents {
        // SAFETY: this process has a single thread until here, so nothing that the child uses can
        // be half done.
        match unsafe { libc::fork() } {
            -1 => {
                let why = std::io::Error::last_os_error().to_string();
                return Err(LabError::process("fork", why));
            }
            0 => {
                super::die_with_parent();
                page.check_in();
                parent(page, index, spin, work_ns);
                // SAFETY: ends the child without running what its parent has registered for its own
                // end.
                unsafe { libc::_exit(0) }
            }
            pid => pids.push(pid),
        }
    }
    let served = serve_commands(page, |_| {
        let used = (0..parents * SLOTS).map(|i| page.slot(i).cpu_ns());
        let forked = (0..parents).map(|i| page.slot(i * SLOTS).count());
        json!({"cpu_ns": used.sum::<u64>(), "forked": forked.sum::<u64>()})
    });
    for pid in pids {
        // SAFETY: our own children that have not been waited for; their children die with them.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
        }
    }
    served
}

/// Slots of a parent: its own and what its ended children used, then one for each running child.
const SLOTS: usize = LANES + 1;

fn parent(page: &SharedPage, index: usize, spin: Spin, work_ns: u64) {
    let own = page.slot(index * SLOTS);
    let lane_slot = |lane: usize| page.slot(index * SLOTS + 1 + lane);
    let mut lanes = [0i32; LANES];
    let mut told_ns = 0;
    while !page.stopped() {
        for (lane, pid) in lanes.iter_mut().enumerate().filter(|(_, pid)| **pid == 0) {
            // SAFETY: a process of one thread, as above.
            *pid = unsafe { libc::fork() };
            if *pid == 0 {
                super::die_with_parent();
                while thread_cpu_ns() < work_ns {
                    spin.a_little();
                    lane_slot(lane).publish(thread_cpu_ns(), 0);
                }
                // SAFETY: as above.
                unsafe { libc::_exit(0) }
            }
        }
        let used_ns = thread_cpu_ns();
        own.add(used_ns - told_ns, 0);
        told_ns = used_ns;
        let Some((pid, child_ns)) = reaped() else {
            return;
        };
        if let Some(lane) = lanes.iter().position(|p| *p == pid) {
            // First out of the lane, then into the sum: a reader between the two misses one child
            // for a moment.
            lane_slot(lane).publish(0, 0);
            own.add(child_ns, 1);
            lanes[lane] = 0;
        }
    }
}

fn reaped() -> Option<(i32, u64)> {
    // SAFETY: `usage` is plain numbers for which zero is valid, and the kernel fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let pid = libc::wait4(-1, std::ptr::null_mut(), 0, &raw mut usage);
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        (pid > 0).then(|| (pid, ns(usage.ru_utime) + ns(usage.ru_stime)))
    }
}
