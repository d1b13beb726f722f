//! The last minutes, step by step: a mapped file of fixed size that costs the control loop a few
//! stores a step and outlives its writer.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::MmapRaw;
use rustix::fs::{FallocateFlags, fallocate};

use crate::record::Step;

/// Ten minutes at a step each 5 ms.
const SLOTS: usize = 120_000;

/// "tidegate's flight", version 1.
const MAGIC: u64 = 0x7467_666c_6967_6801;

/// A slot is four words: the time, two pairs of figures, and the step's number, which is written
/// last.
const WORDS: usize = 4;

/// The first slot is the head.
const BYTES: usize = (SLOTS + 1) * WORDS * 8;

pub struct Flight {
    map: MmapRaw,
    next: AtomicU64,
}

impl Flight {
    /// Maps the file, made on first use. What another agent wrote before is kept.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)?;
        // A page without room would be a fault when it is written.
        fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64)?;
        if file.metadata()?.len() != BYTES as u64 {
            file.set_len(BYTES as u64)?;
        }
        let map = MmapRaw::map_raw(&file)?;
        let mut flight = Self {
            map,
            next: AtomicU64::new(1),
        };
        if flight.words()[0].swap(MAGIC, Ordering::Relaxed) != MAGIC {
            let words = &flight.words()[1..];
            words
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
        }
        let last = flight
            .slots()
            .map(|slot| slot[3].load(Ordering::Relaxed))
            .max();
        // A damaged number may be the largest there is.
        let next = last
            .unwrap_or(0)
            .checked_add(1)
            .filter(|next| *next < 1 << 60);
        flight.next = AtomicU64::new(next.unwrap_or(1));
        Ok(flight)
    }

    pub fn look(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).open(path)?;
        if file.metadata()?.len() != BYTES as u64 {
            return Err(io::Error::other("it is no flight recorder's file"));
        }
        Ok(Self {
            map: memmap2::MmapOptions::new().map_raw_read_only(&file)?,
            next: AtomicU64::new(1),
        })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has BYTES bytes, begins at a page, lives as long as `self`, and is
        // only touched through these atomics; any bits are a valid word.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), BYTES / 8) }
    }

    fn slots(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.words()[WORDS..].chunks_exact(WORDS)
    }

    /// One step more, in the place of the oldest. For one thread.
    pub fn add(&self, step: &Step) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let at = 1 + (number % SLOTS as u64) as usize;
        let slot = &self.words()[at * WORDS..][..WORDS];
        slot[3].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        slot[0].store(step.unix_us, Ordering::Relaxed);
        slot[1].store(pair(step.main_ucpu, step.side_ucpu), Ordering::Relaxed);
        slot[2].store(pair(step.idle_ucpu, step.allowance_ucpu), Ordering::Relaxed);
        slot[3].store(number, Ordering::Release);
    }

    /// Those since a time, in their order. One that is written meanwhile is left out.
    pub fn since(&self, unix_us: u64) -> Vec<Step> {
        let mut steps: Vec<(u64, Step)> = self.slots().filter_map(read).collect();
        steps.retain(|(_, step)| step.unix_us >= unix_us);
        steps.sort_by_key(|(number, _)| *number);
        steps.into_iter().map(|(_, step)| step).collect()
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn read(slot: &[AtomicU64]) -> Option<(u64, Step)> {
    let number = slot[3].load(Ordering::Acquire);
    let [time, first, second] = [0, 1, 2].map(|at| slot[at].load(Ordering::Relaxed));
    fence(Ordering::Acquire);
    let is_whole = number != 0 && slot[3].load(Ordering::Relaxed) == number;
    is_whole.then_some((
        number,
        Step {
            unix_us: time,
            main_ucpu: (first >> 32) as u32,
            side_ucpu: first as u32,
            idle_ucpu: (second >> 32) as u32,
            allowance_ucpu: second as u32,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(n: u64) -> Step {
        Step {
            unix_us: n,
            main_ucpu: n as u32,
            side_ucpu: n as u32 + 1,
            idle_ucpu: n as u32 + 2,
            allowance_ucpu: n as u32 + 3,
        }
    }

    #[test]
    fn the_last_ten_minutes_are_kept_and_outlive_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        let flight = Flight::open(&path).unwrap();
        assert_eq!(flight.since(0), []);
        let count = SLOTS as u64 + 500;
        (1..=count).for_each(|n| flight.add(&step(n)));
        drop(flight);
        let flight = Flight::open(&path).unwrap();
        flight.add(&step(count + 1));
        let steps = flight.since(0);
        assert_eq!(Flight::look(&path).unwrap().since(0), steps);
        assert_eq!(steps.len(), SLOTS);
        assert_eq!(steps[0], step(502));
        assert_eq!(steps.last(), Some(&step(count + 1)));
        assert_eq!(flight.since(count).len(), 2);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), BYTES as u64);
    }

    #[test]
    fn a_step_that_was_being_written_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        let flight = Flight::open(&path).unwrap();
        (1..=3).for_each(|n| flight.add(&step(n)));
        // As a writer that was killed behind its first store.
        flight.words()[(1 + 3) * WORDS + 3].store(0, Ordering::Relaxed);
        assert_eq!(flight.since(0), [step(1), step(2)]);
    }

    #[test]
    fn another_file_is_begun_from_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flight");
        std::fs::write(&path, vec![0xff; BYTES + 77]).unwrap();
        assert_eq!(Flight::open(&path).unwrap().since(0), []);
        let flight = Flight::open(&path).unwrap();
        flight.add(&step(1));
        assert_eq!(flight.since(0), [step(1)]);
    }
}
