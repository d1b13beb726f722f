//! One boot: starts the emulator, follows what the guest says and what its kernel says, and ends it
//! in every case. A panic, a hang or a silent guest fails the running test with the tail of the
//! log; tests that had not begun are handed back for another boot.

use crate::VmError;
use crate::catalog::{Case, Mode};
use crate::emulator::{Console, CpuClock, Emulator, TAIL_LINES};
use crate::fetch::Kernel;
use crate::progress::Progress;
use crate::protocol::{Finished, Frame, Health, Outcome, health, parse};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// From power-on to the guest's `ready`, in wall time; a boot takes 6–10 s on an idle host.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// ... in [`Mode::Wide`], where it takes a minute there.
const WIDE_BOOT_LIMIT: Duration = Duration::from_secs(480);
/// How long the kernel's last words are waited for after the first sign of trouble.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Virtual time does not depend on when the host runs the emulator; those in real time go first.
const VIRTUAL_NICER: i32 = 5;
const TROUBLE: &str = "the guest's kernel is in trouble";

/// Several CPUs under one virtual time. The emulator lets a CPU run until the next of its own
/// timers is due and goes on with the next CPU, so a timer that nobody listens to (a filter's)
/// makes the turns short. Before version 8.1 it lets only each second CPU run when none is idle, so
/// each second one (threads 1 and 3 of a core) is never started.
const WIDE: &str = "-accel tcg,thread=single -icount shift=0,sleep=off \
    -smp 16,sockets=2,cores=2,threads=4 -rtc base=2026-01-01,clock=vm \
    -netdev hubport,hubid=0,id=turns -object filter-buffer,id=turn,netdev=turns,interval=10";

/// Version 7.2 may return wrong flags from `cmpxchg16b` if an interrupt follows at once, as at the
/// end of a turn; the slab allocator uses it, and guests died there. Without it the kernel
/// allocates BPF's timers and local storage only from slabs with checks on.
const WIDE_PROCESSOR: &str = "max,-erms,-fsrm,-cx16";
const WIDE_WORDS: &str =
    " maxcpus=1 slab_debug=F,kmalloc-cg*,kmalloc-rnd*,kmalloc-32,kmalloc-64,kmalloc-96,kmalloc-128";

pub struct Report {
    pub finished: Vec<Finished>,
    /// Why the guest ended early, if it did.
    pub broken: Option<String>,
    pub notes: Vec<String>,
}

/// Everything a boot needs.
pub struct Boot<'a> {
    pub label: &'a str,
    pub mode: Mode,
    pub kernel: &'a Kernel,
    pub image: &'a Path,
    pub logs: &'a Path,
    pub cases: &'a [&'a Case],
    pub deadline: Instant,
}

impl Boot<'_> {
    /// Follows the guest to its end; each line of a test's own output also goes to `heard`.
    pub fn run(&self, progress: &Progress, heard: &mut dyn FnMut(&str)) -> Result<Report, VmError> {
        let console = self.logs.join("console.log");
        let _ = fs::remove_file(&console);
        let nicer = match self.mode {
            Mode::Smp => 0,
            Mode::Precise | Mode::Wide => VIRTUAL_NICER,
        };
        let errors = self.logs.join("emulator.log");
        let command = self.command(&console);
        let mut emulator = Emulator::start(command, nicer, &errors)?;
        let lines = emulator.lines();
        let log = File::create(self.logs.join("guest.log"))
            .map_err(|e| VmError::io("keep the guest's log", self.logs, &e))?;
        let clock = emulator.cpu_clock();
        let mut watch = Watch::new(self, log, Console::new(console), clock, heard);
        while let Step::Going = watch.step(&lines, progress) {}
        drop(emulator);
        watch.last_look(progress);
        Ok(watch.report)
    }

    fn command(&self, console: &Path) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        let machine = match self.mode {
            Mode::Precise => {
                "-accel tcg,thread=single -icount shift=0,sleep=off -smp 1 \
                 -rtc base=2026-01-01,clock=vm"
            }
            // On several threads the emulator races the kernel's patching of its own code: now and
            // then a boot ended in "Oops: int3" when CPUs went off and on line.
            Mode::Smp => "-accel tcg,thread=single -smp 2",
            Mode::Wide => WIDE,
        };
        command.args(machine.split_whitespace());
        // Strings are emulated an element at a time: bytes would take eight times as long as words.
        let processor = match self.mode {
            Mode::Wide => WIDE_PROCESSOR,
            Mode::Precise | Mode::Smp => "max,-erms,-fsrm",
        };
        let others = "-m 768 -nodefaults -no-user-config -display none -no-reboot";
        command.args(["-cpu", processor]).args(others.split(' '));
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-serial", "stdio"])
            .arg("-serial")
            .arg(format!("file:{}", self.logs.join("results.tar").display()));
        command
            .arg("-kernel")
            .arg(&self.kernel.vmlinuz)
            .arg("-initrd")
            .arg(self.image);
        // panic=-1 with -no-reboot ends the emulator at once; a fixed layout and no mitigations
        // keep runs alike.
        let mut words =
            "console=ttyS0 loglevel=5 panic=-1 nokaslr mitigations=off tsc=reliable edd=off"
                .to_string();
        if self.mode == Mode::Wide {
            words.push_str(WIDE_WORDS);
        }
        command.args(["-append", &words]);
        command
    }
}

enum Step {
    Going,
    Over,
}

struct Watch<'a> {
    boot: &'a Boot<'a>,
    log: File,
    console: Console,
    started: Instant,
    clock: CpuClock,
    /// The running test, when it began (guest seconds, wall, the emulator's CPU time) and what it
    /// has measured.
    current: Option<Finished>,
    began: (f64, Instant, Duration),
    tail: VecDeque<String>,
    ready: bool,
    report: Report,
    /// When the kernel was first seen in trouble, and its words.
    dead: Option<(Instant, String)>,
    heard: &'a mut dyn FnMut(&str),
}

impl<'a> Watch<'a> {
    fn new(
        boot: &'a Boot<'a>,
        log: File,
        console: Console,
        clock: CpuClock,
        heard: &'a mut dyn FnMut(&str),
    ) -> Watch<'a> {
        let report = Report {
            finished: Vec::new(),
            broken: None,
            notes: Vec::new(),
        };
        let now = Instant::now();
        Watch {
            boot,
            log,
            console,
            clock,
            started: now,
            current: None,
            began: (0.0, now, Duration::ZERO),
            tail: VecDeque::new(),
            ready: false,
            report,
            dead: None,
            heard,
        }
    }

    fn step(&mut self, lines: &Receiver<String>, progress: &Progress) -> Step {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                // The log is a convenience: a full disk must not change what the tests say.
                let _ = writeln!(
                    self.log,
                    "{:8.2} {}",
                    self.started.elapsed().as_secs_f64(),
                    line.trim_end()
                );
                if let Step::Over = self.line(&line, progress) {
                    return Step::Over;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.read_console();
                return self.broken("the emulator ended before the tests did", progress);
            }
        }
        self.read_console();
        if self
            .dead
            .as_ref()
            .is_some_and(|(since, _)| since.elapsed() > LAST_WORDS)
        {
            return self.broken(TROUBLE, progress);
        }
        match self.late() {
            Some(why) => self.broken(&why, progress),
            None => Step::Going,
        }
    }

    fn line(&mut self, line: &str, progress: &Progress) -> Step {
        let (uptime_s, frame) = parse(line);
        let uptime_s = uptime_s.unwrap_or(self.began.0);
        match frame {
            Frame::Ready => self.ready = true,
            Frame::Begin { test } => {
                progress.doing(self.boot.label, &test);
                self.tail.clear();
                self.began = (uptime_s, Instant::now(), self.clock.now());
                let outcome = Outcome::Failed(String::new());
                self.current = Some(Finished::unseen(&test, outcome));
            }
            Frame::Measure {
                name, value, unit, ..
            } => {
                if let Some(current) = &mut self.current {
                    current.measures.push((name, value, unit));
                }
            }
            Frame::End { outcome, .. } => {
                self.close(outcome, uptime_s, progress);
            }
            Frame::Done => return Step::Over,
            Frame::Output(text) => {
                (self.heard)(&text);
                self.tail.push_back(text);
                if self.tail.len() > TAIL_LINES {
                    self.tail.pop_front();
                }
            }
        }
        Step::Going
    }

    fn close(&mut self, outcome: Outcome, uptime_s: f64, progress: &Progress) {
        let Some(mut finished) = self.current.take() else {
            return;
        };
        let case = self
            .boot
            .cases
            .iter()
            .find(|case| case.name == finished.test);
        let outcome = case.map_or(outcome.clone(), |case| case.judge(outcome));
        finished.guest_s = uptime_s - self.began.0;
        finished.wall = self.began.1.elapsed();
        finished.cpu = self.clock.now().saturating_sub(self.began.2);
        if matches!(outcome, Outcome::Failed(_)) {
            finished.tail = self.tail.drain(..).collect();
        }
        finished.outcome = outcome;
        progress.end(self.boot.label, &finished);
        self.report.finished.push(finished);
    }

    fn read_console(&mut self) {
        for line in self.console.new_lines() {
            match health(&line, self.boot.mode == Mode::Precise) {
                Health::Fine => {}
                Health::Suspect => self.report.notes.push(line),
                Health::Dead => {
                    self.dead.get_or_insert_with(|| (Instant::now(), line));
                }
            }
        }
    }

    /// Why the guest has taken too long, if it has.
    fn late(&self) -> Option<String> {
        let now = Instant::now();
        if now > self.boot.deadline {
            return Some("the whole run is over its time".into());
        }
        let limit = match self.boot.mode {
            Mode::Wide => WIDE_BOOT_LIMIT,
            Mode::Precise | Mode::Smp => BOOT_LIMIT,
        };
        if !self.ready && now > self.started + limit {
            return Some(format!(
                "no `ready` within {} s of power-on",
                limit.as_secs()
            ));
        }
        let current = self.current.as_ref()?;
        let case = self
            .boot
            .cases
            .iter()
            .find(|case| case.name == current.test)?;
        // The guest ends a test itself after limit_s of its own time, which may run slower than the
        // wall's.
        let limit = Duration::from_secs(30 + 4 * u64::from(case.limit_s));
        (now > self.began.1 + limit)
            .then(|| format!("hung: no end within {} s of wall time", limit.as_secs()))
    }

    fn broken(&mut self, why: &str, progress: &Progress) -> Step {
        let why = match &self.dead {
            Some((_, line)) => format!("{why}: {}", line.trim()),
            None => why.to_string(),
        };
        if self.current.is_some() {
            self.tail.extend(self.console.tail());
            self.close(Outcome::Failed(why.clone()), self.began.0, progress);
        }
        self.report.broken = Some(why);
        Step::Over
    }

    /// A kernel that broke as a test ended, or after it, breaks that test.
    fn last_look(&mut self, progress: &Progress) {
        self.read_console();
        if self.dead.is_none() || self.report.broken.is_some() {
            return;
        }
        self.current = self.report.finished.pop();
        self.broken(TROUBLE, progress);
    }
}
