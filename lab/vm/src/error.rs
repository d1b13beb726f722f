//! What can go wrong in the bed, on one line, and the programs that it needs.

use std::fmt;
use std::path::{Path, PathBuf};

/// A failure on one line: what, where, why, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmError {
    what: String,
    place: String,
    why: String,
    remedy: String,
    /// The machine lacks something, as opposed to the bed or its tests being wrong: skipped, not
    /// failed.
    lacking: bool,
}

impl VmError {
    /// The four parts of the line.
    pub fn new(what: &str, place: &str, why: &str, remedy: &str) -> VmError {
        VmError {
            what: what.into(),
            place: place.into(),
            why: why.into(),
            remedy: remedy.into(),
            lacking: false,
        }
    }

    /// Whether this machine lacks something, as opposed to the bed or its tests being wrong.
    pub fn is_lacking(&self) -> bool {
        self.lacking
    }

    /// The same, as something that this machine lacks.
    pub fn lacking(self) -> VmError {
        VmError {
            lacking: true,
            ..self
        }
    }

    /// A file that could not be used, with the remedy that its error suggests.
    pub fn io(what: &str, path: &Path, error: &std::io::Error) -> VmError {
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "check that it is installed and spelt so",
            std::io::ErrorKind::PermissionDenied => "run it as a user who may",
            std::io::ErrorKind::StorageFull => "make room on that file system",
            _ => "see the error",
        };
        VmError::new(
            what,
            &path.display().to_string(),
            &error.to_string(),
            remedy,
        )
    }
}

impl fmt::Display for VmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {}; {}",
            self.what, self.place, self.why, self.remedy
        )
    }
}

impl std::error::Error for VmError {}

/// Where `program` is, or what to install.
pub fn tool(program: &str) -> Result<PathBuf, VmError> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search)
        .map(|p| p.join(program))
        .find(|p| p.is_file());
    found.ok_or_else(|| {
        let package = match program {
            "qemu-system-x86_64" => "qemu-system-x86",
            "busybox" => "busybox-static",
            "strip" => "binutils",
            "cc" => "gcc libc6-dev",
            "dpkg" | "dpkg-deb" | "apt-get" | "apt-cache" => "apt (a Debian or Ubuntu machine)",
            other => other,
        };
        VmError::new(
            "find a program",
            program,
            "it is not on the PATH",
            &format!("apt-get install {package}"),
        )
        .lacking()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_one_line_with_its_remedy() {
        let trouble = tool("no-such-program-here").unwrap_err().to_string();
        assert_eq!(
            trouble,
            "find a program: no-such-program-here: it is not on the PATH; apt-get install no-such-program-here"
        );
    }
}
