//! File locks that main waits for while side work holds them: who waits, who holds, and how the
//! holder goes first.
//!
//! `/proc/locks` names each lock and who waits for it; `/proc/PID/fdinfo` says whose open files
//! hold it. Both are the kernel's own word; [`watch`] has it told as it happens. [`boost`] gives a
//! holder its turn, [`budget`] bounds how much of that there is. Of a futex the kernel does not
//! know the owner, so there is nothing here for futexes.

pub mod boost;
pub mod budget;
pub mod watch;

use std::path::Path;

use tidegate_cgroup::target::{runs, threads_of};
use tidegate_cgroup::{KernelFs, KfsResult};

pub const TABLE: &str = "/proc/locks";

const FILES_MAX: usize = 512;

/// A kind of lock that a process may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Flock,
    /// fcntl(2), the process's.
    Posix,
    /// fcntl(2), the open file's.
    OpenFile,
}

impl Kind {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "FLOCK" => Some(Self::Flock),
            "POSIX" => Some(Self::Posix),
            "OFDLCK" => Some(Self::OpenFile),
            // Leases and what else there is are not waited for with a holder that works.
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flock => "flock",
            Self::Posix => "fcntl lock",
            Self::OpenFile => "open file's lock",
        }
    }
}

/// One lock as the kernel writes it, in either file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub kind: Kind,
    /// The process that asked for it: for flock(2) it may have ended, or handed the open file on;
    /// -1 for an open file's.
    pub pid: i32,
    /// The file, as `major:minor:inode`.
    pub file: String,
    pub waits: bool,
}

impl Lock {
    /// A line of `/proc/locks`, or what follows `lock:` in fdinfo.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        words.next()?.strip_suffix(':')?;
        let first = words.next()?;
        let waits = first == "->";
        let kind = Kind::parse(if waits { words.next()? } else { first })?;
        let (_, _, pid, file) = (words.next()?, words.next()?, words.next()?, words.next()?);
        Some(Self {
            kind,
            pid: pid.parse().ok()?,
            file: file.to_owned(),
            waits,
        })
    }

    /// Whether both are about the same kind of lock on the same file.
    fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.file == other.file
    }
}

/// A process that waits, and the lock that it waits for as its holder took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub waiter: i32,
    pub held: Lock,
}

/// Who waits for what, from the text of `/proc/locks`: a lock's waiters follow it.
pub fn waits(table: &str) -> Vec<Wait> {
    let mut held: Option<Lock> = None;
    let mut found = Vec::new();
    for line in table.lines() {
        match Lock::parse(line) {
            Some(lock) if !lock.waits => held = Some(lock),
            // A waiter of an open file's lock has no number either, and cannot be told for main's.
            Some(waiter) if waiter.pid > 0 => {
                let of = held.as_ref().filter(|held| held.file == waiter.file);
                found.extend(of.map(|held| Wait {
                    waiter: waiter.pid,
                    held: held.clone(),
                }));
            }
            Some(_) => {}
            None => held = None,
        }
    }
    found
}

/// Whether an open file of `pid` holds `lock`; an error where it has ended.
pub fn holds(fs: &dyn KernelFs, pid: i32, lock: &Lock) -> KfsResult<bool> {
    let dir = format!("/proc/{pid}/fdinfo");
    let mut buffer = Vec::new();
    for file in fs.list(Path::new(&dir))?.iter().take(FILES_MAX) {
        // One that was closed meanwhile holds nothing.
        let path = format!("{dir}/{}", file.name);
        if fs.read_into(Path::new(&path), &mut buffer).is_err() {
            continue;
        }
        let Ok(text) = std::str::from_utf8(&buffer) else {
            continue;
        };
        let locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
        if locks
            .filter_map(Lock::parse)
            .any(|found| found.is_like(lock))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The threads of `pid` that want to run, at most `max`, from `offset` on: which of several holds a
/// lock cannot be seen.
pub fn runnable(fs: &dyn KernelFs, pid: i32, offset: usize, max: usize) -> Vec<i32> {
    let mut tids = threads_of(fs, pid);
    tids.retain(|tid| {
        let stat = fs.read(Path::new(&format!("/proc/{pid}/task/{tid}/stat")));
        stat.is_ok_and(|stat| runs(&stat))
    });
    if !tids.is_empty() {
        let by = offset % tids.len();
        tids.rotate_left(by);
    }
    tids.truncate(max);
    tids
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cgroup::testkit::{FakeFs, FakeProcess};

    const TABLE: &str = "\
1: POSIX  ADVISORY  WRITE 11 00:1b:7 0 EOF
1: -> POSIX  ADVISORY  WRITE 12 00:1b:7 0 99
1:  -> POSIX  ADVISORY  WRITE 13 00:1b:7 0 EOF
2: FLOCK  ADVISORY  WRITE 21 fd:01:8 0 EOF
3: OFDLCK ADVISORY  WRITE -1 00:1b:9 0 EOF
3: -> OFDLCK ADVISORY  WRITE -1 00:1b:9 0 EOF
3: -> POSIX  ADVISORY  READ  31 00:1b:9 0 EOF
4: LEASE  ACTIVE    READ  41 00:1b:10 0 EOF
4: -> LEASE  BREAKER   READ  42 00:1b:10 0 EOF
5: -> FLOCK  ADVISORY  WRITE 51 fd:01:8 0 EOF
";

    #[test]
    fn the_table_names_waiters_and_what_they_wait_for() {
        let found: Vec<(i32, Kind, i32)> = waits(TABLE)
            .into_iter()
            .map(|wait| (wait.waiter, wait.held.kind, wait.held.pid))
            .collect();
        let want = [
            (12, Kind::Posix, 11),
            (13, Kind::Posix, 11),
            (31, Kind::OpenFile, -1),
        ];
        assert_eq!(found, want, "a wait without its lock is nobody's");
        for nonsense in ["", "x", "1:", "1: ->", "1: FLOCK", "1: -> FLOCK a b c d"] {
            assert_eq!(waits(nonsense), []);
        }
    }

    #[test]
    fn open_files_say_who_holds_a_lock() {
        let fake = FakeFs::v2();
        fake.add_process(FakeProcess::new(21));
        let lock = Lock::parse("2: FLOCK  ADVISORY  WRITE 20 fd:01:8 0 EOF").unwrap();
        fake.set_file("/proc/21/fdinfo/0", "pos:\t0\nflags:\t02\n");
        assert_eq!(holds(&fake, 21, &lock), Ok(false));
        fake.set_file(
            "/proc/21/fdinfo/9",
            "pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 20 fd:01:8 0 EOF\n",
        );
        assert_eq!(holds(&fake, 21, &lock), Ok(true), "whoever took it");
        let other = Lock::parse("2: POSIX  ADVISORY  WRITE 20 fd:01:8 0 EOF").unwrap();
        assert_eq!(holds(&fake, 21, &other), Ok(false));
    }
}
