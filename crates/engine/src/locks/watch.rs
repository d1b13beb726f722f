//! Who begins to wait for a file lock, told by the kernel as it happens (`bpf/locks.bpf.c`): nothing is read while no task waits.
//!
//! Needs root, BTF and a kernel from 6.9, and to be in the machine's own pid namespace, whose numbers it tells. Without it
//! `/proc/locks` is read again and again.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use plain::Plain;

use super::{Kind, Lock, Wait};

mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/locks.skel.rs"));
}

use skeleton::types::told as Told;
use skeleton::{LocksSkel, LocksSkelBuilder};

// SAFETY: a C struct of integers, for which all bytes are values.
unsafe impl Plain for Told {}

/// Waits that are kept between two calls.
const KEPT_MAX: usize = 256;

/// The watch; the programs live as long as it does.
pub struct Watch {
    ring: RingBuffer<'static>,
    told: Arc<Mutex<Vec<Wait>>>,
    _skel: LocksSkel<'static>,
}

/// Refuses a pid namespace that is not the machine's own: programs tell the machine's numbers.
pub(crate) fn in_own_pid_namespace() -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    if numbers.is_some_and(|numbers| numbers.split_ascii_whitespace().count() > 1) {
        return Err("this pid namespace is not the machine's own".to_owned());
    }
    Ok(())
}

impl Watch {
    /// Loads and attaches.
    ///
    /// # Errors
    /// Why it cannot be had, for people.
    pub fn open() -> Result<Self, String> {
        in_own_pid_namespace()?;
        Self::load().map_err(|error| format!("{error:#}"))
    }

    fn load() -> libbpf_rs::Result<Self> {
        // The skeleton borrows the memory of this pointer to the object for as long as it lives.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut skel = LocksSkelBuilder::default().open(storage)?.load()?;
        let told: Arc<Mutex<Vec<Wait>>> = Arc::default();
        let mut builder = RingBufferBuilder::new();
        let kept = Arc::clone(&told);
        builder.add(&skel.maps.waits, move |bytes| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT_MAX {
                kept.extend(parse(bytes));
            }
            0
        })?;
        let ring = builder.build()?;
        skel.attach()?;
        Ok(Self {
            ring,
            told,
            _skel: skel,
        })
    }

    /// Rests until a task begins to wait, or for so long; returns the waits.
    pub fn rest(&self, most: Duration) -> Vec<Wait> {
        // An interrupted call is an early look.
        let _ = self.ring.poll_raw(most);
        std::mem::take(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn parse(bytes: &[u8]) -> Option<Wait> {
    let mut told = Told::default();
    plain::copy_from_bytes(&mut told, bytes).ok()?;
    let kind = match told.kind {
        0 => Kind::Flock,
        1 => Kind::Posix,
        _ => Kind::OpenFile,
    };
    // As /proc writes it; the kernel's own numbers have 20 bits of minor.
    let (major, minor) = (told.device >> 20, told.device & 0xf_ffff);
    Some(Wait {
        waiter: told.waiter.cast_signed(),
        held: Lock {
            kind,
            pid: told.holder,
            file: format!("{major:02x}:{minor:02x}:{}", told.inode),
            waits: false,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{TABLE, waits};
    use std::os::fd::AsRawFd;
    use tidegate_cgroup::RealFs;

    #[test]
    fn the_kernel_tells_what_its_table_says() {
        let watch = match Watch::open() {
            Ok(watch) => watch,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            options.create(true).append(true).open(&path).unwrap()
        };
        let (held, asked) = (open(), open());
        held.lock().unwrap();
        let waiter = std::thread::spawn(move || {
            // SAFETY: no pointers.
            unsafe { libc::flock(asked.as_raw_fd(), libc::LOCK_EX) }
        });
        let own = std::process::id().cast_signed();
        let ours = |wait: &Wait| wait.waiter == own;
        let mut told = Vec::new();
        for _ in 0..100 {
            told.extend(
                watch
                    .rest(Duration::from_millis(100))
                    .into_iter()
                    .filter(ours),
            );
            if !told.is_empty() {
                break;
            }
        }
        let table = std::fs::read_to_string(TABLE).unwrap();
        let holds = crate::locks::holds(&RealFs::new(), own, &told[0].held);
        held.unlock().unwrap();
        assert_eq!(waiter.join().unwrap(), 0);
        assert_eq!(holds, Ok(true));
        let listed: Vec<Wait> = waits(&table).into_iter().filter(ours).collect();
        assert_eq!(told, listed);
    }
}
