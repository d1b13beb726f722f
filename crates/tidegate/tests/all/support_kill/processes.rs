//! Processes as /proc tells of them; nothing is asked of Tidegate.

use std::fs::read_to_string;

/// Ends a process as nothing can prevent.
pub fn kill9(pid: i32) {
    signal(pid, libc::SIGKILL);
}

/// Sends a signal; a process that is gone already is fine.
pub fn signal(pid: i32, number: i32) {
    assert!(pid > 1, "{pid} must not be signalled");
    // SAFETY: no pointers.
    unsafe { libc::kill(pid, number) };
}

/// One process, told from a later one of the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub pid: i32,
    start: u64,
}

impl Known {
    /// The process of this number, unless it has ended (a zombie has).
    pub fn new(pid: i32) -> Option<Known> {
        let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..]
            .split_ascii_whitespace()
            .collect();
        if matches!(fields[0], "Z" | "X") {
            return None;
        }
        // Field 22 of proc_pid_stat(5); the first here is field 3.
        Some(Known {
            pid,
            start: fields[19].parse().ok()?,
        })
    }

    pub fn is_alive(&self) -> bool {
        Known::new(self.pid).as_ref() == Some(self)
    }
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Processes of the instance with this prefix that run `tidegate WORDS …`.
fn of_instance(prefix: &str, words: &[&str]) -> Vec<i32> {
    let mine = format!("TIDEGATE_PREFIX={prefix}");
    let runs_word = |pid: &i32| {
        let typed = read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let typed: Vec<&str> = typed.split('\0').skip(1).take(words.len()).collect();
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        typed == words
            && environment
                .split(|byte| *byte == 0)
                .any(|entry| entry == mine.as_bytes())
    };
    pids().into_iter().filter(runs_word).collect()
}

pub fn agents(prefix: &str) -> Vec<i32> {
    of_instance(prefix, &["agent", "run"])
}

pub fn guardians(prefix: &str) -> Vec<i32> {
    of_instance(prefix, &["guardian"])
}
