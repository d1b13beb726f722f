//! Entries as bytes: a mark with the format's version, the length, a checksum, and the entry by
//! postcard. What is torn or damaged is told by its checksum, and the next mark leads on behind it.

use crate::record::Record;

/// The format's version, which every entry carries.
pub const VERSION: u8 = 1;

const MARK: [u8; 3] = *b"TGR";

/// Mark, version, length and checksum.
const HEAD: usize = 12;

/// An entry has what a few thousand works need; a damaged length has anything.
const PAYLOAD_MAX: usize = 16 << 20;

/// Appends an entry's bytes.
///
/// # Panics
/// Never: a record holds nothing that cannot be encoded, and a vector takes any length.
pub fn push(bytes: &mut Vec<u8>, record: &Record) {
    let payload = postcard::to_stdvec(record).unwrap_or_default();
    debug_assert!(!payload.is_empty() && payload.len() <= PAYLOAD_MAX);
    bytes.extend(MARK);
    bytes.push(VERSION);
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(checksum(VERSION, &payload).to_le_bytes());
    bytes.extend(payload);
}

/// Of the version and the payload: a damaged version is no other one.
fn checksum(version: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[version]);
    hasher.update(payload);
    hasher.finalize()
}

#[derive(Debug, PartialEq)]
pub enum Entry {
    Record(Record),
    Newer(u8),
}

pub struct Frames<'a> {
    bytes: &'a [u8],
    /// Bytes that belong to no whole entry.
    pub damaged_bytes: u64,
}

impl<'a> Frames<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            damaged_bytes: 0,
        }
    }

    /// Leaves out what comes before the next mark, at least one byte.
    fn skip(&mut self) {
        let later = self.bytes.get(1..).unwrap_or_default();
        let next = later.windows(MARK.len()).position(|three| three == MARK);
        let skipped = next.map_or(self.bytes.len(), |at| at + 1);
        self.damaged_bytes += skipped as u64;
        self.bytes = &self.bytes[skipped..];
    }
}

impl Iterator for Frames<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        while !self.bytes.is_empty() {
            if let Some((found, len)) = whole(self.bytes) {
                self.bytes = &self.bytes[len..];
                return Some(found);
            }
            self.skip();
        }
        None
    }
}

/// The entry at the beginning of `bytes`, with its length, if there is a whole one.
fn whole(bytes: &[u8]) -> Option<(Entry, usize)> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (mark, head) = head.split_at(MARK.len());
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let version = head[0];
    let len = word(1)? as usize;
    let payload = rest.get(..len).filter(|_| len <= PAYLOAD_MAX)?;
    if mark != MARK || checksum(version, payload) != word(5)? {
        return None;
    }
    let found = match version {
        VERSION => Entry::Record(postcard::from_bytes(payload).ok()?),
        newer => Entry::Newer(newer),
    };
    Some((found, HEAD + len))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Event, Second};

    fn second(unix_ms: u64) -> Record {
        Record::Second(Second {
            unix_ms,
            ..Second::default()
        })
    }

    fn event(text: &str) -> Record {
        Record::Event(Event {
            message: text.to_owned(),
            ..Event::default()
        })
    }

    fn bytes_of(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| push(&mut bytes, record));
        bytes
    }

    fn read(bytes: &[u8]) -> (Vec<Record>, u64) {
        let mut frames = Frames::new(bytes);
        let records = frames.by_ref().map(|found| match found {
            Entry::Record(record) => record,
            Entry::Newer(version) => panic!("version {version}"),
        });
        (records.collect(), frames.damaged_bytes)
    }

    #[test]
    fn a_torn_end_loses_the_last_entry_alone() {
        let records: Vec<Record> = (0..4).map(second).collect();
        let bytes = bytes_of(&records);
        let last = bytes_of(&records[3..]).len();
        for torn in 1..last {
            let (found, damaged) = read(&bytes[..bytes.len() - torn]);
            assert_eq!(found, records[..3], "{torn} bytes are missing");
            assert_eq!(damaged as usize, last - torn);
        }
    }

    #[test]
    fn a_later_version_is_told_and_not_misread() {
        let mut bytes = bytes_of(&[second(1)]);
        bytes[3] = VERSION + 1;
        let found: Vec<Entry> = Frames::new(&bytes).collect();
        assert_eq!(found, [], "a damaged version");
        let sum = checksum(VERSION + 1, &bytes[HEAD..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        let found: Vec<Entry> = Frames::new(&bytes).collect();
        assert_eq!(found, [Entry::Newer(VERSION + 1)]);
    }

    proptest! {
        #[test]
        fn a_changed_byte_costs_one_entry(at in 0_usize..4_000, by in 1_u8..) {
            let records: Vec<Record> = (0..20).map(|n| event(&format!("TGR {n}"))).collect();
            let mut bytes = bytes_of(&records);
            let at = at % bytes.len();
            bytes[at] ^= by;
            // Another version's number is a whole entry of that version.
            let found: Vec<Entry> = Frames::new(&bytes).collect();
            let same = found.iter().filter(|one| matches!(one, Entry::Record(record) if records.contains(record)));
            prop_assert_eq!(same.count(), 19);
            prop_assert!(found.len() <= 20);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = Frames::new(&bytes).count();
        }
    }
}
