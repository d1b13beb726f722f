//! The moving quota's side file: fixed slots, memory-mapped, so that noting a change costs a few
//! stores.
//!
//! A slot holds the limit before the last write and the limit intended. A later reader of the knob
//! takes it for ours when each of its parts (quota, period, burst) is one of the two. The order of
//! stores keeps that true at each moment for a writer that dies: while the knob stands at A the
//! slot is {any, A}; first `previous` becomes A, word by word, while `intended` still says A; then
//! `intended` becomes B while `previous` says A; then the knob is written. The file is on tmpfs and
//! its pages are allocated when it is made, so a full /run is found then and not by SIGBUS.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use tidegate_cgroup::bandwidth::Bandwidth;

/// Limits that may move at once: the side root and foreign groups, as the side pods of a large
/// node.
pub const SLOTS: usize = 512;
const WORDS_PER_SLOT: usize = 8;
const HEADER_WORDS: usize = 8;
const WORDS: usize = HEADER_WORDS + SLOTS * WORDS_PER_SLOT;
const BYTES: usize = WORDS * 8;
const MAGIC: u64 = u64::from_le_bytes(*b"tidemov1");
const NO_LIMIT: u64 = u64::MAX;
/// Words of a slot: the entry's id, then three words each for the two limits.
const PREVIOUS: usize = 1;
const INTENDED: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MovingError {
    #[error("ledger: {}: {doing}: {}; {}", .path.display(), std::io::Error::from_raw_os_error(*.errno),
            if *.errno == libc::ENOSPC { "make room in /run" } else { "check the run directory" })]
    Io {
        path: PathBuf,
        doing: &'static str,
        errno: i32,
    },
    #[error("ledger: {}: not a side file of this version; it is written again", .path.display())]
    Garbage { path: PathBuf },
    #[error("ledger: all {SLOTS} slots for moving limits are taken; end some gates")]
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovingSlot {
    pub previous: Bandwidth,
    pub intended: Bandwidth,
}

impl MovingSlot {
    /// Whether a limit that was found may be what we wrote, wholly or in part (v1 changes quota and
    /// period apart).
    pub fn may_be(&self, found: &Bandwidth) -> bool {
        let (previous, intended) = (&self.previous, &self.intended);
        (found.quota_us == previous.quota_us || found.quota_us == intended.quota_us)
            && (found.period_us == previous.period_us || found.period_us == intended.period_us)
            && (found.burst_us == previous.burst_us || found.burst_us == intended.burst_us)
    }
}

/// The side file, mapped (or plain memory, in tests).
#[derive(Debug)]
pub struct Moving {
    words: MmapRaw,
}

impl Moving {
    /// Opens the file, or makes it when it is missing or of another layout.
    pub fn open(path: &Path) -> Result<Self, MovingError> {
        match Self::map(path, false) {
            Ok(moving) if moving.is_valid() => return Ok(moving),
            Ok(_)
            | Err(MovingError::Io {
                errno: libc::ENOENT,
                ..
            })
            | Err(MovingError::Garbage { .. }) => {}
            Err(error) => return Err(error),
        }
        // A new inode: a process that still maps the old one keeps it.
        match rustix::fs::unlink(path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(io(path, "remove the old one")(errno)),
        }
        let moving = Self::map(path, true)?;
        moving.word(0).store(MAGIC, Ordering::Release);
        Ok(moving)
    }

    fn map(path: &Path, create: bool) -> Result<Self, MovingError> {
        let make = if create {
            OFlags::CREATE | OFlags::EXCL
        } else {
            OFlags::empty()
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | make;
        let fd =
            rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(io(path, "open"))?;
        let size = rustix::fs::fstat(&fd).map_err(io(path, "stat"))?.st_size;
        if create {
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, BYTES as u64)
                .map_err(io(path, "allocate"))?;
        } else if size != BYTES as i64 {
            return Err(MovingError::Garbage {
                path: path.to_path_buf(),
            });
        }
        let words = MmapOptions::new().len(BYTES).map_raw(&fd);
        let words = words.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            io(path, "map")(Errno::from_raw_os_error(errno))
        })?;
        Ok(Self { words })
    }

    fn is_valid(&self) -> bool {
        self.word(0).load(Ordering::Acquire) == MAGIC
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS, "slot arithmetic");
        // SAFETY: the mapping holds `WORDS` words, page-aligned, which are only ever used as
        // atomics.
        unsafe { &*self.words.as_ptr().cast::<AtomicU64>().add(index) }
    }

    fn slot_word(&self, slot: usize, offset: usize) -> &AtomicU64 {
        self.word(HEADER_WORDS + slot * WORDS_PER_SLOT + offset)
    }

    fn find(&self, entry: u64) -> Option<usize> {
        (0..SLOTS).find(|slot| self.slot_word(*slot, 0).load(Ordering::Acquire) == entry)
    }

    /// Takes a slot for an entry (ids are from 1); the limit that stands is noted in it.
    pub fn take(&self, entry: u64, standing: &Bandwidth) -> Result<(), MovingError> {
        assert!(entry != 0, "0 marks a free slot");
        let slot = self
            .find(entry)
            .or_else(|| self.find(0))
            .ok_or(MovingError::Full)?;
        for (offset, word) in stores(standing, standing) {
            self.slot_word(slot, offset).store(word, Ordering::SeqCst);
        }
        // Last: a slot is named only when it is filled.
        self.slot_word(slot, 0).store(entry, Ordering::Release);
        Ok(())
    }

    pub fn give_back(&self, entry: u64) {
        if let Some(slot) = self.find(entry).filter(|_| entry != 0) {
            self.slot_word(slot, 0).store(0, Ordering::Release);
        }
    }

    /// Notes, before a write, what stands and what is intended. False when the entry has no slot:
    /// then do not write.
    #[must_use]
    pub fn note(&self, entry: u64, standing: &Bandwidth, intended: &Bandwidth) -> bool {
        let Some(slot) = self.find(entry).filter(|_| entry != 0) else {
            return false;
        };
        for (offset, word) in stores(standing, intended) {
            self.slot_word(slot, offset).store(word, Ordering::SeqCst);
        }
        true
    }

    pub fn get(&self, entry: u64) -> Option<MovingSlot> {
        let slot = self.find(entry).filter(|_| entry != 0)?;
        Some(MovingSlot {
            previous: self.load(slot, 1),
            intended: self.load(slot, 4),
        })
    }

    pub fn retain(&self, keep: impl Fn(u64) -> bool) {
        for slot in 0..SLOTS {
            let entry = self.slot_word(slot, 0).load(Ordering::Acquire);
            if entry != 0 && !keep(entry) {
                self.slot_word(slot, 0).store(0, Ordering::Release);
            }
        }
    }

    fn load(&self, slot: usize, at: usize) -> Bandwidth {
        let word = |offset: usize| self.slot_word(slot, at + offset).load(Ordering::SeqCst);
        let quota = word(0);
        Bandwidth {
            quota_us: (quota != NO_LIMIT).then_some(quota),
            period_us: word(1),
            burst_us: word(2),
        }
    }
}

fn words(value: &Bandwidth) -> [u64; 3] {
    [
        value.quota_us.unwrap_or(NO_LIMIT),
        value.period_us,
        value.burst_us,
    ]
}

/// The stores of a note, in the order that the module's page argues for.
fn stores(standing: &Bandwidth, intended: &Bandwidth) -> impl Iterator<Item = (usize, u64)> {
    let at = |first: usize, value: &Bandwidth| (first..).zip(words(value));
    at(PREVIOUS, standing).chain(at(INTENDED, intended))
}

fn io(path: &Path, doing: &'static str) -> impl FnOnce(Errno) -> MovingError {
    let path = path.to_path_buf();
    move |errno| MovingError::Io {
        path,
        doing,
        errno: errno.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.moving");
        let (a, b) = (Bandwidth::limit(1_000, 100_000), Bandwidth::unlimited());
        {
            let moving = Moving::open(&path).unwrap();
            moving.take(7, &a).unwrap();
            assert!(moving.note(7, &a, &b));
            assert!(!moving.note(8, &a, &b), "no slot, no write");
        }
        let moving = Moving::open(&path).unwrap();
        assert_eq!(
            moving.get(7),
            Some(MovingSlot {
                previous: a,
                intended: b
            })
        );
        moving.retain(|entry| entry != 7);
        assert_eq!(moving.get(7), None);
        assert_eq!(moving.get(0), None);
    }

    #[test]
    fn a_file_of_another_layout_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.moving");
        for garbage in [vec![], vec![1u8; 100], vec![0u8; BYTES]] {
            std::fs::write(&path, &garbage).unwrap();
            Moving::open(&path)
                .unwrap()
                .take(1, &Bandwidth::unlimited())
                .unwrap();
            assert!(Moving::open(&path).unwrap().get(1).is_some());
        }
        assert!(Moving::open(&dir.path().join("no/such")).is_err());
    }

    #[test]
    fn slots_are_finite_and_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let moving = Moving::open(&dir.path().join("ledger.moving")).unwrap();
        for entry in 1..=SLOTS as u64 {
            moving.take(entry, &Bandwidth::unlimited()).unwrap();
        }
        assert_eq!(
            moving.take(1_000, &Bandwidth::unlimited()),
            Err(MovingError::Full)
        );
        moving.give_back(5);
        moving.take(1_000, &Bandwidth::unlimited()).unwrap();
        assert!(moving.get(5).is_none());
    }

    #[test]
    fn a_writer_that_dies_between_two_stores_loses_nothing() {
        let at = |quota_us| Bandwidth {
            quota_us: Some(quota_us),
            period_us: quota_us * 3,
            burst_us: quota_us / 2,
        };
        let dir = tempfile::tempdir().unwrap();
        let moving = Moving::open(&dir.path().join("ledger.moving")).unwrap();
        moving.take(1, &at(1_000)).unwrap();
        let slot = moving.find(1).unwrap();
        for standing in [1_000, 5_000, 2_000, 9_000] {
            let intended = at(standing + 700);
            // What stood was intended by the note before, or by the taking.
            assert!(moving.note(1, &at(standing - 1), &at(standing)));
            for (offset, word) in stores(&at(standing), &intended) {
                moving.slot_word(slot, offset).store(word, Ordering::SeqCst);
                assert!(
                    moving.get(1).unwrap().may_be(&at(standing)),
                    "died after word {offset}"
                );
            }
            assert!(
                moving.get(1).unwrap().may_be(&intended),
                "and the knob may be written now"
            );
        }
    }
}
