//! Who is at the other end of the socket, and what they may ask.
//!
//! A user may only tighten, and only what is theirs: put work of their own into the side class, at
//! no more than the default weight. What takes CPU from others (a main gate, headroom, a tolerance)
//! is for root and the group `tidegate`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use tidegate_api::{ApiError, ErrorKind};
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
}

pub(crate) fn ask_an_admin() -> String {
    format!("ask root or a member of the group `{ADMIN_GROUP}`")
}

fn denied(detail: String) -> ApiError {
    ApiError::new(ErrorKind::Denied, detail).with_remedy(ask_an_admin())
}

impl Peer {
    pub fn of(socket: BorrowedFd<'_>) -> std::io::Result<Self> {
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        let mut groups = supplementary_groups(socket)?;
        groups.push(credentials.gid.as_raw());
        let pid = credentials.pid.as_raw_nonzero().get();
        Ok(Self {
            pid,
            uid: credentials.uid.as_raw(),
            groups,
            namespace_owner: namespace_owner(pid),
        })
    }

    pub fn charged_to(&self) -> u32 {
        self.namespace_owner.unwrap_or(self.uid)
    }

    /// Whether the caller is root or in the group `tidegate`, whose number is `admin_gid`.
    pub fn is_admin(&self, admin_gid: Option<u32>) -> bool {
        self.uid == 0 || admin_gid.is_some_and(|gid| self.groups.contains(&gid))
    }
}

/// Who made the outermost user namespace that the process is in besides ours; `None` when it is in
/// ours, or gone.
fn namespace_owner(pid: i32) -> Option<u32> {
    let inode = |file: &File| file.metadata().map(|file| file.ino()).ok();
    let own = inode(&File::open("/proc/self/ns/user").ok()?)?;
    let mut namespace = File::open(format!("/proc/{pid}/ns/user")).ok()?;
    if inode(&namespace)? == own {
        return None;
    }
    loop {
        // SAFETY: takes no pointer; a descriptor that it returns is new, and nothing else has it.
        let parent = unsafe {
            let fd = libc::ioctl(namespace.as_raw_fd(), libc::NS_GET_PARENT);
            (fd >= 0).then(|| File::from(OwnedFd::from_raw_fd(fd)))
        };
        match parent {
            Some(parent) if inode(&parent) != Some(own) => namespace = parent,
            _ => break,
        }
    }
    let mut uid: libc::uid_t = 0;
    // SAFETY: the kernel writes one uid_t to `uid`, which outlives the call.
    let done = unsafe { libc::ioctl(namespace.as_raw_fd(), libc::NS_GET_OWNER_UID, &mut uid) };
    (done == 0).then_some(uid)
}

/// Supplementary groups of the process that connected, as they were when it did.
fn supplementary_groups(socket: BorrowedFd<'_>) -> std::io::Result<Vec<u32>> {
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
        let error = std::io::Error::last_os_error();
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

pub(crate) fn is_admin(peer: &Peer) -> bool {
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
) -> Result<(), ApiError> {
    if admin {
        return Ok(());
    }
    if owner_uid != peer.uid {
        let uid = peer.uid;
        return Err(denied(format!(
            "terms: it belongs to uid {owner_uid}, and you are uid {uid}"
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
        return Err(denied(detail.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn terms(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

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
        assert_eq!(namespace_owner(own), None);
        assert_eq!(namespace_owner(i32::MAX), None);
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
        assert_eq!(namespace_owner(pid), Some(me));
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
        let user = Peer {
            pid: 1,
            uid: 1000,
            groups: vec![1000],
            ..Peer::default()
        };
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
            pid: 1,
            uid: 1000,
            groups: vec![7, 998],
            ..Peer::default()
        };
        assert!(user.is_admin(Some(998)));
        assert!(!user.is_admin(Some(999)));
        assert!(!user.is_admin(None));
        assert!(
            Peer {
                uid: 0,
                ..Peer::default()
            }
            .is_admin(None)
        );
    }
}
