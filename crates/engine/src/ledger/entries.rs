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
