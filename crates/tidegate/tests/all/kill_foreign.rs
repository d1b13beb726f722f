//! Processes and groups that are not ours, when the agent dies or freezes: each goes to its
//! declared fallback, comes under its terms again with the next agent, and gets back what it had
//! from `unset`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Background, Instance, OtherGroup, cgroups_of, or_skip};
use crate::support_kill::processes::{agents, guardians, kill9, signal};
use crate::support_kill::stage::{Stage, nothing_left, side_root};
use crate::support_kill::watch::Limit;
use crate::support_kill::{Coin, LEASE, kills, wait};

/// Moving a process waits for every fork on the machine (the kernel's cgroup_threadgroup_rwsem and
/// an RCU grace period), and those of side work take their time on a full one: seconds were seen.
const SOON: Duration = Duration::from_secs(10);

fn hog() -> Background {
    Background::start(&["sh", "-c", "while :; do :; done"])
}

/// A group of another program, with a hog in it and a weight of its own.
struct Group {
    // Ends before the group goes.
    hog: Background,
    group: OtherGroup,
    before: Vec<String>,
}

impl Group {
    fn new(instance: &Instance, name: &str) -> Group {
        let group = OtherGroup::named(instance, &format!("other-{name}"));
        group.write_weight();
        let hog = hog();
        group.enter(hog.pid());
        let before = group.values();
        Group { hog, group, before }
    }

    fn target(&self) -> String {
        self.group.target()
    }

    fn limit(&self) -> Limit {
        Limit::open(&self.group.path).unwrap()
    }

    /// With a quota, and in the idle class unless it starves at the tolerance.
    fn is_limited(&self) -> bool {
        self.limit().wrong().is_none()
    }

    fn is_restored(&self) -> bool {
        self.group.values() == self.before
    }
}

/// A process of another program.
struct Process {
    hog: Background,
    before: String,
}

impl Process {
    fn new() -> Process {
        let hog = hog();
        let before = cgroups_of(hog.pid());
        Process { hog, before }
    }

    fn target(&self) -> String {
        format!("pid:{}", self.hog.pid())
    }

    fn is_lent(&self) -> bool {
        cgroups_of(self.hog.pid()) != self.before
    }

    fn is_alive(&mut self) -> bool {
        self.hog.0.try_wait().unwrap().is_none()
    }
}

/// An agent in the foreground, as in a container.
const AGENT: [&str; 4] = ["agent", "run", "--service", "--take-over"];

fn in_control(instance: &Instance, agent: &Background) -> bool {
    let output = instance.output(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    status["pid"].as_u64() == Some(agent.pid().into())
}

fn first_agent(instance: &Instance) -> Background {
    let first = running(instance, &AGENT);
    wait("the first agent", SOON, || in_control(instance, &first));
    first
}

/// One that waits until the agent's lock is free.
fn waiting_agent(instance: &Instance) -> Background {
    let next = running(instance, &AGENT);
    let lock = instance.run_dir().join("next.lock");
    wait("the next agent to wait", SOON, || {
        let file = std::fs::File::options().write(true).open(&lock);
        file.is_ok_and(|file| file.try_lock().is_err())
    });
    next
}

/// What a rollout of the DaemonSet does, and its end.
#[test]
fn an_agent_hands_over_to_one_that_waits_and_else_restores() {
    let instance = or_skip!(Instance::new("take-over"));
    let mut coin = Coin::new("an_agent_hands_over_to_one_that_waits_and_else_restores");
    let group = OtherGroup::new(&instance);
    let fresh = group.values();
    let mut first = first_agent(&instance);
    // A gate of side work would not do: its quota moves with the machine's load.
    instance.ok(&["set", &group.target(), "quota=20%cpu"]);
    let limited = group.values();
    assert_ne!(limited, fresh);
    let waiting = |first: &Background| {
        let next = waiting_agent(&instance);
        assert!(in_control(&instance, first), "it only waits");
        next
    };
    let config = instance.run_dir().join("tidegate.toml");
    std::fs::write(&config, "wrong = 1\n").unwrap();
    let refused = instance.output(&AGENT);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("tidegate.toml:1:1: "));
    assert!(in_control(&instance, &first), "a rollout stops there");
    std::fs::remove_file(&config).unwrap();
    for nth in 0..kills() {
        let next = waiting(&first);
        signal(first.pid() as i32, libc::SIGTERM);
        wait("the first agent to end", SOON, || {
            assert_eq!(group.values(), limited, "hand-over {nth}");
            first
                .0
                .try_wait()
                .unwrap()
                .is_some_and(|ended| ended.success())
        });
        let took = wait("the next agent", SOON, || {
            assert_eq!(group.values(), limited, "hand-over {nth}");
            in_control(&instance, &next)
        });
        eprintln!("the next agent answers {took:?} after the end of the one before");
        first = next;
        let status = instance.json(&["status"]);
        assert_eq!(status["alerts"], serde_json::json!([]), "{status:#}");
        assert_eq!(status["gates"].as_array().map(Vec::len), Some(1));
        assert_eq!(group.values(), limited);
    }
    // A waiting agent gets the signal alone, and then together with the running one.
    let mut next = waiting(&first);
    signal(next.pid() as i32, libc::SIGTERM);
    assert!(next.0.wait().unwrap().success());
    assert!(in_control(&instance, &first), "it goes on");
    assert_eq!(group.values(), limited);
    let mut next = waiting(&first);
    signal(first.pid() as i32, libc::SIGTERM);
    coin.sleep_us(100_000);
    signal(next.pid() as i32, libc::SIGTERM);
    for agent in [&mut first, &mut next] {
        assert!(agent.0.wait().unwrap().success());
    }
    assert_eq!(group.values(), fresh, "nobody goes on");
    assert_eq!(instance.groups_left(), Vec::<std::path::PathBuf>::new());
}

/// The test holds the locks of two other agents: of one that waits, and of one that ends slowly.
#[test]
fn a_waiting_agent_that_is_told_to_end_takes_a_slow_hand_over_and_restores() {
    let instance = or_skip!(Instance::new("take-over-slow"));
    let group = OtherGroup::new(&instance);
    let fresh = group.values();
    let lock = |name: &str| {
        let mut options = std::fs::File::options();
        let options = options.append(true).create(true);
        let file = options.open(instance.run_dir().join(name)).unwrap();
        file.lock().unwrap();
        file
    };
    let mut first = first_agent(&instance);
    instance.ok(&["set", &group.target(), "quota=20%cpu"]);
    let limited = group.values();
    let awaited = lock("next.lock");
    signal(first.pid() as i32, libc::SIGTERM);
    assert!(first.0.wait().unwrap().success());
    let slow = lock("agent.lock");
    drop(awaited);
    let mut next = waiting_agent(&instance);
    signal(next.pid() as i32, libc::SIGTERM);
    // Longer than it waits for an agent that goes on.
    std::thread::sleep(Duration::from_secs(7));
    assert!(next.0.try_wait().unwrap().is_none());
    assert_eq!(group.values(), limited);
    drop(slow);
    assert!(next.0.wait().unwrap().success());
    assert_eq!(group.values(), fresh);
    assert_eq!(instance.groups_left(), Vec::<std::path::PathBuf>::new());
}

/// `tidegate WORD`, until it is dropped.
fn running(instance: &Instance, words: &[&str]) -> Background {
    use std::os::unix::process::CommandExt;
    let mut command = instance.tidegate(words);
    command.process_group(0);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Background(command.spawn().unwrap())
}

/// An agent that no guardian brings back, as a service manager has it.
fn service(instance: &Instance) -> Background {
    let agent = running(instance, &["agent", "run"]);
    let ready = || instance.output(&["status"]).status.success();
    wait("the service", Duration::from_secs(10), ready);
    let guarded = || guardians(instance.prefix()).len() == 1;
    wait("its guardian", Duration::from_secs(10), guarded);
    agent
}

/// One group and one process of each fallback.
struct Targets {
    groups: [Group; 3],
    processes: [Process; 3],
}

const FALLBACKS: [&str; 3] = ["floor", "restore", "hold:1s"];

impl Targets {
    fn new(instance: &Instance) -> Targets {
        let targets = Targets {
            groups: FALLBACKS.map(|name| Group::new(instance, &name.replace(':', "-"))),
            processes: FALLBACKS.map(|_| Process::new()),
        };
        for (nth, fallback) in FALLBACKS.iter().enumerate() {
            let fallback = format!("fallback={fallback}");
            for target in targets.names(nth) {
                instance.ok(&["set", &target, "class=side", &fallback]);
            }
        }
        targets
    }

    fn names(&self, nth: usize) -> [String; 2] {
        [self.groups[nth].target(), self.processes[nth].target()]
    }

    fn all_limited(&self) -> bool {
        self.groups.iter().all(|group| group.is_limited())
            && self.processes.iter().all(Process::is_lent)
    }

    /// Takes all terms back, and with them all that was done.
    fn unset(&self, instance: &Instance) {
        for nth in 0..FALLBACKS.len() {
            for target in self.names(nth) {
                instance.ok(&["unset", &target]);
            }
        }
        let values = self.groups.each_ref().map(|one| one.group.values());
        assert!(self.groups.iter().all(Group::is_restored), "{values:?}");
        assert!(!self.processes.iter().any(Process::is_lent));
    }

    fn check_alive(&mut self) {
        assert!(
            self.processes.iter_mut().all(Process::is_alive),
            "a process was lost"
        );
        for group in &mut self.groups {
            let hog = &mut group.hog;
            assert!(hog.0.try_wait().unwrap().is_none(), "a process was lost");
            assert!(
                cgroups_of(hog.pid()).contains("other-"),
                "a process was moved out of its group"
            );
        }
    }
}

#[test]
fn each_target_goes_to_its_fallback_and_comes_back() {
    let instance = or_skip!(Instance::new("kill-fallback"));
    let agent = service(&instance);
    let mut targets = Targets::new(&instance);
    wait("limits", SOON, || targets.all_limited());
    for _ in 0..kills().div_ceil(6).min(20) {
        let [pid] = agents(instance.prefix())[..] else {
            panic!("not one agent")
        };
        let died = Instant::now();
        kill9(pid);
        let held = died + Duration::from_millis(700);
        wait("the fallback", LEASE, || {
            if Instant::now() < held {
                assert!(
                    targets.groups[2].is_limited() && targets.processes[2].is_lent(),
                    "hold:1s was not held"
                );
            }
            targets.groups[0].limit().is_at_floor() && targets.groups[1].is_restored()
        });
        wait("the process to be back", SOON, || {
            !targets.processes[1].is_lent()
        });
        let due = LEASE + Duration::from_secs(1);
        wait(
            "the end of hold:1s",
            due.saturating_sub(died.elapsed()),
            || targets.groups[2].is_restored(),
        );
        wait("the process to be back", SOON, || {
            !targets.processes[2].is_lent()
        });
        // The floor stays until another agent starts.
        assert!(targets.groups[0].limit().is_at_floor() && targets.groups[0].limit().is_idle());
        assert!(targets.processes[0].is_lent());
        let root = Limit::open(&side_root(&instance)).unwrap();
        assert!(root.is_at_floor() && root.is_idle());
        targets.check_alive();

        let next = service(&instance);
        wait("limits again", SOON, || targets.all_limited());
        let status = instance.json(&["status"]);
        assert_eq!(status["alerts"], serde_json::json!([]), "{status:#}");
        assert_eq!(status["gates"].as_array().unwrap().len(), 6, "{status:#}");
        assert_eq!(guardians(instance.prefix()).len(), 1);
        // It is killed by its number; what is held here reaps it.
        std::mem::forget(next);
    }
    drop(agent);
    targets.unset(&instance);
    targets.check_alive();
    instance.ok(&["agent", "stop"]);
    nothing_left(&instance);
}

/// As a container runtime ends a container: the agent's own guardian with it.
#[test]
fn a_guardian_outside_acts_when_agent_and_guardian_end_together() {
    let instance = or_skip!(Instance::new("kill-outside"));
    let agent = service(&instance);
    let mut targets = Targets::new(&instance);
    let outside = running(&instance, &["guardian"]);
    for _ in 0..kills().div_ceil(12).clamp(2, 20) {
        wait("limits", SOON, || targets.all_limited());
        let own = |pid: &i32| *pid != outside.pid() as i32;
        let [guardian] = guardians(instance.prefix())
            .into_iter()
            .filter(own)
            .collect::<Vec<_>>()[..]
        else {
            panic!("not one guardian of the agent's own");
        };
        let [agent] = agents(instance.prefix())[..] else {
            panic!("not one agent")
        };
        // It must not act first.
        signal(guardian, libc::SIGSTOP);
        kill9(agent);
        kill9(guardian);
        wait("the fallback", LEASE, || {
            targets.groups[0].limit().is_at_floor() && targets.groups[1].is_restored()
        });
        targets.check_alive();
        let next = running(&instance, &["agent", "run"]);
        let ready = || instance.output(&["status"]).status.success();
        wait("the next agent", SOON, ready);
        // It is killed by its number; what is held here reaps it.
        std::mem::forget(next);
    }
    wait("limits", SOON, || targets.all_limited());
    drop(agent);
    targets.unset(&instance);
    drop(outside);
    instance.ok(&["agent", "stop"]);
    nothing_left(&instance);
}

/// A process that stands still until this is dropped, also by a test that fails.
struct Frozen(i32);

impl Frozen {
    fn new(pid: i32) -> Frozen {
        signal(pid, libc::SIGSTOP);
        Frozen(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal(self.0, libc::SIGCONT);
    }
}

/// What is above, for an agent that does not die but freezes, and while work of our own runs, too.
#[test]
fn a_frozen_agent_is_stood_in_for_and_resumes() {
    let mut stage = or_skip!(Stage::new("kill-frozen"));
    let group = Group::new(&stage.instance, "restore");
    let process = Process::new();
    let (of_group, of_process) = (group.target(), process.target());
    for target in [&of_group, &of_process] {
        stage
            .instance
            .ok(&["set", target, "class=side", "fallback=restore"]);
    }
    let agent = stage.agent().unwrap();
    // Twice: what the guardian wrote the first time must not count as another program's the second
    // time.
    for _ in 0..kills().div_ceil(3).clamp(2, 20) {
        wait("limits", SOON, || group.is_limited() && process.is_lent());
        let frozen = Frozen::new(agent);
        let patience = LEASE + Duration::from_secs(1);
        wait("the fallback", patience, || {
            stage.limit().is_at_floor() && stage.limit().is_idle() && group.is_restored()
        });
        stage.check_work();
        wait("the process to be back", SOON, || !process.is_lent());
        drop(frozen);
        wait("the agent's own limits", SOON, || {
            group.is_limited() && process.is_lent()
        });
        assert_eq!(stage.agent(), Some(agent));
        stage.check();
    }
    // And the death of an agent that is brought back.
    let dead = stage.kill_agent();
    stage.next_agent(dead);
    wait("limits", SOON, || group.is_limited() && process.is_lent());
    stage.check();
    for target in [&of_group, &of_process] {
        stage.instance.ok(&["unset", target]);
    }
    assert!(
        group.is_restored() && !process.is_lent(),
        "{:?}",
        group.group.values()
    );
    drop((group, process));
    stage.end();
}
