//! The CPUs' busy time by `/proc/schedstat`: what tasks ran, to the nanosecond, told when a task
//! leaves its CPU.
//!
//! `/proc/stat` alone does not do: 7.3 counts idle time by ticks unless the tick is stopped, and
//! beside side work that is throttled for less than a tick in each period it showed 1 to 16 % idle
//! where 23 % were (6.18 shows 23 %). It only answers what schedstat cannot: whether a CPU without
//! a switch idled throughout a window or ran one task.

use std::path::Path;

use super::SenseError;
use super::files::{KeptFile, number};
use super::steal::cpu_line;

/// The field of a `cpu` line that holds what tasks ran, in ns (`rq_cpu_time`).
const RAN_FIELD: usize = 6;
const VERSIONS: std::ops::RangeInclusive<u64> = 15..=17;

#[derive(Clone, Copy, Default)]
struct Cpu {
    ran_ns: u64,
    /// Running and idle, in the units of `/proc/stat`.
    ticks: (u64, u64),
    /// Told ahead of `ran_ns`, for a task that has not left the CPU yet.
    unswitched_ns: u64,
}

impl Cpu {
    /// What it ran in a window of `each_ns` that ended with this reading. Without a switch and
    /// without ticks that idled (older kernels count none on a CPU whose tick is stopped for its
    /// one task) a task ran throughout.
    fn advance(&mut self, ran_ns: u64, ticks: (u64, u64), each_ns: u64) -> u64 {
        let since_ns = ran_ns.saturating_sub(self.ran_ns);
        let running = ticks.0.saturating_sub(self.ticks.0);
        let idle = ticks.1.saturating_sub(self.ticks.1);
        (self.ran_ns, self.ticks) = (ran_ns, ticks);
        if since_ns == 0 && running >= idle {
            self.unswitched_ns += each_ns;
            return each_ns;
        }
        let told_ns = since_ns.min(self.unswitched_ns);
        self.unswitched_ns -= told_ns;
        since_ns - told_ns
    }
}

pub struct Schedstat {
    ran: KeptFile,
    stat: KeptFile,
    text: Vec<u8>,
    /// By number; None: not seen yet.
    cpus: Vec<Option<Cpu>>,
}

impl Schedstat {
    /// Opens the files in `proc_dir` and takes the first reading. None where the kernel has no
    /// `schedstat`, or one that is not understood or not of the same CPUs as `stat` (a container's
    /// `/proc` may be made of both).
    pub fn open(proc_dir: &Path) -> Result<Option<Self>, SenseError> {
        let path = proc_dir.join("schedstat");
        if !path.exists() {
            return Ok(None);
        }
        let mut schedstat = Self {
            ran: KeptFile::open(&path)?,
            stat: KeptFile::open(&proc_dir.join("stat"))?,
            text: Vec::new(),
            cpus: Vec::new(),
        };
        schedstat.stat.whole(&mut schedstat.text)?;
        let cpus: Vec<_> = lines::<8>(&schedstat.text).map(|(cpu, _)| cpu).collect();
        schedstat.ran.whole(&mut schedstat.text)?;
        let version = schedstat.text.strip_prefix(b"version ").and_then(number);
        let understood = version.is_some_and(|version| VERSIONS.contains(&version));
        if !understood || !lines::<9>(&schedstat.text).map(|(cpu, _)| cpu).eq(cpus) {
            return Ok(None);
        }
        schedstat.advance(0)?;
        Ok(Some(schedstat))
    }

    /// What all CPUs ran since the last call, `each_ns` ago; may be more than there was where a
    /// task is told late.
    pub fn advance(&mut self, each_ns: u64) -> Result<u64, SenseError> {
        let mut ticks = Vec::new();
        self.stat.whole(&mut self.text)?;
        for (cpu, fields) in lines::<8>(&self.text) {
            let fields = fields.ok_or_else(|| self.unreadable(&self.stat, "8 numbers"))?;
            let [user, nice, system, idle, iowait, irq, softirq, steal] = fields;
            let running = [user, nice, system, irq, softirq, steal];
            ticks.push((cpu, (running.iter().sum(), idle + iowait)));
        }
        self.ran.whole(&mut self.text)?;
        let mut sum_ns = 0_u64;
        for (cpu, fields) in lines::<9>(&self.text) {
            let fields = fields.ok_or_else(|| self.unreadable(&self.ran, "9 numbers"))?;
            // Not in both: it went or came between the two readings.
            let Ok(at) = ticks.binary_search_by_key(&cpu, |(cpu, _)| *cpu) else {
                continue;
            };
            if self.cpus.len() <= cpu {
                self.cpus.resize(cpu + 1, None);
            }
            let (ran_ns, ticks) = (fields[RAN_FIELD], ticks[at].1);
            match &mut self.cpus[cpu] {
                Some(cpu) => sum_ns = sum_ns.saturating_add(cpu.advance(ran_ns, ticks, each_ns)),
                unseen => {
                    *unseen = Some(Cpu {
                        ran_ns,
                        ticks,
                        unswitched_ns: 0,
                    });
                }
            }
        }
        Ok(sum_ns)
    }

    fn unreadable(&self, file: &KeptFile, numbers: &'static str) -> SenseError {
        SenseError::parse(file.path(), numbers, &self.text)
    }
}

/// The lines `cpuN` of `text`: N, and the first numbers behind it, None if there are fewer.
fn lines<const N: usize>(text: &[u8]) -> impl Iterator<Item = (usize, Option<[u64; N]>)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_prefix(b"cpu")?;
        // No digit: the machine's own line.
        let cpu = number(
            line.first()
                .filter(|byte| byte.is_ascii_digit())
                .and(Some(line))?,
        )?;
        let end = line.iter().position(|byte| *byte == b' ')?;
        Some((usize::try_from(cpu).ok()?, cpu_line(&line[end..])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_task_that_does_not_leave_its_cpu_is_told_by_ticks_and_once() {
        let mut cpu = Cpu::default();
        assert_eq!(cpu.advance(20 * MS, (2, 3), 50 * MS), 20 * MS);
        // No switch, and the ticks ran: a task ran throughout, and again.
        assert_eq!(cpu.advance(20 * MS, (7, 3), 50 * MS), 50 * MS);
        assert_eq!(cpu.advance(20 * MS, (12, 3), 50 * MS), 50 * MS);
        // It leaves after 10 ms more.
        assert_eq!(cpu.advance(130 * MS, (13, 7), 50 * MS), 10 * MS);
        // No switch, and the ticks idled.
        assert_eq!(cpu.advance(130 * MS, (13, 12), 50 * MS), 0);
        // The end of a window was told for a task that had left before it: what it did not run
        // comes off later.
        assert_eq!(cpu.advance(130 * MS, (18, 12), 50 * MS), 50 * MS);
        assert_eq!(cpu.advance(170 * MS, (20, 14), 50 * MS), 0);
        assert_eq!(cpu.advance(200 * MS, (23, 16), 50 * MS), 20 * MS);
        // A stopped tick that counts nothing.
        assert_eq!(cpu.advance(200 * MS, (23, 16), 50 * MS), 50 * MS);
    }

    #[test]
    fn lines_of_cpus_are_read_and_others_left() {
        let text = b"version 17\ncpu0 1 0 3 4 5 6 700 8 9\ndomain0 MC 3 1 2\ncpu12 0 0 0 0 0 0 12 0 0\ncpu3 1\n";
        let ran: Vec<_> = lines::<9>(text)
            .map(|(cpu, fields)| (cpu, fields.map(|fields| fields[RAN_FIELD])))
            .collect();
        assert_eq!(ran, [(0, Some(700)), (12, Some(12)), (3, None)]);
        assert_eq!(lines::<8>(b"cpu  1 2 3 4 5 6 7 8\n").count(), 0);
    }
}
