//! The load generators as the lab runs them: processes with a board and a pipe. This test is its own
//! worker (`lab-worker` as first argument), as the `tidegate` binary is in production, and so has no
//! test harness.
//!
//! No timing fails it: rates are checked against the workers' own clocks, with room for a machine
//! that others use.

use std::path::Path;

use tidegate_lab::arms::{Arm, Placement, Stage, plain};
use tidegate_lab::cgroup::Hierarchy;
use tidegate_lab::clock::{monotonic_ns, sleep_until};
use tidegate_lab::dist::Latency;
use tidegate_lab::proc::{Worker, WorkerPlan};
use tidegate_lab::readers::{Reader, Source, shares};

const SECOND: u64 = 1_000_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "lab-worker") {
        std::process::exit(tidegate_lab::worker_main(&args[1..]));
    }
    if args.iter().any(|a| a == "--list") {
        return;
    }
    let exe = std::env::current_exe().expect("our own path");
    for (name, test) in [
        (
            "a server offers its rate and measures it",
            server as fn(&Path),
        ),
        ("a level is ordered ahead and taken at its time", level),
        ("workers live and die in their groups", groups),
        ("a worker that cannot start says so", broken),
    ] {
        test(&exe);
        println!("test {name} ... ok");
    }
}

fn start(exe: &Path, kind: &str, threads: usize, args: &[&str]) -> Worker {
    let args = args.iter().map(|a| (*a).to_string()).collect();
    Worker::start(
        &WorkerPlan {
            exe,
            kind,
            args,
            threads,
        },
        &[],
        &plain,
    )
    .expect("the worker starts")
}

fn server(exe: &Path) {
    // Tiny requests, so that even a crowded machine can serve them.
    let args = [
        "--per-second",
        "200",
        "--service-us",
        "50",
        "--steps-per-ms",
        "2000",
    ];
    let mut worker = start(exe, "server", 4, &args);
    sleep_until(monotonic_ns() + SECOND / 4);
    worker.ask("measure").expect("an answer");
    sleep_until(monotonic_ns() + SECOND);
    let l: Latency =
        serde_json::from_value(worker.ask("report").expect("an answer")).expect("latencies");
    assert!(
        (100..=320).contains(&l.offered),
        "offered {} of 200",
        l.offered
    );
    assert!(l.completed > 0 && l.avg_us > 0.0 && l.p50_us <= l.p99_us && l.p99_us <= l.max_us);
    assert!(l.cpu_ns > 0 && l.window_ns >= SECOND);
}

fn level(exe: &Path) {
    let worker = start(exe, "constant", 1, &["--level", "0"]);
    let now = monotonic_ns();
    worker.board.order_level(300_000, now + SECOND / 5, now);
    sleep_until(now + SECOND / 5);
    let before = worker.board.cpu_ns();
    sleep_until(now + SECOND / 5 + SECOND);
    let used = worker.board.cpu_ns() - before;
    assert!(before < SECOND / 50, "used {before} ns before its time");
    assert!(
        used > SECOND / 20 && used < SECOND * 36 / 100,
        "used {used} ns of 0.3 s"
    );
}

fn groups(exe: &Path) {
    let hierarchy = match Hierarchy::find() {
        Ok(h) => h,
        Err(e) => return println!("skipped without groups: {e}"),
    };
    let stage = Stage {
        exe,
        hierarchy: Some(&hierarchy),
        tidegate: None,
    };
    let placement = Placement::new(&stage, Arm::CpuIdle).expect("groups");
    let plan = WorkerPlan {
        exe,
        kind: "burner",
        args: Vec::new(),
        threads: 2,
    };
    let side = Worker::start(&plan, &placement.side_join(), &plain).expect("the burner starts");
    let group = placement.side_group().expect("a side group");
    group.set_quota(Some(20_000), 100_000).expect("a quota");
    let reader = Reader::new(Some(&hierarchy), &[side.pid()], None);
    let source = Source::Board(&side.board);
    let from = reader.snapshot(&Source::None, &source);
    let used = group.usage_ns();
    sleep_until(monotonic_ns() + SECOND);
    let to = reader.snapshot(&Source::None, &source);
    let s = shares(&from, &to, 1);
    // 20 ms each 100 ms, more or less a period and the ticks of two CPUs.
    assert!(
        s.side_pct < 40.0,
        "the quota holds: {} % of a CPU",
        s.side_pct
    );
    let by_group = (group.usage_ns() - used) as f64 / 1e7;
    assert!(
        (by_group - s.side_pct * s.seconds).abs() < 10.0,
        "{by_group} against {}",
        s.side_pct
    );
    let files = placement.side_join();
    drop(side);
    drop(placement);
    assert!(
        files.iter().all(|f| !f.exists()),
        "the groups are gone: {files:?}"
    );
}

fn broken(exe: &Path) {
    let plan = WorkerPlan {
        exe,
        kind: "no-such-kind",
        args: Vec::new(),
        threads: 1,
    };
    assert!(Worker::start(&plan, &[], &plain).is_err());
}
