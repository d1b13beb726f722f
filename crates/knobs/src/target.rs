//! What a user names: `pid:1234`, `cgroup:/path`, `gate:NAME`; and processes told apart by their start time, because the
//! kernel uses a number again.

use std::os::fd::OwnedFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::group::{GroupPath, GroupPathError};
use crate::kfs::{KernelFs, KfsError};

/// A gate's name is part of a cgroup's name, of messages and of the socket's URLs.
pub const GATE_NAME_MAX_BYTES: usize = 64;

/// PF_KTHREAD of field 9 of /proc/PID/stat (`include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;

/// A target that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not one of the forms.
    #[error("target: {text:?}: {why}; write pid:NUMBER, cgroup:/PATH or gate:NAME")]
    Form {
        /// What was given, shortened.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A form that later versions will know.
    #[error("target: {text:?}: {kind}: targets are not supported by this version; use {instead}")]
    Later {
        /// What was given, shortened.
        text: String,
        /// `unit` or `pod`.
        kind: &'static str,
        /// What does work.
        instead: String,
    },
    /// A path that names no group.
    #[error("target: {0}")]
    Path(#[from] GroupPathError),
    /// A gate's name with something in it that could do harm.
    #[error(
        "gate name: {name:?}: {why}; use letters, digits, '.', '_' and '-', at most 64, not beginning with '-' or '.'"
    )]
    GateName {
        /// What was given, shortened.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No such process (any more).
    #[error("process {pid}: {why}; look with: ps -p {pid}")]
    NoProcess {
        /// The number.
        pid: i32,
        /// What was found instead.
        why: String,
    },
    /// A kernel thread.
    #[error("process {pid} ({comm}): a kernel thread cannot be a target; name a process")]
    KernelThread {
        /// The number.
        pid: i32,
        /// Its name.
        comm: String,
    },
    /// Its files could not be read.
    #[error("process {pid}: {source}")]
    Kfs {
        /// The number.
        pid: i32,
        /// What was refused.
        source: KfsError,
    },
}

/// A gate's name, checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GateName(String);

impl GateName {
    /// Checks a name that a user gave.
    pub fn parse(name: &str) -> Result<Self, TargetError> {
        let bad = |why| TargetError::GateName {
            name: crate::bandwidth::clip(name),
            why,
        };
        if name.is_empty() {
            return Err(bad("empty"));
        }
        if name.len() > GATE_NAME_MAX_BYTES {
            return Err(bad("longer than 64 bytes"));
        }
        if name.starts_with(['-', '.']) {
            return Err(bad("begins with '-' or '.'"));
        }
        if !name.bytes().all(is_name_byte) {
            return Err(bad("a character that is no letter, digit, '.', '_' or '-'"));
        }
        // "cpu.max" or "cgroup.procs" as a group's name collides with the kernel's files in its parent.
        if name.starts_with("cgroup.") || name.starts_with("cpu.") || is_v1_file(name) {
            return Err(bad("the kernel has a file of that name"));
        }
        Ok(Self(name.to_owned()))
    }

    /// A name made from a command: the program's own name with everything odd replaced, and `number` to tell equal
    /// commands apart (0 is left out).
    pub fn from_command(program: &str, number: u32) -> Self {
        let own = program
            .rsplit('/')
            .find(|part| !part.is_empty())
            .unwrap_or_default();
        let own: String = own
            .chars()
            .map(|one| {
                if one.is_ascii() && is_name_byte(one as u8) {
                    one
                } else {
                    '_'
                }
            })
            .collect();
        let own = own.trim_start_matches(['-', '.', '_']);
        let tail = if number == 0 {
            String::new()
        } else {
            format!("-{number}")
        };
        let room = GATE_NAME_MAX_BYTES - tail.len();
        let own: String = own.chars().take(room).collect();
        let name = format!("{}{tail}", if own.is_empty() { "command" } else { &own });
        Self::parse(&name).unwrap_or_else(|_| {
            // A program called like a kernel file: its name, out of that space.
            let own: String = own.chars().take(room - 5).collect();
            Self(format!("gate-{own}{tail}"))
        })
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// v1's files without a prefix, present in every group.
fn is_v1_file(name: &str) -> bool {
    name.starts_with("cpuacct.") || matches!(name, "tasks" | "notify_on_release" | "release_agent")
}

impl std::fmt::Display for GateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for GateName {
    type Error = TargetError;
    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::parse(&name)
    }
}

impl From<GateName> for String {
    fn from(name: GateName) -> Self {
        name.0
    }
}

/// A target as the user wrote it, checked in form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A running process.
    Pid(i32),
    /// An existing group, below the mount of the cpu controller.
    Cgroup(GroupPath),
    /// A gate that exists.
    Gate(GateName),
}

impl Target {
    /// Reads a target. A bare word is a gate's name.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let shown = crate::bandwidth::clip(text);
        let Some((kind, rest)) = text.split_once(':') else {
            return Ok(Self::Gate(GateName::parse(text)?));
        };
        match kind {
            "pid" => match rest.parse::<i32>() {
                Ok(pid) if pid > 0 && rest.bytes().all(|one| one.is_ascii_digit()) => {
                    Ok(Self::Pid(pid))
                }
                _ => Err(TargetError::Form {
                    text: shown,
                    why: "not a positive process number",
                }),
            },
            "cgroup" => match GroupPath::parse(rest)? {
                root if root.is_root() => Err(TargetError::Form {
                    text: shown,
                    why: "the root group is the whole machine",
                }),
                path => Ok(Self::Cgroup(path)),
            },
            "gate" => Ok(Self::Gate(GateName::parse(rest)?)),
            "unit" => {
                let instead = format!("cgroup:/system.slice/{}", plain(rest));
                Err(TargetError::Later {
                    text: shown,
                    kind: "unit",
                    instead,
                })
            }
            "pod" => {
                let instead = "cgroup: with the pod's own group below /kubepods.slice".to_owned();
                Err(TargetError::Later {
                    text: shown,
                    kind: "pod",
                    instead,
                })
            }
            _ => Err(TargetError::Form {
                text: shown,
                why: "not a kind of target",
            }),
        }
    }
}

/// A name repeated in a message, only as far as it is harmless.
fn plain(name: &str) -> String {
    let harmless = |one: char| one.is_ascii_alphanumeric() || "._-@:\\".contains(one);
    if name.is_empty() || !name.chars().all(harmless) {
        "NAME".to_owned()
    } else {
        crate::bandwidth::clip(name)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "pid:{pid}"),
            Self::Cgroup(path) => write!(f, "cgroup:{path}"),
            Self::Gate(name) => write!(f, "gate:{name}"),
        }
    }
}

/// One process, told from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
    /// Its effective user.
    pub uid: u32,
    /// Its short name.
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
        if stat_field(&stat, 9).is_some_and(|flags| flags & PF_KTHREAD != 0) {
            return Err(TargetError::KernelThread { pid, comm });
        }
        let status = file("status")?;
        let uid = effective_uid(&status).ok_or_else(|| gone("its status file has no Uid line"))?;
        Ok(Self {
            pid,
            start_ticks,
            uid,
            comm,
        })
    }

    /// Whether the number still means this process, alive. An exec does not change it, a reuse of the number does.
    pub fn is_same(&self, fs: &dyn KernelFs) -> Result<bool, TargetError> {
        match Self::look_up(fs, self.pid) {
            Ok(now) => Ok(now.start_ticks == self.start_ticks),
            Err(TargetError::NoProcess { .. } | TargetError::KernelThread { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A descriptor that becomes readable when the process exits and never means another one. Opened first and checked
    /// after, so that what was checked is what is held. `None` where the kernel has no pidfds (before 5.3).
    pub fn pidfd(&self, fs: &dyn KernelFs) -> Result<Option<OwnedFd>, TargetError> {
        let gone = |why: &str| TargetError::NoProcess {
            pid: self.pid,
            why: why.to_owned(),
        };
        let pid = rustix::process::Pid::from_raw(self.pid).ok_or_else(|| gone("not positive"))?;
        let fd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Err(gone("it has exited")),
            Err(_) => return Ok(None),
        };
        if self.is_same(fs)? {
            Ok(Some(fd))
        } else {
            Err(gone("its number is another process's by now"))
        }
    }
}

/// The text after the name. A name may hold spaces and parentheses: the last `)` ends it.
fn after_comm(stat: &str) -> Option<&str> {
    Some(stat[stat.rfind(')')? + 1..].trim_start())
}

fn comm_of(stat: &str) -> Option<String> {
    let comm = stat.get(stat.find('(')? + 1..stat.rfind(')')?)?;
    Some(comm.chars().filter(|one| !one.is_control()).collect())
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
fn effective_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        assert_eq!(Target::parse("pid:12").unwrap(), Target::Pid(12));
        assert_eq!(
            Target::parse("cgroup:/a/b").unwrap().to_string(),
            "cgroup:/a/b"
        );
        assert_eq!(Target::parse("gate:x-1").unwrap().to_string(), "gate:x-1");
        assert_eq!(Target::parse("x-1").unwrap().to_string(), "gate:x-1");
        let later = Target::parse("unit:nginx.service").unwrap_err().to_string();
        assert_eq!(
            later,
            "target: \"unit:nginx.service\": unit: targets are not supported by this version; \
             use cgroup:/system.slice/nginx.service"
        );
        assert!(
            Target::parse("pod:a/b")
                .unwrap_err()
                .to_string()
                .contains("not supported by this version")
        );
        for hostile in [
            "",
            ":",
            "pid:",
            "pid:0",
            "pid:-1",
            "pid:+1",
            "pid:99999999999",
            "pid:1 ",
            "cgroup:",
            "cgroup:a",
            "cgroup:/",
            "cgroup:/../x",
            "cgroup:/a/../../x",
            "cgroup:/a\n",
            "gate:",
            "gate:../x",
            "gate:a/b",
            "gate:-x",
            "gate:.x",
            "gate:a b",
            "gate:a\u{1b}[2J",
            "gate:cpu.max",
            "gate:cgroup.procs",
            "gate:tasks",
            "what:x",
            "-h",
        ] {
            assert!(Target::parse(hostile).is_err(), "{hostile:?}");
        }
        assert!(GateName::parse(&"x".repeat(65)).is_err());
    }

    #[test]
    fn names_from_commands() {
        let name = |program, number| GateName::from_command(program, number).to_string();
        assert_eq!(name("/usr/bin/ffmpeg", 0), "ffmpeg");
        assert_eq!(name("ffmpeg", 2), "ffmpeg-2");
        assert_eq!(name("-bash", 0), "bash");
        assert_eq!(name("../..", 0), "command");
        assert_eq!(name("", 0), "command");
        assert_eq!(name("a b\nc", 0), "a_b_c");
        assert_eq!(name("tasks", 0), "gate-tasks");
        assert_eq!(name(&"y".repeat(100), 7).len(), GATE_NAME_MAX_BYTES);
    }

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
    fn this_process_is_itself() {
        let fs = crate::kfs::RealFs::new();
        let own = ProcessRef::look_up(&fs, std::process::id() as i32).unwrap();
        assert!(own.is_same(&fs).unwrap());
        assert!(own.pidfd(&fs).unwrap().is_some());
        let other = ProcessRef {
            start_ticks: own.start_ticks + 1,
            ..own
        };
        assert!(!other.is_same(&fs).unwrap());
        assert!(other.pidfd(&fs).is_err());
    }

    proptest! {
        #[test]
        fn any_command_makes_a_name(program in "\\PC*", number in 0u32..2000) {
            let name = GateName::from_command(&program, number);
            prop_assert_eq!(GateName::parse(name.as_str()).unwrap(), name);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(pid|cgroup|gate|unit|pod)?:?(/|\\.|\\PC|\n)*") {
            let _ = Target::parse(&text);
        }

        #[test]
        fn any_stat_is_read_or_refused(stat in "[0-9() a-z]*", number in 0usize..60) {
            let _ = stat_field(&stat, number);
            let _ = comm_of(&stat);
            let _ = state_of(&stat);
        }
    }
}
