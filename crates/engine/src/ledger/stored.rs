//! The ledger's file. It is read entry by entry: one that another version wrote in its own way
//! costs no other entry, and is written back as it was.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::batch::BatchHead;
use super::{All, Entry};
use tidegate_cgroup::group::{GroupPath, Groups};

/// The layout of the file as a whole; entries may come in kinds that this version does not know.
const FORMAT: u32 = 1;
/// Numbers of entries end below this; a thousand a second come to it in nine thousand years.
const ID_END: u64 = 1 << 48;

#[derive(Debug, Deserialize)]
pub(super) struct Stored {
    format: u32,
    pub boot_id: String,
    pub next_id: u64,
    pub entries: Vec<StoredEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum StoredEntry {
    Known(Entry),
    Unread(Unread),
}

impl StoredEntry {
    fn id(&self) -> Option<u64> {
        match self {
            StoredEntry::Known(entry) => Some(entry.id),
            StoredEntry::Unread(entry) => entry.id(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Unread(Value);

/// What is stored, on its way to the file: that is written at each record, so nothing is copied and
/// no space is wasted.
#[derive(Serialize)]
struct Storing<'a> {
    format: u32,
    boot_id: &'a str,
    next_id: u64,
    entries: Vec<StoringEntry<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum StoringEntry<'a> {
    Known(&'a Entry),
    Unread(&'a Unread),
}

impl Stored {
    pub fn read(text: &str) -> Result<Self, String> {
        let stored: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if stored.format != FORMAT {
            return Err(format!("format {} is not {FORMAT}", stored.format));
        }
        match stored.largest_id() {
            Some(id) => Err(format!("entry {id}: no agent has counted so far")),
            None => Ok(stored),
        }
    }

    /// Takes in what a batch has written down since. An entry whose number was not given yet counts
    /// whatever the batch goes on from: a guardian may have stored the ledger while its agent was
    /// frozen in the batch.
    pub fn go_on(&mut self, batch: &str) {
        let mut lines = batch.lines();
        let head: Option<BatchHead> = lines
            .next()
            .and_then(|line| serde_json::from_str(line).ok());
        let Some(head) = head.filter(|head| head.boot_id == self.boot_id) else {
            return;
        };
        let next_id = self.next_id;
        let counts = |id: u64| id < ID_END && (head.next_id == next_id || id >= next_id);
        let entries = lines.filter_map(|line| serde_json::from_str::<StoredEntry>(line).ok());
        self.entries
            .extend(entries.filter(|entry| entry.id().is_some_and(counts)));
        // Of each entry its last form.
        self.entries.reverse();
        self.entries.sort_by_key(StoredEntry::id);
        self.entries
            .dedup_by(|one, last| one.id().is_some() && one.id() == last.id());
        // No state that is stored later is taken for the one that the batch goes on from.
        self.next_id += 1;
    }

    /// A number from [`ID_END`] up, where there is one: the next would soon be none.
    fn largest_id(&self) -> Option<u64> {
        let ids = self.entries.iter().filter_map(StoredEntry::id);
        ids.chain([self.next_id]).max().filter(|id| *id >= ID_END)
    }

    pub fn into_entries(self) -> (Vec<Entry>, Vec<Unread>) {
        let mut known = Vec::new();
        let mut unread = Vec::new();
        for entry in self.entries {
            match entry {
                StoredEntry::Known(entry) => known.push(entry),
                StoredEntry::Unread(entry) => unread.push(entry),
            }
        }
        (known, unread)
    }
}

pub(super) fn written(boot_id: &str, next_id: u64, entries: All<'_>, unread: &[Unread]) -> Vec<u8> {
    let known = entries.map(StoringEntry::Known);
    let storing = Storing {
        format: FORMAT,
        boot_id,
        next_id,
        entries: known
            .chain(unread.iter().map(StoringEntry::Unread))
            .collect(),
    };
    // Plain structs with string keys: serialising them cannot fail.
    serde_json::to_vec(&storing).expect("entries are plain data")
}

impl Unread {
    pub fn id(&self) -> Option<u64> {
        self.0.get("id")?.as_u64()
    }

    fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or("?")
    }

    /// Whether the group that it tells of is gone, or another by now: then nothing is left to undo.
    pub fn has_lost_its_group(&self, groups: &Groups) -> bool {
        let group_id = self.0.get("group_id").and_then(Value::as_u64);
        match (GroupPath::parse(self.text("group")), group_id) {
            (Ok(group), Some(group_id)) if !group.is_root() => match groups.id(&group) {
                Ok(id) => id != group_id,
                Err(error) => error.is_gone(),
            },
            _ => false,
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id().map_or("?".to_owned(), |id| id.to_string());
        let (gate, group) = (self.text("gate"), self.text("group"));
        write!(f, "entry {id} (gate {gate}, group {group})")
    }
}
