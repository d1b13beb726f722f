//! The locks by which agents share a cgroup tree.
//!
//! The lock of the run directory tells nothing to an agent that has another `/run` (a chroot, a CI
//! job with mounts of its own) and the same tree. So the agent that makes or takes over one of its
//! top groups locks that group's directory: every mount of the hierarchy shows the same one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directories that this agent has locked.
#[derive(Debug, Default)]
pub struct TreeLocks(BTreeMap<PathBuf, File>);

impl TreeLocks {
    /// Locks the directory of a group. Returns false if another agent has.
    pub fn lock(&mut self, dir: &Path) -> io::Result<bool> {
        let file = File::open(dir)?;
        let inode = |file: &File| file.metadata().map(|file| file.ino()).ok();
        // A group that was made again is another directory.
        if self
            .0
            .get(dir)
            .is_some_and(|held| inode(held) == inode(&file))
        {
            return Ok(true);
        }
        match file.try_lock() {
            Ok(()) => {
                self.0.insert(dir.to_owned(), file);
                Ok(true)
            }
            Err(std::fs::TryLockError::WouldBlock) => Ok(false),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_and_one_that_is_made_again_another() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("tidegate-side");
        std::fs::create_dir(&group).unwrap();
        let (mut first, mut second) = (TreeLocks::default(), TreeLocks::default());
        assert!(first.lock(&group).unwrap() && first.lock(&group).unwrap());
        assert!(!second.lock(&group).unwrap());
        std::fs::remove_dir(&group).unwrap();
        std::fs::create_dir(&group).unwrap();
        assert!(second.lock(&group).unwrap() && !first.lock(&group).unwrap());
        drop(second);
        assert!(first.lock(&group).unwrap());
    }
}
