//! The planner of whole cores: any machine, any allowance, any CPUs that others leave.

use proptest::prelude::*;
use tidegate_cgroup::topology::{Core, Topology};
use tidegate_engine::cpuset_planner::{CpusetPlanner, GROW_GAP_NS};

const MS: u64 = 1_000_000;
const CPU: u64 = 1_000_000;

/// `llcs` caches of `cores` cores of `threads` threads, siblings half a machine apart as on x86.
fn machine(llcs: u32, cores: u32, threads: u32) -> Topology {
    let all = llcs * cores;
    let core = |nth: u32| Core {
        llc: nth / cores * cores,
        cpus: (0..threads).map(|thread| nth + thread * all).collect(),
    };
    Topology::new((0..all).map(core).collect())
}

fn planner_of(topology: &Topology, allowed: &[u32]) -> CpusetPlanner {
    let mut planner = CpusetPlanner::default();
    planner.set_cpus(topology, allowed);
    planner
}

#[test]
fn whole_cores_of_the_last_cache_come_first() {
    let topology = machine(2, 2, 2);
    let mut planner = planner_of(&topology, &topology.cpus());
    // CPUs 0, 1 and their siblings 4, 5 share a cache; 2, 3, 6, 7 the other.
    assert_eq!(planner.step(0, CPU / 100).unwrap(), [3, 7]);
    assert_eq!(planner.step(1_000 * MS, 2 * CPU + 1).unwrap(), [2, 3, 6, 7]);
    assert_eq!(
        planner.step(2_000 * MS, 5 * CPU).unwrap(),
        [1, 2, 3, 5, 6, 7]
    );
}

#[test]
fn it_grows_soon_and_shrinks_to_what_was_needed_meanwhile() {
    let topology = machine(1, 8, 1);
    let mut planner = planner_of(&topology, &topology.cpus());
    assert_eq!(planner.step(0, 4 * CPU).unwrap().len(), 4);
    assert_eq!(planner.step(50 * MS, 6 * CPU), None, "it has just changed");
    assert_eq!(planner.step(100 * MS, 6 * CPU).unwrap().len(), 6);
    assert_eq!(planner.step(200 * MS, 2 * CPU), None);
    assert_eq!(planner.step(700 * MS, 4 * CPU), None);
    assert_eq!(planner.step(1_300 * MS, CPU).unwrap().len(), 4);
    assert_eq!(planner.step(1_400 * MS, 4 * CPU), None);
}

#[test]
fn what_is_forgotten_is_planned_anew() {
    let topology = machine(1, 4, 1);
    let mut planner = planner_of(&topology, &topology.cpus());
    let first = planner.step(0, 2 * CPU);
    assert_eq!(planner.step(MS, 2 * CPU), None);
    planner.forget();
    assert_eq!(planner.step(2 * MS, 2 * CPU), first);
    planner.set_cpus(&topology, &topology.cpus());
    assert_eq!(planner.step(3 * MS, 2 * CPU), None, "nothing has changed");
    planner.set_cpus(&topology, &[0, 1]);
    assert_eq!(planner.step(4 * MS, 2 * CPU).unwrap(), [0, 1]);
}

/// Main's time by CPU after `looks` seconds: all of it on the CPUs `on`.
fn main_ns(on: std::ops::Range<usize>, looks: u64) -> Vec<u64> {
    let mut times = vec![0; 16];
    times[on].fill(looks * 500 * MS);
    times
}

#[test]
fn side_work_gets_the_cores_of_other_caches_than_mains() {
    // Cores 0 to 3 in one cache, 4 to 7 in the other; no siblings.
    let topology = machine(2, 4, 1);
    let first = |planner: &mut CpusetPlanner, now_ns| {
        planner.step(now_ns, 2 * CPU);
        planner.standing()
    };
    let mut planner = planner_of(&topology, &topology.cpus());
    assert_eq!(first(&mut planner, 0), [6, 7], "nobody tells");
    planner.note_main(&main_ns(4..8, 0));
    planner.note_main(&main_ns(4..8, 1));
    assert_eq!(first(&mut planner, 1_000 * MS), [2, 3], "main is there");
    // Main goes over to the other cache; side work follows when that is no mere visit.
    let there: Vec<u64> = main_ns(4..8, 1);
    let both = |looks: u64| -> Vec<u64> {
        let here = main_ns(0..4, looks);
        there.iter().zip(here).map(|(a, b)| a + b).collect()
    };
    planner.note_main(&both(1));
    assert_eq!(first(&mut planner, 2_000 * MS), [2, 3]);
    for look in 2..20 {
        planner.note_main(&both(look));
    }
    assert_eq!(first(&mut planner, 30_000 * MS), [6, 7]);
}

#[test]
fn caches_that_main_uses_alike_are_not_exchanged() {
    let topology = machine(2, 4, 1);
    let mut planner = planner_of(&topology, &topology.cpus());
    let mut times = vec![0_u64; 8];
    let mut changes = 0;
    for look in 0..50_u64 {
        // Now a little more here, now there: 5 % of a cache.
        for (cpu, ns) in times.iter_mut().enumerate() {
            let more = (look % 2 == 0) == (cpu < 4);
            *ns += if more { 350 * MS } else { 300 * MS };
        }
        planner.note_main(&times);
        changes += u32::from(planner.step(look * 1_000 * MS, 2 * CPU).is_some());
    }
    assert_eq!(changes, 1);
}

proptest! {
    #[test]
    fn each_plan_is_whole_cores_that_hold_the_allowance(
        (llcs, cores, threads) in (1..4u32, 1..9u32, 1..4u32),
        allowed_bits in any::<u64>(),
        steps in prop::collection::vec((0..400 * MS, 0..80 * CPU), 1..60),
    ) {
        let topology = machine(llcs, cores, threads);
        let allowed: Vec<u32> = topology
            .cpus()
            .into_iter()
            .filter(|cpu| allowed_bits >> (cpu % 64) & 1 == 1)
            .collect();
        let mut planner = planner_of(&topology, &allowed);
        let mut now_ns = 0;
        let mut changed_ns = 0;
        let mut stands: Vec<u32> = Vec::new();
        for (wait_ns, allowance_ucpu) in steps {
            now_ns += wait_ns;
            let plan = planner.step(now_ns, allowance_ucpu);
            if allowed.is_empty() {
                prop_assert!(plan.is_none() && planner.standing().is_empty());
                continue;
            }
            if let Some(cpus) = plan {
                prop_assert!(!cpus.is_empty() && cpus.is_sorted());
                prop_assert!(cpus.iter().all(|cpu| allowed.contains(cpu)));
                // All that is allowed of a core, or nothing of it.
                for core in topology.cores() {
                    let has = core.cpus.iter().filter(|cpu| allowed.contains(cpu)).count();
                    let taken = core.cpus.iter().filter(|cpu| cpus.contains(cpu)).count();
                    prop_assert!(taken == 0 || taken == has, "{core:?} in {cpus:?}");
                }
                // A change moves one way only.
                let grown = stands.iter().all(|cpu| cpus.contains(cpu));
                let shrunk = cpus.iter().all(|cpu| stands.contains(cpu));
                prop_assert!(grown || shrunk);
                prop_assert!(cpus != stands);
                let rested = now_ns - changed_ns >= GROW_GAP_NS;
                prop_assert!(stands.is_empty() || rested);
                changed_ns = now_ns;
                stands = cpus;
            }
            prop_assert_eq!(&planner.standing(), &stands);
            let room_ucpu = stands.len() as u64 * CPU;
            let rested = now_ns - changed_ns >= GROW_GAP_NS;
            let full = stands.len() == allowed.len();
            prop_assert!(room_ucpu >= allowance_ucpu || full || !rested, "{stands:?}");
        }
    }

    /// An allowance that stays is held by as few cores as can, at the latest after one wait.
    #[test]
    fn it_comes_to_rest_at_the_least_that_holds(
        (cores, threads) in (1..17u32, 1..3u32), before in 0..40 * CPU, after in 0..40 * CPU,
    ) {
        let topology = machine(1, cores, threads);
        let mut planner = planner_of(&topology, &topology.cpus());
        planner.step(0, before);
        for poll in 1..=25 {
            planner.step(poll * 100 * MS, after);
        }
        let needed = after.div_ceil(u64::from(threads) * CPU).clamp(1, u64::from(cores));
        prop_assert_eq!(planner.standing().len() as u64, needed * u64::from(threads));
        prop_assert_eq!(planner.step(10_000 * MS, after), None);
    }
}

#[test]
fn every_cpu_is_given_once_no_idle_was_kept_for_half_a_minute() {
    let second = 1_000_000_000;
    let mut release = tidegate_engine::cpuset_planner::Release::default();
    assert!(release.is_due(false, 0), "it was never kept");
    assert!(!release.is_due(true, second));
    assert!(!release.is_due(false, 30 * second));
    assert!(release.is_due(false, 31 * second));
    assert!(!release.is_due(true, 32 * second), "at once");
}
