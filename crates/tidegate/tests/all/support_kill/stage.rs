//! The stage: one instance with a real main and real side work, whose processes are known by number
//! and start time.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::processes::{Known, agents, guardians, kill9};
use super::watch::{Limit, Watch};
use super::{LEASE, OF_AGE, wait};
use crate::common::{Background, Instance, children, cpu_mount};

/// Every hungry shell starts a child that counts, and then the next; a child that does not end well
/// is told.
const HUNGRY: &str = r#"
hog() { while :; do sh -c 'n=0; while [ $n -lt 30000 ]; do n=$((n+1)); done' || echo lost >> "$1"; done; }
hog "$0" & hog "$0" & hog "$0" &
wait
"#;

/// Works for some milliseconds and sleeps for some.
const DUTY: &str = "while :; do n=0; while [ $n -lt 4000 ]; do n=$((n+1)); done; sleep 0.01; done";

/// A main and side work that never ends, and what is known of them.
pub struct Stage {
    pub instance: Instance,
    main: Background,
    side: Background,
    /// Main's shell, side's shell and its hogs: only this test ends them.
    known: Vec<Known>,
    lost: PathBuf,
    pub watch: Watch,
    born: Instant,
    young_deaths: u32,
}

impl Stage {
    /// `None` where it cannot be had (the reason was printed).
    pub fn new(name: &str) -> Option<Stage> {
        let instance = Instance::new(name)?;
        let lost = instance.path().join("lost");
        let told = lost.to_str().unwrap().to_owned();
        let main = instance.background(
            &["--main", "--name", "main", "--headroom", "30%"],
            &["sh", "-c", DUTY],
        );
        instance.gate("main");
        let side = instance.background(&["--side", "--name", "side"], &["sh", "-c", HUNGRY, &told]);
        instance.gate("side");
        let side_pid = side.pid() as i32;
        wait("the hungry shells", Duration::from_secs(10), || {
            children(side.pid()).len() == 3
        });
        let mut pids = vec![main.pid() as i32, side_pid];
        pids.extend(children(side.pid()).into_iter().map(|pid| pid as i32));
        let known = pids
            .into_iter()
            .map(|pid| Known::new(pid).unwrap())
            .collect();
        let watch = Watch::begin(&side_root(&instance));
        Some(Stage {
            instance,
            main,
            side,
            known,
            lost,
            watch,
            born: Instant::now(),
            young_deaths: 0,
        })
    }

    /// Until main's and side's gates are left.
    pub fn wait_for_two_gates(&self) {
        let gates = || {
            self.instance.json(&["status"])["gates"]
                .as_array()
                .map(Vec::len)
        };
        wait("the other gates to end", Duration::from_secs(10), || {
            gates() == Some(2)
        });
    }

    /// The side root's limit, as the kernel has it.
    pub fn limit(&self) -> Limit {
        Limit::open(&side_root(&self.instance)).unwrap()
    }

    /// The agent, when there is exactly one and it answers.
    pub fn agent(&self) -> Option<i32> {
        let output = self.instance.output(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let pid = status["pid"].as_i64()? as i32;
        (agents(self.instance.prefix()) == [pid]).then_some(pid)
    }

    /// The guardian, when there is exactly one.
    pub fn guardian(&self) -> Option<i32> {
        match guardians(self.instance.prefix())[..] {
            [pid] => Some(pid),
            _ => None,
        }
    }

    /// Ends the agent. Guardians bring back at most five in a row that die young: after three, it
    /// comes of age first.
    pub fn kill_agent(&mut self) -> i32 {
        if self.young_deaths >= 3 {
            std::thread::sleep(OF_AGE.saturating_sub(self.born.elapsed()));
        }
        self.young_deaths = if self.born.elapsed() >= OF_AGE {
            0
        } else {
            self.young_deaths + 1
        };
        let [agent] = agents(self.instance.prefix())[..] else {
            panic!("not one agent: {:?}", agents(self.instance.prefix()));
        };
        kill9(agent);
        agent
    }

    /// Waits until another agent than `dead` answers; says how long that took.
    pub fn next_agent(&mut self, dead: i32) -> Duration {
        let took = wait("another agent", Duration::from_secs(10), || {
            self.agent().is_some_and(|agent| agent != dead)
        });
        self.born = Instant::now();
        took
    }

    /// Waits until one agent with one guardian stands, and looks at everything.
    pub fn check(&self) {
        let mut status = serde_json::Value::Null;
        wait("one agent with one guardian", LEASE * 3, || {
            let output = self.instance.output(&["status", "--json"]);
            status = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let guardian = self.guardian().map(i64::from);
            self.agent().is_some()
                && guardian.is_some()
                && status["guardian_pid"].as_i64() == guardian
        });
        self.check_work();
        assert_eq!(status["alerts"], serde_json::json!([]), "{status:#}");
        let names: BTreeSet<&str> = status["gates"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|gate| gate["name"].as_str())
            .collect();
        assert!(
            names.contains("main") && names.contains("side"),
            "{names:?}"
        );
        assert_eq!(
            status["headroom_ratio"], 0.3,
            "the terms are known: {status:#}"
        );
    }

    /// Main and side work are as they were, wherever they were, and were never let loose.
    pub fn check_work(&self) {
        for known in &self.known {
            assert!(known.is_alive(), "process {} was lost", known.pid);
        }
        assert!(
            !self.lost.exists(),
            "a child of side work was ended by another process"
        );
        let place = |pid: i32| crate::common::cgroups_of(pid as u32);
        let prefix = self.instance.prefix();
        assert!(place(self.known[0].pid).contains(&format!("{prefix}-main/main")));
        for known in &self.known[1..] {
            assert!(
                place(known.pid).contains(&format!("{prefix}-side/side")),
                "{}",
                place(known.pid)
            );
        }
        self.watch.check();
    }

    /// The commands end; nothing of ours is left then.
    pub fn end(self) {
        let Stage {
            instance,
            main,
            side,
            lost,
            watch,
            ..
        } = self;
        assert!(
            !lost.exists(),
            "a child of side work was ended by another process"
        );
        let looks = watch.end();
        eprintln!("{}: watched {looks} times", instance.prefix());
        drop(main);
        drop(side);
        nothing_left(&instance);
    }
}

pub fn side_root(instance: &Instance) -> PathBuf {
    cpu_mount().0.join(format!("{}-side", instance.prefix()))
}

/// Waits until the agent has left by itself and insists that nothing of the instance is there any
/// more.
pub fn nothing_left(instance: &Instance) {
    instance.gone();
    wait(
        "the agent and its guardian to end",
        Duration::from_secs(10),
        || agents(instance.prefix()).is_empty() && guardians(instance.prefix()).is_empty(),
    );
    for file in ["ledger.json", "gates.json", "tidegate.sock"] {
        assert!(!instance.run_dir().join(file).exists(), "{file} was left");
    }
    assert_eq!(instance.groups_left(), Vec::<PathBuf>::new());
}
