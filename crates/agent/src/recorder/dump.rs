//! The last ten minutes in a file of their own, some seconds after an event that needs a look.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_api::EventView;
use tidegate_recording::flight::Flight;
use tidegate_recording::load::to_bytes;
use tidegate_recording::store::Store;
use tidegate_recording::{ENDING, load, write_whole};
use tracing::{info, warn};

const SPAN_MS: u64 = 600_000;

/// It is written so long after the event, so that it shows what came of it.
const AFTER_MS: u64 = 10_000;

const APART_MS: u64 = 300_000;

const KEPT: usize = 16;

pub(super) struct Dumps {
    dir: PathBuf,
    bytes_max: u64,
    due: Option<(u64, String)>,
    last_ms: Option<u64>,
    files: Vec<(PathBuf, u64)>,
}

impl Dumps {
    pub(super) fn new(recordings: &Path, bytes_max: u64) -> Self {
        let dir = recordings.join("alerts");
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut files: Vec<(PathBuf, u64)> = entries
            .map(|entry| (entry.path(), entry.metadata().map_or(0, |meta| meta.len())))
            .filter(|(path, _)| path.extension().is_some_and(|ending| ending == ENDING))
            .collect();
        files.sort();
        // A killed agent's.
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        for entry in
            entries.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(b".partial"))
        {
            let _ = fs::remove_file(entry.path());
        }
        Self {
            dir,
            bytes_max,
            due: None,
            last_ms: None,
            files,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    /// An event: one that needs a look is the reason for a dump.
    pub(super) fn take(&mut self, event: &EventView, now_ms: u64) {
        let is_apart = self
            .last_ms
            .is_none_or(|last_ms| now_ms.abs_diff(last_ms) >= APART_MS);
        if EventView::is_warning(&event.kind) && is_apart && self.due.is_none() {
            self.last_ms = Some(now_ms);
            self.due = Some((now_ms + AFTER_MS, event.kind.replace(['.', '_'], "-")));
        }
    }

    pub(super) fn write_when_due(&mut self, flight: Option<&Flight>, store: &Store, now_ms: u64) {
        // A clock that was set back must not put it off.
        let is_due =
            |(due_ms, _): &mut (u64, String)| now_ms >= *due_ms || *due_ms - now_ms > AFTER_MS;
        let Some((_, kind)) = self.due.take_if(is_due) else {
            return;
        };
        let path = self.dir.join(format!("{}-{kind}.{ENDING}", now_ms / 1_000));
        match self.write(&path, flight, store, now_ms) {
            Ok(()) => info!(
                "recorder: {kind}: the last ten minutes are in {}",
                path.display()
            ),
            Err(why) => warn!("recorder: {}: {why}", path.display()),
        }
    }

    fn write(
        &mut self,
        path: &Path,
        flight: Option<&Flight>,
        store: &Store,
        now_ms: u64,
    ) -> Result<(), String> {
        let from_ms = now_ms.saturating_sub(SPAN_MS);
        let mut recording =
            load(store.dir(), from_ms, u64::MAX).map_err(|error| error.to_string())?;
        if let Some(flight) = flight {
            recording.steps = flight.since(from_ms * 1_000);
        }
        let mut bytes = to_bytes(&recording);
        if bytes.len() as u64 > self.bytes_max {
            // Seconds are worth more than steps.
            recording.steps.clear();
            bytes = to_bytes(&recording);
        }
        let (len, max) = (bytes.len() as u64, self.bytes_max);
        if len > max {
            return Err(format!("{len} bytes, and {max} is the room for alerts"));
        }
        while self.files.len() >= KEPT || self.bytes() + len > max {
            let (path, _) = self.files.remove(0);
            let _ = fs::remove_file(path);
        }
        fs::create_dir_all(&self.dir).map_err(|error| error.to_string())?;
        write_whole(path, &bytes).map_err(|error| error.to_string())?;
        self.files.push((path.to_owned(), len));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate_recording::store::Limits;
    use tidegate_recording::{Machine, Second, Step};

    use super::*;

    fn event(kind: &str) -> EventView {
        EventView {
            kind: kind.to_owned(),
            ..EventView::default()
        }
    }

    fn flight_and_store(dir: &Path, recordings: &Path) -> (Flight, Store) {
        let limits = Limits {
            bytes_max: 1 << 20,
            keep_ms: 1 << 40,
        };
        let store = Store::open(recordings, limits, Machine::default());
        (Flight::open(&dir.join("flight")).unwrap(), store.unwrap())
    }

    #[test]
    fn an_alert_leaves_the_ten_minutes_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let recordings = dir.path().join("recording");
        let (flight, mut store) = flight_and_store(dir.path(), &recordings);
        let mut dumps = Dumps::new(&recordings, 1 << 20);
        let mut poll = |dumps: &mut Dumps, unix_s: u64| {
            let second = Second {
                unix_ms: unix_s * 1_000,
                ..Second::default()
            };
            store.add(&second, &BTreeMap::new()).unwrap();
            flight.add(&Step {
                unix_us: unix_s * 1_000_000,
                ..Step::default()
            });
            dumps.write_when_due(Some(&flight), &store, unix_s * 1_000);
        };
        for unix_s in 1_000..2_000 {
            poll(&mut dumps, unix_s);
        }
        dumps.take(&event("gate.created"), 1_999_000);
        dumps.take(&event("outside_write"), 2_000_000);
        dumps.take(&event("lease.expired"), 2_000_000);
        for unix_s in 2_000..2_030 {
            poll(&mut dumps, unix_s);
        }
        assert_eq!(dumps.files.len(), 1, "one for both");
        let path = recordings.join("alerts/2010-outside-write.tgr");
        let dump = load(&path, 0, u64::MAX).unwrap();
        assert_eq!(dump.span_ms(), Some((1_410_000, 2_010_000)));
        assert_eq!(dump.steps.len(), 601);
        assert_eq!(Dumps::new(&recordings, 1 << 20).files, dumps.files);
        // In a directory of recordings a dump is not read a second time.
        assert_eq!(load(&recordings, 0, u64::MAX).unwrap().seconds.len(), 1_030);
    }

    #[test]
    fn dumps_keep_to_their_room() {
        let dir = tempfile::tempdir().unwrap();
        let (flight, mut store) = flight_and_store(dir.path(), dir.path());
        store.add(&Second::default(), &BTreeMap::new()).unwrap();
        let mut dumps = Dumps::new(dir.path(), 1_000);
        for nth in 0..100 {
            let now_ms = nth * APART_MS;
            dumps.take(&event("outside_write"), now_ms);
            let second = Second {
                unix_ms: now_ms,
                ..Second::default()
            };
            store.add(&second, &BTreeMap::new()).unwrap();
            dumps.write_when_due(Some(&flight), &store, now_ms + AFTER_MS);
            assert!(dumps.bytes() <= 1_000 && dumps.files.len() <= KEPT);
        }
        let on_disk = fs::read_dir(dir.path().join("alerts")).unwrap().count();
        assert_eq!(on_disk, dumps.files.len());
        assert!(on_disk > 2);
    }
}
