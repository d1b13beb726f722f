//! The memory that the BPF sensor and userspace share, and how to read it without a lock.
//!
//! The layout is that of `struct slot` and `struct control` in `bpf/sense.bpf.c`, which is
//! asserted. A CPU's slot is written by that CPU only. In every complete state the four times add
//! up to the time since `base_ns`, and the last switch's time shares a word with the class that
//! runs since; so a reader that catches half a switch sees a sum that is off and reads again. Two
//! stores seen in the wrong order could cancel each other only if two runs of different classes had
//! the same length to the nanosecond, and then the reading is off by that one run, once.

use std::io;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};

use super::object::types;
use super::waits::{WAIT_BUCKETS, WaitHistogram, Waits};

/// What a CPU may be doing; the numbers are those of `enum class` in the BPF program.
pub const NEUTRAL: usize = 0;
pub const SIDE: usize = 1;
pub const MAIN: usize = 2;
pub const IDLE: usize = 3;
/// How many classes there are; 0 is neutral.
pub const CLASSES: usize = 4;

/// A switch takes a CPU about a microsecond at the very least, a reading 20 ns; meeting a half
/// written slot this many times in a row means that it is broken, not busy.
const TRIES: usize = 64;

#[repr(C)]
pub struct Slot {
    word: AtomicU64,
    base_ns: AtomicU64,
    ran_ns: [AtomicU64; CLASSES],
    _pid: AtomicU64,
    hidden: AtomicU64,
    hidden_idle: AtomicU64,
    _waiting: AtomicU64,
    gave_way: AtomicU64,
    gave_way_ns: AtomicU64,
    ended: AtomicU64,
    _unused: [AtomicU64; 3],
    waits: [WaitSlot; 2],
}

const _: () = {
    assert!(size_of::<Slot>() == size_of::<types::slot>());
    assert!(offset_of!(Slot, ran_ns) == offset_of!(types::slot, ran_ns));
    assert!(offset_of!(Slot, hidden) == offset_of!(types::slot, hidden));
    assert!(offset_of!(Slot, hidden_idle) == offset_of!(types::slot, hidden_idle));
    assert!(offset_of!(Slot, waits) == offset_of!(types::slot, waits));
    assert!(size_of::<WaitSlot>() == size_of::<types::waits>());
    assert!(offset_of!(WaitSlot, buckets) == offset_of!(types::waits, buckets));
    assert!(size_of::<Control>() == size_of::<types::control>());
    assert!(offset_of!(Slot, gave_way_ns) == offset_of!(types::slot, gave_way_ns));
    assert!(offset_of!(Control, late_after_ns) == offset_of!(types::control, late_after_ns));
    assert!(offset_of!(Control, ends_turns) == offset_of!(types::control, ends_turns));
};

#[repr(C)]
#[derive(Default)]
struct WaitSlot {
    runs: AtomicU64,
    late: AtomicU64,
    wait_ns: AtomicU64,
    unknown: AtomicU64,
    buckets: [AtomicU64; WAIT_BUCKETS],
}

#[repr(C)]
pub struct Control {
    /// Raised after each change of the roots, so that remembered classes no longer count.
    pub generation: AtomicU64,
    /// Raised by the kernel side whenever a task changes its cgroup.
    pub moves: AtomicU64,
    pub late_after_ns: AtomicU64,
    /// Side work is in the kernel's idle class: its turns before other work are ended early.
    pub ends_turns: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub ran_ns: [u64; CLASSES],
    pub class: usize,
    pub since_ns: u64,
}

impl Slot {
    /// The CPU's times up to `now_ns`, or up to its last switch if that was later. None if the
    /// slot was never begun (the CPU was not online yet) or stays inconsistent.
    pub fn read(&self, now_ns: u64) -> Option<Reading> {
        for _ in 0..TRIES {
            let word = self.word.load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            let base_ns = self.base_ns.load(Ordering::Relaxed);
            let mut ran_ns = [0; CLASSES];
            for (to, from) in ran_ns.iter_mut().zip(&self.ran_ns) {
                *to = from.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            let (class, since_ns) = ((word & 3) as usize, word >> 2);
            let total = ran_ns
                .iter()
                .fold(0, |sum: u64, ran| sum.wrapping_add(*ran));
            let whole = total == since_ns.wrapping_sub(base_ns);
            if whole && self.word.load(Ordering::Relaxed) == word {
                // The class that ran at the last switch still ran when the word was read again,
                // which was after now_ns was taken: so it ran all of the time up to now_ns.
                ran_ns[class] += now_ns.saturating_sub(since_ns);
                return Some(Reading {
                    ran_ns,
                    class,
                    since_ns,
                });
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Adds this CPU's waits of one class to `sum`: 0 for neutral tasks, 1 for main's.
    pub fn add_waits(&self, which: usize, sum: &mut Waits) {
        let waits = &self.waits[which];
        // Late before runs: a run that is counted in between makes runs the larger.
        sum.late += waits.late.load(Ordering::Acquire);
        sum.runs += waits.runs.load(Ordering::Relaxed);
        sum.wait_ns += waits.wait_ns.load(Ordering::Relaxed);
        sum.unknown += waits.unknown.load(Ordering::Relaxed);
    }

    pub fn add_buckets(&self, which: usize, sum: &mut [u64; WAIT_BUCKETS]) {
        for (sum, bucket) in sum.iter_mut().zip(&self.waits[which].buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
    }

    pub fn add_turns(&self, sum: &mut Turns) {
        sum.begun += self.gave_way.load(Ordering::Relaxed);
        sum.ns += self.gave_way_ns.load(Ordering::Relaxed);
        sum.ended += self.ended.load(Ordering::Relaxed);
    }

    /// Switches that the kernel did not report, as far as noticed, and those of them that were away
    /// from the idle task.
    pub fn hidden(&self) -> [u64; 2] {
        [&self.hidden, &self.hidden_idle].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Turns of side work that other work which could run gave way to, on all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turns {
    pub begun: u64,
    pub ns: u64,
    /// How often one was interrupted, so that the other work runs again.
    pub ended: u64,
}

/// A BPF array map in our address space. `T` is made of atomics only, as the kernel writes too.
pub struct Mapped<T> {
    map: MmapRaw,
    count: usize,
    element: PhantomData<T>,
}

impl<T> Mapped<T> {
    pub fn new(fd: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        // The kernel refuses lengths above the map's own, and fills new maps with zeros, which is a
        // valid value of every atomic.
        let map = MmapOptions::new()
            .len(count * size_of::<T>())
            .map_raw(&fd)?;
        Ok(Self {
            map,
            count,
            element: PhantomData,
        })
    }

    pub fn all(&self) -> &[T] {
        // SAFETY: `new` mapped `count` elements, page-aligned, and they stay until drop; others
        // write them (the kernel) only as atomics, which is what `T` is made of.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.count) }
    }
}

impl Mapped<Slot> {
    /// All CPUs' waits by length, of these classes: 0 for neutral tasks, 1 for main's.
    pub fn wait_buckets(&self, classes: Range<usize>) -> [u64; WAIT_BUCKETS] {
        let mut sum = [0; WAIT_BUCKETS];
        for which in classes {
            let slots = self.all().iter();
            slots.for_each(|slot| slot.add_buckets(which, &mut sum));
        }
        sum
    }

    pub fn wait_histogram(&self, which: usize) -> WaitHistogram {
        let mut waits = Waits::default();
        let slots = self.all().iter();
        slots.for_each(|slot| slot.add_waits(which, &mut waits));
        WaitHistogram {
            buckets: self.wait_buckets(which..which + 1),
            wait_ns: waits.wait_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(word: u64, base: u64, ran: [u64; CLASSES]) -> Slot {
        Slot {
            word: word.into(),
            base_ns: base.into(),
            ran_ns: ran.map(AtomicU64::new),
            _pid: 0.into(),
            hidden: 0.into(),
            hidden_idle: 0.into(),
            _waiting: 0.into(),
            gave_way: 0.into(),
            gave_way_ns: 0.into(),
            ended: 0.into(),
            _unused: Default::default(),
            waits: Default::default(),
        }
    }

    #[test]
    fn waits_are_added_up_by_class() {
        let slot = slot(0, 0, [0; CLASSES]);
        slot.waits[1].runs.store(7, Ordering::Relaxed);
        slot.waits[1].late.store(2, Ordering::Relaxed);
        slot.waits[1].buckets[3].store(5, Ordering::Relaxed);
        let (mut sum, mut buckets) = (Waits::default(), [0; WAIT_BUCKETS]);
        for _ in 0..2 {
            slot.add_waits(1, &mut sum);
            slot.add_buckets(1, &mut buckets);
        }
        assert_eq!((sum.runs, sum.late, buckets[3]), (14, 4, 10));
        slot.add_waits(0, &mut sum);
        assert_eq!(sum.runs, 14);
    }

    #[test]
    fn adds_the_running_class_up_to_now() {
        let slot = slot(1000 << 2 | SIDE as u64, 900, [10, 20, 30, 40]);
        let reading = slot.read(1500).unwrap();
        assert_eq!(reading.ran_ns, [10, 520, 30, 40]);
        assert_eq!((reading.class, reading.since_ns), (SIDE, 1000));
    }

    #[test]
    fn a_switch_after_now_takes_nothing_away() {
        let slot = slot(1000 << 2 | SIDE as u64, 900, [10, 20, 30, 40]);
        assert_eq!(slot.read(990).unwrap().ran_ns, [10, 20, 30, 40]);
    }

    #[test]
    fn half_written_and_unbegun_slots_are_not_read() {
        assert_eq!(slot(1000 << 2, 900, [10, 20, 30, 41]).read(1500), None);
        assert_eq!(slot(0, 0, [0; 4]).read(1500), None);
    }

    /// A writer at full speed, readers that must see times that add up and never go back.
    #[test]
    fn torn_reads_are_noticed() {
        let slot = slot(1 << 2, 1, [0; 4]);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut now, mut class) = (1_u64, 0_usize);
                while !stop.load(Ordering::Relaxed) {
                    let ran = 1 + now % 97;
                    now += ran;
                    slot.ran_ns[class].fetch_add(ran, Ordering::Relaxed);
                    class = (class + now as usize) % CLASSES;
                    slot.word.store(now << 2 | class as u64, Ordering::Relaxed);
                    std::thread::yield_now();
                }
            });
            let mut last = [0; CLASSES];
            for _ in 0..20_000 {
                let Some(reading) = slot.read(0) else {
                    continue;
                };
                assert_eq!(reading.ran_ns.iter().sum::<u64>(), reading.since_ns - 1);
                assert!(
                    reading
                        .ran_ns
                        .iter()
                        .zip(&last)
                        .all(|(now, before)| now >= before)
                );
                last = reading.ran_ns;
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
