//! Days read from a file: CSV with the header `node,time_s,main_milli`, as a query of a metrics
//! server exports it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::NodeDay;

/// Why a recording cannot be used.
#[derive(Debug, Error)]
pub enum RecordedError {
    /// The file or one of its lines.
    #[error(
        "{path}: {why}; a line is a node's name, a second and main's use in millicores, below the header node,time_s,main_milli"
    )]
    Csv { path: PathBuf, why: csv::Error },
    /// Not a single sample.
    #[error("{0}: no samples below the header; record at least one for each node")]
    Empty(PathBuf),
    /// A node's samples go back in time.
    #[error(
        "{path}: node {node}: second {time_s} comes after a later one; sort the lines by time_s"
    )]
    NotSorted {
        path: PathBuf,
        node: String,
        time_s: u64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    node: String,
    time_s: u64,
    main_milli: u64,
}

/// Recorded nodes. A sample holds until the next one; a recording that ends begins again.
pub struct Recorded {
    nodes: Vec<Vec<(u64, u64)>>,
    first_s: u64,
    length_s: u64,
}

impl Recorded {
    /// Reads a recording.
    ///
    /// # Errors
    /// The file is not there or not in the form above.
    pub fn read(path: &Path) -> Result<Recorded, RecordedError> {
        let csv = |why| RecordedError::Csv {
            path: path.to_owned(),
            why,
        };
        let mut nodes: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for line in csv::Reader::from_path(path).map_err(csv)?.deserialize() {
            let Line {
                node,
                time_s,
                main_milli,
            } = line.map_err(csv)?;
            let samples = nodes.entry(node.clone()).or_default();
            if samples.last().is_some_and(|(last_s, _)| *last_s >= time_s) {
                return Err(RecordedError::NotSorted {
                    path: path.to_owned(),
                    node,
                    time_s,
                });
            }
            samples.push((time_s, main_milli));
        }
        let times = || nodes.values().flatten().map(|sample| sample.0);
        let (Some(first_s), Some(last_s)) = (times().min(), times().max()) else {
            return Err(RecordedError::Empty(path.to_owned()));
        };
        let length_s = last_s - first_s + 1;
        Ok(Recorded {
            nodes: nodes.into_values().collect(),
            first_s,
            length_s,
        })
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// From the first sample to the last.
    pub fn length_s(&self) -> u64 {
        self.length_s
    }

    /// More nodes than were recorded repeat them, each round a part of the recording later.
    pub(super) fn node(&self, node: u64) -> RecordedNode<'_> {
        let count = self.nodes.len() as u64;
        let round = node / count;
        RecordedNode {
            samples: &self.nodes[(node % count) as usize],
            first_s: self.first_s,
            length_s: self.length_s,
            // Parts that are never whole recordings: the golden section of it.
            shift_s: round * (self.length_s * 618 / 1_000) % self.length_s,
            at: 0,
        }
    }
}

pub(super) struct RecordedNode<'a> {
    samples: &'a [(u64, u64)],
    first_s: u64,
    length_s: u64,
    shift_s: u64,
    at: usize,
}

impl NodeDay for RecordedNode<'_> {
    fn main_milli(&mut self, time_s: u64) -> u64 {
        let recorded_s = self.first_s + (time_s + self.shift_s) % self.length_s;
        if self.samples[self.at].0 > recorded_s {
            self.at = 0;
        }
        while self
            .samples
            .get(self.at + 1)
            .is_some_and(|next| next.0 <= recorded_s)
        {
            self.at += 1;
        }
        self.samples[self.at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Recorded, RecordedError> {
        let file =
            std::env::temp_dir().join(format!("fleet-{}-{}.csv", std::process::id(), text.len()));
        std::fs::write(&file, text).expect("a temporary file");
        let recorded = Recorded::read(&file);
        std::fs::remove_file(&file).expect("it was written");
        recorded
    }

    #[test]
    fn a_sample_holds_until_the_next_and_the_end_is_the_beginning() {
        let text = "node,time_s,main_milli\na,100,500\na,110,700\nb,100,100\n";
        let recorded = read(text).expect("well formed");
        assert_eq!((recorded.nodes(), recorded.length_s()), (2, 11));
        let mut a = recorded.node(0);
        let seen: Vec<u64> = [0, 9, 10, 11, 21]
            .iter()
            .map(|time_s| a.main_milli(*time_s))
            .collect();
        assert_eq!(seen, [500, 500, 700, 500, 700]);
        assert_eq!(recorded.node(1).main_milli(5), 100);
        assert_eq!(
            recorded.node(2).main_milli(4),
            700,
            "the second round is 6 s later"
        );
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        let bad = read("node,time_s,main_milli\na,1,x\n")
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(
            bad.contains("line: 2") && bad.contains("node,time_s,main_milli"),
            "{bad}"
        );
        let empty = read("node,time_s,main_milli\n")
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(empty.contains("no samples"), "{empty}");
        let back = read("node,time_s,main_milli\na,5,1\na,4,1\n")
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(back.contains("second 4"), "{back}");
        let unknown = read("node,time_s,cpus\na,5,1\n")
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(
            unknown.contains("cpus") || unknown.contains("main_milli"),
            "{unknown}"
        );
    }
}
