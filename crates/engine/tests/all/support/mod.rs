//! What the tests on fake machines share.

pub mod host;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::discover::discover;
use tidegate_cgroup::group::{GroupPath, GroupResult, Groups, Placement};
use tidegate_cgroup::testkit::{FakeFs, FaultFs};
use tidegate_engine::ledger::{Change, Fallback, Ledger, Moving, NewEntry, OpenReport};

pub const ERRNOS: [i32; 9] = [
    libc::ENOENT,
    libc::ENODEV,
    libc::EINVAL,
    libc::EBUSY,
    libc::EPERM,
    libc::EACCES,
    libc::EROFS,
    libc::ENOSPC,
    libc::EIO,
];
pub const RUN: &str = "/run/tidegate";
/// A limit that stood before us.
pub const THEIRS: Bandwidth = Bandwidth {
    quota_us: Some(150_000),
    period_us: 100_000,
    burst_us: 20_000,
};
/// A limit of ours.
pub const OURS: Bandwidth = Bandwidth {
    quota_us: Some(3_000),
    period_us: 20_000,
    burst_us: 0,
};

/// A fake machine, with faults on demand.
pub struct Bed {
    pub fs: Arc<FaultFs<FakeFs>>,
    pub groups: Groups,
    moving_dir: tempfile::TempDir,
}

pub fn path(text: &str) -> GroupPath {
    GroupPath::parse(text).unwrap()
}

impl Bed {
    pub fn new(fake: FakeFs) -> Self {
        let fs = Arc::new(FaultFs::new(fake));
        let machine = discover(&fs, None).unwrap();
        let groups = Groups::new(fs.clone(), &machine);
        Self {
            fs,
            groups,
            moving_dir: tempfile::tempdir().unwrap(),
        }
    }

    /// What a call wrote, by file name.
    pub fn written(&self, call: impl FnOnce()) -> Vec<String> {
        let before = self.fs.writes().len();
        call();
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        self.fs.writes()[before..].iter().map(name).collect()
    }

    /// The hierarchies and groups of a process.
    pub fn places_of(&self, pid: i32) -> String {
        self.fs.inner().text(&format!("/proc/{pid}/cgroup"))
    }

    /// Places a process in place, whole: as the agent does it, without what it writes in between.
    pub fn place_in_place(&self, pid: i32, name: &str, v1: &GroupPath) -> GroupResult<Placement> {
        let plan = self.groups.plan_in_place(pid, name, v1)?;
        let made = self.groups.make_planned(&plan);
        if let Err(error) = made.and_then(|()| self.groups.place(&plan.group, pid)) {
            // As an agent's journal does it; what stays is looked at by the test.
            let _ = self.groups.place_back(&plan);
            return Err(error);
        }
        Ok(plan)
    }

    pub fn moving(&self) -> Moving {
        Moving::open(&self.moving_dir.path().join("ledger.moving")).unwrap()
    }

    pub fn open(&self) -> (Ledger, OpenReport) {
        Ledger::open(self.fs.clone(), Path::new(RUN), self.moving(), &self.groups).unwrap()
    }

    pub fn entry(&self, group: &GroupPath, change: Change, fallback: Fallback) -> NewEntry {
        let group_id = self.groups.id(group).unwrap();
        NewEntry {
            gate: "gate".into(),
            group: group.clone(),
            group_id,
            change,
            fallback,
        }
    }

    /// A foreign group with values of its own.
    pub fn foreign(&self) -> GroupPath {
        let group = path("/app");
        self.groups.create(&group).unwrap();
        self.groups.set_weight(&group, 250).unwrap();
        self.groups.set_bandwidth(&group, None, THEIRS).unwrap();
        group
    }

    /// Records a moving limit and writes [`OURS`].
    pub fn limit(&self, ledger: &mut Ledger, group: &GroupPath, fallback: Fallback) -> u64 {
        let was = self.groups.bandwidth(group).unwrap();
        let entry = self.entry(
            group,
            Change::Bandwidth {
                was,
                ours: was,
                previous: None,
            },
            fallback,
        );
        let id = ledger.record_moving(entry, &was).unwrap();
        assert!(ledger.note_moving(id, &was, &OURS));
        self.groups.set_bandwidth(group, Some(was), OURS).unwrap();
        id
    }

    /// Something is at this path.
    pub fn is_there(&self, path: &str) -> bool {
        self.fs.exists(Path::new(path))
    }
}
