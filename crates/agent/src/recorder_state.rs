//! What the recorder shares with the rest of the agent: where it records, the steps of the loop,
//! and what status tells.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tidegate_api::RecordingView;
use tidegate_engine::clock::since_1970;
use tidegate_engine::sync::lock;
use tidegate_recording::Step;
use tidegate_recording::flight::Flight;
use tracing::warn;

use crate::paths::RunDir;
use crate::process::Mode;

/// An agent on demand records into the run directory, which is memory.
const ON_DEMAND_BYTES_MAX: u64 = 16 << 20;

const BYTES_MIN: u64 = 4 << 20;

#[derive(Default)]
pub(crate) struct RecorderState {
    /// The steps of the last ten minutes; none where nothing is recorded.
    flight: Option<Flight>,
    view: Mutex<Option<RecordingView>>,
    place: Option<(PathBuf, u64)>,
    no_room: Option<String>,
}

impl RecorderState {
    /// As the settings ask; `bytes_max` of 0 records nothing. A quarter of what is free is the
    /// most: the run directory's other files need room, and so do other programs.
    pub(crate) fn open(run_dir: &RunDir, mode: Mode, bytes_max: u64) -> Self {
        if bytes_max == 0 {
            return Self::default();
        }
        let run_free = free_bytes(run_dir.dir());
        let (dir, bytes_max) = match (mode, state_dir()) {
            (Mode::Service, Some(dir)) => {
                let bytes_max = bytes_max.min(free_bytes(&dir) / 4);
                (dir.join("recording"), bytes_max)
            }
            _ => {
                let bytes_max = bytes_max.min(ON_DEMAND_BYTES_MAX).min(run_free / 4);
                (run_dir.recording(), bytes_max)
            }
        };
        let flight = match run_free / 4 >= BYTES_MIN {
            true => Flight::open(&run_dir.flight()).map_err(|error| error.to_string()),
            false => Err(format!("{run_free} bytes are free")),
        };
        let flight = flight.map_err(|why| {
            let path = run_dir.flight();
            warn!(
                "recorder: {}: {why}; steps are not recorded",
                path.display()
            );
        });
        let has_room = bytes_max >= BYTES_MIN;
        let no_room = (!has_room).then(|| {
            let (dir, least) = (dir.display(), (4 * BYTES_MIN) >> 20);
            format!("recorder: {dir}: less than {least} MiB are free; nothing is recorded")
        });
        Self {
            flight: flight.ok(),
            view: Mutex::default(),
            place: has_room.then_some((dir, bytes_max)),
            no_room,
        }
    }

    /// The loop's step, for the flight recorder. For the loop's thread alone.
    pub(crate) fn add_step(&self, step: impl FnOnce() -> Step) {
        if let Some(flight) = &self.flight {
            flight.add(&step());
        }
    }

    pub(crate) fn flight(&self) -> Option<&Flight> {
        self.flight.as_ref()
    }

    pub(crate) fn place(&self) -> Option<(&Path, u64)> {
        let (dir, bytes_max) = self.place.as_ref()?;
        Some((dir, *bytes_max))
    }

    pub(crate) fn no_room(&self) -> Option<&str> {
        self.no_room.as_deref()
    }

    pub(crate) fn tell(&self, view: RecordingView) {
        *lock(&self.view) = Some(view);
    }

    pub(crate) fn view(&self) -> Option<RecordingView> {
        lock(&self.view).clone()
    }
}

fn free_bytes(dir: &Path) -> u64 {
    let found = rustix::fs::statvfs(dir);
    found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

/// systemd's `StateDirectory=`.
fn state_dir() -> Option<PathBuf> {
    let dirs = std::env::var("STATE_DIRECTORY").ok()?;
    let first = dirs.split(':').next().filter(|dir| dir.starts_with('/'))?;
    Some(PathBuf::from(first))
}

pub(crate) fn unix_us() -> u64 {
    since_1970().as_micros() as u64
}
