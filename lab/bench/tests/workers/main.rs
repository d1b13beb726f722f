//! The load generators as the lab runs them: processes with a shared page and a pipe. This test is its own
//! worker (`lab-worker` as first argument), as the `tidegate` binary is in production, and so has no
//! test harness.
//!
//! No timing fails it: rates are checked against the workers' own clocks, with room for a machine
//! that others use.

use std::path::Path;

use tidegate_lab::beds::host::arms::{Arm, Placement, Stage, plain};
use tidegate_lab::beds::host::cgroup::Hierarchy;
use tidegate_lab::beds::host::proc::{Worker, WorkerPlan};
use tidegate_lab::beds::host::samplers::{Sampler, Source, shares};
use tidegate_lab::clock::{monotonic_ns, sleep_until};
use tidegate_lab::dist::Latency;

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
        ("a timer task measures how late it is", timer),
        ("all messages of hackbench arrive", messages),
        ("a service is woken and answers", service),
        ("batches are served as they are due", batches),
        ("a hog tells its longest stop", stops),
        ("a group that forks counts what its children used", forks),
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
    worker.page.order_level(300_000, now + SECOND / 5, now);
    sleep_until(now + SECOND / 5);
    let before = worker.page.cpu_ns();
    sleep_until(now + SECOND / 5 + SECOND);
    let used = worker.page.cpu_ns() - before;
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
    let sampler = Sampler::new(Some(&hierarchy), &[side.pid()], None);
    let source = Source::Page(&side.page);
    let from = sampler.snapshot(&Source::None, &source);
    let used = group.usage_ns();
    sleep_until(monotonic_ns() + SECOND);
    let to = sampler.snapshot(&Source::None, &source);
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

fn timer(exe: &Path) {
    let mut worker = start(exe, "cyclictest", 1, &["--interval-us", "2000"]);
    worker.ask("measure").expect("an answer");
    sleep_until(monotonic_ns() + SECOND / 2);
    let l: Latency = worker.report("").expect("latencies");
    assert!((5..=260).contains(&l.completed), "{} wakeups", l.completed);
    assert!(l.p50_us > 0.0 && l.p50_us <= l.p99_us && l.p99_us <= l.max_us * 1.001);
}

fn messages(exe: &Path) {
    let mut worker = start(exe, "hackbench", 1, &["--groups", "2", "--loops", "16"]);
    let answer = worker.ask_within("run", 120).expect("an answer");
    assert!(
        answer["seconds"].as_f64().expect("seconds") > 0.0,
        "{answer}"
    );
    // 20 senders, 20 receivers, 16 messages from each to each, in two groups.
    assert_eq!(answer["messages"], 2 * 20 * 20 * 16);
    let mut endless = start(
        exe,
        "hackbench",
        1,
        &["--groups", "1", "--loops", "0", "--pipes", "0"],
    );
    endless.ask_within("run", 60).expect("an answer");
    sleep_until(monotonic_ns() + SECOND / 3);
    assert!(endless.page.count() > 0, "nothing was sent");
    let group = endless.pid();
    drop(endless);
    let gone = |_: &i32| {
        tidegate_lab::beds::host::proc::group_members(group)
            .iter()
            .all(|p| ended(*p))
    };
    assert!(
        (0..500).any(|turn| {
            sleep_until(monotonic_ns() + SECOND / 100);
            gone(&turn)
        }),
        "its processes went with it"
    );
}

/// Gone, or waiting for its parent to notice.
fn ended(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |s| s.contains(") Z "))
}

fn service(exe: &Path) {
    let args = [
        "--workers",
        "2",
        "--request-us",
        "50",
        "--per-second",
        "200",
    ];
    let mut worker = start(exe, "schbench", 3, &args);
    worker.ask("measure").expect("an answer");
    sleep_until(monotonic_ns() + SECOND / 2);
    let wakeup: Latency = worker.report("wakeup").expect("latencies");
    let request: Latency = worker.report("request").expect("latencies");
    assert!(
        wakeup.completed > 0 && wakeup.p50_us <= request.p50_us,
        "{wakeup:?} {request:?}"
    );
}

fn batches(exe: &Path) {
    let mut worker = start(exe, "bursty", 8, &["--request-us", "50"]);
    worker.ask("measure").expect("an answer");
    sleep_until(monotonic_ns() + SECOND);
    let request: Latency = worker.report("request").expect("latencies");
    // 25 batches of 15 or 30.
    assert!(
        (1..=800).contains(&request.completed),
        "{} requests",
        request.completed
    );
    assert!(request.p50_us >= 40.0, "{request:?}");
}

fn stops(exe: &Path) {
    let mut worker = start(exe, "hog", 1, &["--work-us", "2000", "--sleep-us", "2000"]);
    worker.ask("measure").expect("an answer");
    let used = worker.page.cpu_ns();
    sleep_until(monotonic_ns() + SECOND / 2);
    let used = worker.page.cpu_ns() - used;
    assert!(
        used > 0 && used < SECOND * 3 / 10,
        "{used} ns of half a second, half of it asleep"
    );
    // SAFETY: plain numbers; the worker is our own child.
    unsafe {
        libc::kill(worker.pid(), libc::SIGSTOP);
        sleep_until(monotonic_ns() + SECOND / 5);
        libc::kill(worker.pid(), libc::SIGCONT);
    }
    sleep_until(monotonic_ns() + SECOND / 5);
    let told = worker.ask("report").expect("an answer");
    let us = told["longest_stop_us"].as_f64().expect("a number");
    // It may have been stopped in a sleep of its own: then the stop is no more than what was left after it.
    assert!(us > 0.0, "{told}");
}

fn forks(exe: &Path) {
    let mut worker = start(exe, "forks", 2, &["--work-us", "1000"]);
    sleep_until(monotonic_ns() + SECOND / 2);
    let told = worker.ask("report").expect("an answer");
    let (forked, cpu_ns) = (told["forked"].as_u64(), told["cpu_ns"].as_u64());
    let (forked, cpu_ns) = (forked.expect("a count"), cpu_ns.expect("a time"));
    assert!(forked > 0, "{told}");
    // Each burns a millisecond at least, and the eight that run are counted as well.
    assert!(cpu_ns >= forked * 1_000_000, "{told}");
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
