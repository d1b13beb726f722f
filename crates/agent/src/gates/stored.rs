//! The file of gates: what is written down of each, for the next agent. It is read record by record: one that another version wrote
//! in its own way costs no other gate its terms, and is written back as it was. So the file as a whole has no version: a list of
//! records is what every version reads.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gates::Record;

/// The file as read.
#[derive(Debug, Default)]
pub struct StoredGates {
    /// What this version knows.
    pub records: Vec<Record>,
    /// The others.
    pub unread: Vec<UnreadRecord>,
}

/// A record that this version cannot read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct UnreadRecord {
    record: Value,
    /// What is wrong with it here.
    #[serde(skip)]
    pub why: String,
}

impl UnreadRecord {
    /// The gate's name, where it can be told.
    pub fn name(&self) -> &str {
        self.record
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("?")
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum StoringRecord<'a> {
    Known(&'a Record),
    Unread(&'a UnreadRecord),
}

/// Reads the file's text.
///
/// # Errors
/// It is no list.
pub fn read(text: &str) -> Result<StoredGates, String> {
    let records: Vec<Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut stored = StoredGates::default();
    for record in records {
        match Record::deserialize(&record) {
            Ok(known) => stored.records.push(known),
            Err(error) => stored.unread.push(UnreadRecord {
                why: error.to_string(),
                record,
            }),
        }
    }
    Ok(stored)
}

/// The file's text. A record that stands in for one that cannot be read (the same gate, found by its group's name) is left out.
pub fn written(records: &[&Record], unread: &[UnreadRecord]) -> serde_json::Result<Vec<u8>> {
    let known = records
        .iter()
        .filter(|record| unread.iter().all(|other| other.name() != record.name));
    let gates = known.map(|record| StoringRecord::Known(record));
    let all: Vec<_> = gates
        .chain(unread.iter().map(StoringRecord::Unread))
        .collect();
    serde_json::to_vec(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_garbage_costs_no_other_record() {
        let gate = crate::gates::of_terms("job", &[("class", "side")]);
        let record = serde_json::to_string(&gate.record).unwrap();
        for garbage in ["null", "{}", "[]", "{\"name\": 1}"] {
            let stored = read(&format!("[{record},{garbage},{record}]")).unwrap();
            assert_eq!(
                (stored.records.len(), stored.unread.len()),
                (2, 1),
                "{garbage}"
            );
            let records: Vec<_> = stored.records.iter().collect();
            let again = written(&records, &stored.unread).unwrap();
            let again = read(&String::from_utf8(again).unwrap()).unwrap();
            assert_eq!(
                (again.records, again.unread),
                (stored.records, stored.unread)
            );
        }
        // A number that no float holds is no JSON for the reader.
        for text in ["", "1e999999", "[1e999999]", "{}"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("[]").unwrap().unread.is_empty());
    }
}
