//! Headroom within main's own cpuset: the engine on kernel files, against the same headroom kept machine-wide.

use tidegate_sim::engines::cgroup::{Knobs, KnobsConfig, Sensing, Yields, compile};
use tidegate_sim::{Class, Controller, CpuId, CpuSet, GroupId, GroupSpec, Simulation, TaskSpec};

use super::bed::{Load, MS, SECOND, duty, hog, machine};

/// What was used over ten seconds, in percent of the CPUs meant.
#[derive(Debug)]
struct Seen {
    idle_in_pct: f64,
    idle_out_pct: f64,
    side_in_cpus: f64,
    quota_throttled: u64,
}

struct Case {
    /// Main's cpuset is told to the engine, not only to the kernel.
    told: bool,
    sensing: Sensing,
    yields: Yields,
    load: Load,
    main_cpus: u32,
    side: CpuSet,
    side_hogs: u32,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            told: true,
            sensing: Sensing::Bpf,
            yields: Yields::LeastWeight,
            load: |_| 440_000,
            main_cpus: 4,
            side: CpuSet::first_n(16),
            side_hogs: 32,
        }
    }
}

/// 16 CPUs; main on the first few with 30 % headroom, hogs on all that side work may have.
fn run(case: &Case) -> Seen {
    let mut machine = machine(16, 1, 7);
    let mut main = GroupSpec::new("main", GroupId::ROOT);
    main.class = Class::Main;
    main.headroom_ppm = 300_000;
    main.cpus = Some(CpuSet::first_n(case.main_cpus));
    let mut side = GroupSpec::new("side", GroupId::ROOT);
    side.class = Class::Side;
    side.cpus = Some(case.side);
    let mut specs = [main, side];
    let mut compiled = compile(&mut specs, &mut [], 3 * MS, machine.config().tick_ns);
    if !case.told {
        for (_, cpus, _) in &mut compiled.asked {
            *cpus = None;
        }
    }
    let [main, side] = specs.map(|spec| machine.add_group(spec).unwrap());
    machine.count_by_cpu(side).unwrap();
    let knobs = Knobs::new(
        KnobsConfig {
            yields: case.yields,
            ..KnobsConfig::new(case.sensing)
        },
        &compiled,
    );
    let log = knobs.log();
    let controllers: Vec<Box<dyn Controller>> = vec![Box::new(knobs)];
    let mut simulation = Simulation::new(machine, controllers);
    let m = &mut simulation.machine;
    for cpu in 0..case.main_cpus {
        let phase_ns = u64::from(cpu) * 2 * MS / u64::from(case.main_cpus);
        let program = duty(case.load, 2 * MS, phase_ns);
        m.spawn(TaskSpec::new("main", main, program)).unwrap();
    }
    for _ in 0..case.side_hogs {
        m.spawn(TaskSpec::new("hog", side, hog())).unwrap();
    }
    simulation.run_until(10 * SECOND).unwrap();
    let sums = |m: &tidegate_sim::Machine| {
        let part = |from: u32, to: u32| -> (u64, u64) {
            let cpus = (from..to).map(CpuId);
            let busy = cpus.clone().map(|cpu| m.cpu_busy_ns(cpu)).sum();
            (busy, cpus.map(|cpu| m.usage_on_ns(side, cpu)).sum())
        };
        (
            part(0, case.main_cpus),
            part(case.main_cpus, 16),
            m.bandwidth_stat(side).nr_throttled,
        )
    };
    let from = sums(&simulation.machine);
    simulation.run_until(20 * SECOND).unwrap();
    let to = sums(&simulation.machine);
    assert_eq!(log.lock().unwrap().refusal, None);
    let pct = |busy_ns: u64, cpus: u32| 100.0 - busy_ns as f64 / 1e8 / f64::from(cpus);
    Seen {
        idle_in_pct: pct(to.0.0 - from.0.0, case.main_cpus),
        idle_out_pct: pct(to.1.0 - from.1.0, 16 - case.main_cpus),
        side_in_cpus: (to.0.1 - from.0.1) as f64 / 1e10,
        quota_throttled: to.2 - from.2,
    }
}

/// By its own cpuset: idle in the domain is what was asked plus less than a CPU, all outside is used, and nothing is throttled.
#[test]
fn idle_is_kept_on_mains_cpus_and_the_rest_is_used() {
    // Main of four CPUs takes so much; 30 % are kept; whole CPUs of what is left.
    for (load, side_cpus) in [
        ((|_| 440_000) as Load, 1_u32),
        (|_| 400_000, 1),
        (|_| 180_000, 2),
        (|_| 600_000, 0),
    ] {
        let seen = run(&Case {
            load,
            ..Case::default()
        });
        let main_pct = load(0) as f64 / 1e4;
        println!("main {main_pct} % of 4 of 16 CPUs: {seen:?}");
        let due_pct = 100.0 - main_pct - 25.0 * f64::from(side_cpus);
        assert!(due_pct >= 30.0);
        assert!(
            (seen.idle_in_pct - due_pct).abs() < 2.0,
            "{seen:?}, due {due_pct}"
        );
        assert!(seen.idle_out_pct < 1.0, "{seen:?}");
        let main_cpus = main_pct * 4.0 / 100.0;
        let left = 4.0 - main_cpus - seen.idle_in_pct / 25.0;
        assert!((seen.side_in_cpus - left).abs() < 0.05, "{seen:?}");
        assert_eq!(seen.quota_throttled, 0);
    }
}

/// The same headroom without the domain: machine-wide it throttles the twelve CPUs that main cannot use, and leaves main's four full.
#[test]
fn machine_wide_it_wastes_and_breaks() {
    let seen = run(&Case {
        told: false,
        yields: Yields::Idle,
        ..Case::default()
    });
    println!("machine-wide: {seen:?}");
    assert!(
        seen.idle_out_pct > 20.0 && seen.quota_throttled > 0,
        "{seen:?}"
    );
    // In the idle class the domain's idle falls to what the quota happens to leave everywhere.
    assert!(seen.idle_in_pct < 29.0, "{seen:?}");
}

/// The usage files tell by CPU as well (v1), a tick late.
#[test]
fn by_files_as_well() {
    let seen = run(&Case {
        sensing: Sensing::Usage,
        load: |_| 400_000,
        ..Case::default()
    });
    println!("usage files: {seen:?}");
    assert!(
        (seen.idle_in_pct - 35.0).abs() < 2.0 && seen.idle_out_pct < 1.0,
        "{seen:?}"
    );
}

/// Side work that has no CPU elsewhere is held by the quota, to the asked percent.
#[test]
fn inside_the_domain_the_quota_keeps_it() {
    let seen = run(&Case {
        main_cpus: 8,
        side: CpuSet::first_n(4),
        side_hogs: 4,
        load: |_| 300_000,
        yields: Yields::Idle,
        ..Case::default()
    });
    println!("side within main's CPUs: {seen:?}");
    assert!((seen.idle_in_pct - 30.0).abs() < 1.0, "{seen:?}");
}

/// Main's steps: at its height the domain has its idle within a fraction of a second, over the whole run not less than asked.
#[test]
fn a_step_of_main_takes_the_cpus_back() {
    let seen = run(&Case {
        load: |ns| {
            if ns / SECOND % 4 < 2 {
                180_000
            } else {
                440_000
            }
        },
        ..Case::default()
    });
    println!("main 18 and 44 %, each two seconds: {seen:?}");
    assert!(seen.idle_in_pct >= 30.0, "{seen:?}");
}
