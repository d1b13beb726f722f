//! A group that bounds what attackers themselves use.

use std::path::PathBuf;

use crate::common::cpu_mount;

/// A third of a CPU for all threads in it.
const QUOTA_US: &str = "33000";

pub struct Pen(PathBuf);

impl Pen {
    /// `None` on v2, where threads of one process cannot be in groups of different resources.
    pub fn new(prefix: &str) -> Option<Pen> {
        let (mount, is_v1) = cpu_mount();
        let dir = mount.join(format!("other-{prefix}-pen"));
        is_v1.then(|| {
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("cpu.cfs_quota_us"), QUOTA_US).unwrap();
            Pen(dir)
        })
    }

    /// The calling thread, and those that it makes.
    pub fn enter(&self) {
        std::fs::write(self.0.join("tasks"), "0").unwrap();
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        // Its threads have ended; their processes' last ones may still be ending.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
