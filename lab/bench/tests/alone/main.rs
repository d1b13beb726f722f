//! The load generators as the lab runs them: processes with a shared page and a pipe.
//!
//! No timing fails it: rates are checked against the workers' own clocks, with room for a machine
//! that others use.

use std::path::Path;

use tidegate_lab::clock::{monotonic_ns, sleep_until};
use tidegate_lab::loads::{Generator, Job, hog, server};
use tidegate_lab::runners::host::groups::{Group, Tree};
use tidegate_lab::runners::host::plain;
use tidegate_lab::runners::host::proc::Worker;
use tidegate_lab::scene::Latency;
use tidegate_sim::Bandwidth;

const SECOND: u64 = 1_000_000_000;

/// The program that has the subcommand `worker`.
fn exe() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tidegate-lab"))
}

fn start(threads: usize, generator: Generator) -> Worker {
    let job = Job {
        generator,
        threads,
        slice_us: 0,
    };
    Worker::start(exe(), &job, &[], &plain).expect("the worker starts")
}

/// Tiny requests, so that even a crowded machine can serve them.
fn tiny(per_second: f64) -> Generator {
    Generator::Server(server::Options {
        per_second,
        request_us: 50.0,
        seed: 1,
    })
}

#[test]
fn a_server_offers_its_rate_and_measures_it() {
    let mut worker = start(4, tiny(200.0));
    sleep_until(monotonic_ns() + SECOND / 4);
    worker.ask("measure").expect("an answer");
    sleep_until(monotonic_ns() + SECOND);
    let l = latency(&mut worker, "latency");
    assert!((60..=320).contains(&l.completed), "{} of 200", l.completed);
    assert!(l.avg_us > 0.0 && l.p50_us <= l.p99_us && l.p99_us <= l.max_us * 1.001);
}

fn latency(worker: &mut Worker, name: &str) -> Latency {
    let answer = worker.ask("report").expect("an answer");
    serde_json::from_value(answer[name].clone()).expect("latencies")
}

#[test]
fn a_level_is_ordered_ahead_and_taken_at_its_time() {
    let mut worker = start(1, Generator::Level);
    let now = monotonic_ns();
    let orders = [(0, 0), (SECOND / 5, 300_000)];
    worker
        .ask(&serde_json::json!([now, orders]).to_string())
        .expect("an answer");
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

#[test]
fn workers_live_and_die_in_their_groups() {
    let tree = match Tree::find().and_then(|tree| tree.writable().map(|()| tree)) {
        Ok(tree) => tree,
        Err(e) => return println!("skipped without groups: {e}"),
    };
    let group = Group::create(&tree, "side").expect("a group");
    group.set_idle().expect("idle");
    let max = Bandwidth::limit(20_000, 100_000);
    group.set_max(max).expect("a quota");
    let job = Job {
        generator: Generator::Hog(hog::Options::default()),
        threads: 2,
        slice_us: 0,
    };
    let files = group.membership();
    let side = Worker::start(exe(), &job, &files, &plain).expect("the hog starts");
    let (own, used) = (side.page.cpu_ns(), tree.usage_ns(&group.path));
    sleep_until(monotonic_ns() + SECOND);
    let own = side.page.cpu_ns() - own;
    let used = tree.usage_ns(&group.path) - used;
    // 20 ms each 100 ms, more or less a period and the ticks of two CPUs.
    assert!(own < SECOND * 4 / 10, "the quota holds: {own} ns");
    assert!(own.abs_diff(used) < SECOND / 10, "{own} and {used} ns");
    assert_eq!(tree.group_of(side.pid()).as_ref(), Some(&group.path));
    assert!(tree.counted(&group.path).nr_periods > 0);
    drop(side);
    drop(group);
    assert!(
        files.iter().all(|f| !f.exists()),
        "the groups are gone: {files:?}"
    );
}

#[test]
fn a_timer_task_measures_how_late_it_is() {
    let mut worker = start(1, Generator::Timer);
    worker.ask("measure").expect("an answer");
    sleep_until(monotonic_ns() + SECOND / 2);
    let l = latency(&mut worker, "wakeup");
    assert!((5..=520).contains(&l.completed), "{} wakeups", l.completed);
    assert!(l.p50_us > 0.0 && l.p50_us <= l.p99_us && l.p99_us <= l.max_us * 1.001);
}

#[test]
fn batches_are_served_as_they_are_due() {
    let mut worker = start(8, tiny(0.0));
    worker.ask("measure").expect("an answer");
    sleep_until(monotonic_ns() + SECOND);
    let request = latency(&mut worker, "latency");
    // 25 batches of 15 or 30.
    assert!(
        (1..=800).contains(&request.completed),
        "{} requests",
        request.completed
    );
    assert!(request.p50_us >= 40.0, "{request:?}");
}

#[test]
fn a_hog_tells_its_longest_stop() {
    let mut worker = start(
        1,
        Generator::Hog(hog::Options {
            work_us: 2000,
            sleep_us: 2000,
            ..hog::Options::default()
        }),
    );
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
    // It may have been stopped in a sleep of its own: then the stop is no more than what was left
    // after it.
    assert!(us > 0.0, "{told}");
}

#[test]
fn a_group_that_forks_counts_what_its_children_used() {
    let mut worker = start(2, Generator::Forks { work_us: 1000 });
    sleep_until(monotonic_ns() + SECOND / 2);
    let told = worker.ask("report").expect("an answer");
    let (forked, cpu_ns) = (told["forked"].as_u64(), told["cpu_ns"].as_u64());
    let (forked, cpu_ns) = (forked.expect("a count"), cpu_ns.expect("a time"));
    assert!(forked > 0, "{told}");
    // Each burns a millisecond at least, and the eight that run are counted as well.
    assert!(cpu_ns >= forked * 1_000_000, "{told}");
}

#[test]
fn a_worker_that_cannot_start_says_so() {
    let job = Job {
        generator: Generator::Level,
        threads: 1,
        slice_us: 0,
    };
    // Without its page and its job.
    let wrap = |words: &[String]| plain(&words[..2]);
    assert!(Worker::start(exe(), &job, &[], &wrap).is_err());
}
