//! Kill −9 at random moments while a real main and real side work run: the first promise of
//! docs/failure-contract.md holds each time, no process is lost, and the next start is clean.
//!
//! `TIDEGATE_KILLS=200 cargo test -p tidegate --test all kill:: -- --nocapture` is the long form;
//! `TIDEGATE_SEED` repeats one.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Instance, describe, ends_with, or_skip, stdout};
use crate::support_kill::processes::{Known, agents, guardians, kill9, signal};
use crate::support_kill::stage::{Stage, nothing_left};
use crate::support_kill::{Coin, LEASE, kills, wait};

/// The slowest of several times, printed at the end.
#[derive(Default)]
struct Slowest(Duration);

impl Slowest {
    fn add(&mut self, time: Duration) {
        self.0 = self.0.max(time);
    }
}

#[test]
fn the_agent_is_killed() {
    let mut stage = or_skip!(Stage::new("kill-agent"));
    let mut coin = Coin::new("the_agent_is_killed");
    let mut slowest = Slowest::default();
    for _ in 0..kills() {
        coin.sleep_us(400_000);
        let dead = stage.kill_agent();
        slowest.add(stage.next_agent(dead));
        stage.check();
    }
    eprintln!(
        "the agent is killed: {} times, back within {:?}",
        kills(),
        slowest.0
    );
    stage.end();
}

/// A guardian that is stopped would not act: it is killed, another takes its place, and both are
/// told of.
#[test]
fn a_stopped_guardian_is_replaced() {
    let stage = or_skip!(Stage::new("stop-guardian"));
    let agent = stage.agent();
    let stopped = stage.guardian().unwrap();
    signal(stopped, libc::SIGSTOP);
    let another = || {
        let now = stage.guardian();
        now.is_some_and(|guardian| guardian != stopped) && Known::new(stopped).is_none()
    };
    let took = wait("another guardian", LEASE * 2, another);
    assert_eq!(stage.agent(), agent, "the agent stays");
    let alerts = stage.instance.json(&["status"])["alerts"].to_string();
    assert!(
        alerts.contains("guardian") && alerts.contains("replaced"),
        "{alerts}"
    );
    stage.check_work();
    eprintln!("a stopped guardian is replaced within {took:?}");
    stage.end();
}

/// What a stopped agent did not answer says so, and does not happen later.
#[test]
fn a_stopped_agent_is_named() {
    let stage = or_skip!(Stage::new("stop-agent"));
    let agent = stage.agent().unwrap();
    signal(agent, libc::SIGSTOP);
    let output = stage.instance.output(&["agent", "stop"]);
    let said = String::from_utf8_lossy(&output.stderr);
    signal(agent, libc::SIGCONT);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains(&format!("kill -CONT {agent}")), "{said}");
    std::thread::sleep(LEASE);
    assert_eq!(stage.agent(), Some(agent), "the agent stays");
    stage.check_work();
    stage.end();
}

/// A `run` of a command that would go on for long, not waited for.
fn run_in_flight(instance: &Instance, class: &str) -> Child {
    let mut run = instance.tidegate(&["run", "--quiet", class, "--", "sleep", "100"]);
    run.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    run.spawn().unwrap()
}

fn end(run: &mut Child) {
    // A process that was made and not waited for yet: the number is still its own.
    kill9(run.id() as i32);
    run.wait().unwrap();
}

#[test]
fn run_is_killed() {
    let stage = or_skip!(Stage::new("kill-run"));
    let mut coin = Coin::new("run_is_killed");
    let agent = stage.agent();
    for nth in 0..kills() {
        let mut run = run_in_flight(&stage.instance, ["--side", "--main"][nth as usize % 2]);
        // Before it is placed, while it is, and now and then as the command that it has become.
        let rarely = coin.below(4) == 0;
        coin.sleep_us(if rarely { 300_000 } else { 30_000 });
        end(&mut run);
        stage.check();
        assert_eq!(stage.agent(), agent, "the agent stays");
    }
    stage.wait_for_two_gates();
    eprintln!("run is killed: {} times", kills());
    stage.end();
}

/// The first `run` starts the agent; killing that `run` meanwhile must not spoil the next.
#[test]
fn run_is_killed_while_it_starts_the_agent() {
    let instance = or_skip!(Instance::new("kill-start"));
    let mut coin = Coin::new("run_is_killed_while_it_starts_the_agent");
    for _ in 0..kills().min(50) {
        let mut run = run_in_flight(&instance, "--side");
        coin.sleep_us(60_000);
        end(&mut run);
        let output = instance.output(&["run", "--side", "--", "true"]);
        ends_with(&output, 0);
        // The one that the killed run had begun to start and the next one's: the later leaves when
        // the other answers.
        wait("one agent", LEASE, || agents(instance.prefix()).len() == 1);
        for pid in agents(instance.prefix())
            .into_iter()
            .chain(guardians(instance.prefix()))
        {
            // The next round starts from nothing.
            kill9(pid);
        }
        wait("them to end", Duration::from_secs(5), || {
            agents(instance.prefix()).is_empty() && guardians(instance.prefix()).is_empty()
        });
    }
    instance.ok(&["run", "--side", "--", "true"]);
    nothing_left(&instance);
}

/// A command ends as it should, in a gate, whatever happened before; there is one agent then, which
/// took up what it found.
fn start_is_clean(stage: &mut Stage) {
    let output = stage
        .instance
        .output(&["run", "--side", "--", "cat", "/proc/self/cgroup"]);
    ends_with(&output, 0);
    let group = format!("{}-side/cat", stage.instance.prefix());
    assert!(stdout(&output).contains(&group), "{}", describe(&output));
    stage.check();
}

#[test]
fn agent_and_guardian_are_killed_at_once() {
    let mut stage = or_skip!(Stage::new("kill-both"));
    let mut coin = Coin::new("agent_and_guardian_are_killed_at_once");
    for _ in 0..kills() {
        coin.sleep_us(300_000);
        let guardian = stage.guardian().unwrap();
        let first = coin.below(2) == 0;
        if first {
            kill9(guardian);
        }
        let agent = stage.kill_agent();
        if !first {
            kill9(guardian);
        }
        // Neither process lives: the last limits stay in force.
        coin.sleep_us(300_000);
        stage.check_work();
        assert!(stage.limit().rate_ucpu().is_some());
        start_is_clean(&mut stage);
        stage.next_agent(agent);
    }
    eprintln!("agent and guardian are killed at once: {} times", kills());
    stage.end();
}

/// `tidegate WORDS`, whose output is read in the end.
fn started(instance: &Instance, words: &[&str]) -> Child {
    let mut run = instance.tidegate(words);
    run.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    run.spawn().unwrap()
}

/// What a `run` wants of an agent that dies meanwhile it gets of the next.
#[test]
fn runs_outlive_the_agent_that_they_speak_to() {
    let mut stage = or_skip!(Stage::new("kill-speaker"));
    let mut coin = Coin::new("runs_outlive_the_agent_that_they_speak_to");
    for _ in 0..kills() {
        let words = |class| ["run", class, "--", "cat", "/proc/self/cgroup"];
        let runs =
            ["--side", "--main", "--side"].map(|class| started(&stage.instance, &words(class)));
        coin.sleep_us(30_000);
        let dead = stage.kill_agent();
        for run in runs {
            let output = run.wait_with_output().unwrap();
            ends_with(&output, 0);
            assert!(
                stdout(&output).contains(stage.instance.prefix()),
                "{}",
                describe(&output)
            );
        }
        stage.next_agent(dead);
        stage.check();
    }
    stage.end();
}

/// Says where it is, and stays a while.
const PLACE: &str = "cat /proc/self/cgroup; sleep 1";

#[test]
fn ten_runs_at_once_make_one_agent() {
    let instance = or_skip!(Instance::new("kill-ten"));
    let runs: Vec<Child> = (0..10)
        .map(|_| started(&instance, &["run", "--side", "--", "sh", "-c", PLACE]))
        .collect();
    let gates = || {
        let answers = instance.agent().is_some();
        answers && instance.json(&["status"])["gates"].as_array().map(Vec::len) == Some(10)
    };
    wait("ten gates", Duration::from_secs(10), gates);
    assert_eq!(agents(instance.prefix()).len(), 1);
    let group = format!("{}-side/", instance.prefix());
    for run in runs {
        let output = run.wait_with_output().unwrap();
        ends_with(&output, 0);
        assert!(stdout(&output).contains(&group), "{}", describe(&output));
    }
    nothing_left(&instance);
}

/// Between the last gate's end and the agent's there is a moment at which the next command begins.
#[test]
fn a_run_that_begins_as_the_agent_leaves_gets_a_gate() {
    let instance = or_skip!(Instance::new("kill-leave"));
    let mut coin = Coin::new("a_run_that_begins_as_the_agent_leaves_gets_a_gate");
    // A round takes as long as an agent takes to leave, twice.
    for _ in 0..kills().div_ceil(3).min(20) {
        let before = instance.output(&["run", "--side", "--", "true"]);
        ends_with(&before, 0);
        let began = Instant::now();
        wait("the socket to go", Duration::from_secs(15), || {
            !instance.run_dir().join("tidegate.sock").exists()
        });
        // The next ones hit the moment about which this is.
        let leaves_after = began.elapsed();
        instance.ok(&["run", "--side", "--", "true"]);
        let early = leaves_after.saturating_sub(Duration::from_micros(coin.below(60_000)));
        std::thread::sleep(early);
        let output = instance.output(&["run", "--side", "--", "cat", "/proc/self/cgroup"]);
        ends_with(&output, 0);
        assert!(
            stdout(&output).contains(instance.prefix()),
            "{}",
            describe(&output)
        );
    }
    nothing_left(&instance);
}
