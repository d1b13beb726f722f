//! The page that agent and guardian share: a heartbeat, and who is who.
//!
//! It is a file in the run directory, mapped by both, so that a beat costs one store and outlives
//! its writer. Every word is an atomic of its own; no word's meaning depends on another being read
//! at the same instant.
//!
//! Times are `CLOCK_MONOTONIC` in ns. A suspend does not move that clock, so a machine that slept
//! does not find its lease expired on waking.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

pub use tidegate_engine::clock::monotonic_ns;

const PAGE_BYTES: usize = 4096;
const MAGIC: u64 = 0x7469_6465_6761_7401; // "tidegat", version 1

/// Agents that guardians may start within [`RESTART_WINDOW_NS`] if each dies young.
const RESTARTS_MAX: u64 = 5;
/// An agent that was in control for this long did not die of its start: such deaths are not
/// counted, whatever their cause.
const YOUNG_NS: u64 = 2_000_000_000;
const RESTART_WINDOW_NS: u64 = 60_000_000_000;

/// Values of the word `leaving`. A guardian of a version that does not know the second sees a
/// death.
const LEFT: u64 = 1;
const HANDED_OVER: u64 = 2;

/// A guardian that writes for longer is dead, or as good as dead.
const FALLING_BACK_MAX_NS: u64 = 5_000_000_000;

/// Words are only ever added, at the end, and zero says that a version did not tell: agent and
/// guardian may be of different ones.
#[repr(C)]
struct Page {
    magic: AtomicU64,
    agent_pid: AtomicU64,
    beat_ns: AtomicU64,
    lease_ns: AtomicU64,
    leaving: AtomicU64,
    fallback_ns: AtomicU64,
    guardian_pid: AtomicU64,
    restarts: AtomicU64,
    restart_ns: AtomicU64,
    taken_ns: AtomicU64,
    /// The guardian's last poll; 0 for one of a version that did not tell.
    guardian_beat_ns: AtomicU64,
    /// Since when the guardian writes the fallback; 0 while it does not.
    falling_back_ns: AtomicU64,
}

impl Page {
    fn forget(&self) {
        for word in [
            &self.agent_pid,
            &self.beat_ns,
            &self.lease_ns,
            &self.leaving,
            &self.fallback_ns,
            &self.guardian_pid,
            &self.restarts,
            &self.restart_ns,
            &self.taken_ns,
            &self.guardian_beat_ns,
            &self.falling_back_ns,
        ] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

pub struct Lease {
    page: MmapRaw,
}

impl Lease {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        if file.metadata()?.len() < PAGE_BYTES as u64 {
            file.set_len(PAGE_BYTES as u64)?;
        }
        let page = MmapOptions::new().len(PAGE_BYTES).map_raw(&file)?;
        let lease = Self { page };
        // A page of zeros is a fresh one. Anything else is another file, or damaged: nothing in it
        // can be believed.
        let found = lease.page().magic.swap(MAGIC, Ordering::Relaxed);
        if found != MAGIC && found != 0 {
            lease.page().forget();
        }
        Ok(lease)
    }

    pub fn of_an_agent(path: &Path) -> Option<Self> {
        path.exists().then(|| Self::open(path).ok()).flatten()
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped for the life of `self`, page-aligned, and all-zero bytes are a valid
        // `Page`.
        unsafe { &*self.page.as_ptr().cast::<Page>() }
    }

    /// The agent takes the page: `pid` lives, for `lease_ns` after each beat.
    pub fn take(&self, pid: i32, lease_ns: u64) {
        let page = self.page();
        page.leaving.store(0, Ordering::Relaxed);
        page.fallback_ns.store(0, Ordering::Relaxed);
        page.lease_ns.store(lease_ns, Ordering::Relaxed);
        page.agent_pid.store(pid as u64, Ordering::Relaxed);
        let now_ns = monotonic_ns();
        page.taken_ns.store(now_ns, Ordering::Relaxed);
        self.beat(now_ns);
    }

    pub fn beat(&self, now_ns: u64) {
        self.page().beat_ns.store(now_ns, Ordering::Release);
    }

    pub fn leave(&self) {
        self.page().leaving.store(LEFT, Ordering::Release);
    }

    pub fn left(&self) -> bool {
        self.page().leaving.load(Ordering::Acquire) == LEFT
    }

    /// The agent ends for another to take its place within the lease: all limits stand until then.
    pub fn hand_over(&self) {
        self.page().leaving.store(HANDED_OVER, Ordering::Release);
    }

    /// Whether the agent ended so, and none took its place.
    pub fn is_handed_over(&self) -> bool {
        self.page().leaving.load(Ordering::Acquire) == HANDED_OVER
    }

    /// Whether another agent is to take the place of one that ended for it, and still has time to.
    pub fn awaits_next_agent(&self, now_ns: u64) -> bool {
        let (age_ns, lease_ns) = self.age_and_lease_ns(now_ns);
        self.is_handed_over() && age_ns <= lease_ns
    }

    pub fn agent_pid(&self) -> i32 {
        self.page().agent_pid.load(Ordering::Acquire) as i32
    }

    /// How long ago the agent's last beat was, and how long that may be.
    pub fn age_and_lease_ns(&self, now_ns: u64) -> (u64, u64) {
        let page = self.page();
        let beat_ns = page.beat_ns.load(Ordering::Acquire);
        (
            now_ns.saturating_sub(beat_ns),
            page.lease_ns.load(Ordering::Acquire),
        )
    }

    /// The guardian writes the fallback, or has written it, at `now_ns`: whatever the agent
    /// believes to stand no longer does.
    pub fn mark_fallback(&self, now_ns: u64) {
        self.page().fallback_ns.store(now_ns, Ordering::Release);
    }

    /// The guardian is about to write the fallback, or has written it.
    pub fn set_falling_back(&self, now_ns: Option<u64>) {
        let page = self.page();
        page.falling_back_ns
            .store(now_ns.unwrap_or(0), Ordering::Release);
    }

    /// Whether the guardian writes the fallback just now: one that died over it began long ago.
    pub fn is_falling_back(&self, now_ns: u64) -> bool {
        let since_ns = self.page().falling_back_ns.load(Ordering::Acquire);
        since_ns != 0 && now_ns.saturating_sub(since_ns) < FALLING_BACK_MAX_NS
    }

    pub fn take_fallback(&self) -> bool {
        self.page().fallback_ns.swap(0, Ordering::AcqRel) != 0
    }

    pub fn has_fallback(&self) -> bool {
        self.page().fallback_ns.load(Ordering::Acquire) != 0
    }

    pub fn guardian_beat(&self, pid: i32, now_ns: u64) {
        let page = self.page();
        page.guardian_beat_ns.store(now_ns, Ordering::Release);
        page.guardian_pid.store(pid as u64, Ordering::Release);
    }

    /// For how long the guardian `pid` has not polled; `None` for one that has not begun, or does
    /// not tell.
    pub fn guardian_silent_ns(&self, pid: i32, now_ns: u64) -> Option<u64> {
        let beat_ns = self.page().guardian_beat_ns.load(Ordering::Acquire);
        (self.guardian_pid() == pid && beat_ns > 0).then(|| now_ns.saturating_sub(beat_ns))
    }

    /// Whether a guardian may start another agent at `now_ns`: at most `RESTARTS_MAX` a minute
    /// after deaths at a young age, counted over all guardians, so that an agent that dies of its
    /// start is not started for ever.
    pub fn may_restart(&self, now_ns: u64) -> bool {
        let page = self.page();
        let beat_ns = page.beat_ns.load(Ordering::Acquire);
        let lived_ns = beat_ns.saturating_sub(page.taken_ns.load(Ordering::Acquire));
        if lived_ns >= YOUNG_NS
            || now_ns.saturating_sub(page.restart_ns.load(Ordering::Acquire)) > RESTART_WINDOW_NS
        {
            page.restart_ns.store(now_ns, Ordering::Release);
            page.restarts.store(0, Ordering::Release);
            // One long life forgives once, however often its end is asked about.
            page.taken_ns.store(beat_ns, Ordering::Release);
        }
        page.restarts.fetch_add(1, Ordering::AcqRel) < RESTARTS_MAX
    }

    pub fn guardian_pid(&self) -> i32 {
        self.page().guardian_pid.load(Ordering::Acquire) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_see_one_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let agent = Lease::open(&path).unwrap();
        let guardian = Lease::open(&path).unwrap();

        agent.take(4242, 2_000_000_000);
        agent.beat(1_000);
        assert_eq!(guardian.agent_pid(), 4242);
        assert_eq!(guardian.age_and_lease_ns(1_500), (500, 2_000_000_000));

        guardian.mark_fallback(9);
        assert!(agent.take_fallback());
        assert!(!agent.take_fallback());

        assert!(!guardian.left());
        agent.leave();
        assert!(guardian.left() && !guardian.is_handed_over());
        agent.hand_over();
        assert!(guardian.is_handed_over() && !guardian.left());
        agent.take(4243, 1);
        assert!(!guardian.is_handed_over());
        assert!(!guardian.left(), "a new agent has not left");
    }

    #[test]
    fn restarts_are_bounded_and_forgiven_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let lease = Lease::open(&dir.path().join("lease")).unwrap();
        let start_ns = monotonic_ns() + 10 * RESTART_WINDOW_NS;
        lease.take(1, 2_000_000_000);
        let granted = (0..20).filter(|_| lease.may_restart(start_ns)).count();
        assert_eq!(granted as u64, RESTARTS_MAX);
        assert!(lease.may_restart(start_ns + RESTART_WINDOW_NS + 1));
    }

    #[test]
    fn an_agent_that_was_in_control_for_a_while_did_not_die_of_its_start() {
        let dir = tempfile::tempdir().unwrap();
        let lease = Lease::open(&dir.path().join("lease")).unwrap();
        for nth in 0..20 * RESTARTS_MAX {
            lease.take(1, 2_000_000_000);
            lease.beat(monotonic_ns() + YOUNG_NS);
            assert!(lease.may_restart(monotonic_ns()), "restart {nth}");
        }
        // And then one that does.
        lease.take(1, 2_000_000_000);
        lease.beat(monotonic_ns() + YOUNG_NS);
        let asked = (0..20).filter(|_| lease.may_restart(monotonic_ns()));
        assert_eq!(asked.count() as u64, RESTARTS_MAX);
    }

    #[test]
    fn a_guardian_that_has_begun_is_silent_since_its_last_poll() {
        let dir = tempfile::tempdir().unwrap();
        let lease = Lease::open(&dir.path().join("lease")).unwrap();
        assert_eq!(lease.guardian_silent_ns(7, 1_000), None);
        lease.guardian_beat(7, 400);
        assert_eq!(lease.guardian_silent_ns(7, 1_000), Some(600));
        assert_eq!(lease.guardian_silent_ns(8, 1_000), None, "another one's");
    }

    #[test]
    fn a_beat_from_the_future_is_not_an_age() {
        let dir = tempfile::tempdir().unwrap();
        let lease = Lease::open(&dir.path().join("lease")).unwrap();
        lease.take(1, 5);
        lease.beat(1_000);
        assert_eq!(lease.age_and_lease_ns(10).0, 0);
    }
}
