//! The file of gates: what is written down of each, for the next agent. It is read record by
//! record: one that another version wrote in its own way costs no other gate its terms, and is
//! written back as it was. So the file as a whole has no version: a list of records is what every
//! version reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_cgroup::group::GroupPath;
use tidegate_terms::{Config, RawTerms, Term, TermError};

use crate::gates::{Gate, Record};

#[derive(Debug, Default)]
pub struct StoredGates {
    pub records: Vec<Record>,
    pub unread: Vec<UnreadRecord>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct UnreadRecord {
    record: Value,
    #[serde(skip)]
    pub why: String,
}

impl UnreadRecord {
    pub fn name(&self) -> &str {
        self.record
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("?")
    }

    /// The group that it tells of, where that can be told: the first that it names.
    pub fn group(&self) -> Option<GroupPath> {
        fn first(value: &Value) -> Option<&str> {
            match value {
                Value::Object(fields) => match fields.get("group") {
                    Some(Value::String(group)) => Some(group),
                    _ => fields.values().find_map(first),
                },
                Value::Array(all) => all.iter().find_map(first),
                _ => None,
            }
        }
        GroupPath::parse(first(&self.record)?).ok()
    }
}

/// A gate without a class would be no side work.
fn check_class(record: &Record) -> Result<(), TermError> {
    let class = Term::Class.name();
    let raw = record
        .raw
        .0
        .get(class)
        .map(|raw| (class.to_owned(), raw.clone()));
    RawTerms(raw.into_iter().collect()).check()
}

#[derive(Serialize)]
#[serde(untagged)]
enum StoringRecord<'a> {
    Known(&'a Record),
    Unread(&'a UnreadRecord),
}

pub fn read(text: &str) -> Result<StoredGates, String> {
    let records: Vec<Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut stored = StoredGates::default();
    for record in records {
        let known = Record::deserialize(&record).map_err(|error| error.to_string());
        let checked = known.and_then(|known| match check_class(&known) {
            Ok(()) => Ok(known),
            Err(error) => Err(error.to_string()),
        });
        match checked {
            Ok(known) => stored.records.push(known),
            Err(why) => stored.unread.push(UnreadRecord { why, record }),
        }
    }
    Ok(stored)
}

/// The gate of a record that another version may have written: terms that this one does not know
/// are kept aside in the record, each with why.
pub fn gate_of(mut record: Record, config: &Config) -> (Gate, Vec<TermError>) {
    let mut left_out = Vec::new();
    let mut all = std::mem::take(&mut record.unread_terms);
    all.merge(&record.raw);
    record.raw = RawTerms::default();
    for (name, raw) in all.0 {
        let one = RawTerms(BTreeMap::from([(name, raw)]));
        match one.check() {
            Ok(()) => record.raw.merge(&one),
            Err(error) => {
                left_out.push(error);
                record.unread_terms.merge(&one);
            }
        }
    }
    let resolved = record
        .resolve(config)
        // What the files say may be what does not go together with it.
        .or_else(|error| {
            left_out.push(error);
            Config::default().resolve(&[&record.raw])
        })
        .unwrap_or_else(|error| {
            left_out.push(error);
            let mut class = record.raw.clone();
            class.0.retain(|name, _| name == Term::Class.name());
            let class_alone = Config::default().resolve(&[&class]);
            class_alone.expect("a class that was checked is a gate's terms")
        });
    (Gate::with_terms(record, resolved), left_out)
}

/// The file's text. A record that stands in for one that cannot be read (the same gate, found by
/// its group's name) is left out.
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
