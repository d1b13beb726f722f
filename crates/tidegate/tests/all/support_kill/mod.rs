//! What the kill tests share: a seeded coin, a stage on which a real main and real side work run, a
//! watcher that never looks away, and what must hold after each kill.

pub mod processes;
pub mod stage;
pub mod watch;

use std::time::{Duration, Instant};

/// How many kills of each kind, unless the environment says otherwise.
const KILLS_DEFAULT: u32 = 4;

/// The default lease, within which the guardian has to act.
pub const LEASE: Duration = Duration::from_secs(2);

/// An agent that lived this long is not counted among those that die young (`lease.rs`).
pub const OF_AGE: Duration = Duration::from_millis(2_100);

/// Kills of each kind: `TIDEGATE_KILLS`.
pub fn kills() -> u32 {
    let asked = std::env::var("TIDEGATE_KILLS").ok();
    asked.map_or(KILLS_DEFAULT, |text| {
        text.parse().expect("TIDEGATE_KILLS is a number")
    })
}

/// A small generator (splitmix64), seeded from `TIDEGATE_SEED` or the clock; the seed is printed.
pub struct Coin(u64);

impl Coin {
    pub fn new(test: &str) -> Coin {
        let asked = std::env::var("TIDEGATE_SEED").ok();
        let seed: u64 = match asked {
            Some(text) => text.parse().expect("TIDEGATE_SEED is a number"),
            None => {
                let now = std::time::SystemTime::now();
                let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
                since.as_nanos() as u64
            }
        };
        eprintln!("{test}: TIDEGATE_SEED={seed}");
        // Tests that share a seed still differ.
        let salt = test
            .bytes()
            .fold(0_u64, |sum, byte| sum.wrapping_mul(131) + u64::from(byte));
        Coin(seed ^ salt)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From 0 up to and without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A time from 0 to `end_us`, then slept.
    pub fn sleep_us(&mut self, end_us: u64) {
        std::thread::sleep(Duration::from_micros(self.below(end_us + 1)));
    }
}

/// Waits until `done`, and says how long that took.
pub fn wait(what: &str, patience: Duration, mut done: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !done() {
        assert!(
            started.elapsed() < patience,
            "waited {patience:?} for {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    started.elapsed()
}
