//! The parts of /proc that the engine reads, made from the fake's processes and mounts.

use std::collections::BTreeMap;
use std::path::Path;

use super::SELF_PID;
use super::group::Mount;
use super::process::Process;

const SCHED_FIFO: u32 = 1;

pub(super) struct Procfs<'a> {
    pub mounts: &'a [Mount],
    pub procs: &'a BTreeMap<i32, Process>,
    pub read_only: bool,
}

impl<'a> Procfs<'a> {
    pub fn read(&self, path: &Path) -> Option<String> {
        let rest = path.strip_prefix("/proc").ok()?.to_str()?;
        let parts: Vec<&str> = rest.split('/').collect();
        if let ["self", "mountinfo"] = parts.as_slice() {
            return Some(self.mountinfo());
        }
        let process = self.process_of(parts.first()?)?;
        let tid = parts.first()?.parse().unwrap_or(process.facts.pid);
        match parts.as_slice() {
            [_, "cgroup"] => Some(self.cgroup(process, tid)),
            [_, "comm"] => Some(format!("{}\n", process.facts.comm)),
            [_, "status"] => Some(status(process)),
            [_, "stat"] => Some(stat(process, tid)),
            [_, "task", tid, "stat"] => Some(stat(process, tid.parse().ok()?)),
            _ => None,
        }
    }

    pub fn list(&self, path: &Path) -> Option<Vec<String>> {
        let rest = path.strip_prefix("/proc").ok()?.to_str()?;
        let parts: Vec<&str> = rest.split('/').collect();
        let process = self.process_of(parts.first()?)?;
        let ["task"] = &parts[1..] else { return None };
        Some(process.tids().map(|tid| tid.to_string()).collect())
    }

    /// By number; the number of a thread also leads to its process, as in the kernel.
    fn process_of(&self, name: &str) -> Option<&'a Process> {
        let pid = if name == "self" {
            SELF_PID
        } else {
            name.parse().ok()?
        };
        let has_thread = |process: &&Process| process.tids().any(|tid| tid == pid);
        self.procs
            .get(&pid)
            .or_else(|| self.procs.values().find(has_thread))
    }

    fn mountinfo(&self) -> String {
        let line = |(nth, mount): (usize, &Mount)| {
            let kind = if mount.version == 1 {
                "cgroup"
            } else {
                "cgroup2"
            };
            let controllers: String = match mount.version {
                1 => mount
                    .controllers
                    .iter()
                    .map(|one| format!(",{one}"))
                    .collect(),
                _ => String::new(),
            };
            let rw = if self.read_only { "ro" } else { "rw" };
            let path = mount.path.display();
            format!(
                "{} 23 0:{} / {path} {rw},relatime - {kind} {kind} {rw}{controllers}\n",
                30 + nth,
                28 + nth
            )
        };
        "23 1 0:22 / /sys rw,relatime - sysfs sysfs rw\n".to_owned()
            + &self.mounts.iter().enumerate().map(line).collect::<String>()
    }

    fn cgroup(&self, process: &Process, tid: i32) -> String {
        let line = |(nth, mount): (usize, &Mount)| {
            let below = process
                .place(tid, nth)
                .strip_prefix(&mount.path)
                .unwrap_or(Path::new(""))
                .display()
                .to_string();
            match mount.version {
                1 => format!("{}:{}:/{below}\n", nth + 1, mount.controllers.join(",")),
                _ => format!("0::/{below}\n"),
            }
        };
        self.mounts.iter().enumerate().map(line).collect()
    }
}

fn status(process: &Process) -> String {
    let facts = &process.facts;
    format!(
        "Name:\t{}\nTgid:\t{}\nPid:\t{}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n",
        facts.comm,
        facts.pid,
        facts.pid,
        uid = facts.uid
    )
}

/// Fields 1 to 41 of proc_pid_stat(5).
fn stat(process: &Process, tid: i32) -> String {
    let facts = &process.facts;
    let policy = match process.is_real_time(tid) {
        Some(true) => SCHED_FIFO,
        _ => 0,
    };
    let flags: u64 = if facts.kernel_thread { 0x0020_0000 } else { 0 };
    let mut fields = vec!["0".to_owned(); 41];
    fields[0] = tid.to_string();
    fields[1] = format!("({})", facts.comm);
    fields[2] = "R".to_owned();
    fields[8] = flags.to_string();
    fields[21] = facts.start_ticks.to_string();
    fields[40] = policy.to_string();
    fields.join(" ") + "\n"
}
