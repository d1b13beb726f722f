//! One shared page per worker process: what it should do, and what each of its threads has done.
//!
//! Each thread writes its own CPU clock here every few microseconds while it runs, so a reader in
//! another process knows its CPU time to that few microseconds, also in the middle of a tick and
//! also when the thread has been throttled (its last value then stands). The kernel offers nothing
//! as exact to a foreign process: see [`crate::clock`].

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::LabError;

/// Names of the pages begin so, followed by the lab's process id.
pub(crate) const FILE_PREFIX: &str = "tidegate-lab-";

pub const SLOTS_MAX: usize = 255;
const MAGIC: u64 = 0x7469_6465_6c61_6201;
const LEVEL_BITS: u32 = 14;
/// Levels are stored in steps of 0.01 % of a CPU.
const LEVEL_UNIT_PPM: u32 = 100;

#[repr(C, align(64))]
struct Head {
    magic: AtomicU64,
    ready: AtomicU64,
    stop: AtomicU64,
    level_now: AtomicU64,
    level_next: AtomicU64,
}

#[repr(C, align(64))]
pub struct Slot {
    cpu_ns: AtomicU64,
    count: AtomicU64,
}

impl Slot {
    /// Publishes the calling thread's CPU clock and how many units of work it has done.
    pub fn publish(&self, cpu_ns: u64, count: u64) {
        self.cpu_ns.store(cpu_ns, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }

    /// Adds to both, for slots that several processes share.
    pub fn add(&self, cpu_ns: u64, count: u64) {
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        self.count.fetch_add(count, Ordering::Relaxed);
    }

    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

const BOARD_BYTES: usize = size_of::<Head>() + SLOTS_MAX * size_of::<Slot>();

/// The page, mapped. The side that made it removes its file when dropped.
pub struct SharedPage {
    map: *mut u8,
    path: PathBuf,
    agent: bool,
}

// SAFETY: everything behind `map` is atomics, and the mapping lives as long as the page.
unsafe impl Send for SharedPage {}
// SAFETY: as above; all shared access is through atomics.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// A new page in a file of its own, in memory where the machine has a tmpfs.
    pub fn create() -> Result<Self, LabError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let shm = Path::new("/dev/shm");
        let dir = if shm.is_dir() {
            shm.to_path_buf()
        } else {
            std::env::temp_dir()
        };
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{FILE_PREFIX}{}-{serial}", std::process::id()));
        // create_new refuses an existing file and so a link that someone put there.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| LabError::file("make a shared page", &path, e))?;
        let made = file
            .set_len(BOARD_BYTES as u64)
            .and_then(|()| SharedPage::map(&file))
            .map_err(|e| LabError::file("map a shared page", &path, e));
        match made {
            Ok(map) => {
                let page = SharedPage {
                    map,
                    path,
                    agent: true,
                };
                page.head().magic.store(MAGIC, Ordering::Release);
                Ok(page)
            }
            Err(e) => {
                let _ = std::fs::remove_file(&path);
                Err(e)
            }
        }
    }

    /// The worker's view of the page at `path`.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        let fail = |e| LabError::file("open the shared page", path, e);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(fail)?;
        if file.metadata().map_err(fail)?.len() != BOARD_BYTES as u64 {
            return Err(LabError::process(
                "shared page",
                "has another version's size",
            ));
        }
        let map = SharedPage::map(&file).map_err(fail)?;
        let page = SharedPage {
            map,
            path: path.to_path_buf(),
            agent: false,
        };
        if page.head().magic.load(Ordering::Acquire) != MAGIC {
            return Err(LabError::process("shared page", "is not one of ours"));
        }
        Ok(page)
    }

    fn map(file: &File) -> std::io::Result<*mut u8> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh shared mapping of a file that is at least this long; no address is asked.
        let map = unsafe { mmap(null_mut(), BOARD_BYTES, access, MapFlags::SHARED, file, 0) };
        Ok(map?.cast())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is page-aligned and at least a Head long, and Head is atomics only.
        unsafe { &*self.map.cast::<Head>() }
    }

    /// Slot `index`; an index past the end gets the last one.
    pub fn slot(&self, index: usize) -> &Slot {
        let index = index.min(SLOTS_MAX - 1);
        // SAFETY: the mapping holds SLOTS_MAX slots after the head, and both sizes are multiples
        // of the slots' alignment.
        unsafe { &*self.map.add(size_of::<Head>()).cast::<Slot>().add(index) }
    }

    /// Called by each worker thread before its first work.
    pub fn check_in(&self) {
        self.head().ready.fetch_add(1, Ordering::AcqRel);
    }

    pub fn ready(&self) -> usize {
        self.head().ready.load(Ordering::Acquire) as usize
    }

    pub fn cpu_ns(&self) -> u64 {
        self.sum(|slot| &slot.cpu_ns)
    }

    pub fn count(&self) -> u64 {
        self.sum(|slot| &slot.count)
    }

    /// Over all slots: processes that share one have not checked in themselves, and what nobody
    /// uses is zero.
    fn sum(&self, field: impl Fn(&Slot) -> &AtomicU64) -> u64 {
        (0..SLOTS_MAX)
            .map(|i| field(self.slot(i)).load(Ordering::Relaxed))
            .sum()
    }

    pub fn stop(&self) {
        self.head().stop.store(1, Ordering::Release);
    }

    pub fn stopped(&self) -> bool {
        self.head().stop.load(Ordering::Acquire) != 0
    }

    /// Orders `level_ppm` of each CPU from `at_ns` on (rounded up to a microsecond). The level that
    /// is in force until then stays in force; there is one pending change at a time.
    pub fn order_level(&self, level_ppm: u32, at_ns: u64, now_ns: u64) {
        let head = self.head();
        // First make what is in force now stand on its own, so that a reader between the two
        // stores sees no third level.
        let current = self.level_ppm(now_ns);
        head.level_now.store(pack(current, 0), Ordering::Release);
        head.level_next
            .store(pack(level_ppm, at_ns), Ordering::Release);
    }

    /// The level in force at `now_ns`.
    pub fn level_ppm(&self, now_ns: u64) -> u32 {
        let next = self.head().level_next.load(Ordering::Acquire);
        let (level, at_us) = unpack(next);
        if next != 0 && now_ns >= at_us * 1000 {
            return level;
        }
        unpack(self.head().level_now.load(Ordering::Acquire)).0
    }

    /// When the pending change comes; `None` when there is none after `now_ns`.
    pub fn next_change_ns(&self, now_ns: u64) -> Option<u64> {
        let at_ns = unpack(self.head().level_next.load(Ordering::Acquire)).1 * 1000;
        (at_ns > now_ns).then_some(at_ns)
    }
}

/// Time in microseconds (50 bits: 35 years of uptime) over a level in units of 100 ppm (14 bits).
fn pack(level_ppm: u32, at_ns: u64) -> u64 {
    let level = level_ppm.min(1_000_000) / LEVEL_UNIT_PPM;
    (at_ns.div_ceil(1000) << LEVEL_BITS) | u64::from(level)
}

fn unpack(word: u64) -> (u32, u64) {
    let level = (word & ((1 << LEVEL_BITS) - 1)) as u32;
    (level * LEVEL_UNIT_PPM, word >> LEVEL_BITS)
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: `map` came from mmap with this length, and no reference into it outlives self.
        unsafe {
            let _ = munmap(self.map.cast(), BOARD_BYTES);
        }
        if self.agent {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same_page() {
        let page = SharedPage::create().expect("a page");
        let view = SharedPage::open(page.path()).expect("the worker's view");
        view.check_in();
        view.check_in();
        view.slot(0).publish(1000, 1);
        view.slot(1).publish(234, 2);
        assert_eq!((page.ready(), page.cpu_ns(), page.count()), (2, 1234, 3));
        page.stop();
        assert!(view.stopped());
        let path = page.path().to_path_buf();
        drop(page);
        assert!(!path.exists(), "the file went with its maker");
    }

    #[test]
    fn a_level_holds_until_the_next_one_is_due() {
        let page = SharedPage::create().expect("a page");
        assert_eq!(page.level_ppm(5), 0);
        page.order_level(100_000, 1_000_000, 500_000);
        assert_eq!(page.level_ppm(999_999), 0);
        assert_eq!(page.next_change_ns(999_999), Some(1_000_000));
        assert_eq!(page.level_ppm(1_000_000), 100_000);
        page.order_level(800_000, 9_000_000, 2_000_000);
        assert_eq!(page.level_ppm(8_999_999), 100_000);
        assert_eq!(page.level_ppm(9_000_000), 800_000);
        assert_eq!(page.next_change_ns(9_000_000), None);
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(SharedPage::open(file.path()).is_err());
        file.as_file().set_len(BOARD_BYTES as u64).expect("length");
        assert!(SharedPage::open(file.path()).is_err());
    }
}
