//! Steal: what the hypervisor took, and how it is taken off what was measured.
//!
//! `/proc/stat` tells steal in steps of 10 ms (USER_HZ) summed over all CPUs, too coarse for a
//! window of 5 ms. [`Spread`] applies it evenly instead: what is new at a reading (every 250 ms) is
//! pending, of which a quarter is taken off until the next one, so that one step of the figure
//! moves the capacity of two CPUs by half a percent and not, on an idle machine, by all of it.
//! Every nanosecond of steal is taken off once; what exceeds the busy time fell into idle time (a
//! CPU that was slow to wake) and is dropped, since idle time is what the guest saw and stays as it
//! is.

use std::path::Path;

use super::SenseError;
use super::files::{KeptFile, number};

pub const STEAL_INTERVAL_NS: u64 = 250_000_000;

/// Pending steal is taken off at the rate at which it would be gone after this time.
const SPREAD_NS: u64 = 1_000_000_000;

/// Never more than this part of a window's busy time is taken for steal, so that a broken steal
/// clock (they have jumped after migrations) cannot make a busy machine look idle.
const BUSY_PPM_MAX: u64 = 900_000;

/// The machine's line of `/proc/stat`, in ns since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatLine {
    /// Idle, with or without outstanding I/O. May step back a little (iowait does).
    pub idle_ns: u64,
    pub steal_ns: u64,
}

pub struct StatFile {
    file: KeptFile,
    unit_ns: u64,
}

impl StatFile {
    pub fn open(proc_dir: &Path) -> Result<Self, SenseError> {
        let unit_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Ok(Self {
            file: KeptFile::open(&proc_dir.join("stat"))?,
            unit_ns,
        })
    }

    pub fn unit_ns(&self) -> u64 {
        self.unit_ns
    }

    pub fn read(&self) -> Result<StatLine, SenseError> {
        let mut buffer = [0; 256];
        let path = self.file.path();
        let text = self
            .file
            .head(&mut buffer)
            .map_err(|why| SenseError::read(path, why))?;
        parse_stat(text, self.unit_ns)
            .ok_or_else(|| SenseError::parse(path, "a line `cpu` of 8 numbers", text))
    }
}

/// The fields are user nice system idle iowait irq softirq steal; guest time is within user.
fn parse_stat(text: &[u8], unit_ns: u64) -> Option<StatLine> {
    let line = text.strip_prefix(b"cpu ")?;
    // The line must be whole: a number cut off at the buffer's end would be a wrong number.
    let end = line.iter().position(|byte| *byte == b'\n')?;
    let fields = cpu_line::<8>(&line[..end])?;
    let [.., idle, iowait, _irq, _softirq, steal] = fields;
    Some(StatLine {
        idle_ns: idle.checked_add(iowait)?.checked_mul(unit_ns)?,
        steal_ns: steal.checked_mul(unit_ns)?,
    })
}

/// The first `N` numbers of a line, between blanks.
pub fn cpu_line<const N: usize>(line: &[u8]) -> Option<[u64; N]> {
    let mut words = line
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let mut fields = [0; N];
    for field in &mut fields {
        *field = number(words.next()?)?;
    }
    Some(fields)
}

#[derive(Debug, Default)]
pub struct Spread {
    pending_ns: u64,
    /// Busy time since the last call of [`Spread::observe`]: no more can have been stolen from it,
    /// and what is pending is dropped where there is no second's busy time like it to take it off.
    busy_ns: u64,
    /// Pending at that call: what is taken off in [`SPREAD_NS`].
    observed_ns: u64,
}

impl Spread {
    pub fn observe(&mut self, stolen_ns: u64) {
        let new_ns = stolen_ns.min(self.busy_ns);
        let most_ns = self.busy_ns.saturating_mul(SPREAD_NS / STEAL_INTERVAL_NS);
        self.pending_ns = self.pending_ns.saturating_add(new_ns).min(most_ns);
        self.observed_ns = self.pending_ns;
        self.busy_ns = 0;
    }

    /// How much of `busy_ns`, in a window of `wall_ns`, was steal.
    pub fn charge(&mut self, wall_ns: u64, busy_ns: u64) -> u64 {
        self.busy_ns += busy_ns;
        let part = |of_ns: u64, part: u64, whole: u64| {
            (u128::from(of_ns) * u128::from(part) / u128::from(whole)) as u64
        };
        let stolen_ns = part(self.observed_ns, wall_ns.min(SPREAD_NS), SPREAD_NS)
            .min(part(busy_ns, BUSY_PPM_MAX, 1_000_000))
            .min(self.pending_ns);
        self.pending_ns -= stolen_ns;
        stolen_ns
    }
}

pub struct StealMeter {
    stat: StatFile,
    read_ns: u64,
    steal_ns: u64,
    pub spread: Spread,
}

impl StealMeter {
    pub fn open(proc_dir: &Path, now_ns: u64) -> Result<Self, SenseError> {
        let stat = StatFile::open(proc_dir)?;
        let steal_ns = stat.read()?.steal_ns;
        Ok(Self {
            stat,
            read_ns: now_ns,
            steal_ns,
            spread: Spread::default(),
        })
    }

    /// Reads steal if the last reading is old enough. A figure that went back counts as zero.
    pub fn update(&mut self, now_ns: u64) -> Result<(), SenseError> {
        if now_ns.saturating_sub(self.read_ns) < STEAL_INTERVAL_NS {
            return Ok(());
        }
        let steal_ns = self.stat.read()?.steal_ns;
        self.spread.observe(steal_ns.saturating_sub(self.steal_ns));
        self.steal_ns = steal_ns;
        self.read_ns = now_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_line_is_parsed_or_refused() {
        let line = b"cpu  100 2 30 400 5 6 7 8 9 10\ncpu0 1 1\n";
        let parsed = parse_stat(line, 10 * MS);
        assert_eq!(
            parsed,
            Some(StatLine {
                idle_ns: 4050 * MS,
                steal_ns: 80 * MS
            })
        );
        let garbage: [&[u8]; 6] = [
            b"",
            b"cpu",
            b"cpu  1 2 3\n",
            b"cpu  1 2 3 4 5 6 7 8 9",
            b"cpu  1 2 3 x 5 6 7 8\n",
            b"intr 1 2 3 4 5 6 7 8\n",
        ];
        for text in garbage {
            assert_eq!(
                parse_stat(text, 10 * MS),
                None,
                "{}",
                String::from_utf8_lossy(text)
            );
        }
    }

    #[test]
    fn all_steal_is_taken_off_once() {
        let mut spread = Spread::default();
        let mut taken = 0;
        for interval in 0..150_u64 {
            taken += (0..50).map(|_| spread.charge(5 * MS, 8 * MS)).sum::<u64>();
            spread.observe(if interval < 90 { 20 * MS } else { 0 });
        }
        let all = 90 * 20 * MS;
        assert!(taken <= all && taken >= all - MS, "{taken}");
    }

    /// The figure's least step, once, on a machine where next to nothing runs.
    #[test]
    fn one_step_of_the_figure_is_no_loss_of_a_cpu() {
        let mut spread = Spread::default();
        (0..50).for_each(|_| assert_eq!(spread.charge(5 * MS, MS / 2), 0));
        spread.observe(10 * MS);
        for _ in 0..50 {
            assert!(spread.charge(5 * MS, 5 * MS) <= 10 * MS / 200);
        }
    }

    #[test]
    fn steal_of_an_idle_machine_is_dropped_and_a_jump_is_bounded() {
        let mut spread = Spread::default();
        spread.observe(500 * MS);
        assert_eq!(spread.charge(50 * MS, 100 * MS), 0);
        spread.observe(u64::MAX);
        assert_eq!(spread.charge(1_000 * MS, 10 * MS), 9 * MS);
    }
}
