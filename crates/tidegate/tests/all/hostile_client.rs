//! What a hostile client sends the agent's socket, byte by byte, as a user without rights. After
//! each, root is answered within a second by the same process, main's gate is there, no descriptor
//! is held, and what was refused is named.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{AS_NOBODY, Background, Instance, children, or_skip, wait_for};
use crate::support_fault::tell;
use crate::support_hostile::pen::Pen;
use crate::support_hostile::requests::requests;
use crate::support_hostile::{
    Before, CONNECTION, MIB, as_nobody, ask, connect, post, protected, request,
};
use crate::support_kill::stage::Stage;
use crate::support_kill::wait;

#[test]
fn requests_of_any_form_are_refused_by_name() {
    let (_instance, _main, before) = or_skip!(protected("requests"));
    let requests = requests();
    let count = requests.len() as u64;
    for (bytes, status, names) in requests {
        let begin = bytes[..bytes.len().min(80)].escape_ascii();
        let what = &format!("{begin} ({names})");
        let answer = as_nobody(|| ask(&before.socket, &bytes));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{what}: {answer}"
        );
        assert!(
            head.contains("application/problem+json"),
            "{what}: {answer}"
        );
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(names), "{what}: {detail}");
        assert!(body.len() < 2_048, "{what}: {} bytes", body.len());
        before.check_root(what);
        before.check_descriptors(what);
    }
    tell("hostile requests", count);
}

/// 300 processes with a cap each, and then another gate that asks for the same.
#[test]
fn groups_for_single_processes_are_bounded() {
    let (instance, _main, before) = or_skip!(protected("groups"));
    let forks = [
        "sh",
        "-c",
        "for i in $(seq 300); do sleep 1000 & done; wait",
    ];
    let many = Background::start(&[&AS_NOBODY[..], &forks].concat());
    wait_for("300 processes", || children(many.pid()).len() == 300);
    let target = format!("pid:{}", many.pid());
    let set = [
        "set",
        &target,
        "class=side",
        "cap_hard=50%",
        "cap_scope=process",
    ];
    let set = instance.by_nobody(&set).output().unwrap();
    assert!(set.status.success(), "{set:?}");
    wait_for("a full budget", || {
        let notes = instance.json(&["status"])["gates"].to_string();
        notes.contains("uid 65534 may have 256 groups") && notes.contains("some share one")
    });
    let one = [
        "run",
        "--side",
        "--cap",
        "50%",
        "--cap-scope",
        "process",
        "--",
        "true",
    ];
    let refused = instance.by_nobody(&one).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("budget: uid 65534 may have 256"), "{said}");
    assert!(said.contains("cap_scope=group"), "{said}");
    before.check_root("groups");
    drop(many);
    tell("groups for single processes", 300);
}

/// A hint for a process of 5,000 threads: root is answered all the while.
#[test]
fn a_process_with_many_threads_holds_nobody_up() {
    const THREADS: usize = 5_000;
    let (instance, _main, before) = or_skip!(protected("threads"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&is_over);
        for _ in 0..THREADS {
            let thread = std::thread::Builder::new().stack_size(16 * 1024);
            let wait = || {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::park_timeout(Duration::from_secs(1));
                }
            };
            thread.spawn_scoped(scope, wait).unwrap();
        }
        let target = format!("pid:{}", std::process::id());
        let words = ["set", &target, "--only", "latency=5"];
        let mut set = instance.tidegate(&words).spawn().unwrap();
        let said = loop {
            before.check_root("many threads");
            if let Some(status) = set.try_wait().unwrap() {
                break status;
            }
        };
        assert!(said.success());
        drop(ends);
    });
    tell("threads of one process", THREADS as u64);
}

/// How a client keeps connections and asks for nothing.
fn connections() -> Vec<(&'static str, usize, Vec<u8>)> {
    let half = request("POST /v1/run", "content-length: 1000\r\n", b"{");
    vec![
        ("100 that say nothing", 100, Vec::new()),
        ("100 with half a line", 100, b"GET /v1/st".to_vec()),
        ("100 with half a body", 100, half),
        (
            "1,000 requests in a row",
            1,
            request("GET /v1/status", "", b"").repeat(1000),
        ),
        (
            "100 that do not read",
            100,
            request("GET /v1/status", "", b""),
        ),
        (
            "100 streams that are not read",
            100,
            request("GET /v1/stream?topics=events,status&since=0", "", b""),
        ),
    ]
}

#[test]
fn connections_that_are_held_or_dropped_delay_no_call() {
    let (_instance, _main, before) = or_skip!(protected("connections"));
    for (what, count, bytes) in connections() {
        for dropped in [true, false] {
            let held: Vec<UnixStream> = as_nobody(|| {
                (0..count)
                    .map(|_| {
                        let mut stream = connect(&before.socket);
                        let _ = stream.write_all(&bytes);
                        stream
                    })
                    .filter(|_| !dropped)
                    .collect()
            });
            before.check_root(what);
            assert!(
                before.open() <= before.descriptors + 18,
                "{what}: 16 of a user's"
            );
            drop(held);
            before.check_descriptors(what);
        }
    }
    tell("connections held or dropped", 12);
}

/// A byte a second from each of 16 clients: they are cut off in the end, and root is answered all
/// the while.
#[test]
fn slow_clients_are_cut_off() {
    let (_instance, _main, before) = or_skip!(protected("slow"));
    let mut slow: Vec<UnixStream> =
        as_nobody(|| (0..16).map(|_| connect(&before.socket)).collect());
    let refused = as_nobody(|| ask(&before.socket, b""));
    assert!(
        refused.contains("uid 65534 has 16 connections"),
        "{refused}"
    );
    let began = Instant::now();
    for byte in request("GET /v1/status", "", b"") {
        slow.retain_mut(|stream| stream.write_all(&[byte]).is_ok());
        if slow.is_empty() {
            break;
        }
        before.check_root("a byte a second");
        std::thread::sleep(Duration::from_secs(1));
    }
    let lived = began.elapsed();
    assert!(
        slow.is_empty() && lived < CONNECTION,
        "{} after {lived:?}",
        slow.len()
    );
    before.check_descriptors("a byte a second");
    tell("slow clients", 16);
}

/// All at once, beside a main that works and side work that takes what it can: side work stays
/// limited, it is at the tolerance when main needs the machine, and root is answered.
#[test]
fn all_at_once_main_stays_protected() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: hostile: it becomes nobody, which takes root");
        return;
    }
    let stage = or_skip!(Stage::new("hostile"));
    let before = Before::new(stage.instance.run_dir().join("tidegate.sock"));
    let (over, runs_asked) = (AtomicBool::new(false), AtomicU64::new(0));
    // The attackers' own use is main's demand: with a limit on it, side work has something to lose
    // when main takes the machine.
    let Some(pen) = Pen::new(stage.instance.prefix()) else {
        eprintln!(
            "skipped: hostile: threads of one process have groups of their own on cgroup v1 alone"
        );
        return;
    };
    let attack = |bytes: Vec<u8>, held_for: Duration| {
        let (socket, over, pen) = (before.socket.clone(), &over, &pen);
        move || {
            pen.enter();
            as_nobody(|| {
                let mut made = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    let mut stream = connect(&socket);
                    let _ = stream.write_all(&bytes);
                    std::thread::sleep(held_for);
                    made += 1;
                }
                made
            })
        }
    };
    let noise = vec![0xff; 8 * MIB];
    let half = request("POST /v1/run", "content-length: 1000\r\n", b"{");
    let deep = post("/v1/set", "[".repeat(100_000));
    let read = request("GET /v1/status", "", b"");
    let moment = Duration::from_millis(1);
    let asked: u64 = std::thread::scope(|scope| {
        let mut attacks = vec![
            scope.spawn(attack(noise, moment)),
            scope.spawn(attack(deep, moment)),
            scope.spawn(attack(read, moment)),
        ];
        for _ in 0..20 {
            attacks.push(scope.spawn(attack(half.clone(), Duration::from_millis(500))));
        }
        let runs = scope.spawn(|| {
            pen.enter();
            many_runs(&stage.instance, &over, &runs_asked);
        });
        let ends = Ends(&over);
        main_takes_all(&stage, &before, &runs_asked);
        drop(ends);
        let asked = attacks
            .into_iter()
            .map(|attack| attack.join().unwrap())
            .sum::<u64>();
        runs.join().unwrap();
        asked
    });
    stage.watch.check();
    before.check_root("after all");
    eprintln!("hostile clients: {asked} connections beside main's starts");
    stage.end();
}

/// Ends the attacks, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Main takes the machine now and then: side work is at the tolerance soon.
fn main_takes_all(stage: &Stage, before: &Before, runs_asked: &AtomicU64) {
    const ROUNDS: usize = 3;
    // More than a user may have.
    const RUNS: u64 = 100;
    // Of the start of a process and a loop of 5 ms, beside all that the attackers take.
    const CUT: Duration = Duration::from_secs(2);
    let limit = stage.limit();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // The default tolerance is 1 %; periods are whole microseconds.
    let tolerance_ucpu = 10_010 * cpus as u64;
    let mut cuts = Vec::new();
    let mut rounds = 0;
    while rounds < ROUNDS || runs_asked.load(Ordering::Relaxed) < RUNS {
        rounds += 1;
        let is_above = || {
            limit
                .rate_ucpu()
                .is_some_and(|rate| rate > 2 * tolerance_ucpu)
        };
        // Other tests may take the machine all the while.
        let began = Instant::now();
        while !is_above() && began.elapsed() < CUT {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (has_to_lose, began) = (is_above(), Instant::now());
        before.check_root("all at once");
        let hog = "while :; do :; done & ".repeat(cpus) + "wait";
        let hogs = stage.instance.background(&["--main"], &["sh", "-c", &hog]);
        let is_cut = || limit.rate_ucpu().is_some_and(|rate| rate <= tolerance_ucpu);
        wait("the cut", CUT, is_cut);
        if has_to_lose {
            cuts.push(began.elapsed());
        }
        before.check_root("all at once, main takes all");
        drop(hogs);
    }
    eprintln!("hostile clients: from main's start to the tolerance in {cuts:?}");
}

/// A user that asks for one gate after the other.
fn many_runs(instance: &Instance, over: &AtomicBool, asked: &AtomicU64) {
    let mut running = Vec::new();
    while !over.load(Ordering::Relaxed) && running.len() < 1_000 {
        let run = ["run", "--side", "--quiet", "--", "sleep", "1000"];
        let mut command = instance.by_nobody(&run);
        command.stderr(std::process::Stdio::null()).process_group(0);
        running.push(Background(command.spawn().unwrap()));
        asked.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(5));
    }
}
