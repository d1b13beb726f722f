//! Who begins to wait for a file lock, told by the kernel as it happens (`bpf/locks.bpf.c`): nothing is read while no task waits.
//!
//! Needs root, BTF and a kernel from 6.9, and to be in the machine's own pid namespace, whose numbers it tells. Without it
//! `/proc/locks` is read again and again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};

use super::{Kind, Lock, Wait};

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/locks.bpf.o")));

/// Waits that are kept between two calls.
const KEPT_MAX: usize = 256;

/// `struct told` of the program.
const TOLD: usize = 24;

/// The watch; the programs live as long as it does.
pub struct Watch {
    ring: RingBuffer<'static>,
    told: Arc<Mutex<Vec<Wait>>>,
    _links: Vec<Link>,
    _object: Object,
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
        let object = ObjectBuilder::default()
            .name("tidegate_locks")?
            .open_memory(&OBJECT.0)?
            .load()?;
        let told: Arc<Mutex<Vec<Wait>>> = Arc::default();
        let mut builder = RingBufferBuilder::new();
        let maps: Vec<_> = object.maps().collect();
        for map in maps.iter().filter(|map| map.name() == "waits") {
            let told = Arc::clone(&told);
            builder.add(map, move |bytes| {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.len() < KEPT_MAX {
                    told.extend(parse(bytes));
                }
                0
            })?;
        }
        let ring = builder.build()?;
        drop(maps);
        let links = object
            .progs_mut()
            .map(|program| program.attach_trace())
            .collect::<libbpf_rs::Result<Vec<Link>>>()?;
        Ok(Self {
            ring,
            told,
            _links: links,
            _object: object,
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
    let bytes: &[u8; TOLD] = bytes.get(..TOLD)?.try_into().ok()?;
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let inode = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
    let device = word(8)?;
    let kind = match word(20)? {
        0 => Kind::Flock,
        1 => Kind::Posix,
        _ => Kind::OpenFile,
    };
    Some(Wait {
        waiter: word(12)?.cast_signed(),
        held: Lock {
            kind,
            pid: word(16)?.cast_signed(),
            // As /proc writes it; the kernel's own numbers have 20 bits of minor.
            file: format!("{:02x}:{:02x}:{inode}", device >> 20, device & 0xf_ffff),
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
