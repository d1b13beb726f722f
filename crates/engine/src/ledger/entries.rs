//! The entries in memory: by their number, their group and their gate. With thousands of gates,
//! those of one are still found at once.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use super::{Change, Entry};
use tidegate_cgroup::group::GroupPath;

#[derive(Debug, Default)]
pub(super) struct Entries {
    all: BTreeMap<u64, Entry>,
    of_group: BTreeMap<GroupPath, BTreeSet<u64>>,
    of_gate: BTreeMap<String, BTreeSet<u64>>,
}

pub type All<'a> = btree_map::Values<'a, u64, Entry>;

/// The groups that an entry is found by: its own, and that in which groups for one each are.
fn keys(entry: &Entry) -> impl Iterator<Item = &GroupPath> {
    let dir = match &entry.change {
        Change::Subgroups(family) if family.dir != entry.group => Some(&family.dir),
        _ => None,
    };
    std::iter::once(&entry.group).chain(dir)
}

fn unlist<K: Ord>(lists: &mut BTreeMap<K, BTreeSet<u64>>, key: &K, id: u64) {
    if let Some(ids) = lists.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            lists.remove(key);
        }
    }
}

impl Entries {
    pub fn all(&self) -> All<'_> {
        self.all.values()
    }

    pub fn get(&self, id: u64) -> Option<&Entry> {
        self.all.get(&id)
    }

    pub fn of_group(&self, group: &GroupPath) -> impl Iterator<Item = &Entry> {
        let ids = self.of_group.get(group).into_iter().flatten();
        ids.filter_map(|id| self.get(*id))
    }

    pub fn of_gate(&self, gate: &str) -> impl DoubleEndedIterator<Item = &Entry> {
        let ids = self.of_gate.get(gate).into_iter().flatten();
        ids.filter_map(|id| self.get(*id))
    }

    pub fn put(&mut self, entry: Entry) {
        let id = entry.id;
        self.remove(id);
        for key in keys(&entry) {
            self.of_group.entry(key.clone()).or_default().insert(id);
        }
        let of_gate = self.of_gate.entry(entry.gate.clone()).or_default();
        of_gate.insert(id);
        self.all.insert(id, entry);
    }

    pub fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.all.remove(&id)?;
        for key in keys(&entry) {
            unlist(&mut self.of_group, key, id);
        }
        unlist(&mut self.of_gate, &entry.gate, id);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Fallback;
    use tidegate_cgroup::subgroups::{Family, Per};

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
            entries.all().map(|one| one.id).collect::<Vec<_>>(),
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
        let of_gate: Vec<u64> = entries.of_gate("g").map(|one| one.id).collect();
        assert_eq!(of_gate, [3, 7, 9]);
        assert!(entries.remove(3).is_some() && entries.remove(9).is_some());
        assert_eq!(entries.get(3), None);
        assert!(ids(&entries, "/a").is_empty() && ids(&entries, "/a/b").is_empty());
        assert_eq!(
            entries.get(7).map(|one| one.change.clone()),
            Some(weight(1))
        );
        assert_eq!(entries.remove(3), None);
        entries.remove(7);
        assert!(entries.of_group.is_empty() && entries.of_gate.is_empty());
    }
}
