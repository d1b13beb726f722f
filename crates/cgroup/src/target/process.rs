//! Processes, told from later ones with the same number by their start time.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::TargetError;
use crate::KernelFs;

/// PF_KTHREAD of field 9 of /proc/PID/stat (`include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;

/// One process, told from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRef {
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
    /// Whose it is: its user; root's where real, effective and saved user differ (a server that
    /// acts for a user for a moment, a program that became root).
    pub uid: u32,
    pub comm: String,
}

impl ProcessRef {
    /// Looks a process up. Exited ones and kernel threads are refused.
    pub fn look_up(fs: &dyn KernelFs, pid: i32) -> Result<Self, TargetError> {
        let gone = |why: &str| TargetError::NoProcess {
            pid,
            why: why.to_owned(),
        };
        if pid <= 0 {
            return Err(gone("process numbers are positive"));
        }
        let file = |name: &str| {
            fs.read(Path::new(&format!("/proc/{pid}/{name}")))
                .map_err(|source| match source.is_gone() {
                    true => gone("no such process"),
                    false => TargetError::Kfs { pid, source },
                })
        };
        let stat = file("stat")?;
        let comm = comm_of(&stat).ok_or_else(|| gone("its stat file has no name in it"))?;
        let start_ticks =
            stat_field(&stat, 22).ok_or_else(|| gone("its stat file has no start time"))?;
        if matches!(state_of(&stat), Some('Z' | 'X')) {
            return Err(gone("it has exited"));
        }
        if is_kernel_thread(&stat) == Some(true) {
            return Err(TargetError::KernelThread { pid, comm });
        }
        let status = file("status")?;
        let uid = whose(&status).ok_or_else(|| gone("its status file has no Uid line"))?;
        Ok(Self {
            pid,
            start_ticks,
            uid,
            comm,
        })
    }

    /// Whether the number still means this process, alive. An exec does not change it, a reuse of
    /// the number does.
    pub fn is_same(&self, fs: &dyn KernelFs) -> Result<bool, TargetError> {
        match Self::look_up(fs, self.pid) {
            Ok(now) => Ok(now.start_ticks == self.start_ticks),
            Err(TargetError::NoProcess { .. } | TargetError::KernelThread { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A process that is held from the moment it was looked up: its number cannot become another's
/// unnoticed.
#[derive(Debug)]
pub struct HeldProcess {
    pub process: ProcessRef,
    /// `None` where the kernel has no pidfds (before 5.3): then start times tell processes apart,
    /// to a tick.
    fd: Option<OwnedFd>,
}

impl HeldProcess {
    /// Opened first and looked up after, so that what was looked up is what is held.
    pub fn hold(fs: &dyn KernelFs, pid: i32) -> Result<Self, TargetError> {
        match process_of(fs, pid) {
            Some(process) if process != pid => Err(TargetError::Thread {
                tid: pid,
                pid: process,
            }),
            _ => Self::hold_task(fs, pid, pid),
        }
    }

    /// One thread, by a hold of its process.
    pub fn hold_thread(fs: &dyn KernelFs, tid: i32) -> Result<Self, TargetError> {
        Self::hold_task(fs, process_of(fs, tid).unwrap_or(tid), tid)
    }

    fn hold_task(fs: &dyn KernelFs, pid: i32, task: i32) -> Result<Self, TargetError> {
        let fd = match fs.pidfd(pid) {
            Ok(fd) => fd,
            Err(source) if source.is_gone() => {
                let why = "no such process".to_owned();
                return Err(TargetError::NoProcess { pid, why });
            }
            Err(source) => return Err(TargetError::Kfs { pid, source }),
        };
        let process = ProcessRef::look_up(fs, task)?;
        Ok(Self { process, fd })
    }

    /// Whether the number still means this process. Asked after a move: what was moved was this
    /// one.
    pub fn is_same(&self, fs: &dyn KernelFs) -> bool {
        let has_exited = self.fd.as_ref().is_some_and(has_exited);
        !has_exited && self.process.is_same(fs).unwrap_or(false)
    }
}

pub fn has_exited(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
}

/// The text after the name. A name may hold spaces and parentheses: the last `)` ends it.
fn after_comm(stat: &str) -> Option<&str> {
    Some(stat[stat.rfind(')')? + 1..].trim_start())
}

fn comm_of(stat: &str) -> Option<String> {
    let comm = stat.get(stat.find('(')? + 1..stat.rfind(')')?)?;
    Some(comm.chars().filter(|one| !one.is_control()).collect())
}

/// Whether /proc/PID/stat tells of a task that runs or waits for a CPU; a throttled one does.
pub fn runs(stat: &str) -> bool {
    state_of(stat) == Some('R')
}

/// Whether /proc/PID/stat tells of a task that a signal has stopped.
pub fn is_stopped(stat: &str) -> bool {
    state_of(stat) == Some('T')
}

/// Whether /proc/PID/stat is a task's of SCHED_FIFO, SCHED_RR or SCHED_DEADLINE.
pub(crate) fn is_real_time(stat: &str) -> bool {
    matches!(stat_field(stat, 41), Some(1 | 2 | 6))
}

/// Whether /proc/PID/stat is a kernel thread's; `None` if it has no flags.
pub(crate) fn is_kernel_thread(stat: &str) -> Option<bool> {
    Some(stat_field(stat, 9)? & PF_KTHREAD != 0)
}

pub(crate) fn process_of(fs: &dyn KernelFs, tid: i32) -> Option<i32> {
    let status = fs.read(Path::new(&format!("/proc/{tid}/status"))).ok()?;
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    tgid.trim().parse().ok()
}

pub fn threads_of(fs: &dyn KernelFs, pid: i32) -> Vec<i32> {
    let entries = fs.list(Path::new(&format!("/proc/{pid}/task")));
    let names = entries.unwrap_or_default().into_iter();
    names.filter_map(|entry| entry.name.parse().ok()).collect()
}

fn state_of(stat: &str) -> Option<char> {
    after_comm(stat)?.chars().next()
}

/// A numeric field of /proc/PID/stat, counted from 1 as proc_pid_stat(5) does; from field 4 on.
pub fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let word = after_comm(stat)?
        .split_ascii_whitespace()
        .nth(number.checked_sub(3)?)?;
    word.parse().ok()
}

/// `Uid:` real, effective, saved, file system.
fn whose(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut uids = line.split_ascii_whitespace().map(|word| word.parse().ok());
    let (real, effective, saved): (u32, u32, u32) = (uids.next()??, uids.next()??, uids.next()??);
    Some(if real == effective && effective == saved {
        real
    } else {
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_a_hostile_name() {
        let stat = "77 (a) R 1 (b)) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 0";
        assert_eq!(comm_of(stat).unwrap(), "a) R 1 (b)");
        assert_eq!(state_of(stat), Some('S'));
        assert_eq!(stat_field(stat, 4), Some(1));
        assert_eq!(stat_field(stat, 22), Some(4242));
        assert_eq!(stat_field("no parenthesis", 22), None);
        assert_eq!(stat_field(")(", 22), None);
        assert_eq!(comm_of(")("), None);
    }

    #[test]
    fn a_server_that_acts_for_a_user_is_not_the_users() {
        assert_eq!(whose("Name:\tx\nUid:\t7\t7\t7\t7\n"), Some(7));
        for text in [
            "Uid:\t0\t7\t0\t7\n",
            "Uid:\t7\t0\t0\t0\n",
            "Uid:\t7\t7\t0\t7\n",
        ] {
            assert_eq!(whose(text), Some(0), "{text}");
        }
        for garbage in ["", "Uid:", "Uid:\t7\t7\n", "Uid:\tx\t7\t7\t7\n"] {
            assert_eq!(whose(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn this_process_is_itself() {
        let fs = crate::RealFs::new();
        let own = ProcessRef::look_up(&fs, std::process::id() as i32).unwrap();
        assert!(own.is_same(&fs).unwrap());
        let held = HeldProcess::hold(&fs, own.pid).unwrap();
        assert!(held.is_same(&fs) && held.fd.is_some() && held.process == own);
        let other = ProcessRef {
            start_ticks: own.start_ticks + 1,
            ..own
        };
        assert!(!other.is_same(&fs).unwrap());
        let error = HeldProcess::hold(&fs, i32::MAX).unwrap_err().to_string();
        assert!(error.contains("no such process"), "{error}");
    }

    #[test]
    fn a_number_that_is_used_again_within_a_tick_is_another_process() {
        use crate::testkit::{FakeFs, FakeProcess};
        let fs = FakeFs::v2();
        fs.add_process(FakeProcess::new(7));
        let held = HeldProcess::hold(&fs, 7).unwrap();
        assert!(held.is_same(&fs));
        fs.end_process(7);
        fs.add_process(FakeProcess::new(7));
        assert!(
            held.process.is_same(&fs).unwrap(),
            "by its start time it is"
        );
        assert!(!held.is_same(&fs));
    }

    #[test]
    fn whatever_fails_is_named_by_its_number() {
        use crate::testkit::{FakeFs, FakeProcess, FaultFs, Rule};
        let fs = FaultFs::new(FakeFs::mixed());
        fs.inner().add_process(FakeProcess {
            uid: 33,
            ..FakeProcess::new(7)
        });
        let own = ProcessRef::look_up(&fs, 7).unwrap();
        assert_eq!((own.uid, own.comm.as_str()), (33, "work"));
        let operations = fs.count();
        for nth in 1..=operations {
            for errno in [libc::ENOENT, libc::ESRCH, libc::EACCES, libc::EIO] {
                fs.add(Rule::nth(fs.count() + nth, errno));
                let message = ProcessRef::look_up(&fs, 7).unwrap_err().to_string();
                assert!(message.starts_with("process 7: "), "{message}");
                fs.clear();
            }
        }
        fs.inner().add_process(FakeProcess {
            kernel_thread: true,
            ..FakeProcess::new(2)
        });
        assert!(matches!(
            ProcessRef::look_up(&fs, 2),
            Err(TargetError::KernelThread { pid: 2, .. })
        ));
        fs.inner().end_process(7);
        assert!(!own.is_same(&fs).unwrap());
    }
}
