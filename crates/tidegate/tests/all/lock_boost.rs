//! Main waits for a file lock that side work holds: the holder goes first, and an agent that is
//! killed in the midst of that leaves no task that does.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::common::{Background, Instance, children, or_skip};
use crate::support_kill::processes::{agents, guardians, kill9};
use crate::support_kill::stage::nothing_left;
use crate::support_kill::{LEASE, wait};

const DEADLINE: &str = "6";

/// Field 41 of proc_pid_stat(5), the policy.
fn policy(pid: i32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let word = after.split_ascii_whitespace().nth(38);
    word.unwrap_or_default().to_owned()
}

/// Side work that holds a lock for ever, and a process that waits for it.
struct Scene {
    instance: Instance,
    side: Background,
    holder: i32,
    lock: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Option<Scene> {
        let instance = Instance::new(name)?;
        let lock = instance.path().join("lock");
        let path = lock.to_str().unwrap().to_owned();
        // flock(1) waits for its child, which inherits the lock and works.
        let command = ["flock", &path, "sh", "-c", "while :; do :; done"];
        let side = instance.background(&["--side", "--name", "side"], &command);
        instance.gate("side");
        // Before it became flock it may have started an agent, which was its child for a moment.
        let works = |pid: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim_end() == "sh"
        };
        let mut found = None;
        wait("the holder", Duration::from_secs(10), || {
            found = children(side.pid()).into_iter().find(works);
            found.is_some()
        });
        let holder = found.unwrap() as i32;
        Some(Scene {
            instance,
            side,
            holder,
            lock,
        })
    }

    fn waiter(&self) -> Child {
        let mut command = Command::new("flock");
        command.arg(&self.lock).arg("true").spawn().unwrap()
    }

    /// Waits until the holder goes first; false where this machine does not let it.
    fn goes_first(&self) -> bool {
        let began = Instant::now();
        while policy(self.holder) != DEADLINE {
            let status = self.instance.json(&["status"]);
            if status["lock_boost"]["refused"].is_string() {
                eprintln!("skipped: {}", status["lock_boost"]["refused"]);
                return false;
            }
            let looked = Instant::now();
            while looked.elapsed() < Duration::from_millis(300) {
                if policy(self.holder) == DEADLINE {
                    return true;
                }
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{status:#}");
        }
        true
    }

    fn end(self, waiter: &mut Child) {
        waiter.kill().unwrap();
        waiter.wait().unwrap();
        drop(self.side);
        nothing_left(&self.instance);
    }
}

fn in_ledger(run_dir: &Path) -> bool {
    let text = std::fs::read_to_string(run_dir.join("ledger.json")).unwrap_or_default();
    text.contains("\"knob\":\"first\"")
}

#[test]
fn an_agent_that_is_killed_in_a_holders_turn_leaves_none() {
    for both in [false, true] {
        let Some(scene) = Scene::new(if both { "holders-both" } else { "holders-kill" }) else {
            return;
        };
        let mut waiter = scene.waiter();
        if !scene.goes_first() {
            return scene.end(&mut waiter);
        }
        let prefix = scene.instance.prefix();
        let (agents, guardians) = (agents(prefix), guardians(prefix));
        for pid in guardians.into_iter().filter(|_| both).chain(agents) {
            kill9(pid);
        }
        kill9(waiter.id() as i32);
        if both {
            scene.instance.ok(&["agent", "repair"]);
        }
        wait("the turn to be taken back", LEASE * 3, || {
            policy(scene.holder) == "0"
        });
        wait("the journal to be clean", LEASE * 3, || {
            !in_ledger(&scene.instance.run_dir())
        });
        assert_eq!(policy(scene.holder), "0", "and it stays so");
        // The next agent takes the gate over, and the gate ends as usual.
        scene.instance.ok(&["run", "--side", "--", "true"]);
        scene.end(&mut waiter);
    }
}

#[test]
fn a_wait_that_began_before_its_holder_was_side_work_is_found() {
    let instance = or_skip!(Instance::new("holders-before"));
    let lock = instance.path().join("lock");
    let hold = Command::new("flock")
        .args([lock.to_str().unwrap(), "sh", "-c", "while :; do :; done"])
        .spawn();
    let mut flock = hold.unwrap();
    wait("the holder", Duration::from_secs(10), || {
        children(flock.id()).len() == 1
    });
    let holder = children(flock.id())[0] as i32;
    let mut waiter = Command::new("flock")
        .arg(&lock)
        .arg("true")
        .spawn()
        .unwrap();
    let side = instance.sleeper("side");
    // Until the wait has long begun.
    std::thread::sleep(Duration::from_millis(500));
    // With its child. Were it not side work, the lock would not be side work's either.
    let target = format!("pid:{}", flock.id());
    instance.ok(&["set", &target, "class=side"]);
    let refused = || instance.json(&["status"])["lock_boost"]["refused"].is_string();
    let began = Instant::now();
    while policy(holder) != DEADLINE && !refused() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "it never goes first"
        );
    }
    for child in [&mut waiter, &mut flock] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    kill9(holder);
    drop(side);
    nothing_left(&instance);
}
