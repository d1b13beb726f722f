//! One life of an instance on the running kernel, in which it is asked everything, with one fault
//! in it; and what must hold all the while and afterwards.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::outside::Outside;
use super::{Fault, What};
use crate::common::{Background, Instance, OtherGroup, cgroups_of, describe};
use crate::support_kill::LEASE;
use crate::support_kill::processes::{agents, guardians, kill9, signal};

/// Longer than a lease, a restart and a call's own limit.
const PATIENCE: Duration = Duration::from_secs(30);

fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// An instance with commands in gates, a process and a group of another program.
pub struct Life {
    instance: Instance,
    fault: Fault,
    mark: PathBuf,
    job: Option<Background>,
    web: Option<Background>,
    lent: Background,
    lent_before: String,
    other: OtherGroup,
    other_before: Vec<String>,
    outside: Outside,
    wrong: Vec<String>,
}

impl Life {
    pub fn new(beside: &Instance, fault: &Fault) -> Life {
        // No name is the beginning of another.
        let instance = beside.beside(&format!("{}x", fault.nth));
        let other = OtherGroup::new(&instance);
        let lent = Background::start(&["sleep", "1000"]);
        Life {
            outside: Outside::new(instance.prefix(), lent.pid()),
            mark: instance.path().join("mark"),
            instance,
            fault: fault.clone(),
            job: None,
            web: None,
            lent_before: cgroups_of(lent.pid()),
            lent,
            other_before: other.values(),
            other,
            wrong: Vec::new(),
        }
    }

    fn struck(&self) -> Option<String> {
        std::fs::read_to_string(&self.mark).ok()
    }

    fn with_fault(&self, words: &[&str]) -> Command {
        let mut command = self.instance.tidegate(words);
        let mark = self.mark.to_str().unwrap();
        command.env("TIDEGATE_FAULT", self.fault.variable(mark));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// What commands say, all of them one after another.
    fn said(&self) -> Stdio {
        let path = self.instance.path().join("said");
        let file = File::options().append(true).create(true).open(path);
        Stdio::from(file.unwrap())
    }

    /// What it answers does not matter: the contract holds either way.
    fn ask(&mut self, words: &[&str]) {
        let mut command = self.with_fault(words);
        let _ = command.stderr(self.said()).status();
        self.look(&words.join(" "));
    }

    fn start(&mut self, words: &[&str], group: &str) -> Option<Background> {
        let mut all = vec!["run", "--quiet"];
        all.extend(words);
        all.extend(["--", "sleep", "1000"]);
        let mut command = self.with_fault(&all);
        command.stderr(self.said()).process_group(0);
        let mut running = Background(command.spawn().unwrap());
        let place = format!("{}-{group}/", self.instance.prefix());
        let mut ended = false;
        let placed = until(PATIENCE, || {
            ended = running.0.try_wait().unwrap().is_some();
            ended || is_sleep(running.pid()) && cgroups_of(running.pid()).contains(&place)
        });
        if !placed {
            self.wrong
                .push(format!("run {words:?} neither started nor ended"));
        }
        self.look(&format!("run {words:?}"));
        (!ended).then_some(running)
    }

    fn look(&mut self, when: &str) {
        let wrong = self.outside.look();
        self.wrong
            .extend(wrong.into_iter().map(|what| format!("{when}: {what}")));
    }

    /// Says where the fault struck, if it did, and what was wrong.
    pub fn live(mut self) -> (Option<String>, Vec<String>) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (mark, prefix) = (self.mark.clone(), self.instance.prefix().to_owned());
            let (what, over_here) = (self.fault.what, &over);
            let outside = self.outside.clone();
            let watching = scope.spawn(move || outside.watch(over_here));
            if matches!(what, What::Stop | What::KillBoth) {
                scope.spawn(move || {
                    if let Some(pid) = struck_process(&mark, over_here) {
                        follow_up(what, pid, &prefix);
                    }
                });
            }
            self.rise();
            match self.fault.who {
                "guardian" => self.orphan(),
                "repair" => self.abandon(),
                _ => {}
            }
            self.fall();
            over.store(true, Ordering::Relaxed);
            self.wrong.extend(watching.join().unwrap());
        });
        let struck = self.struck();
        self.check_that_a_refusal_was_told();
        self.end();
        (struck, std::mem::take(&mut self.wrong))
    }

    fn names(&self) -> (String, String) {
        (format!("pid:{}", self.lent.pid()), self.other.target())
    }

    fn rise(&mut self) {
        let (lent, other) = self.names();
        self.job = self.start(&["--side", "--name", "job", "--headroom", "20%"], "side");
        self.outside.set(&self.outside.job, self.job.as_ref());
        self.web = self.start(&["--main", "--name", "web", "--headroom", "30%"], "main");
        self.outside.set(&self.outside.web, self.web.as_ref());
        self.ask(&[
            "set",
            &lent,
            "class=side",
            "headroom=20%",
            "fallback=restore",
        ]);
        self.ask(&["set", &other, "class=side", "headroom=20%"]);
        self.ask(&["set", "gate:job", "weight=300"]);
    }

    fn fall(&mut self) {
        let (lent, other) = self.names();
        self.ask(&["set", &other, "class=main"]);
        self.ask(&["set", &other, "class=side", "headroom=20%"]);
        self.ask(&["unset", &other]);
        self.ask(&["unset", &lent]);
        // Every other time the commands outlive their agent.
        if self.fault.nth.is_multiple_of(2) {
            self.ask(&["agent", "stop"]);
        }
        self.outside.set(&self.outside.job, None);
        self.outside.set(&self.outside.web, None);
        self.job = None;
        self.web = None;
        self.ask(&["agent", "stop"]);
    }

    /// The agent dies; its guardian acts, and meets the fault.
    fn orphan(&mut self) {
        agents(self.instance.prefix()).into_iter().for_each(kill9);
        let dead = Instant::now();
        let acted = until(PATIENCE, || {
            let answers = self.instance.output(&["status"]).status.success();
            answers || self.mark.exists()
        });
        if !acted {
            self.wrong
                .push(format!("no fallback within {:?}", dead.elapsed()));
        }
        self.look("after the agent's death");
    }

    /// Agent and guardian die; only `repair` acts, which meets the fault.
    fn abandon(&mut self) {
        let prefix = self.instance.prefix().to_owned();
        // An agent that finds its guardian dead starts another, and a guardian an agent.
        let both_dead = until(PATIENCE, || {
            let living = [guardians(&prefix), agents(&prefix)].concat();
            living.iter().for_each(|pid| kill9(*pid));
            living.is_empty()
        });
        if !both_dead {
            self.wrong.push("agent and guardian did not die".to_owned());
        }
        self.look("after both deaths");
        self.ask(&["agent", "repair"]);
        if self.fault.nth.is_multiple_of(2) {
            // As the service's ExecStopPost.
            let mut repair = self.with_fault(&["agent", "repair"]);
            repair.env("SERVICE_RESULT", "watchdog");
            let _ = repair.stderr(self.said()).status();
            self.look("repair after a crash");
        }
    }

    /// A refused change is told of by the command or as more than information in the agent's log:
    /// by its file, or, for a group that cannot be made or removed, by that.
    fn check_that_a_refusal_was_told(&mut self) {
        let What::Errno(_) = self.fault.what else {
            return;
        };
        let Some(struck) = self.struck() else { return };
        let path = struck.trim().splitn(3, ' ').nth(2).unwrap_or_default();
        let group = path.find(self.instance.prefix()).map(|at| &path[at..]);
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let log = read(self.instance.run_dir().join("agent.log"));
        let told = read(self.instance.path().join("said")) + &log;
        let names_it = |line: &str| {
            line.contains(path)
                || !line.contains(" INFO ") && group.is_some_and(|group| line.contains(group))
        };
        if !told.lines().any(names_it) {
            self.wrong
                .push(format!("the refusal was not told of: {told}"));
        }
    }

    /// No process is left, and no group, file or value.
    fn end(&mut self) {
        self.job = None;
        self.web = None;
        let mut last = None;
        let repaired = until(PATIENCE, || {
            let _ = self.instance.output(&["agent", "stop"]);
            let output = self.instance.output(&["agent", "repair"]);
            let done = output.status.success() && self.instance.groups_left().is_empty();
            last = Some(output);
            done
        });
        if !repaired {
            let said = last.as_ref().map(describe).unwrap_or_default();
            let left = self.instance.groups_left();
            self.wrong.push(format!("{left:?} stays; repair: {said}"));
        }
        let prefix = self.instance.prefix();
        let ended = until(PATIENCE, || {
            agents(prefix).is_empty() && guardians(prefix).is_empty()
        });
        if !ended {
            self.wrong.push("agent or guardian did not end".to_owned());
        }
        for file in ["ledger.json", "gates.json", "tidegate.sock"] {
            let path = self.instance.run_dir().join(file);
            if let Ok(text) = std::fs::read_to_string(&path) {
                self.wrong.push(format!("{file} stays: {text}"));
            }
        }
        let values = self.other.values();
        if values != self.other_before {
            let before = &self.other_before;
            self.wrong
                .push(format!("group has {values:?}, had {before:?}"));
        }
        let place = cgroups_of(self.lent.pid());
        if place != self.lent_before {
            self.wrong.push(format!("process stays in {place:?}"));
        }
        if !self.wrong.is_empty() {
            let log = std::fs::read_to_string(self.instance.run_dir().join("agent.log"));
            self.wrong.push(log.unwrap_or_default());
        }
    }
}

/// `run` has become its command.
fn is_sleep(pid: u32) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    comm.is_ok_and(|comm| comm == "sleep\n")
}

/// The process that was struck, once it is.
fn struck_process(mark: &Path, over: &AtomicBool) -> Option<i32> {
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
        let text = std::fs::read_to_string(mark).unwrap_or_default();
        if let Some(pid) = text.split(' ').next().and_then(|word| word.parse().ok()) {
            return Some(pid);
        }
    }
    None
}

/// An agent that stopped is left so for longer than its lease, and then goes on as if nothing had
/// been; a dead one's guardian follows it.
fn follow_up(what: What, pid: i32, prefix: &str) {
    if what == What::Stop {
        std::thread::sleep(LEASE + Duration::from_millis(500));
        signal(pid, libc::SIGCONT);
    } else {
        guardians(prefix).into_iter().for_each(kill9);
    }
}
