//! Which CPUs are online, read about every 50 ms: idle time is wrong for so long after a hotplug.

use std::path::Path;

use super::SenseError;
use super::files::KeptFile;
use tidegate_cgroup::cpus::parse_list;

/// How often the list is read where the caller samples more often: at each sample of a loop of 50
/// ms. In one of 5 ms a reading would take a fifth of the step.
const INTERVAL_NS: u64 = 40_000_000;

/// sysfs never shows more than a page.
const LIST_BYTES_MAX: usize = 4096;

pub struct Online {
    file: KeptFile,
    text: Vec<u8>,
    buffer: Box<[u8; LIST_BYTES_MAX]>,
    cpus: Vec<usize>,
    read_ns: u64,
}

impl Online {
    pub fn open(cpu_dir: &Path) -> Result<Self, SenseError> {
        let mut online = Self {
            file: KeptFile::open(&cpu_dir.join("online"))?,
            text: Vec::with_capacity(LIST_BYTES_MAX),
            buffer: Box::new([0; LIST_BYTES_MAX]),
            cpus: Vec::new(),
            read_ns: 0,
        };
        online.refresh()?;
        Ok(online)
    }

    /// Reads the set again if the last reading is old enough; true if it changed.
    pub fn update(&mut self, now_ns: u64) -> Result<bool, SenseError> {
        if now_ns.saturating_sub(self.read_ns) < INTERVAL_NS {
            return Ok(false);
        }
        self.read_ns = now_ns;
        self.refresh()
    }

    pub fn refresh(&mut self) -> Result<bool, SenseError> {
        let path = self.file.path();
        let text = self
            .file
            .head(&mut self.buffer[..])
            .map_err(|why| SenseError::read(path, why))?;
        if text == self.text {
            return Ok(false);
        }
        let list = parse_list(&String::from_utf8_lossy(text)).unwrap_or_default();
        if list.is_empty() {
            return Err(SenseError::parse(path, "a list of CPUs", text));
        }
        self.cpus = list.into_iter().map(|cpu| cpu as usize).collect();
        self.text.clear();
        self.text.extend_from_slice(text);
        Ok(true)
    }

    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    pub fn count(&self) -> u32 {
        // The parser refuses CPU numbers above 8191.
        self.cpus.len() as u32
    }
}
