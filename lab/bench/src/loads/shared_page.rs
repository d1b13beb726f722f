//! One shared page per worker process: what it should do, and what each of its threads has done.
//!
//! Each thread writes its own CPU clock here every few microseconds while it runs, so a reader in
//! another process knows its CPU time to that few microseconds, also in the middle of a tick and
//! also when the thread has been throttled (its last value then stands). The kernel offers nothing
//! as exact to a foreign process: see [`crate::clock`].

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::LabError;

/// Names of the pages begin so, followed by the lab's process id.
pub(crate) const FILE_PREFIX: &str = "tidegate-lab-";

pub const SLOTS_MAX: usize = 255;

#[repr(C, align(64))]
struct Head {
    ready: AtomicU64,
    stop: AtomicU64,
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

const PAGE_BYTES: usize = size_of::<Head>() + SLOTS_MAX * size_of::<Slot>();

/// The page, mapped. The side that made it removes its file when dropped.
pub struct SharedPage {
    map: MmapRaw,
    path: PathBuf,
    is_maker: bool,
}

impl SharedPage {
    /// A new page in a file of its own, in memory where the machine has a tmpfs.
    pub fn create() -> Result<Self, LabError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let shm = Path::new("/dev/shm");
        let dir = match shm.is_dir() {
            true => shm.to_path_buf(),
            false => std::env::temp_dir(),
        };
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("{FILE_PREFIX}{}-{serial}", std::process::id()));
        SharedPage::map(&path, true).map_err(|e| LabError::file("make a shared page", &path, e))
    }

    /// The worker's view of the page at `path`.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        SharedPage::map(path, false).map_err(|e| LabError::file("open the shared page", path, e))
    }

    fn map(path: &Path, is_maker: bool) -> std::io::Result<Self> {
        // create_new refuses an existing file and so a link that someone put there.
        let mut open = OpenOptions::new();
        let file = open
            .read(true)
            .write(true)
            .create_new(is_maker)
            .open(path)?;
        if is_maker {
            file.set_len(PAGE_BYTES as u64)?;
        } else if file.metadata()?.len() != PAGE_BYTES as u64 {
            return Err(std::io::Error::other("it is not one of ours"));
        }
        Ok(SharedPage {
            map: MmapOptions::new().len(PAGE_BYTES).map_raw(&file)?,
            path: path.to_path_buf(),
            is_maker,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is page-aligned and at least a Head long, and Head is atomics only.
        unsafe { &*self.map.as_ptr().cast::<Head>() }
    }

    /// Slot `index`; an index past the end gets the last one.
    pub fn slot(&self, index: usize) -> &Slot {
        let index = index.min(SLOTS_MAX - 1);
        // SAFETY: the mapping holds SLOTS_MAX slots after the head, and both sizes are multiples
        // of the slots' alignment.
        unsafe {
            &*self
                .map
                .as_ptr()
                .add(size_of::<Head>())
                .cast::<Slot>()
                .add(index)
        }
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
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        if self.is_maker {
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
    fn a_foreign_file_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(SharedPage::open(file.path()).is_err());
    }
}
