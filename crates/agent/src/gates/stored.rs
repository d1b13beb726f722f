//! `gates.json` as the next agent, the guardian and `repair` read it.

use crate::gates::Record;

/// The records of `text`, and why each of the others is not read. One by one: a record that another version wrote in its own
/// way costs no other gate its terms.
pub(crate) fn read_records(text: &str) -> (Vec<Record>, Vec<serde_json::Error>) {
    let all: Vec<serde_json::Value> = match serde_json::from_str(text) {
        Ok(all) => all,
        Err(error) => return (Vec::new(), vec![error]),
    };
    let mut records = Vec::new();
    let mut unread = Vec::new();
    for one in all {
        match serde_json::from_value(one) {
            Ok(record) => records.push(record),
            Err(error) => unread.push(error),
        }
    }
    (records, unread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_garbage_costs_no_other_record() {
        let gate = crate::gates::of_terms("job", &[("class", "side")]);
        let record = serde_json::to_string(&gate.record).unwrap();
        for garbage in ["null", "{}", "[]", "1e999999", "{\"name\": 1}"] {
            let (records, unread) = read_records(&format!("[{record},{garbage},{record}]"));
            // A number that no float holds is no JSON for the reader.
            match garbage.starts_with('1') {
                true => assert_eq!((records.len(), unread.len()), (0, 1), "{garbage}"),
                false => assert_eq!((records.len(), unread.len()), (2, 1), "{garbage}"),
            }
        }
        assert_eq!(read_records("").1.len(), 1);
        assert!(read_records("[]").1.is_empty());
    }
}
