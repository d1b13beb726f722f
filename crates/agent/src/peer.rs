//! Who is at the other end of the socket, and what they may ask.
//!
//! A user may only tighten, and only what is theirs: put work of their own into the side class, at
//! no more than the default weight. What takes CPU from others (a main gate, headroom, a tolerance)
//! is for root and the group `tidegate`; a user's own agent takes it from that user, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::target::has_exited;
use tidegate_terms::{RawTerms, Term};

pub const ADMIN_GROUP: &str = "tidegate";

/// The process at the other end, as the kernel vouches for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its process, 0 where the kernel does not say.
    pub pid: i32,
    pub uid: u32,
    pub groups: Vec<u32>,
    /// Who made the user namespace that it is in, where that is not the machine's: one user has
    /// many numbers there.
    pub namespace_owner: Option<u32>,
    /// Root without the capabilities of an administrator, as in a container.
    pub has_no_rights: bool,
}

pub(crate) fn ask_an_admin() -> String {
    format!("ask root or a member of the group `{ADMIN_GROUP}`")
}

pub(crate) fn denied(detail: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Denied, detail).with_remedy(ask_an_admin())
}

pub(crate) fn check_admin(peer: &Peer, detail: impl Into<String>) -> ApiResult<()> {
    match is_admin(peer) {
        true => Ok(()),
        false => Err(denied(detail)),
    }
}

impl Peer {
    /// # Errors
    /// The kernel does not say who it is, the caller has exited, or this process cannot see it
    /// (another PID namespace).
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let credentials: libc::ucred = socket_option(socket, libc::SO_PEERCRED)?;
        // Held before /proc is read: what is read there is then this process's.
        let held = peer_pidfd(socket)?;
        let mut groups = supplementary_groups(socket)?;
        groups.push(credentials.gid);
        let (pid, uid) = (credentials.pid, credentials.uid);
        let peer = Self {
            pid,
            uid,
            groups,
            namespace_owner: namespace_owner(pid)?,
            has_no_rights: uid == 0 && !may_administer(pid)?,
        };
        match held {
            Some(pidfd) if has_exited(&pidfd) => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(peer),
        }
    }

    pub fn charged_to(&self) -> u32 {
        self.namespace_owner.unwrap_or(self.uid)
    }

    /// Whether the caller is root or in the group `tidegate`, whose number is `admin_gid`.
    pub fn is_admin(&self, admin_gid: Option<u32>) -> bool {
        self.uid == 0 && !self.has_no_rights
            || admin_gid.is_some_and(|gid| self.groups.contains(&gid))
    }
}

/// A socket option of a fixed size.
fn socket_option<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, which is that long, and all zeros
    // are a value of the types that this is called with.
    unsafe {
        let result = libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_mut_ptr().cast(),
            &mut bytes,
        );
        match result {
            0 => Ok(value.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The process that connected; `None` before Linux 6.5.
fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    // From the kernel's uapi (asm-generic/socket.h).
    const SO_PEERPIDFD: libc::c_int = 77;
    match socket_option::<libc::c_int>(socket, SO_PEERPIDFD) {
        // SAFETY: the kernel has just made the descriptor for this process.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the process has one of the capabilities by which the kernel lets it limit others.
pub fn may_administer(pid: i32) -> io::Result<bool> {
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_SYS_NICE: u32 = 23;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let effective = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    Ok(effective.unwrap_or(0) & (1 << CAP_SYS_ADMIN | 1 << CAP_SYS_NICE) != 0)
}

/// Who made the outermost user namespace that the process is in besides ours; `None` when it is in
/// ours.
fn namespace_owner(pid: i32) -> io::Result<Option<u32>> {
    let inode = |file: &File| file.metadata().map(|file| file.ino());
    let own = inode(&File::open("/proc/self/ns/user")?)?;
    let mut namespace = File::open(format!("/proc/{pid}/ns/user"))?;
    if inode(&namespace)? == own {
        return Ok(None);
    }
    loop {
        // SAFETY: takes no pointer; a descriptor that it returns is new, and nothing else has it.
        let parent = unsafe {
            let fd = libc::ioctl(namespace.as_raw_fd(), libc::NS_GET_PARENT);
            (fd >= 0).then(|| File::from(OwnedFd::from_raw_fd(fd)))
        };
        match parent {
            Some(parent) if inode(&parent)? != own => namespace = parent,
            _ => break,
        }
    }
    let mut uid: libc::uid_t = 0;
    // SAFETY: the kernel writes one uid_t to `uid`, which outlives the call.
    let done = unsafe { libc::ioctl(namespace.as_raw_fd(), libc::NS_GET_OWNER_UID, &mut uid) };
    match done {
        0 => Ok(Some(uid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Supplementary groups of the process that connected, as they were when it did.
fn supplementary_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // From the kernel's uapi (asm-generic/socket.h); the libc crate has it too, but not for every
    // target.
    const SO_PEERGROUPS: libc::c_int = 59;
    const GROUPS_MAX: usize = 65_536;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes to the buffer, which is that long, and
        // the length to `bytes`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut bytes,
            )
        };
        if result == 0 {
            groups.truncate(bytes as usize / size_of::<libc::gid_t>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize(groups.len() * 4, 0);
    }
}

/// The number of the group `name` in the text of /etc/group.
pub fn gid_of(group_file: &str, name: &str) -> Option<u32> {
    group_file.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name))
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    })
}

/// The target as this process numbers it: a caller in another PID namespace means the process that
/// it sees under the number.
pub(crate) fn as_numbered_here(fs: &dyn KernelFs, peer: &Peer, target: &str) -> ApiResult<String> {
    let Some((kind @ ("pid" | "tid"), asked)) = target.split_once(':') else {
        return Ok(target.to_owned());
    };
    // One number for each PID namespace that the process is in, ours first.
    let numbers = |pid: i32| -> Vec<String> {
        let status = fs.read(Path::new(&format!("/proc/{pid}/status")));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        line.unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let depth = numbers(peer.pid).len();
    if depth <= 1 {
        return Ok(target.to_owned());
    }
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if kind == "tid" {
        let detail = format!("thread {asked}: the caller is in another PID namespace");
        return Err(ApiError::new(ErrorKind::NotFound, detail).with_remedy("name its process"));
    }
    let callers = namespace(peer.pid);
    let entries = fs.list(Path::new("/proc")).unwrap_or_default();
    let found = entries
        .iter()
        .filter_map(|entry| entry.name.parse::<i32>().ok())
        .find(|pid| {
            let is_asked = numbers(*pid)
                .get(depth - 1)
                .is_some_and(|number| number == asked);
            is_asked && namespace(*pid) == callers
        });
    found.map(|pid| format!("pid:{pid}")).ok_or_else(|| {
        let detail = format!("process {asked}: no such process in the caller's PID namespace");
        ApiError::new(ErrorKind::NotFound, detail).with_remedy("name one that `ps` shows there")
    })
}

pub(crate) fn is_admin(peer: &Peer) -> bool {
    let own = rustix::process::geteuid();
    if !own.is_root() && peer.uid == own.as_raw() && peer.namespace_owner.is_none() {
        return true;
    }
    let group_file = std::fs::read_to_string("/etc/group").unwrap_or_default();
    peer.is_admin(gid_of(&group_file, ADMIN_GROUP))
}

/// The terms that are set with privilege by a call of `peer`.
pub(crate) fn by_admin(peer: &Peer, terms: &RawTerms) -> BTreeSet<String> {
    match is_admin(peer) {
        true => {
            let named = |name: &String| Term::from_name(name).map(|term| term.name().to_owned());
            terms.0.keys().filter_map(named).collect()
        }
        false => BTreeSet::new(),
    }
}

/// Whose budget a gate counts in that `peer` makes of work of `uid`, where that is another user.
pub(crate) fn charged(peer: &Peer, uid: u32) -> Option<u32> {
    Some(peer.charged_to()).filter(|charged| *charged != uid)
}

pub fn may_give(
    peer: &Peer,
    admin: bool,
    owner_uid: u32,
    terms: &BTreeMap<String, String>,
) -> ApiResult<()> {
    if admin {
        return Ok(());
    }
    if owner_uid != peer.uid {
        let uid = peer.uid;
        return Err(denied(format!(
            "it belongs to uid {owner_uid}, and you are uid {uid}"
        )));
    }
    for (name, value) in terms {
        let term = Term::from_name(name);
        let allowed = name == "name" || term.is_some_and(|term| term.is_restriction(value));
        if !allowed {
            return Err(denied(format!(
                "{name} = {value}: this takes CPU from others, and without privilege you can only tighten \
                 (class = side, weight up to 100, quotas, caps, latency from 0)"
            )));
        }
    }
    if terms.get(Term::Class.name()).map(String::as_str) != Some("side") {
        let detail = "class: without privilege it can only be side";
        return Err(ApiError::new(ErrorKind::Denied, detail)
            .with_remedy("add --side to `run`, or class=side to `set`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    use crate::tests::{terms, user};

    #[test]
    fn knows_itself_over_a_socket() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = Peer::of(a.as_fd()).unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.groups.contains(&rustix::process::getegid().as_raw()));
    }

    #[test]
    fn numbers_of_a_user_namespace_are_its_makers() {
        let own = std::process::id() as i32;
        assert_eq!(namespace_owner(own).unwrap(), None);
        assert!(namespace_owner(i32::MAX).is_err());
        // Two namespaces, one in the other, and a process in the inner one until its input ends.
        let mut inside = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "unshare", "--user", "cat"])
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = inside.id() as i32;
        let runs_cat = || {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            comm.is_ok_and(|comm| comm == "cat\n")
        };
        let mut ended = false;
        while !ended && !runs_cat() {
            ended = inside.try_wait().unwrap().is_some();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if ended {
            inside.wait().unwrap();
            eprintln!(
                "skipped: numbers_of_a_user_namespace_are_its_makers: no user namespaces here"
            );
            return;
        }
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(namespace_owner(pid).unwrap(), Some(me));
        drop(inside.stdin.take());
        inside.wait().unwrap();
    }

    #[test]
    fn finds_a_group() {
        let file = "root:x:0:\ntidegate:x:998:ann,bob\ngarbage\nshort:x\n";
        assert_eq!(gid_of(file, "tidegate"), Some(998));
        assert_eq!(gid_of(file, "short"), None);
        assert_eq!(gid_of(file, "none"), None);
    }

    #[test]
    fn a_user_may_only_tighten_and_only_what_is_theirs() {
        let user = user(1);
        let side = terms(&[("class", "side"), ("weight", "50")]);
        assert_eq!(may_give(&user, false, 1000, &side), Ok(()));
        assert!(may_give(&user, false, 0, &side).is_err(), "another user's");
        for pairs in [
            &[("class", "main")][..],
            &[("class", "neutral")],
            &[],
            &[("class", "side"), ("headroom", "90%")],
            &[("class", "side"), ("weight", "101")],
            &[("class", "side"), ("tolerance", "5%")],
        ] {
            let refused = may_give(&user, false, 1000, &terms(pairs));
            assert!(refused.is_err(), "{pairs:?}");
        }
        assert_eq!(
            may_give(&user, true, 0, &terms(&[("class", "main")])),
            Ok(())
        );
    }

    #[test]
    fn membership_counts_supplementary_groups() {
        let user = Peer {
            groups: vec![7, 998],
            ..user(1)
        };
        assert!(user.is_admin(Some(998)));
        assert!(!user.is_admin(Some(999)));
        assert!(!user.is_admin(None));
        assert!(Peer::default().is_admin(None));
        let in_a_container = Peer {
            has_no_rights: true,
            ..Peer::default()
        };
        assert!(!in_a_container.is_admin(None));
    }
}
