//! Idle CPUs that use up their turns, for [`Mode::Wide`](crate::Mode::Wide). Its CPUs share one
//! virtual time, and one that halts or pauses gives its turn away: the busy ones would run the
//! faster the fewer they are, which no machine's do, and a scheduler that leaves CPUs idle would
//! lose nothing. So the guest's kernel is told to poll when it is idle, and the pause in that loop
//! is overwritten with an instruction that does nothing, both through the emulator's port for a
//! debugger.
//!
//! Source: `kernel/sched/idle.c` (`cpu_idle_poll`); GDB's remote protocol (packets `m`, `M` and
//! `D`).

use crate::VmError;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// What the guest's shell runs to say where the two symbols are.
pub const TELL: &str = "grep -wE 'cpu_idle_poll|cpu_idle_force_poll' /proc/kallsyms >&2 || true";
const LOOP: &str = "cpu_idle_poll";
const SWITCH: &str = "cpu_idle_force_poll";
/// The loop's function is a little shorter.
const LOOP_BYTES: usize = 0xc0;
const PAUSE: [u8; 2] = [0xf3, 0x90];
/// `xchg %ax, %ax`, as long as a pause.
const NOTHING: &str = "6690";
/// The emulator answers at once, unless its host is overloaded.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// The port, and what the guest has said so far.
pub struct Poll {
    /// Holds the port's socket. Only this user may enter it, since a client of the port can have
    /// the emulator run commands.
    folder: TempDir,
    idle_loop: Option<u64>,
    switch: Option<u64>,
    started: bool,
}

impl Poll {
    pub fn new() -> Result<Poll, VmError> {
        // Not beside the logs: a socket's path has 107 bytes at most.
        let folder = tempfile::Builder::new()
            .prefix("tidegate-vm-")
            .tempdir()
            .map_err(|e| {
                VmError::io(
                    "make a folder for the debugger port",
                    &std::env::temp_dir(),
                    &e,
                )
            })?;
        Ok(Poll {
            folder,
            idle_loop: None,
            switch: None,
            started: false,
        })
    }

    /// Whether idle CPUs poll.
    pub fn started(&self) -> bool {
        self.started
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("debugger")
    }

    pub fn add_to(&self, emulator: &mut Command) {
        let socket = format!(
            "socket,id=debugger,path={},server=on,wait=off",
            self.socket().display()
        );
        emulator.args(["-chardev", &socket, "-gdb", "chardev:debugger"]);
    }

    /// Whether a line of the guest's tells a symbol; from the second on, its idle CPUs poll.
    pub fn heard(&mut self, line: &str) -> Result<bool, VmError> {
        match symbol(line) {
            Some((LOOP, at)) => self.idle_loop = Some(at),
            Some((SWITCH, at)) => self.switch = Some(at),
            _ => return Ok(false),
        }
        let (Some(idle_loop), Some(switch)) = (self.idle_loop, self.switch) else {
            return Ok(true);
        };
        let started = self
            .connect()
            .and_then(|stream| Debugger { stream }.start_polling(idle_loop, switch));
        self.started = started.is_ok();
        started.map(|()| true).map_err(|e| {
            VmError::new(
                "let the guest's idle CPUs poll",
                line,
                &e.to_string(),
                "run it again; a kernel without this loop needs another way",
            )
        })
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(stream)
    }
}

/// Name and address of a line of `/proc/kallsyms`; compilers add endings such as `.isra.0` to a
/// name, and `.cold` to a part of it.
fn symbol(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_ascii_whitespace();
    let at = u64::from_str_radix(words.next()?, 16).ok()?;
    let name = words.nth(1).filter(|name| !name.ends_with(".cold"))?;
    Some((name.split('.').next().unwrap_or(name), at))
}

/// GDB's side of its remote protocol. The guest stands still from the connection to
/// [`Debugger::start_polling`]'s end.
struct Debugger<S> {
    stream: S,
}

impl<S: Read + Write> Debugger<S> {
    fn start_polling(mut self, idle_loop: u64, switch: u64) -> io::Result<()> {
        let code = self.read(idle_loop, LOOP_BYTES)?;
        let pauses: Vec<usize> = (0..code.len())
            .filter(|&at| code[at..].starts_with(&PAUSE))
            .collect();
        if pauses.is_empty() {
            return Err(io::Error::other("its idle loop has no pause"));
        }
        for at in pauses {
            self.write(idle_loop + at as u64, NOTHING)?;
        }
        self.write(switch, "01000000")?;
        self.ask("D").and_then(accepted)
    }

    fn read(&mut self, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let text = self.ask(&format!("m{at:x},{bytes:x}"))?;
        let pairs = text.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        });
        let read: Option<Vec<u8>> = pairs.collect();
        read.filter(|read| read.len() == bytes)
            .ok_or_else(|| io::Error::other(format!("its memory at {at:x} reads `{text}`")))
    }

    fn write(&mut self, at: u64, hex: &str) -> io::Result<()> {
        self.ask(&format!("M{at:x},{:x}:{hex}", hex.len() / 2))
            .and_then(accepted)
    }

    /// The answer to a command; a notice that the guest has stopped is none.
    fn ask(&mut self, command: &str) -> io::Result<String> {
        let sum = command.bytes().fold(0u8, u8::wrapping_add);
        let mut packet = String::new();
        let _ = write!(packet, "${command}#{sum:02x}");
        self.stream.write_all(packet.as_bytes())?;
        loop {
            let answer = self.packet()?;
            self.stream.write_all(b"+")?;
            if !answer.starts_with('T') {
                return Ok(answer);
            }
        }
    }

    fn packet(&mut self) -> io::Result<String> {
        while self.byte()? != b'$' {}
        let mut text = String::new();
        loop {
            match self.byte()? {
                b'#' => break,
                byte => text.push(char::from(byte)),
            }
        }
        // The checksum: the port is a local socket.
        self.byte()?;
        self.byte()?;
        Ok(text)
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }
}

fn accepted(answer: String) -> io::Result<()> {
    match answer.as_str() {
        "OK" => Ok(()),
        other => Err(io::Error::other(format!("the emulator answered `{other}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An emulator that has said all it will ever say, and keeps what it is told.
    struct Told {
        says: io::Cursor<Vec<u8>>,
        told: Vec<u8>,
    }

    impl Read for Told {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.says.read(buffer)
        }
    }

    impl Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.told.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn polling(says: &str) -> (io::Result<()>, String) {
        let mut told = Told {
            says: io::Cursor::new(says.as_bytes().to_vec()),
            told: Vec::new(),
        };
        let result = Debugger { stream: &mut told }.start_polling(0x1000, 0x2000);
        (result, String::from_utf8(told.told).unwrap())
    }

    fn code(at: usize, bytes: &str) -> String {
        let mut all = "90".repeat(LOOP_BYTES);
        all.replace_range(2 * at..2 * at + bytes.len(), bytes);
        format!("+${all}#00")
    }

    #[test]
    fn each_pause_of_the_loop_is_overwritten_before_the_switch_is_set() {
        let says = format!("$T02thread:01;#00{}+$OK#9a+$OK#9a+$OK#9a", code(5, "f390"));
        let (result, told) = polling(&says);
        result.unwrap();
        let commands: Vec<&str> = told
            .split('$')
            .skip(1)
            .filter_map(|packet| packet.split('#').next())
            .collect();
        assert_eq!(
            commands,
            ["m1000,c0", "M1005,2:6690", "M2000,4:01000000", "D"]
        );
    }

    #[test]
    fn a_loop_without_a_pause_or_a_refusal_is_an_error() {
        let (result, told) = polling(&code(0, "90"));
        assert_eq!(
            result.unwrap_err().to_string(),
            "its idle loop has no pause"
        );
        assert!(!told.contains('M'), "{told}");
        let (result, _) = polling(&format!("{}+$E14#00", code(5, "f390")));
        assert_eq!(
            result.unwrap_err().to_string(),
            "the emulator answered `E14`"
        );
        let (result, _) = polling("+$E14#00");
        assert_eq!(
            result.unwrap_err().to_string(),
            "its memory at 1000 reads `E14`"
        );
    }

    #[test]
    fn a_symbol_is_known_by_its_name_without_the_ending() {
        let line = "ffffffff81e0f3a0 t cpu_idle_poll.isra.0";
        assert_eq!(symbol(line), Some((LOOP, 0xffff_ffff_81e0_f3a0)));
        assert_eq!(symbol(&line.replace("isra.0", "cold")), None);
        assert_eq!(symbol("lab 1.0 of 3.0"), None);
        assert_eq!(symbol(""), None);
    }
}
