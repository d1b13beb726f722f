//! The emulator's process and its two outputs: the guest's second serial port, which the tests
//! speak on, and the kernel's console, which goes to a file.

use crate::VmError;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Lines shown beside a failure.
pub const TAIL_LINES: usize = 25;

/// The kernel's console, which the emulator writes to a file.
pub struct Console {
    file: PathBuf,
    read: u64,
    partial: String,
    last: VecDeque<String>,
}

impl Console {
    pub fn new(file: PathBuf) -> Console {
        Console {
            file,
            read: 0,
            partial: String::new(),
            last: VecDeque::new(),
        }
    }

    pub fn new_lines(&mut self) -> Vec<String> {
        let mut bytes = Vec::new();
        // Not there before the emulator has opened it: no lines yet.
        let Ok(mut file) = File::open(&self.file) else {
            return Vec::new();
        };
        if file
            .seek(SeekFrom::Start(self.read))
            .and_then(|_| file.read_to_end(&mut bytes))
            .is_err()
        {
            return Vec::new();
        }
        self.read += bytes.len() as u64;
        self.partial.push_str(&String::from_utf8_lossy(&bytes));
        let mut lines = Vec::new();
        while let Some(end) = self.partial.find('\n') {
            let line: String = self.partial.drain(..=end).collect();
            lines.push(line.trim_end().to_string());
        }
        self.last.extend(lines.iter().cloned());
        while self.last.len() > TAIL_LINES {
            self.last.pop_front();
        }
        lines
    }

    pub fn tail(&self) -> impl Iterator<Item = String> + '_ {
        self.last.iter().map(|line| format!("console: {line}"))
    }
}

/// The CPU time of a process.
pub struct CpuClock(PathBuf);

impl CpuClock {
    /// User and system time so far; zero when it has ended. In the kernel's unit for programs, a
    /// hundredth of a second.
    pub fn now(&self) -> Duration {
        let stat = std::fs::read_to_string(&self.0).unwrap_or_default();
        let after_name = stat.rfind(')').map_or("", |end| &stat[end + 1..]);
        let times = after_name.split_ascii_whitespace().skip(11).take(2);
        let ticks: u64 = times.filter_map(|text| text.parse::<u64>().ok()).sum();
        Duration::from_millis(10 * ticks)
    }
}

/// The emulator's process; dropping it kills it.
pub struct Emulator {
    child: Child,
}

impl Emulator {
    /// Starts it, so much nicer to other programs than this one is.
    pub fn start(mut command: Command, nicer: i32, errors: &Path) -> Result<Emulator, VmError> {
        let log =
            File::create(errors).map_err(|e| VmError::io("keep the emulator's log", errors, &e))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        // SAFETY: the closure runs between fork and exec and makes system calls alone, which are
        // async-signal-safe; it touches no memory of the parent. The emulator must not outlive this
        // process, however it ends.
        unsafe {
            command.pre_exec(move || {
                rustix::process::nice(nicer)?;
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    rustix::process::Signal::KILL,
                ))?)
            });
        }
        let child = command
            .spawn()
            .map_err(|e| VmError::io("start the emulator", Path::new("qemu-system-x86_64"), &e))?;
        Ok(Emulator { child })
    }

    /// Where the CPU time that it has used is told.
    pub fn cpu_clock(&self) -> CpuClock {
        CpuClock(format!("/proc/{}/stat", self.child.id()).into())
    }

    /// The guest's second serial port, by line; disconnects when the emulator ends.
    pub fn lines(&mut self) -> Receiver<String> {
        let (send, receive) = channel();
        if let Some(stdout) = self.child.stdout.take() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stdout);
                let mut line = Vec::new();
                while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                    if send
                        .send(String::from_utf8_lossy(&line).into_owned())
                        .is_err()
                    {
                        return;
                    }
                    line.clear();
                }
            });
        }
        receive
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended by itself, which is the usual case after the guest's power-off.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
