//! A pod's cgroup, found by its UID: under any `kubepods` directory, whichever driver made it. A name is never put together.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// kubepods, the QoS class, the pod; one more where kubelet was given a group of its own.
const DEPTH_MAX: usize = 4;

/// A static pod's group has the hash of its file, not the UID of its mirror.
const MIRROR_HASH: &str = "kubernetes.io/config.hash";

/// The UID that a pod's group has in its name.
pub fn group_uid(pod: &Pod) -> Option<String> {
    pod.annotations()
        .get(MIRROR_HASH)
        .cloned()
        .or_else(|| pod.uid())
}

/// The directory below which the cpu controller has its groups: of cgroup v1 or v2, below `root` (`/sys/fs/cgroup`).
pub fn cpu_mount(root: &Path) -> PathBuf {
    let of_v1 = ["cpu", "cpu,cpuacct"].map(|name| root.join(name));
    of_v1
        .into_iter()
        .find(|path| path.is_dir())
        .unwrap_or_else(|| root.to_owned())
}

/// Each pod's group by the pod's UID, as a path below the mount: `/kubepods.slice/...`.
pub fn of_pods(mount: &Path) -> std::io::Result<HashMap<String, String>> {
    let mut found = HashMap::new();
    walk(mount, "", 0, false, &mut found)?;
    Ok(found)
}

fn walk(
    directory: &Path,
    shown: &str,
    depth: usize,
    is_in_kubepods: bool,
    found: &mut HashMap<String, String>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name
            .to_str()
            .filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        else {
            continue;
        };
        let path = format!("{shown}/{name}");
        let is_in_kubepods = is_in_kubepods || name.starts_with("kubepods");
        if let Some(uid) = uid_in(name).filter(|_| is_in_kubepods) {
            found.insert(uid, path);
        } else if depth + 1 < DEPTH_MAX {
            match walk(&entry.path(), &path, depth + 1, is_in_kubepods, found) {
                // A pod ended while we looked.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// The UID in `pod<uid>` (driver cgroupfs) or `...-pod<uid with underscores>.slice` (driver systemd).
fn uid_in(name: &str) -> Option<String> {
    let is_uid = |text: &str| {
        text.len() >= 32
            && text
                .bytes()
                .all(|one| one.is_ascii_hexdigit() || one == b'-')
    };
    let of_systemd = name
        .strip_suffix(".slice")
        .and_then(|stem| stem.rsplit_once("-pod"));
    let uid = match of_systemd {
        Some((_, uid)) => uid.replace('_', "-"),
        None => name.strip_prefix("pod")?.to_owned(),
    };
    is_uid(&uid).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0c5a3f6e-9a3c-4a6e-8b56-0123456789ab";

    #[test]
    fn pods_are_found_under_both_drivers_and_nothing_else_is() {
        let root = tempfile::tempdir().expect("a folder");
        let slice = UID.replace('-', "_");
        let of_systemd =
            format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice");
        let guaranteed = "kubepods/pod11111111-1111-1111-1111-111111111111";
        let nested = "kubelet/kubepods/besteffort/pod22222222-2222-2222-2222-222222222222";
        let other = "system.slice/pod33333333-3333-3333-3333-333333333333";
        for path in [
            of_systemd.as_str(),
            guaranteed,
            nested,
            other,
            "kubepods/podman",
        ] {
            std::fs::create_dir_all(root.path().join(path).join("cri-containerd-1.scope"))
                .expect("a folder");
        }
        let found = of_pods(root.path()).expect("it can be read");
        assert_eq!(found.get(UID), Some(&format!("/{of_systemd}")));
        assert_eq!(
            found.get("11111111-1111-1111-1111-111111111111"),
            Some(&format!("/{guaranteed}"))
        );
        assert_eq!(
            found.get("22222222-2222-2222-2222-222222222222"),
            Some(&format!("/{nested}"))
        );
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn the_mount_is_of_v1_where_there_is_one() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(cpu_mount(root.path()), root.path());
        std::fs::create_dir(root.path().join("cpu,cpuacct")).expect("a folder");
        assert_eq!(cpu_mount(root.path()), root.path().join("cpu,cpuacct"));
    }

    #[test]
    fn a_static_pod_has_the_hash_of_its_file() {
        let mirror =
            serde_json::json!({"metadata": {"uid": UID, "annotations": {MIRROR_HASH: "abc"}}});
        let mirror: Pod = serde_json::from_value(mirror).expect("a pod");
        assert_eq!(group_uid(&mirror).as_deref(), Some("abc"));
    }
}
