//! What a lab leaves that was killed by a signal that cannot be caught: empty groups, shared pages,
//! a run directory. Its processes die with it; the next lab removes the rest. What belongs to a lab
//! that still runs is left alone.

use std::fs;
use std::path::Path;

use super::groups::{PREFIX, Tree};
use crate::clock;
use crate::loads::shared_page::FILE_PREFIX;

pub fn sweep() {
    for root in Tree::find().map(|tree| tree.roots()).unwrap_or_default() {
        each_of_the_dead(&root, PREFIX, &remove_groups);
    }
    let remove_tree = |path: &Path| {
        let _ = fs::remove_dir_all(path);
    };
    let remove_page = |path: &Path| {
        let _ = fs::remove_file(path);
    };
    for dir in [Path::new("/run"), &std::env::temp_dir()] {
        each_of_the_dead(dir, PREFIX, &remove_tree);
    }
    for dir in [Path::new("/dev/shm"), &std::env::temp_dir()] {
        each_of_the_dead(dir, FILE_PREFIX, &remove_page);
    }
}

/// Removes the groups of an agent that has ended. It leaves those in which killed processes have
/// not ended yet.
pub fn remove_groups_of(prefix: &str) {
    for root in Tree::find().map(|tree| tree.roots()).unwrap_or_default() {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let rest = name.strip_prefix(prefix);
            if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) {
                continue;
            }
            for _ in 0..200 {
                remove_groups(&entry.path());
                if !entry.path().exists() {
                    break;
                }
                clock::sleep_until(clock::monotonic_ns() + 10_000_000);
            }
        }
    }
}

fn each_of_the_dead(dir: &Path, prefix: &str, act: &dyn Fn(&Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|n| maker(n, prefix));
        if maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            act(&entry.path());
        }
    }
}

/// The process id in `<prefix><pid>-<anything>`.
fn maker(name: &str, prefix: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(prefix)?.split_once('-')?;
    pid.parse().ok()
}

/// A group can be removed only after those in it, and only when it is empty: one that still holds a
/// process stays.
fn remove_groups(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dead_are_swept() {
        let dir = tempfile::tempdir().expect("a folder");
        let living = format!("x-{}-1", std::process::id());
        // Above the greatest process id that Linux gives (2^22).
        for name in [living.as_str(), "x-4999999-1", "y-4999999-1", "x-none-1"] {
            fs::create_dir_all(dir.path().join(name).join("in")).expect("made");
        }
        each_of_the_dead(dir.path(), "x-", &remove_groups);
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .expect("readable")
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .collect();
        left.sort();
        let mut want = vec![living, "x-none-1".to_string(), "y-4999999-1".to_string()];
        want.sort();
        assert_eq!(left, want);
    }
}
