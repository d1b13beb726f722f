//! A pod's cgroup, found by its UID: under any `kubepods` directory, whichever driver made it. A
//! name is never put together.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// kubepods, the QoS class, the pod; one more where kubelet was given a group of its own.
const DEPTH_MAX: usize = 4;

/// A static pod's group has the hash of its file, not the UID of its mirror.
const STATIC_HASH: &str = "kubernetes.io/config.hash";
/// Kubelet puts this on the mirror.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Each pod's group, by its UID; `groups` are those of [`of_pods`]. Annotations can be written by
/// those who may make pods: a hash counts only on what looks like a mirror and has no group of its
/// own, and a group that two pods claim goes to none.
pub fn by_pod<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    groups: &HashMap<String, String>,
) -> HashMap<String, String> {
    let mut claims: HashMap<&str, Vec<String>> = HashMap::new();
    for pod in pods {
        let uid = pod.uid().unwrap_or_default();
        let own = groups.get(&uid).or_else(|| groups.get(static_hash(pod)?));
        if let Some(group) = own {
            claims.entry(group).or_default().push(uid);
        }
    }
    let only_one = |(group, uids): (&str, Vec<String>)| match <[String; 1]>::try_from(uids) {
        Ok([uid]) => Some((uid, group.to_owned())),
        Err(_) => None,
    };
    claims.into_iter().filter_map(only_one).collect()
}

fn static_hash(pod: &Pod) -> Option<&str> {
    let is_of_node = pod.owner_references().iter().any(|one| one.kind == "Node");
    let annotations = pod.annotations();
    let hash = annotations.get(STATIC_HASH)?;
    let is_hash = hash.len() == 32 && hash.bytes().all(|one| one.is_ascii_hexdigit());
    (is_of_node && is_hash && annotations.contains_key(MIRROR)).then_some(hash)
}

/// The directory below which the cpu controller has its groups: of cgroup v1 or v2, below `root`
/// (`/sys/fs/cgroup`).
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
        } else if depth == 0 || is_in_kubepods && depth + 1 < DEPTH_MAX {
            // Beside kubepods lie all services of the machine, and this is done each second.
            match walk(&entry.path(), &path, depth + 1, is_in_kubepods, found) {
                // A pod ended while we looked.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// The UID in `pod<uid>` (driver cgroupfs) or `...-pod<uid with underscores>.slice` (driver
/// systemd).
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
    fn a_static_pods_group_has_the_hash_of_its_file() {
        let hash = "0123456789abcdef0123456789abcdef";
        let pod = |uid: &str, hash: &str, owner: &str| -> Pod {
            let json = serde_json::json!({"metadata": {
                "uid": uid,
                "annotations": {STATIC_HASH: hash, MIRROR: hash},
                "ownerReferences": [{"apiVersion": "v1", "kind": owner, "name": "n", "uid": "1"}],
            }});
            serde_json::from_value(json).expect("a pod")
        };
        let groups = HashMap::from([
            (hash.to_owned(), "/kubepods/static".to_owned()),
            (UID.to_owned(), "/kubepods/own".to_owned()),
        ]);
        let found = |pods: &[Pod]| by_pod(pods, &groups);
        let mirror = pod("mirror", hash, "Node");
        assert_eq!(
            found(std::slice::from_ref(&mirror))
                .get("mirror")
                .map(String::as_str),
            Some("/kubepods/static")
        );
        assert!(found(&[pod("a", hash, "ReplicaSet")]).is_empty());
        assert!(found(&[pod("a", UID, "Node")]).is_empty(), "another pod's");
        assert_eq!(
            found(&[pod(UID, hash, "Node")])
                .get(UID)
                .map(String::as_str),
            Some("/kubepods/own")
        );
        assert!(
            found(&[mirror, pod("forged", hash, "Node")]).is_empty(),
            "two claim it"
        );
    }
}
