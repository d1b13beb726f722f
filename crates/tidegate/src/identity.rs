//! Whom `run`'s command runs as: the caller, also when the caller came through sudo.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;

use tidegate_api::Exit;
use tidegate_api::cli::Failure;

#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    uid: u32,
    gid: u32,
    /// Absent for a user id without an entry in the password database.
    name: Option<CString>,
    home: Option<OsString>,
    shell: Option<OsString>,
}

/// The caller behind sudo: root by sudo from another user. `None` for every other caller, whose
/// identity stays.
pub fn behind_sudo() -> Option<Caller> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    // The largest number means "as it is" to setresuid, which would be root.
    let uid = number("SUDO_UID").filter(|uid| *uid != 0 && *uid != u32::MAX)?;
    if !is_started_by_sudo(uid) {
        return None;
    }
    Some(lookup(uid).unwrap_or(Caller {
        uid,
        // An unknown user without a known group gets the group of the same number, never root's.
        gid: number("SUDO_GID").filter(|gid| *gid != 0).unwrap_or(uid),
        name: None,
        home: None,
        shell: None,
    }))
}

/// In a root shell of `sudo -s`, and in a script that sudo started, the variables are there as
/// well, and root is meant. sudo waits for its command, or becomes it: then the parent is a process
/// of the caller.
fn is_started_by_sudo(uid: u32) -> bool {
    let Some(parent) = rustix::process::getppid() else {
        return false;
    };
    let read = |name: &str| {
        let path = format!("/proc/{}/{name}", parent.as_raw_nonzero());
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let is_callers = |line: &str| {
        let mut uids = line
            .strip_prefix("Uid:")
            .into_iter()
            .flat_map(str::split_whitespace);
        uids.next() == Some(uid.to_string().as_str())
    };
    read("comm").trim_end().starts_with("sudo") || read("status").lines().any(is_callers)
}

/// For root: becomes the user without rights, for good. What it then asks of the agent counts as
/// that user's.
pub fn become_nobody() -> Result<(), Failure> {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let nobody = Caller {
        uid: NOBODY,
        gid: NOBODY,
        name: None,
        home: None,
        shell: None,
    };
    nobody.become_it()
}

fn lookup(uid: u32) -> Option<Caller> {
    let mut buffer = vec![0_u8; 16 * 1024];
    // SAFETY: all zeros is a valid passwd (null pointers, zero ids); it is read only after success.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // SAFETY: the buffer's length is passed with it, and all pointers live through the call.
    let rc = unsafe {
        libc::getpwuid_r(
            uid,
            &mut entry,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            &mut found,
        )
    };
    if rc != 0 || found.is_null() {
        return None;
    }
    let text = |pointer: *const libc::c_char| {
        // SAFETY: after success each field is null or a string inside `buffer`, which is still
        // alive.
        (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_owned())
    };
    let path = |pointer| text(pointer).map(|text| OsString::from_vec(text.into_bytes()));
    Some(Caller {
        uid,
        gid: entry.pw_gid,
        name: text(entry.pw_name),
        home: path(entry.pw_dir),
        shell: path(entry.pw_shell),
    })
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => f.write_str(&name.to_string_lossy()),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

impl Caller {
    /// Becomes the caller for good: groups, then group, then user, so that nothing of root's is
    /// left.
    pub fn become_it(&self) -> Result<(), Failure> {
        let groups = match &self.name {
            // SAFETY: a valid C string that outlives the call.
            Some(name) => unsafe { libc::initgroups(name.as_ptr(), self.gid) },
            // SAFETY: no groups at all: a null list of length 0.
            None => unsafe { libc::setgroups(0, std::ptr::null()) },
        };
        // SAFETY: plain numbers; each is tried only if the one before succeeded.
        let done = groups == 0
            && unsafe { libc::setresgid(self.gid, self.gid, self.gid) } == 0
            && unsafe { libc::setresuid(self.uid, self.uid, self.uid) } == 0;
        if done {
            return Ok(());
        }
        let why = std::io::Error::last_os_error();
        Err(Failure::new(
            Exit::RunFailed,
            format!(
                "user {}: cannot become it: {why}; use --as-root to stay root",
                self.uid
            ),
        ))
    }

    pub fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// The variables that name the user, as sudo sets them for another user.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut vars = Vec::new();
        if let Some(name) = &self.name {
            let name = OsString::from_vec(name.as_bytes().to_vec());
            vars.push(("USER", name.clone()));
            vars.push(("LOGNAME", name));
        }
        vars.extend(self.home.clone().map(|home| ("HOME", home)));
        vars.extend(self.shell.clone().map(|shell| ("SHELL", shell)));
        vars
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_database_is_read() {
        let root = lookup(0).unwrap();
        assert_eq!(root.name.as_deref(), Some(c"root"));
        assert!(root.environment().iter().any(|(name, _)| *name == "HOME"));
        assert_eq!(lookup(u32::MAX - 7), None);
    }
}
