//! An agent's directory of recordings: a file for each hour, named by its first second, of which
//! the oldest go as soon as they are too old or all are too large. A file of its own format version
//! and machine, so that each can be read, copied and removed by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::ENDING;
use crate::frame;
use crate::record::{Event, Machine, Record, Second, Work};

const FILE_MS: u64 = 3_600_000;

/// An event is written behind the second in which it happened; a clock that was set back goes
/// further.
const APART_MS: u64 = 5_000;

/// One file has at most this part of the room, so that the oldest can go while the newest grows.
const FILE_PART: u64 = 8;

/// An agent that restarts again and again begins a file each time.
const FILES_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes_max: u64,
    /// The oldest is no older than this.
    pub keep_ms: u64,
}

pub struct Store {
    dir: PathBuf,
    limits: Limits,
    machine: Machine,
    current: Option<Current>,
    /// Oldest first; the current file is the last.
    files: Vec<(PathBuf, u64)>,
    lost: u64,
    /// A full disk has cost an old file, and nothing could be written since.
    has_given: bool,
}

struct Current {
    file: File,
    began_ms: u64,
    last_ms: u64,
    works: BTreeSet<u32>,
}

impl Store {
    /// Opens the directory, or makes it, for its owner alone. What is there already stays as it is,
    /// within the limits.
    pub fn open(dir: &Path, limits: Limits, machine: Machine) -> io::Result<Store> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let files = files(dir)?.into_iter().map(|path| {
            let bytes = fs::metadata(&path).map_or(0, |meta| meta.len());
            (path, bytes)
        });
        let mut store = Store {
            dir: dir.to_owned(),
            limits,
            machine,
            current: None,
            files: files.collect(),
            lost: 0,
            has_given: false,
        };
        store.make_room(0);
        Ok(store)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// A work has other terms now, or its number is another's: it is introduced once more.
    pub fn forget(&mut self, work: u32) {
        if let Some(current) = &mut self.current {
            current.works.remove(&work);
        }
    }

    pub fn add(&mut self, second: &Second, works: &BTreeMap<u32, Work>) -> io::Result<()> {
        let named: Vec<&Work> = second
            .works
            .iter()
            .filter_map(|work| works.get(&work.id))
            .collect();
        self.write(second.unix_ms, &named, &Record::Second(second.clone()))
    }

    pub fn add_event(&mut self, event: &Event) -> io::Result<()> {
        self.write(event.unix_ms, &[], &Record::Event(event.clone()))
    }

    fn write(&mut self, unix_ms: u64, works: &[&Work], record: &Record) -> io::Result<()> {
        self.remove_older_than(unix_ms.saturating_sub(self.limits.keep_ms));
        let mut written = self.try_write(unix_ms, works, record);
        if let Err(error) = &written {
            self.leave_current();
            // One old file for the newest second, and no more: another program may take whatever is
            // freed.
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            if is_full && !self.has_given && self.remove_oldest() {
                self.has_given = true;
                written = self.try_write(unix_ms, works, record);
            }
        }
        match written {
            Ok(()) => self.has_given = false,
            Err(_) => {
                self.lost += 1;
                self.leave_current();
            }
        }
        written
    }

    /// The next entry begins another file; one that was begun in vain goes.
    fn leave_current(&mut self) {
        self.current = None;
        if let Some((path, _)) = self.files.pop_if(|(_, bytes)| *bytes == 0) {
            let _ = fs::remove_file(path);
        }
    }

    fn try_write(&mut self, unix_ms: u64, works: &[&Work], record: &Record) -> io::Result<()> {
        let known = self.files.last().map_or(0, |(_, bytes)| *bytes);
        let goes_on = |current: &Current| {
            let is_forward = unix_ms + APART_MS >= current.last_ms;
            is_forward
                && unix_ms.saturating_sub(current.began_ms) < FILE_MS
                && known < self.limits.bytes_max / FILE_PART
        };
        let mut bytes = Vec::new();
        if !self.current.as_ref().is_some_and(goes_on) {
            frame::push(&mut bytes, &Record::Machine(self.machine.clone()));
            self.current = Some(self.begin(unix_ms)?);
        }
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        let is_new = |work: &&&Work| !current.works.contains(&work.id);
        let new: Vec<Work> = works
            .iter()
            .filter(is_new)
            .map(|work| (*work).clone())
            .collect();
        let ids: Vec<u32> = new.iter().map(|work| work.id).collect();
        if !new.is_empty() {
            frame::push(&mut bytes, &Record::Works(new));
        }
        frame::push(&mut bytes, record);
        self.make_room(bytes.len() as u64);
        let Some((current, (_, known))) = self.current.as_mut().zip(self.files.last_mut()) else {
            return Ok(());
        };
        if let Err(error) = current.file.write_all(&bytes) {
            // Half an entry would be found as damage.
            let _ = current.file.set_len(*known);
            return Err(error);
        }
        *known += bytes.len() as u64;
        current.last_ms = current.last_ms.max(unix_ms);
        current.works.extend(ids);
        Ok(())
    }

    /// A new file. Of two within a second the later is numbered on.
    fn begin(&mut self, unix_ms: u64) -> io::Result<Current> {
        let mut name_s = unix_ms / 1_000;
        let (path, file) = loop {
            let path = self.dir.join(format!("{name_s}.{ENDING}"));
            let opened = OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            match opened {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => name_s += 1,
                opened => break (path, opened?),
            }
        };
        self.files.push((path, 0));
        Ok(Current {
            file,
            began_ms: unix_ms,
            last_ms: unix_ms,
            works: BTreeSet::new(),
        })
    }

    /// Before `more` bytes are written: there is never more than the limit.
    fn make_room(&mut self, more: u64) {
        while self.bytes() + more > self.limits.bytes_max || self.files.len() > FILES_MAX {
            if !self.remove_oldest() {
                return;
            }
        }
    }

    fn remove_older_than(&mut self, unix_ms: u64) {
        while let Some((path, _)) = self.files.first() {
            // By what it may hold at the latest.
            let is_old = began_ms(path).is_some_and(|began_ms| began_ms + FILE_MS < unix_ms);
            if !is_old || !self.remove_oldest() {
                return;
            }
        }
    }

    /// Whether there was one but for that which grows.
    fn remove_oldest(&mut self) -> bool {
        let kept = usize::from(self.current.is_some());
        if self.files.len() <= kept {
            return false;
        }
        let (path, _) = self.files.remove(0);
        let _ = fs::remove_file(path);
        true
    }
}

fn began_ms(path: &Path) -> Option<u64> {
    let is_ours = path.extension().is_some_and(|ending| ending == ENDING);
    let name = path.file_stem()?.to_str()?;
    let began_s: u64 = name.parse().ok()?;
    began_s.checked_mul(1_000).filter(|_| is_ours)
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if let Some(began_ms) = began_ms(&path) {
            files.push((began_ms, path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

pub(crate) fn files_between(dir: &Path, from_ms: u64, to_ms: u64) -> io::Result<Vec<PathBuf>> {
    let all = files(dir)?.into_iter();
    // A name may be a little later than what is in it, and an event a little older.
    const SLACK_MS: u64 = 60_000;
    let within = all.filter(|path| {
        let began_ms = began_ms(path).unwrap_or(0);
        began_ms <= to_ms.saturating_add(SLACK_MS)
            && began_ms.saturating_add(FILE_MS + SLACK_MS) >= from_ms
    });
    Ok(within.collect())
}

#[cfg(test)]
mod tests;
