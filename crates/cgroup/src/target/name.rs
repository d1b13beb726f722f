//! A gate's name: given by a user and checked, or made from a command.

use serde::{Deserialize, Serialize};

use super::TargetError;

/// A gate's name is part of a cgroup's name, of messages and of the socket's URLs.
pub const GATE_NAME_MAX_BYTES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GateName(String);

impl GateName {
    pub fn parse(name: &str) -> Result<Self, TargetError> {
        let bad = |why| TargetError::GateName {
            name: crate::clip(name),
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
        // "cpu.max" or "cgroup.procs" as a group's name collides with the kernel's files in its
        // parent.
        if name.starts_with("cgroup.") || name.starts_with("cpu.") || is_v1_file(name) {
            return Err(bad("the kernel has a file of that name"));
        }
        Ok(Self(name.to_owned()))
    }

    /// A name made from a command: the program's own name with everything odd replaced, and
    /// `number` to tell equal commands apart (0 is left out).
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

crate::checked_text!(GateName, TargetError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_commands() {
        assert!(GateName::parse(&"x".repeat(65)).is_err());
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
}
