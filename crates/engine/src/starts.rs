//! What starts on the machine, told by the kernel as it happens (`bpf/starts.bpf.c`): processes that run another program, and
//! new groups. Nothing is read while nothing starts.
//!
//! Needs root and BTF, and to be in the machine's own pid namespace, whose numbers it tells.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use plain::Plain;

use crate::locks::watch::in_own_pid_namespace;
use tidegate_cgroup::group_path::GroupPath;

mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/starts.skel.rs"));
}

use skeleton::types::told as Told;
use skeleton::{StartsSkel, StartsSkelBuilder};

// SAFETY: a C struct of integers, for which all bytes are values.
unsafe impl Plain for Told {}

/// Starts that are kept between two calls; more are lost, as where the ring is full.
const KEPT_MAX: usize = 16_384;

/// Something that has started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Start {
    /// A process runs another program.
    Exec(i32),
    /// A group was made, in some hierarchy.
    Group(GroupPath),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    /// Processes that run another program.
    pub execs: bool,
    pub groups: bool,
}

impl Topics {
    /// Whether there is none.
    pub fn is_none(self) -> bool {
        self == Self::default()
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
    skel: StartsSkel<'static>,
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
        // The skeleton borrows the memory of this pointer to the object for as long as it lives.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = StartsSkelBuilder::default().open(storage)?;
        open.progs.on_exec.set_autoload(topics.execs);
        open.progs.on_mkdir.set_autoload(topics.groups);
        let skel = open.load()?;
        let told: Arc<Mutex<Starts>> = Arc::default();
        let mut builder = RingBufferBuilder::new();
        let kept = Arc::clone(&told);
        builder.add(&skel.maps.starts, move |bytes| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            match parse(bytes).filter(|_| kept.told.len() < KEPT_MAX) {
                Some(start) => kept.told.push(start),
                None => kept.has_lost = true,
            }
            0
        })?;
        let ring = builder.build()?;
        let programs = [
            (topics.execs, &skel.progs.on_exec),
            (topics.groups, &skel.progs.on_mkdir),
        ];
        let links = programs
            .into_iter()
            .filter(|(is_asked, _)| *is_asked)
            .map(|(_, program)| program.attach_trace())
            .collect::<libbpf_rs::Result<Vec<Link>>>()?;
        Ok(Self {
            ring,
            told,
            lost: Mutex::new(0),
            _links: links,
            skel,
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
        let lost = &self.skel.maps.lost;
        let value = lost.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        Some(u64::from_ne_bytes(value.try_into().ok()?))
    }
}

/// `None` for what cannot be read: a path that was cut off, a name that no group of interest has.
fn parse(bytes: &[u8]) -> Option<Start> {
    // A process is told without the path.
    let mut whole = [0; size_of::<Told>()];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let mut told = Told::default();
    plain::copy_from_bytes(&mut told, &whole).ok()?;
    if told.pid != 0 {
        return (bytes.len() >= 8).then_some(Start::Exec(told.pid.cast_signed()));
    }
    let path_bytes = told.path_bytes as usize;
    if path_bytes == 0 || path_bytes >= told.path.len() {
        return None;
    }
    let path = told.path[..path_bytes - 1].iter();
    let path: Vec<u8> = path.map(|char| char.cast_unsigned()).collect();
    GroupPath::parse(std::str::from_utf8(&path).ok()?)
        .ok()
        .map(Start::Group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_lost_and_no_group() {
        let told = |path: &[u8], path_bytes: u32| {
            let mut bytes = vec![0; size_of::<Told>()];
            bytes[4..8].copy_from_slice(&path_bytes.to_ne_bytes());
            bytes[8..8 + path.len()].copy_from_slice(path);
            parse(&bytes)
        };
        let group = GroupPath::parse("/system.slice/a.service").unwrap();
        assert_eq!(
            told(b"/system.slice/a.service", 24),
            Some(Start::Group(group))
        );
        assert_eq!(told(b"/cut/off", 248), None);
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
