//! Where one instance of Tidegate keeps its files, and what its groups are called.
//!
//! Two environment variables move an instance aside, so that tests (and a second machine-wide
//! policy under trial) never meet the real one: `TIDEGATE_RUN_DIR` and `TIDEGATE_PREFIX`.
//!
//! The next agent trusts the directory's contents, so only the agent may write there. A process
//! that can open a lock's file, even to read, can hold the lock, so those files are readable for
//! their owner alone.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tidegate_terms::Roots;

/// The run directory of one instance, and the prefix of its cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    dir: PathBuf,
    prefix: String,
}

pub const DEFAULT_RUN_DIR: &str = "/run/tidegate";
pub const DEFAULT_PREFIX: &str = "tidegate";

/// What a user namespace shows for a user that it does not map (/proc/sys/kernel/overflowuid).
const UNMAPPED_UID: u32 = 65_534;

#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    #[error("{}: {error}; {}", .path.display(), remedy(.error))]
    Make { path: PathBuf, error: io::Error },
    /// Another user could tamper with it.
    #[error("{}: {why}; use a directory that only you (or root) can write, such as {DEFAULT_RUN_DIR}", .path.display())]
    Unsafe { path: PathBuf, why: String },
}

/// What helps where the run directory or a file in it cannot be made.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "put sudo before tidegate (a command of run still runs as you), or have the service started"
        }
        _ => "make it writable, or set TIDEGATE_RUN_DIR",
    }
}

/// Opens the file of a lock, or makes it, for its owner alone.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

impl RunDir {
    /// An instance in `dir`, with groups called `<prefix>-side` and so on.
    pub fn new(dir: impl Into<PathBuf>, prefix: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            prefix: prefix.into(),
        }
    }

    /// The instance that the environment names; by default the machine's, and for other users than
    /// root one of their own, unless only the machine's runs.
    pub fn from_env() -> Self {
        // An agent that is started for a command has another working directory.
        let named = std::env::var_os("TIDEGATE_RUN_DIR").filter(|dir| !dir.is_empty());
        let named = named.map(|dir| std::path::absolute(&dir).unwrap_or_else(|_| dir.into()));
        let dir = named
            .or_else(users_own)
            .unwrap_or_else(|| DEFAULT_RUN_DIR.into());
        let prefix = std::env::var("TIDEGATE_PREFIX").unwrap_or_else(|_| DEFAULT_PREFIX.into());
        Self::new(dir, prefix)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory where it is missing, and refuses one that another user could tamper
    /// with.
    pub fn make(&self) -> Result<(), RunDirError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.dir)
            .map_err(|error| RunDirError::Make {
                path: self.dir.clone(),
                error,
            })?;
        self.check()
    }

    /// Refuses a directory that another user could tamper with: theirs, or writable for them, or in
    /// a directory that is.
    pub fn check(&self) -> Result<(), RunDirError> {
        let own = rustix::process::geteuid().as_raw();
        let wrong = |path: &Path, why: String| RunDirError::Unsafe {
            path: path.to_owned(),
            why,
        };
        let real = std::fs::canonicalize(&self.dir)
            .map_err(|error| wrong(&self.dir, error.to_string()))?;
        for at in real.ancestors() {
            let meta = std::fs::metadata(at).map_err(|error| wrong(at, error.to_string()))?;
            let uid = meta.uid();
            // In a user namespace, the host's root is shown as nobody; it owns what is above us.
            if uid != own && uid != 0 && (at == real || uid != UNMAPPED_UID) {
                return Err(wrong(at, format!("it belongs to uid {uid}")));
            }
            // In a sticky directory (/tmp) another user's directory cannot be taken away.
            let is_sticky = meta.mode() & 0o1000 != 0 && at != real;
            if meta.mode() & 0o022 != 0 && !is_sticky {
                return Err(wrong(at, "others can write to it".to_owned()));
            }
        }
        Ok(())
    }

    /// Where its configuration is: the machine's for root and for the machine's own agent, else
    /// what the administrator has for users' agents, and the user's.
    pub fn config_roots(&self) -> Roots {
        if rustix::process::geteuid().is_root() || self.dir == Path::new(DEFAULT_RUN_DIR) {
            return Roots::system(&self.dir);
        }
        let from = |name| std::env::var_os(name).map(PathBuf::from);
        let home = || Some(from("HOME")?.join(".config"));
        let config = from("XDG_CONFIG_HOME").or_else(home).unwrap_or_default();
        Roots {
            vendor: "/etc/tidegate/user".into(),
            admin: config.join("tidegate"),
            runtime: self.dir.clone(),
        }
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("tidegate.sock")
    }

    /// Locked by the agent for as long as it lives: one agent per instance.
    pub fn agent_lock(&self) -> PathBuf {
        self.dir.join("agent.lock")
    }

    /// Locked by an agent that waits to take over from the one that runs.
    pub fn next_lock(&self) -> PathBuf {
        self.dir.join("next.lock")
    }

    pub fn start_lock(&self) -> PathBuf {
        self.dir.join("start.lock")
    }

    pub fn lease(&self) -> PathBuf {
        self.dir.join("lease")
    }

    /// Which gates there are; enough for the next agent to take them up.
    pub fn gates(&self) -> PathBuf {
        self.dir.join("gates.json")
    }

    /// The fifos of gates with a jobserver.
    pub fn jobservers(&self) -> PathBuf {
        self.dir.join("jobservers")
    }

    /// The steps of the last ten minutes.
    pub fn flight(&self) -> PathBuf {
        self.dir.join("flight")
    }

    pub fn recording(&self) -> PathBuf {
        self.dir.join("recording")
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    pub fn env(&self) -> [(&'static str, &std::ffi::OsStr); 2] {
        [
            ("TIDEGATE_RUN_DIR", self.dir.as_os_str()),
            ("TIDEGATE_PREFIX", self.prefix.as_ref()),
        ]
    }
}

/// In the directory that the login made for this user.
fn users_own() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let own = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?).join("tidegate");
    let runs = |dir: &Path| UnixStream::connect(RunDir::new(dir, DEFAULT_PREFIX).socket()).is_ok();
    (runs(&own) || !runs(Path::new(DEFAULT_RUN_DIR))).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(outer.path().join("run"), "x");
        run_dir.make().unwrap();
        mode(run_dir.dir(), 0o777);
        assert!(
            run_dir
                .check()
                .unwrap_err()
                .to_string()
                .contains("others can write")
        );
        mode(run_dir.dir(), 0o755);
        mode(outer.path(), 0o777);
        assert!(run_dir.make().is_err(), "it could be replaced");
        mode(outer.path(), 0o1777);
        run_dir.make().unwrap();
        let theirs = Some(12_345);
        if std::os::unix::fs::chown(run_dir.dir(), theirs, None).is_ok() {
            assert!(
                run_dir
                    .check()
                    .unwrap_err()
                    .to_string()
                    .contains("uid 12345")
            );
        }
    }

    #[test]
    fn a_lock_is_open_to_its_owner_alone_and_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.lock");
        std::fs::write(&path, "").unwrap();
        mode(&path, 0o666);
        open_lock(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(open_lock(&link).is_err(), "a link may lead anywhere");
    }
}
