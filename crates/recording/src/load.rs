//! Reading recordings, of one file or of an agent's directory, and writing one file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::frame::{self, Entry, Frames, VERSION};
use crate::record::Record;
use crate::recording::Recording;
use crate::store;
use crate::whole_file::write_whole;

const STEPS: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: no recording; write one with tidegate recording save --out FILE", .0.display())]
    NoRecording(PathBuf),
    #[error("{}: recorded in format {version} and this tidegate reads up to {VERSION}; use the one that recorded it, or a later one", .path.display())]
    Newer { path: PathBuf, version: u8 },
    #[error("{}: nothing was recorded in that span", .0.display())]
    Empty(PathBuf),
}

impl LoadError {
    pub fn is_absence(&self) -> bool {
        match self {
            LoadError::Io { error, .. } => error.kind() == io::ErrorKind::NotFound,
            LoadError::Empty(_) => true,
            LoadError::NoRecording(_) | LoadError::Newer { .. } => false,
        }
    }

    pub fn is_denied(&self) -> bool {
        let denied = io::ErrorKind::PermissionDenied;
        matches!(self, LoadError::Io { error, .. } if error.kind() == denied)
    }
}

/// Reads a file, or what a directory of an agent has from `from_ms` to `to_ms`.
pub fn load(path: &Path, from_ms: u64, to_ms: u64) -> Result<Recording, LoadError> {
    let failed = |error| LoadError::Io {
        path: path.to_owned(),
        error,
    };
    let is_dir = fs::metadata(path).map_err(failed)?.is_dir();
    let files = match is_dir {
        true => store::files_between(path, from_ms, to_ms).map_err(failed)?,
        false => vec![path.to_owned()],
    };
    let mut recording = Recording::default();
    for file in &files {
        match read_into(&mut recording, file) {
            // The agent removes old ones meanwhile.
            Err(LoadError::Io { error, .. })
                if is_dir && error.kind() == io::ErrorKind::NotFound => {}
            // A file whose first entry is damaged, or of a later version that was installed for a
            // while.
            Err(LoadError::NoRecording(_) | LoadError::Newer { .. }) if is_dir => {}
            read => read?,
        }
    }
    recording.sort();
    let cut = recording.between(from_ms, to_ms);
    match cut.seconds.is_empty() {
        true => Err(LoadError::Empty(path.to_owned())),
        false => Ok(cut),
    }
}

fn read_into(recording: &mut Recording, file: &Path) -> Result<(), LoadError> {
    let bytes = fs::read(file).map_err(|error| LoadError::Io {
        path: file.to_owned(),
        error,
    })?;
    let mut frames = Frames::new(&bytes);
    let mut ids = BTreeMap::new();
    let mut count = 0;
    for found in frames.by_ref() {
        count += 1;
        match found {
            Entry::Record(record) => recording.add(record, &mut ids),
            Entry::Newer(version) => {
                let path = file.to_owned();
                return Err(LoadError::Newer { path, version });
            }
        }
    }
    recording.damaged_bytes += frames.damaged_bytes;
    match count {
        0 => Err(LoadError::NoRecording(file.to_owned())),
        _ => Ok(()),
    }
}

pub fn to_bytes(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut push = |record: &Record| frame::push(&mut bytes, record);
    push(&Record::Machine(recording.machine.clone()));
    push(&Record::Works(recording.works.values().cloned().collect()));
    let seconds = recording.seconds.iter().cloned();
    seconds.for_each(|second| push(&Record::Second(second)));
    let steps = recording.steps.chunks(STEPS);
    steps.for_each(|steps| push(&Record::Steps(steps.to_vec())));
    let events = recording.events.iter().cloned();
    events.for_each(|event| push(&Record::Event(event)));
    bytes
}

/// Writes a recording into one file, whole or not at all, for its owner alone.
pub fn save(recording: &Recording, path: &Path) -> io::Result<()> {
    write_whole(path, &to_bytes(recording))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Event, Machine, Second, Step, Work, WorkSecond};

    fn recording() -> Recording {
        let work = |id, name: &str| Work {
            id,
            name: name.to_owned(),
            ..Work::default()
        };
        Recording {
            machine: Machine {
                cpus: 2,
                ..Machine::default()
            },
            works: BTreeMap::from([(0, work(0, "encode"))]),
            seconds: (1..=3)
                .map(|second| Second {
                    unix_ms: second * 1_000,
                    works: vec![WorkSecond {
                        id: 0,
                        used_cpus: 0.5,
                        ..WorkSecond::default()
                    }],
                    ..Second::default()
                })
                .collect(),
            steps: (0..2_500)
                .map(|n| Step {
                    unix_us: 1_000_000 + n,
                    ..Step::default()
                })
                .collect(),
            events: vec![Event {
                unix_ms: 2_000,
                ..Event::default()
            }],
            damaged_bytes: 0,
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("night.tgr");
        let mut with_another = recording();
        let another = Work {
            id: 1,
            name: "web".to_owned(),
            ..Work::default()
        };
        with_another.works.insert(1, another);
        save(&with_another, &path).unwrap();
        // A work that no second names is left out. Printed, they would fill many screens.
        assert!(load(&path, 0, u64::MAX).unwrap() == recording());
        let cut = load(&path, 2_000, 2_500).unwrap();
        assert_eq!(
            (cut.seconds.len(), cut.events.len(), cut.steps.len()),
            (1, 1, 0)
        );
        assert!(matches!(
            load(&path, 9_000, 9_999),
            Err(LoadError::Empty(_))
        ));
    }

    #[test]
    fn another_file_is_told_from_a_recording() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.txt");
        fs::write(&path, "TGR is how recordings begin").unwrap();
        let error = load(&path, 0, u64::MAX).unwrap_err().to_string();
        assert!(
            error.contains("no recording; write one with tidegate recording save"),
            "{error}"
        );
    }
}
