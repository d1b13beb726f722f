//! The entries in memory: by their number, and by their group. With thousands of gates the loop still finds a group's at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Entry};
use crate::group::GroupPath;

/// Every entry, oldest first.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// By ascending number.
    all: Vec<Entry>,
    of_group: BTreeMap<GroupPath, BTreeSet<u64>>,
}

/// The groups that an entry is found by: its own, and that in which groups for one each are.
fn keys(entry: &Entry) -> impl Iterator<Item = &GroupPath> {
    let dir = match &entry.change {
        Change::Subgroups(family) if family.dir != entry.group => Some(&family.dir),
        _ => None,
    };
    std::iter::once(&entry.group).chain(dir)
}

impl Entries {
    pub fn all(&self) -> &[Entry] {
        &self.all
    }

    fn at(&self, id: u64) -> Result<usize, usize> {
        // Most often it is a new one.
        match self.all.last() {
            Some(last) if last.id < id => Err(self.all.len()),
            _ => self.all.binary_search_by_key(&id, |entry| entry.id),
        }
    }

    pub fn get(&self, id: u64) -> Option<&Entry> {
        self.at(id).ok().map(|at| &self.all[at])
    }

    pub fn of_group(&self, group: &GroupPath) -> impl Iterator<Item = &Entry> {
        let ids = self.of_group.get(group).into_iter().flatten();
        ids.filter_map(|id| self.get(*id))
    }

    /// A new entry, or another form of the one with its number.
    pub fn put(&mut self, entry: Entry) {
        let at = self.at(entry.id);
        if let Ok(at) = at {
            self.unlist(at);
        }
        for key in keys(&entry) {
            self.of_group
                .entry(key.clone())
                .or_default()
                .insert(entry.id);
        }
        match at {
            Ok(at) => self.all[at] = entry,
            Err(at) => self.all.insert(at, entry),
        }
    }

    fn unlist(&mut self, at: usize) {
        let entry = &self.all[at];
        for key in keys(entry) {
            if let Some(ids) = self.of_group.get_mut(key) {
                ids.remove(&entry.id);
                if ids.is_empty() {
                    self.of_group.remove(key);
                }
            }
        }
    }

    /// Leaves out what is asked for; how many that were.
    pub fn forget(&mut self, forgotten: impl Fn(&Entry) -> bool) -> usize {
        let before = self.all.len();
        let gone: Vec<usize> = (0..before).filter(|at| forgotten(&self.all[*at])).collect();
        for at in &gone {
            self.unlist(*at);
        }
        let mut next = gone.iter().copied().peekable();
        let mut at = 0;
        self.all.retain(|_| {
            at += 1;
            next.next_if_eq(&(at - 1)).is_none()
        });
        gone.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Fallback;
    use crate::subgroups::{Family, Per};

    fn path(text: &str) -> GroupPath {
        GroupPath::parse(text).unwrap()
    }

    fn entry(id: u64, group: &str, change: Change) -> Entry {
        Entry {
            id,
            gate: "g".to_owned(),
            group: path(group),
            group_id: 1,
            change,
            fallback: Fallback::Stay,
            at_boot_ns: 0,
        }
    }

    fn ids(entries: &Entries, group: &str) -> Vec<u64> {
        entries
            .of_group(&path(group))
            .map(|entry| entry.id)
            .collect()
    }

    #[test]
    fn entries_are_found_by_number_and_by_group_whatever_comes_and_goes() {
        let weight = |ours| Change::Weight { was: 100, ours };
        let family = Family {
            group: path("/a/b"),
            dir: path("/a"),
            stem: "tg-b=p".to_owned(),
            per: Per::Process,
            threaded: false,
            yields: true,
        };
        let mut entries = Entries::default();
        entries.put(entry(7, "/a", Change::Group));
        entries.put(entry(3, "/a/b", Change::Group));
        entries.put(entry(9, "/a/b", Change::Subgroups(family)));
        assert_eq!(
            entries.all().iter().map(|one| one.id).collect::<Vec<_>>(),
            [3, 7, 9]
        );
        assert_eq!(ids(&entries, "/a/b"), [3, 9]);
        assert_eq!(
            ids(&entries, "/a"),
            [7, 9],
            "where its groups for one each are"
        );
        // Another form of the same.
        entries.put(entry(7, "/c", weight(1)));
        assert_eq!(
            (ids(&entries, "/a"), ids(&entries, "/c")),
            (vec![9], vec![7])
        );
        assert_eq!(entries.forget(|one| one.group == path("/a/b")), 2);
        assert_eq!(entries.get(3), None);
        assert!(ids(&entries, "/a").is_empty() && ids(&entries, "/a/b").is_empty());
        assert_eq!(
            entries.get(7).map(|one| one.change.clone()),
            Some(weight(1))
        );
        assert_eq!(entries.forget(|_| false), 0);
    }
}
