//! The BPF sensor on the machine at hand, against the kernel's own account of a pinned hog.
//!
//! Needs root, BTF and a cpu controller that may be written; each test says in one line why it
//! was skipped where that is missing.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bed::{Hog, TestGroup, able};
use tidegate_engine::sense::{BpfSensor, Counters, SenseConfig, Sensor, UsageSensor};

const MS: u64 = 1_000_000;

fn sample(sensor: &mut dyn Sensor) -> Counters {
    let mut out = Counters::default();
    sensor.sample(&mut out).unwrap();
    out
}

/// The sensor's and the kernel's account of hogs on one CPU at the same moment. The kernel brings
/// another process's clock up to date at its ticks only, so a change of it is waited for; taken
/// again when the test was put off its own CPU in between, with patience that grows to 5 ms.
fn both(sensor: &mut dyn Sensor, hogs: &[&Hog]) -> (Counters, Vec<u64>) {
    let clocks = || hogs.iter().map(|hog| hog.cpu_ns()).collect::<Vec<_>>();
    for attempt in 0..100 {
        let (start, before) = (Instant::now(), clocks());
        // The update came after `unchanged_at`, when a reading began that did not see it.
        let (mut unchanged_at, mut at) = (start, Instant::now());
        while clocks() == before && start.elapsed() < Duration::from_millis(500) {
            (unchanged_at, at) = (at, Instant::now());
        }
        let (out, ran) = (sample(sensor), clocks());
        if unchanged_at.elapsed() < Duration::from_micros(200 + 50 * attempt) {
            return (out, ran);
        }
        sleep(Duration::from_millis(1));
    }
    panic!("100 readings were disturbed: the machine is too loud to measure on");
}

fn bpf(side: &[&TestGroup], main: &[&TestGroup]) -> BpfSensor {
    let groups = |of: &[&TestGroup]| of.iter().map(|one| one.group()).collect::<Vec<_>>();
    BpfSensor::open(&SenseConfig::detect(), &groups(side), &groups(main)).unwrap()
}

/// Samples every 5 ms as the control loop does, and checks that nothing goes back.
fn watch(sensor: &mut dyn Sensor, time: Duration) -> Counters {
    let (end, mut last) = (Instant::now() + time, sample(sensor));
    while Instant::now() < end {
        sleep(Duration::from_millis(5));
        let now = sample(sensor);
        assert!(now.now_ns >= last.now_ns && now.capacity_ns >= last.capacity_ns);
        assert!(now.side_ns >= last.side_ns && now.main_ns >= last.main_ns);
        assert!(now.busy_ns >= last.busy_ns && now.busy_ns <= now.capacity_ns);
        assert!(now.busy_ns - last.busy_ns <= now.capacity_ns - last.capacity_ns);
        last = now;
    }
    last
}

fn close(what: &str, seen: u64, asked: u64, off_max: u64) -> Result<(), String> {
    if seen.abs_diff(asked) <= off_max {
        return Ok(());
    }
    Err(format!("{what}: {seen} ns, not {asked} ± {off_max}"))
}

/// Measures up to three times: on a shared machine a virtual CPU that stands still between two
/// readings spoils a measurement, but what is wrong in the sensor is wrong every time.
fn measured(mut measure: impl FnMut() -> Result<(), String>) {
    let mut why = String::new();
    for _ in 0..3 {
        match measure() {
            Ok(()) => return,
            Err(off) => why = format!("{why}\n{off}"),
        }
    }
    panic!("three times:{why}");
}

#[test]
fn a_hog_is_seen_as_side_within_one_percent() {
    let Some(_quiet) = able() else { return };
    let group = TestGroup::top("side");
    let hog = Hog::on(0);
    group.take(hog.pid());
    let mut sensor = bpf(&[&group], &[]);
    sleep(Duration::from_millis(20));
    measured(|| {
        let (first, before) = both(&mut sensor, &[&hog]);
        watch(&mut sensor, Duration::from_secs(1));
        let (last, after) = both(&mut sensor, &[&hog]);
        let hog_ns = after[0] - before[0];
        let side_ns = last.side_ns - first.side_ns;
        // The kernel's account leaves steal out of the hog's time or not, by its config.
        let steal_ns = last.steal_ns - first.steal_ns;
        // Idle, side, main and neutral are all the time there was.
        let wall_ns = (last.now_ns - first.now_ns) * u64::from(last.online_cpus);
        let all_ns = last.capacity_ns - first.capacity_ns + steal_ns;
        assert!(last.valid);
        close("all classes", all_ns, wall_ns, wall_ns / 200)?;
        close("side", side_ns, hog_ns, hog_ns / 100 + steal_ns + MS)
    });
}

#[test]
fn nested_groups_belong_to_the_nearest_root() {
    let Some(_quiet) = able() else { return };
    let side = TestGroup::top("side");
    let slice = side.below("slice");
    let deep = slice.below("deep");
    let main = side.below("main");
    let hogs = [Hog::on(0), Hog::on(0)];
    deep.take(hogs[0].pid());
    main.take(hogs[1].pid());
    let mut sensor = bpf(&[&side], &[&main]);
    let hogs = hogs.each_ref();
    measured(|| {
        let (first, before) = both(&mut sensor, &hogs);
        watch(&mut sensor, Duration::from_millis(500));
        let (last, after) = both(&mut sensor, &hogs);
        let ran = [0, 1].map(|at| after[at] - before[at]);
        let off_max = 10 * MS + last.steal_ns - first.steal_ns;
        close("side", last.side_ns - first.side_ns, ran[0], off_max)?;
        close("main", last.main_ns - first.main_ns, ran[1], off_max)
    });
}

/// How long the sensor takes to notice that `hog`, which runs on without a switch, joined side.
fn noticed_after(sensor: &mut dyn Sensor, side: &TestGroup, hog: &Hog) -> Duration {
    let before_ns = sample(sensor).side_ns;
    side.take(hog.pid());
    let start = Instant::now();
    // The kernel may take a while over the move itself, but not half a second.
    while sample(sensor).side_ns < before_ns + MS && start.elapsed() < Duration::from_millis(500) {
        sleep(Duration::from_micros(500));
    }
    start.elapsed()
}

#[test]
fn a_move_counts_from_the_next_sample() {
    let Some(_quiet) = able() else { return };
    let (side, other) = (TestGroup::top("side"), TestGroup::top("other"));
    let hog = Hog::on(std::thread::available_parallelism().map_or(0, |count| count.get() - 1));
    let mut sensor = bpf(&[&side], &[]);
    // Alone on its CPU the hog is looked at every 100 ms in any case: so many at once are no luck.
    let mut times: Vec<Duration> = (0..7)
        .map(|_| {
            other.take(hog.pid());
            sleep(Duration::from_millis(15));
            noticed_after(&mut sensor, &side, &hog)
        })
        .collect();
    times.sort();
    assert!(
        times[3] < Duration::from_millis(20),
        "noticed after {times:?}"
    );
}

#[test]
fn gates_that_come_later_count_from_then() {
    let Some(_quiet) = able() else { return };
    let (side, late) = (TestGroup::top("side"), TestGroup::top("late"));
    let hog = Hog::on(0);
    late.take(hog.pid());
    let mut sensor = bpf(&[&side], &[]);
    let pause = Duration::from_millis(200);
    let none = watch(&mut sensor, pause);
    assert_eq!(none.side_ns, 0, "nobody is in side yet");
    measured(|| {
        let (first, before) = both(&mut sensor, &[&hog]);
        sensor
            .set_groups(&[side.group(), late.group()], &[])
            .unwrap();
        watch(&mut sensor, pause);
        let (gated, after) = both(&mut sensor, &[&hog]);
        let off_max = 10 * MS + gated.steal_ns - first.steal_ns;
        let (side_ns, ran_ns) = (gated.side_ns - first.side_ns, after[0] - before[0]);
        close("side", side_ns, ran_ns, off_max)?;

        sensor.set_groups(&[side.group()], &[late.group()]).unwrap();
        watch(&mut sensor, pause);
        let (main, last) = both(&mut sensor, &[&hog]);
        let off_max = 10 * MS + main.steal_ns - gated.steal_ns;
        let (main_ns, ran_ns) = (main.main_ns - gated.main_ns, last[0] - after[0]);
        close("side, no longer", main.side_ns, gated.side_ns, off_max)?;
        close("main", main_ns, ran_ns, off_max)
    });
}

#[test]
fn usage_sensing_agrees_to_a_few_ticks() {
    let Some(_quiet) = able() else { return };
    let group = TestGroup::top("usage");
    let hog = Hog::on(0);
    group.take(hog.pid());
    let config = SenseConfig::detect();
    let mut sensor = UsageSensor::open(&config, &[group.group()], &[]).unwrap();
    measured(|| {
        let (first, before) = both(&mut sensor, &[&hog]);
        sleep(Duration::from_millis(1000));
        let (last, after) = both(&mut sensor, &[&hog]);
        let ran_ns = after[0] - before[0];
        let off_max = ran_ns / 100 + 2 * sensor.granularity_ns();
        let busy_ns = last.busy_ns - first.busy_ns;
        close("busy", busy_ns.min(ran_ns), ran_ns, 2 * off_max)?;
        close("side", last.side_ns - first.side_ns, ran_ns, off_max)
    });
    let last = sample(&mut sensor);

    // Its group vanishes: no error, and what it used stays.
    drop((hog, group));
    let gone = sample(&mut sensor);
    assert!(gone.valid && gone.side_ns >= last.side_ns);
    assert_eq!(sample(&mut sensor).side_ns, gone.side_ns);
}

/// What the kernel says of a process: how long it could have run and did not.
fn run_delay_ns(hog: &Hog) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", hog.pid())).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn main_that_waits_for_a_cpu_is_seen_to() {
    let Some(_quiet) = able() else { return };
    let main = TestGroup::top("main");
    // Three that never sleep on one CPU: each waits for two slices, time and again.
    let hogs = [Hog::on(0), Hog::on(0), Hog::on(0)];
    hogs.iter().for_each(|hog| main.take(hog.pid()));
    let mut sensor = bpf(&[], &[&main]);
    assert!(sensor.tells_waits());
    sensor.set_late_after(100_000);
    // Each has left a CPU under our eyes once.
    sleep(Duration::from_millis(200));
    measured(|| {
        let account = || hogs.iter().map(run_delay_ns).sum::<u64>();
        let (first, before) = (sample(&mut sensor), account());
        sleep(Duration::from_millis(1_000));
        let (last, after) = (sample(&mut sensor), account());
        let waits = last.waits.since(&first.waits);
        // The kernel books a wait when it ends, we when the run after it ends: up to a round of
        // slices apart.
        close(
            "waits",
            waits.wait_ns,
            after - before,
            (after - before) / 20 + 50 * MS,
        )?;
        let mean_ns = waits.wait_ns / waits.runs.max(1);
        // Where kernel threads interrupt them for a moment, a third of the runs begin after a wait
        // of less than that.
        if waits.late * 2 < waits.runs || mean_ns < MS {
            return Err(format!("hogs in a queue are late mostly: {waits:?}"));
        }
        let counted: u64 = sensor.wait_buckets().unwrap().iter().sum();
        close(
            "the histogram",
            counted,
            last.waits.runs,
            last.waits.runs / 10 + 20,
        )
    });
}
