//! The running kernel as a test bed: a top group that nobody else uses and that goes with the test.

use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_cgroup::discover::{Machine, discover};
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_cgroup::{KernelFs, RealFs};

/// A top group that goes when the test ends, passed or not.
pub struct HostBed {
    pub machine: Machine,
    pub groups: Groups,
    pub top: GroupPath,
    children: Vec<Child>,
}

pub fn bed() -> Option<HostBed> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let machine = match discover(&RealFs::new(), None) {
        Ok(machine) => machine,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    if let Some(why) = machine.refusal() {
        eprintln!("skipped: {why}");
        return None;
    }
    let fs: Arc<dyn KernelFs> = Arc::new(RealFs::with_roots(machine.roots()).unwrap());
    let groups = Groups::new(fs, &machine);
    let name = format!(
        "tgtest-{}-{}",
        std::process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    );
    let top = groups.base().join(&name).unwrap();
    groups.create(&top).unwrap();
    Some(HostBed {
        machine,
        groups,
        top,
        children: Vec::new(),
    })
}

impl HostBed {
    pub fn sleeper(&mut self) -> i32 {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        self.children.push(child);
        pid
    }

    pub fn end_all(&mut self) {
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for HostBed {
    fn drop(&mut self) {
        self.end_all();
        if let Err(error) = self.groups.remove(&self.top) {
            eprintln!("{error}");
        }
    }
}
