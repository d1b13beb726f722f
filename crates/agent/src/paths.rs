//! Where one instance of Tidegate keeps its files, and what its groups are called.
//!
//! Two environment variables move an instance aside, so that tests (and a second machine-wide policy under
//! trial) never meet the real one: `TIDEGATE_RUN_DIR` and `TIDEGATE_PREFIX`.

use std::path::{Path, PathBuf};

/// The run directory of one instance, and the prefix of its cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    dir: PathBuf,
    prefix: String,
}

/// The run directory of the machine's own instance.
pub const DEFAULT_RUN_DIR: &str = "/run/tidegate";
/// The prefix of its cgroups.
pub const DEFAULT_PREFIX: &str = "tidegate";

impl RunDir {
    /// An instance in `dir`, with groups called `<prefix>-side` and so on.
    pub fn new(dir: impl Into<PathBuf>, prefix: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            prefix: prefix.into(),
        }
    }

    /// The instance that the environment names; the machine's own by default.
    pub fn from_env() -> Self {
        let dir = std::env::var_os("TIDEGATE_RUN_DIR").unwrap_or_else(|| DEFAULT_RUN_DIR.into());
        let prefix = std::env::var("TIDEGATE_PREFIX").unwrap_or_else(|_| DEFAULT_PREFIX.into());
        Self::new(dir, prefix)
    }

    /// The directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The prefix of this instance's cgroups.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The owner's socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("tidegate.sock")
    }

    /// Locked by the owner for as long as it lives: one owner per instance.
    pub fn owner_lock(&self) -> PathBuf {
        self.dir.join("owner.lock")
    }

    /// Locked by whoever is starting an owner.
    pub fn start_lock(&self) -> PathBuf {
        self.dir.join("start.lock")
    }

    /// The page that owner and guardian share.
    pub fn lease(&self) -> PathBuf {
        self.dir.join("lease")
    }

    /// Which gates there are; enough for the next owner to take them up.
    pub fn gates(&self) -> PathBuf {
        self.dir.join("gates.json")
    }

    /// What an owner started on demand has to say.
    pub fn log(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    /// The environment that makes a child use this instance.
    pub fn env(&self) -> [(&'static str, &std::ffi::OsStr); 2] {
        [
            ("TIDEGATE_RUN_DIR", self.dir.as_os_str()),
            ("TIDEGATE_PREFIX", self.prefix.as_ref()),
        ]
    }
}
