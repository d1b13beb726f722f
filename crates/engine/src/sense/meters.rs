//! What single groups have used, by their own usage files, which stay open: for laws that count one
//! group alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::SenseError;
use super::files::KeptFile;
use super::usage::{Read, read_usage};
use tidegate_cgroup::group::GroupPath;

#[derive(Default)]
pub struct Meters {
    kept: BTreeMap<GroupPath, KeptFile>,
}

impl Meters {
    /// Opens what is not yet open, at the place that `usage_file` tells, and closes what is no
    /// longer asked for. Groups that are not there are left out.
    pub fn set(
        &mut self,
        groups: &BTreeSet<GroupPath>,
        mut usage_file: impl FnMut(&GroupPath) -> Option<PathBuf>,
    ) -> Result<(), SenseError> {
        self.kept.retain(|path, _| groups.contains(path));
        let mut first_error = None;
        for path in groups {
            if self.kept.contains_key(path) {
                continue;
            }
            match usage_file(path).map(|file| KeptFile::open(&file)) {
                Some(Ok(file)) => {
                    self.kept.insert(path.clone(), file);
                }
                Some(Err(why)) => {
                    first_error.get_or_insert(why);
                }
                None => {}
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// CPU time that the group has used; `None` where it cannot be read.
    pub fn used_ns(&mut self, group: &GroupPath) -> Option<u64> {
        let kept = self.kept.get_mut(group)?;
        match read_usage(kept) {
            Ok(Read::Ns(used_ns)) => Some(used_ns),
            Ok(Read::Gone) => {
                // Another of the same name may be there by now: its use is told from the next time
                // on.
                if let Ok(file) = KeptFile::open(kept.path()) {
                    *kept = file;
                }
                None
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> GroupPath {
        GroupPath::parse(name).unwrap()
    }

    #[test]
    fn groups_are_read_by_either_kind_of_file_until_they_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let file = |group: &GroupPath| {
            let kind = ["cpu.stat", "cpuacct.usage"][usize::from(group.name() == "a")];
            Some(dir.path().join(group.name()).join(kind))
        };
        let write = |group: &str, text: &str| {
            let file = file(&path(group)).unwrap();
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("/a", "77000\n");
        write("/b", "usage_usec 12\nuser_usec 3\n");
        let mut meters = Meters::default();
        let both = BTreeSet::from([path("/a"), path("/b")]);
        meters.set(&both, file).unwrap();
        assert_eq!(meters.used_ns(&path("/a")), Some(77_000));
        assert_eq!(meters.used_ns(&path("/b")), Some(12_000));
        write("/b", "usage_usec 15\n");
        assert_eq!(meters.used_ns(&path("/b")), Some(15_000));
        meters.set(&BTreeSet::from([path("/a")]), file).unwrap();
        assert_eq!(meters.used_ns(&path("/b")), None);
        let missing = BTreeSet::from([path("/a"), path("/c")]);
        assert!(meters.set(&missing, file).is_err());
    }

    #[test]
    fn a_file_is_asked_for_once_however_often_groups_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("usage"), "1\n").unwrap();
        let mut meters = Meters::default();
        let mut asked = 0;
        let mut wanted = BTreeSet::new();
        for nth in 0..500 {
            wanted.insert(path(&format!("/g{nth}")));
            let file = |_: &GroupPath| {
                asked += 1;
                Some(dir.path().join("usage"))
            };
            meters.set(&wanted, file).unwrap();
        }
        assert_eq!(asked, 500);
    }
}
