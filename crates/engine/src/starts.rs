//! What starts on the machine, told by the kernel as it happens (`bpf/starts.bpf.c`): processes that run another program, and
//! new groups. Nothing is read while nothing starts.
//!
//! Needs root and BTF, and to be in the machine's own pid namespace, whose numbers it tells.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};

use crate::locks::watch::in_own_pid_namespace;
use tidegate_cgroup::group_path::GroupPath;

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/starts.bpf.o")));

/// Starts that are kept between two calls; more are lost, as where the ring is full.
const KEPT_MAX: usize = 16_384;
/// Of `struct told`, what comes before the path, and all of the path.
const HEAD: usize = 8;
const PATH: usize = 248;

/// Something that has started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// A process runs another program.
    Exec(i32),
    /// A group was made, in some hierarchy.
    Group(GroupPath),
}

/// What is to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    /// Processes that run another program.
    pub execs: bool,
    /// New groups.
    pub groups: bool,
}

impl Topics {
    /// Whether there is none.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    fn has(self, program: &str) -> bool {
        match program {
            "on_exec" => self.execs,
            _ => self.groups,
        }
    }
}

/// What has started since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// Each of them, in order.
    pub told: Vec<Start>,
    /// There was more than could be told: everything is to be looked at.
    pub has_lost: bool,
}

impl Starts {
    /// Everything is to be looked at.
    pub fn lost() -> Self {
        Self {
            told: Vec::new(),
            has_lost: true,
        }
    }
}

/// The watch; the programs live as long as it does.
pub struct StartWatch {
    ring: RingBuffer<'static>,
    told: Arc<Mutex<Starts>>,
    lost: Mutex<u64>,
    _links: Vec<Link>,
    object: Object,
}

impl StartWatch {
    /// Loads and attaches.
    ///
    /// # Errors
    /// Why it cannot be had, for people.
    pub fn open(topics: Topics) -> Result<Self, String> {
        in_own_pid_namespace()?;
        Self::load(topics).map_err(|error| format!("{error:#}"))
    }

    fn load(topics: Topics) -> libbpf_rs::Result<Self> {
        let mut open = ObjectBuilder::default()
            .name("tidegate_starts")?
            .open_memory(&OBJECT.0)?;
        for mut program in open.progs_mut() {
            let wanted = topics.has(&program.name().to_string_lossy());
            program.set_autoload(wanted);
        }
        let object = open.load()?;
        let told: Arc<Mutex<Starts>> = Arc::default();
        let mut builder = RingBufferBuilder::new();
        let maps: Vec<_> = object.maps().collect();
        for map in maps.iter().filter(|map| map.name() == "starts") {
            let told = Arc::clone(&told);
            builder.add(map, move |bytes| {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                match parse(bytes).filter(|_| told.told.len() < KEPT_MAX) {
                    Some(start) => told.told.push(start),
                    None => told.has_lost = true,
                }
                0
            })?;
        }
        let ring = builder.build()?;
        drop(maps);
        let links = object
            .progs_mut()
            .filter(|program| topics.has(&program.name().to_string_lossy()))
            .map(|program| program.attach_trace())
            .collect::<libbpf_rs::Result<Vec<Link>>>()?;
        Ok(Self {
            ring,
            told,
            lost: Mutex::new(0),
            _links: links,
            object,
        })
    }

    /// Rests until something starts, or for so long; returns what has.
    pub fn rest(&self, most: Duration) -> Starts {
        // An interrupted call is an early look.
        let _ = self.ring.poll_raw(most);
        let mut starts =
            std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        let now = self.lost().unwrap_or_default();
        let mut before = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        starts.has_lost |= std::mem::replace(&mut *before, now) != now;
        starts
    }

    /// How many starts found the ring full.
    fn lost(&self) -> Option<u64> {
        let map = self.object.maps().find(|map| map.name() == "lost")?;
        let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        Some(u64::from_ne_bytes(value.try_into().ok()?))
    }
}

/// `None` for what cannot be read: a path that was cut off, a name that no group of interest has.
fn parse(bytes: &[u8]) -> Option<Start> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let pid = word(0)?.cast_signed();
    if pid != 0 {
        return Some(Start::Exec(pid));
    }
    let path_bytes = word(4)? as usize;
    if path_bytes == 0 || path_bytes >= PATH {
        return None;
    }
    let path = std::str::from_utf8(bytes.get(HEAD..HEAD + path_bytes - 1)?).ok()?;
    GroupPath::parse(path).ok().map(Start::Group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_lost_and_no_group() {
        let told = |path: &[u8], path_bytes: u32| {
            let mut bytes = vec![0; HEAD + PATH];
            bytes[4..8].copy_from_slice(&path_bytes.to_ne_bytes());
            bytes[HEAD..HEAD + path.len()].copy_from_slice(path);
            parse(&bytes)
        };
        let group = GroupPath::parse("/system.slice/a.service").unwrap();
        assert_eq!(
            told(b"/system.slice/a.service", 24),
            Some(Start::Group(group))
        );
        assert_eq!(told(b"/cut/off", PATH as u32), None);
        assert_eq!(told(b"/x", 0), None);
        assert_eq!(told(b"/\xff", 3), None);
        assert_eq!(parse(&77_u64.to_ne_bytes()), Some(Start::Exec(77)));
        assert_eq!(parse(&[1, 2]), None);
    }

    #[test]
    fn the_kernel_tells_of_a_program_and_of_a_group() {
        let topics = Topics {
            execs: true,
            groups: true,
        };
        let watch = match StartWatch::open(topics) {
            Ok(watch) => watch,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let name = format!("tgtest-starts-{}", std::process::id());
        let mounts = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
        let dir = mounts.map(|mount| std::path::Path::new(mount).join(&name));
        let made = dir.iter().find(|dir| std::fs::create_dir(dir).is_ok());
        let Some(made) = made else {
            return eprintln!("skipped: no group can be made here");
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        let group = GroupPath::parse(&format!("/{name}")).unwrap();
        let mut told = Vec::new();
        let wanted = [Start::Group(group), Start::Exec(pid)];
        for _ in 0..50 {
            told.extend(watch.rest(Duration::from_millis(100)).told);
            if wanted.iter().all(|start| told.contains(start)) {
                break;
            }
        }
        child.wait().unwrap();
        std::fs::remove_dir(made).unwrap();
        assert!(wanted.iter().all(|start| told.contains(start)), "{told:?}");
    }
}
