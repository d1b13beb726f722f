//! What single groups have used, by their own usage files, which stay open: for laws that count one group alone.

use super::files::KeptFile;
use super::usage::{Read, read_usage};
use super::{Group, SenseError};
use crate::group::GroupPath;

/// The usage files of some groups.
#[derive(Default)]
pub struct Meters {
    kept: Vec<(GroupPath, Group, KeptFile)>,
}

impl Meters {
    /// Opens what is not yet open and closes what is no longer asked for. Groups that are not there are left out.
    pub fn set(&mut self, groups: &[(GroupPath, Group)]) -> Result<(), SenseError> {
        self.kept
            .retain(|(path, group, _)| groups.iter().any(|one| one.0 == *path && one.1 == *group));
        let mut first_error = None;
        for (path, group) in groups {
            if self.kept.iter().any(|(known, ..)| known == path) {
                continue;
            }
            match KeptFile::open(&group.usage) {
                Ok(file) => self.kept.push((path.clone(), group.clone(), file)),
                Err(why) => {
                    first_error.get_or_insert(why);
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// CPU time that the group has used; `None` where it cannot be read.
    pub fn used_ns(&self, group: &GroupPath) -> Option<u64> {
        let (.., file) = self.kept.iter().find(|(path, ..)| path == group)?;
        match read_usage(file) {
            Ok(Read::Ns(used_ns)) => Some(used_ns),
            Ok(Read::Gone) | Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_by_either_kind_of_file_until_they_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| GroupPath::parse(name).unwrap();
        let group = |file: &str, text: &str| {
            let usage = dir.path().join(file);
            std::fs::create_dir_all(usage.parent().unwrap()).unwrap();
            std::fs::write(&usage, text).unwrap();
            Group { id: 1, usage }
        };
        let old = group("a/cpuacct.usage", "77000\n");
        let new = group("b/cpu.stat", "usage_usec 12\nuser_usec 3\n");
        let mut meters = Meters::default();
        meters
            .set(&[(path("/a"), old.clone()), (path("/b"), new.clone())])
            .unwrap();
        assert_eq!(meters.used_ns(&path("/a")), Some(77_000));
        assert_eq!(meters.used_ns(&path("/b")), Some(12_000));
        std::fs::write(&new.usage, "usage_usec 15\n").unwrap();
        assert_eq!(meters.used_ns(&path("/b")), Some(15_000));
        meters.set(&[(path("/a"), old)]).unwrap();
        assert_eq!(meters.used_ns(&path("/b")), None);
        let missing = Group {
            id: 2,
            usage: dir.path().join("c/cpu.stat"),
        };
        assert!(meters.set(&[(path("/c"), missing)]).is_err());
    }
}
