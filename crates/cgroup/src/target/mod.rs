//! What a user names: `pid:1234`, `tid:1234`, `unit:nginx.service`, `cgroup:/path`, `gate:NAME`;
//! and processes told apart by their start time, because the kernel uses a number again.

mod name;
mod process;
mod unit;

pub use name::{GATE_NAME_MAX_BYTES, GateName};
pub use process::{HeldProcess, ProcessRef, has_exited, is_stopped, runs, stat_field, threads_of};
pub(crate) use process::{is_kernel_thread, is_real_time, process_of};
pub use unit::UnitName;

use crate::KfsError;
use crate::group_path::{GroupPath, GroupPathError};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error(
        "target: {text:?}: {why}; write pid:NUMBER, tid:NUMBER, unit:NAME, cgroup:/PATH or gate:NAME"
    )]
    Form { text: String, why: &'static str },
    #[error("target: {text:?}: {kind}: targets are not supported by this version; use {instead}")]
    Later {
        text: String,
        kind: &'static str,
        instead: String,
    },
    #[error("target: {0}")]
    Path(#[from] GroupPathError),
    #[error(
        "gate name: {name:?}: {why}; use letters, digits, '.', '_' and '-', at most 64, not beginning with '-' or '.'"
    )]
    GateName { name: String, why: &'static str },
    #[error("process {pid}: {why}; look with: ps -p {pid}")]
    NoProcess { pid: i32, why: String },
    #[error(
        "process {tid}: a thread of process {pid}; name pid:{pid}, or tid:{tid} for a latency hint, a quota or caps of \
         its own"
    )]
    Thread { tid: i32, pid: i32 },
    #[error("process {pid} ({comm}): a kernel thread cannot be a target; name a process")]
    KernelThread { pid: i32, comm: String },
    #[error("process {pid}: {source}")]
    Kfs { pid: i32, source: KfsError },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Pid(i32),
    /// One thread, which may have a latency hint, a quota and caps of its own.
    Thread(i32),
    Unit(UnitName),
    Cgroup(GroupPath),
    Gate(GateName),
}

impl Target {
    /// Reads a target. A bare word is a gate's name.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let shown = crate::clip(text);
        let Some((kind, rest)) = text.split_once(':') else {
            return Ok(Self::Gate(GateName::parse(text)?));
        };
        match kind {
            "pid" | "tid" => match rest.parse::<i32>() {
                Ok(number) if number > 0 && rest.bytes().all(|one| one.is_ascii_digit()) => {
                    Ok(match kind {
                        "pid" => Self::Pid(number),
                        _ => Self::Thread(number),
                    })
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
            "unit" => Ok(Self::Unit(UnitName::parse(rest)?)),
            "pod" => {
                let instead = "an annotation of the pod (docs/kubernetes.md), or cgroup: with its own group below \
                               /kubepods.slice"
                    .to_owned();
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

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "pid:{pid}"),
            Self::Thread(tid) => write!(f, "tid:{tid}"),
            Self::Unit(name) => write!(f, "unit:{name}"),
            Self::Cgroup(path) => write!(f, "cgroup:{path}"),
            Self::Gate(name) => write!(f, "gate:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(Target::parse("pid:12").unwrap(), Target::Pid(12));
        assert_eq!(Target::parse("tid:12").unwrap().to_string(), "tid:12");
        assert_eq!(
            Target::parse("cgroup:/a/b").unwrap().to_string(),
            "cgroup:/a/b"
        );
        assert_eq!(Target::parse("gate:x-1").unwrap().to_string(), "gate:x-1");
        assert_eq!(Target::parse("x-1").unwrap().to_string(), "gate:x-1");
        assert_eq!(
            Target::parse("unit:nginx").unwrap().to_string(),
            "unit:nginx.service"
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
            "tid:0",
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
            "unit:",
            "unit:a/b",
            "what:x",
            "-h",
        ] {
            assert!(Target::parse(hostile).is_err(), "{hostile:?}");
        }
    }
}
