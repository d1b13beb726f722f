//! Sets of CPUs counted apart by v1's `cpuacct.usage_percpu`, which lists each possible CPU's time in the order of their numbers. As late
//! as the usage files are: up to a tick.

use std::io::ErrorKind;
use std::path::Path;

use super::files::{KeptFile, number};
use super::{Counters, SenseError};

/// Room for a number of 64 bits and a blank.
const NUMBER_BYTES: usize = 21;

/// One group's file and what it said last.
struct PerCpu {
    file: KeptFile,
    used_ns: Vec<u64>,
}

struct Part {
    cpus: Vec<u32>,
    busy_sum_ns: u64,
    total: Counters,
}

/// All sets.
#[derive(Default)]
pub struct UsageParts {
    parts: Vec<Part>,
    root: Option<PerCpu>,
    side: Vec<PerCpu>,
    busy_ns: Vec<u64>,
    side_ns: Vec<u64>,
    buffer: Vec<u8>,
}

impl UsageParts {
    /// Counts these from now on, each from 0; `root` is the machine's usage file, `side` those of side work.
    pub fn set<'p>(
        &mut self,
        parts: &[Vec<u32>],
        root: Option<&Path>,
        side: impl Iterator<Item = &'p Path>,
    ) -> Result<(), SenseError> {
        let new = |cpus: &Vec<u32>| Part {
            cpus: cpus.clone(),
            busy_sum_ns: 0,
            total: Counters::default(),
        };
        self.parts = parts.iter().map(new).collect();
        self.root = match root.filter(|_| !parts.is_empty()) {
            Some(root) => PerCpu::open(root)?,
            None => None,
        };
        self.set_side(side)
    }

    /// Side work is in other groups.
    pub fn set_side<'p>(&mut self, side: impl Iterator<Item = &'p Path>) -> Result<(), SenseError> {
        self.side.clear();
        if self.parts.is_empty() {
            return Ok(());
        }
        for usage in side {
            self.side.extend(PerCpu::open(usage)?);
        }
        // The next reading is the first: nothing may be told that was used before it.
        let mut unused = false;
        self.read(&mut unused)
    }

    /// Time by CPU since the last reading.
    fn read(&mut self, reset: &mut bool) -> Result<(), SenseError> {
        self.busy_ns.clear();
        self.side_ns.clear();
        if let Some(root) = &mut self.root {
            root.advance(&mut self.busy_ns, &mut self.buffer, reset)?;
        }
        let mut first_error = None;
        let (sums, buffer) = (&mut self.side_ns, &mut self.buffer);
        self.side
            .retain_mut(|side| match side.advance(sums, buffer, reset) {
                Ok(there) => there,
                Err(why) => {
                    first_error.get_or_insert(why);
                    true
                }
            });
        first_error.map_or(Ok(()), Err)
    }

    /// One sample: `each_ns` of time on each CPU that is online, `steal_ns` of the machine's `busy_ns` stolen.
    pub fn sample(
        &mut self,
        each_ns: u64,
        online: &[usize],
        (busy_ns, steal_ns): (u64, u64),
        reset: &mut bool,
    ) -> Result<(), SenseError> {
        if self.parts.is_empty() {
            return Ok(());
        }
        self.read(reset)?;
        for part in &mut self.parts {
            let here = part.cpus.iter().map(|cpu| *cpu as usize);
            let of = |times: &[u64], cpu: usize| times.get(cpu).copied().unwrap_or(0);
            let (mut there, mut part_busy_ns, mut side_ns) = (0, 0, 0);
            for cpu in here {
                there += u64::from(online.binary_search(&cpu).is_ok());
                part_busy_ns += of(&self.busy_ns, cpu);
                side_ns += of(&self.side_ns, cpu);
            }
            let wall_ns = each_ns * there;
            let share = u128::from(steal_ns) * u128::from(part_busy_ns);
            let stolen_ns = ((share / u128::from(busy_ns.max(1))) as u64).min(wall_ns);
            part.busy_sum_ns += part_busy_ns;
            let total = &mut part.total;
            total.online_cpus = there as u32;
            total.capacity_ns += wall_ns - stolen_ns;
            // Ticks may credit a window with more than it held; over time that evens out.
            total.busy_ns = total.busy_ns.max(part.busy_sum_ns.min(total.capacity_ns));
            total.side_ns += side_ns;
            total.steal_ns += stolen_ns;
        }
        Ok(())
    }

    /// What was counted, at the time of the machine's own sample.
    pub fn counters(&self, nth: usize, machine: &Counters) -> Option<Counters> {
        self.root.as_ref()?;
        let part = self.parts.get(nth)?;
        Some(Counters {
            now_ns: machine.now_ns,
            valid: machine.valid,
            ..part.total
        })
    }
}

impl PerCpu {
    /// Beside the group's `cpuacct.usage`; `None` where the group is gone.
    fn open(usage: &Path) -> Result<Option<Self>, SenseError> {
        match KeptFile::open(&usage.with_file_name("cpuacct.usage_percpu")) {
            Err(SenseError::Read { why, .. }) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why),
            Ok(file) => Ok(Some(Self {
                file,
                used_ns: Vec::new(),
            })),
        }
    }

    /// Adds each CPU's time since the last call to `sums`; false when the group is gone. The first reading adds nothing.
    fn advance(
        &mut self,
        sums: &mut Vec<u64>,
        buffer: &mut Vec<u8>,
        reset: &mut bool,
    ) -> Result<bool, SenseError> {
        let path = self.file.path();
        let length = loop {
            let least = (self.used_ns.len() + 1) * NUMBER_BYTES;
            if buffer.len() < least {
                buffer.resize(least, 0);
            }
            let length = match self.file.head(buffer) {
                Ok(text) => text.len(),
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => return Ok(false),
                Err(why) => return Err(SenseError::read(path, why)),
            };
            if length < buffer.len() {
                break length;
            }
            buffer.resize(2 * buffer.len(), 0);
        };
        let text = &buffer[..length];
        let first = self.used_ns.is_empty();
        let words = text.split(u8::is_ascii_whitespace);
        let mut cpus = 0;
        for (cpu, word) in words.filter(|word| !word.is_empty()).enumerate() {
            let used_ns =
                number(word).ok_or_else(|| SenseError::parse(path, "times by CPU", text))?;
            if sums.len() <= cpu {
                sums.resize(cpu + 1, 0);
            }
            if first {
                self.used_ns.push(used_ns);
            }
            let Some(last_ns) = self.used_ns.get_mut(cpu) else {
                break;
            };
            *reset |= used_ns < *last_ns;
            sums[cpu] += used_ns.saturating_sub(*last_ns);
            *last_ns = used_ns;
            cpus += 1;
        }
        *reset |= cpus < self.used_ns.len();
        Ok(true)
    }
}
