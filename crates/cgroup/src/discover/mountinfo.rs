//! /proc/self/mountinfo and /proc/PID/cgroup as text: which mounts are cgroup trees, which group a
//! process is in, and how the one maps onto the other (cgroup namespaces, bind-mounted subtrees).

use std::path::{Path, PathBuf};

use crate::clip;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: line {line}: {why}: {text:?}; is this file the kernel's own?")]
pub struct ParseError {
    pub file: String,
    pub line: usize,
    pub why: &'static str,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    pub version: u8,
    /// v1: the controllers, and `name=...`; v2: empty, `cgroup.controllers` tells.
    pub controllers: Vec<String>,
    pub mount: PathBuf,
    /// Which group of the tree lies at the mount, as seen from this cgroup namespace (may begin
    /// with `/..`).
    pub root: String,
    /// Mounted read-only, here or as a file system.
    pub read_only: bool,
}

impl CgroupMount {
    pub fn is_v1_of(&self, controller: &str) -> bool {
        self.version == 1 && self.controllers.iter().any(|own| own == controller)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLine {
    /// v1's controllers, and `name=...`; empty for v2.
    pub controllers: Vec<String>,
    /// The group, as seen from the reader's cgroup namespace.
    pub path: String,
}

struct MountLine {
    id: u64,
    parent: u64,
    place: PathBuf,
    cgroup: Option<CgroupMount>,
}

/// The cgroup mounts, in the file's order, without those that another mount hides.
pub fn parse_mountinfo(file: &str, text: &str) -> Result<Vec<CgroupMount>, ParseError> {
    let mut lines: Vec<MountLine> = Vec::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let bad = |why| ParseError {
            file: file.to_owned(),
            line: index + 1,
            why,
            text: clip(line),
        };
        lines.push(parse_mount(line).map_err(bad)?);
    }
    let seen = lines
        .iter()
        .filter(|line| line.cgroup.is_some() && !is_hidden(line, &lines));
    Ok(seen.filter_map(|line| line.cgroup.clone()).collect())
}

/// A mount at or above `line`'s place that `line` is not mounted on (through however many mounts)
/// lies over it. The file's order tells nothing: moved mounts and pivot_root change it.
fn is_hidden(line: &MountLine, lines: &[MountLine]) -> bool {
    let mut below = vec![line.id];
    let mut parent = line.parent;
    // A mount is at most as deep as there are mounts; a cycle is not the kernel's.
    for _ in 0..lines.len() {
        below.push(parent);
        match lines.iter().find(|other| other.id == parent) {
            Some(other) if other.parent != parent => parent = other.parent,
            _ => break,
        }
    }
    lines.iter().any(|other| {
        other.place != Path::new("/")
            && line.place.starts_with(&other.place)
            && !below.contains(&other.id)
    })
}

fn parse_mount(line: &str) -> Result<MountLine, &'static str> {
    // 36 35 98:0 /root /mount/point rw,noatime master:1 - type source super,options
    // (proc_pid_mountinfo(5))
    let fields: Vec<&str> = line.split(' ').collect();
    let [id, parent, _dev, root, mount, options, rest @ ..] = fields.as_slice() else {
        return Err("fewer than six fields");
    };
    let id = id.parse().map_err(|_| "the mount's id is no number")?;
    let parent = parent.parse().map_err(|_| "the parent's id is no number")?;
    let dash = rest
        .iter()
        .position(|field| *field == "-")
        .ok_or("no separator \"-\"")?;
    let kind = rest.get(dash + 1).ok_or("no file system type")?;
    let place = PathBuf::from(unescape(mount));
    let version = match *kind {
        "cgroup" => 1,
        "cgroup2" => 2,
        _ => {
            return Ok(MountLine {
                id,
                parent,
                place,
                cgroup: None,
            });
        }
    };
    let super_options = rest.get(dash + 3).copied().unwrap_or_default();
    let read_only = [*options, super_options]
        .iter()
        .any(|all| all.split(',').any(|one| one == "ro"));
    let controllers = match version {
        1 => super_options
            .split(',')
            .filter(|one| is_controller(one))
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    };
    let mount = CgroupMount {
        version,
        controllers,
        mount: place.clone(),
        root: unescape(root),
        read_only,
    };
    Ok(MountLine {
        id,
        parent,
        place,
        cgroup: Some(mount),
    })
}

/// v1's mount options that are no controllers are few and closed (`kernel/cgroup/cgroup-v1.c`).
fn is_controller(option: &str) -> bool {
    const OTHERS: [&str; 8] = [
        "rw",
        "ro",
        "none",
        "noprefix",
        "clone_children",
        "cpuset_v2_mode",
        "xattr",
        "favordynmods",
    ];
    !option.is_empty() && !OTHERS.contains(&option) && !option.starts_with("release_agent=")
}

/// Undoes the kernel's octal escapes (`\040` for a space).
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|digits| {
            bytes[at] == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit))
        });
        match octal {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
                out.push(u8::try_from(value).unwrap_or(b'?'));
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub fn parse_proc_cgroup(file: &str, text: &str) -> Result<Vec<CgroupLine>, ParseError> {
    let mut lines = Vec::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
    {
        let bad = |why| ParseError {
            file: file.to_owned(),
            line: index + 1,
            why,
            text: clip(line),
        };
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Err(bad("fewer than three fields"));
        };
        number
            .parse::<u32>()
            .map_err(|_| bad("the hierarchy is no number"))?;
        if !path.starts_with('/') {
            return Err(bad("the group does not begin with /"));
        }
        // The group was removed while the process was in it.
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let controllers = controllers
            .split(',')
            .filter(|one| !one.is_empty())
            .map(str::to_owned)
            .collect();
        lines.push(CgroupLine {
            controllers,
            path: path.to_owned(),
        });
    }
    Ok(lines)
}

/// Where the group `path` lies below a mount whose root is the group `root`, both as seen from one
/// namespace: `/`, `/a/b`. `None`: not below this mount, or not nameable through it (a namespace
/// whose own root has an unknown name).
pub fn below_mount(root: &str, path: &str) -> Option<String> {
    let (root_ups, root_names) = split_ups(root)?;
    let (path_ups, path_names) = split_ups(path)?;
    // Both climb from the namespace's root; names after the climb must start equal, and the climb
    // must be the same: after a longer climb the names on the way down are not known to us.
    let rest = match (
        root_ups == path_ups,
        path_names.strip_prefix(root_names.as_slice()),
    ) {
        (true, Some(rest)) => rest,
        _ => return None,
    };
    Some(format!("/{}", rest.join("/")))
}

/// How far a path climbs, and the names after it. A climb in the middle is not the kernel's.
fn split_ups(path: &str) -> Option<(usize, Vec<&str>)> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let ups = names.iter().take_while(|name| **name == "..").count();
    let names = names[ups..].to_vec();
    if names.contains(&"..") || names.contains(&".") {
        None
    } else {
        Some((ups, names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_machines_kind_of_mounts() {
        let text = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
            33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:9 - cgroup cgroup rw,cpu,cpuacct,xattr\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/x,name=systemd\n\
            41 31 0:38 /../.. /mnt/a\\040b rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        let mounts = parse_mountinfo("m", text).unwrap();
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[0].controllers, ["cpu"]);
        assert!(!mounts[0].read_only);
        assert_eq!(mounts[1].controllers, ["cpu", "cpuacct"]);
        assert!(mounts[1].read_only);
        assert_eq!(mounts[2].controllers, ["name=systemd"]);
        assert_eq!(mounts[3].version, 2);
        assert_eq!(mounts[3].mount, Path::new("/mnt/a b"));
        assert_eq!(mounts[3].root, "/../..");
    }

    #[test]
    fn a_mount_over_another_hides_it() {
        let text = "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
            2 1 0:2 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            3 2 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            4 0 0:4 / / rw - ext4 /dev/vda rw\n";
        let mounts = parse_mountinfo("m", text).unwrap();
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].mount, Path::new("/sys/fs/cgroup/cpu"));
    }

    #[test]
    fn garbage_names_file_line_and_reason() {
        let error = parse_mountinfo(
            "/proc/self/mountinfo",
            "31 23 0:28 / /x rw - tmpfs t rw\nnonsense\n",
        )
        .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/proc/self/mountinfo: line 2: fewer than six fields"),
            "{error}"
        );
        let error = parse_proc_cgroup("/proc/7/cgroup", "1:cpu:/\nx:y:/\n").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/proc/7/cgroup: line 2: the hierarchy is no number"),
            "{error}"
        );
    }

    #[test]
    fn groups_of_a_process() {
        let lines = parse_proc_cgroup(
            "c",
            "9:name=systemd:/\n4:cpu,cpuacct:/a:b (deleted)\n0::/x\n",
        )
        .unwrap();
        assert_eq!(lines[1].controllers, ["cpu", "cpuacct"]);
        assert_eq!(lines[1].path, "/a:b");
        assert_eq!(
            (lines[2].controllers.len(), lines[2].path.as_str()),
            (0, "/x")
        );
    }

    #[test]
    fn maps_groups_below_mounts() {
        assert_eq!(below_mount("/", "/").as_deref(), Some("/"));
        assert_eq!(below_mount("/", "/a/b").as_deref(), Some("/a/b"));
        assert_eq!(
            below_mount("/docker/x", "/docker/x/y").as_deref(),
            Some("/y")
        );
        assert_eq!(below_mount("/docker/x", "/docker/xy"), None);
        // Inside a namespace the host's mount has its root above ours.
        assert_eq!(below_mount("/..", "/../other").as_deref(), Some("/other"));
        assert_eq!(below_mount("/..", "/"), None);
        assert_eq!(below_mount("/", "/../other"), None);
        assert_eq!(below_mount("/", "/a/../b"), None);
    }

    proptest! {
        #[test]
        fn mapped_paths_never_climb(root in "(/(\\.\\.|a|b)){0,4}", path in "(/(\\.\\.|a|b)){0,4}") {
            if let Some(below) = below_mount(&root, &path) {
                prop_assert!(!below.contains(".."));
                prop_assert!(below.starts_with('/'));
            }
        }
    }
}
