//! Processes of an experiment: started in their group, killed with all they forked, never left
//! behind.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::loads::shared_page::SharedPage;
use crate::loads::{Job, die_with_parent};
use crate::{LabError, clock, stop};

/// A child that is killed, with its process group, when the guard is dropped.
pub struct Guarded {
    child: Child,
    name: String,
}

impl Guarded {
    /// Starts `command` in a process group of its own, as a member of the groups whose membership
    /// files are given. The child enters them before it becomes the command, so no instruction of
    /// the command runs anywhere else.
    pub fn start(name: &str, mut command: Command, join: &[PathBuf]) -> Result<Self, LabError> {
        let files: Vec<CString> = join
            .iter()
            .filter_map(|p| CString::new(p.as_os_str().as_encoded_bytes()).ok())
            .collect();
        command.process_group(0);
        // SAFETY: between fork and exec only async-signal-safe calls are made (open, write, close,
        // prctl), on strings that were made before.
        unsafe {
            command.pre_exec(move || {
                die_with_parent();
                for file in &files {
                    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                    let fd = rustix::fs::open(file.as_c_str(), flags, Mode::empty())?;
                    // "0" means the writer itself, in both versions of cgroups.
                    rustix::io::write(fd, b"0")?;
                }
                Ok(())
            });
        }
        let child = command
            .spawn()
            .map_err(|e| LabError::process(name, format!("does not start: {e}")))?;
        Ok(Guarded {
            child,
            name: name.to_string(),
        })
    }

    /// Starts it with its output in a file, and nothing to read.
    pub fn logged(name: &str, mut command: Command, log: &Path) -> Result<Self, LabError> {
        let open = || {
            let file = File::options().create(true).append(true).open(log);
            file.map_err(|e| LabError::file("make a log", log, e))
        };
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        Guarded::start(name, command, &[])
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to end, and gives it `patience_ns`; then it is killed.
    pub fn end(&mut self, patience_ns: u64) {
        let _ = kill_process(self.id(), Signal::TERM);
        let until = clock::monotonic_ns() + patience_ns;
        while self.ended().is_none() && clock::monotonic_ns() < until {
            clock::sleep_until(clock::monotonic_ns() + 5_000_000);
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The group was made for this child. No other group can have its number while a member
        // lives, and what the child forked may live on in it after the child has ended.
        let ended = self.ended().is_some();
        let _ = kill_process_group(self.id(), Signal::KILL);
        if !ended {
            let _ = self.child.wait();
        }
    }
}

/// Waits until there is something to read, a signal comes, or the time is over.
fn readable(fd: &impl AsFd, patience_ns: u64) -> bool {
    let patience = Timespec {
        tv_sec: (patience_ns / 1_000_000_000) as i64,
        tv_nsec: (patience_ns % 1_000_000_000) as i64,
    };
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut polled, Some(&patience)).is_ok_and(|n| n > 0)
}

/// To begin takes some 100 ms of CPU, under a cap of 10 ‰ 10 s, and more where those before it have
/// left a debt.
const READY_NS: u64 = 60_000_000_000;

/// A load generator of ours, with its page and its command pipe.
pub struct Worker {
    pub page: Arc<SharedPage>,
    guard: Guarded,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts the program that has the `worker` subcommand on a job. `wrap` makes the command out
    /// of its words (plain, or through `tidegate run`); `join` are membership files to enter.
    pub fn start(
        exe: &Path,
        job: &Job,
        join: &[PathBuf],
        wrap: &dyn Fn(&[String]) -> Command,
    ) -> Result<Self, LabError> {
        let page = Arc::new(SharedPage::create()?);
        let job_text = serde_json::to_string(job).unwrap_or_default();
        let (exe, path) = (exe.display().to_string(), page.path().display().to_string());
        let mut command = wrap(&[exe, "worker".into(), path, job_text]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let name = format!("{:?}", job.generator);
        let mut guard = Guarded::start(&name, command, join)?;
        let pipes = (guard.child.stdin.take(), guard.child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err(LabError::process(name, "has no pipes"));
        };
        let mut worker = Worker {
            page,
            guard,
            input,
            output: BufReader::new(output),
        };
        worker.wait_ready(job.threads)?;
        Ok(worker)
    }

    /// Throttled side work may take long to come up, a broken command comes never.
    fn wait_ready(&mut self, threads: usize) -> Result<(), LabError> {
        let is_ready = stop::wait_for(READY_NS, || {
            Ok(self.page.ready() >= threads || self.guard.ended().is_some())
        })?;
        let why = match self.guard.ended() {
            Some(status) if self.page.ready() < threads => {
                format!("ended before it was ready ({status}); its message is above")
            }
            _ if !is_ready => format!("is not ready after {} s", READY_NS / 1_000_000_000),
            _ => return Ok(()),
        };
        Err(LabError::process(&self.guard.name, why))
    }

    /// Sends one command and reads its one line of answer, for which there are ten seconds.
    pub fn ask(&mut self, command: &str) -> Result<serde_json::Value, LabError> {
        let fail = |why: String| LabError::process(&self.guard.name, why);
        writeln!(self.input, "{command}").map_err(|e| fail(format!("does not listen: {e}")))?;
        for _ in 0..200 {
            if readable(self.output.get_ref(), 50_000_000) {
                let mut line = String::new();
                let read = self.output.read_line(&mut line);
                read.map_err(|e| fail(format!("no answer: {e}")))?;
                return serde_json::from_str(&line)
                    .map_err(|e| fail(format!("answered '{}': {e}", line.trim())));
            }
            stop::check()?;
        }
        Err(fail("gave no answer within 10 s".into()))
    }

    /// The process; the same before and after `tidegate run` became the worker.
    pub fn pid(&self) -> i32 {
        self.guard.pid()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.page.stop();
    }
}

/// Processes of the process group `pgid`, so that what a command forked is counted with it.
pub fn group_members(pgid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| group_of(pid) == Some(pgid))
        .collect()
}

/// The process group of a process, from `/proc/PID/stat`; 0 for a kernel thread, which getpgid(2)
/// of rustix refuses.
fn group_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(2)?.parse().ok()
}

/// How long all threads of a process have waited for a CPU, ns, and how often each got one: the
/// kernel's count (`/proc/PID/task/*/schedstat`).
pub fn run_delay(pid: i32) -> Option<(u64, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace().skip(1);
        let mut next = || fields.next()?.parse::<u64>().ok();
        Some((next()?, next()?))
    };
    let counted = tasks.filter_map(|task| of(task.ok()?));
    counted.reduce(|a, b| (a.0 + b.0, a.1 + b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_takes_the_whole_group_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60"]);
        let guard = Guarded::start("sh", command, &[]).expect("sh starts");
        let pid = guard.pid();
        while group_members(pid).len() < 3 {
            clock::sleep_until(clock::monotonic_ns() + 1_000_000);
        }
        drop(guard);
        let until = clock::monotonic_ns() + 5_000_000_000;
        while !group_members(pid).is_empty() && clock::monotonic_ns() < until {
            clock::sleep_until(clock::monotonic_ns() + 1_000_000);
        }
        assert!(group_members(pid).iter().all(|&p| is_zombie(p)));
    }

    /// A killed orphan stays in /proc until its new parent has noticed.
    fn is_zombie(pid: i32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .map(|s| s.contains(") Z "))
            .unwrap_or(true)
    }

    #[test]
    fn a_group_that_cannot_be_entered_is_an_error() {
        let refused = Guarded::start(
            "true",
            Command::new("true"),
            &[PathBuf::from("/proc/no/such")],
        );
        assert!(refused.is_err());
    }
}
