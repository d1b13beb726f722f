//! Headroom on main's own CPUs: what is kept where, and which CPUs side work then has.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tidegate_cgroup::topology::{Core, Topology};
use tidegate_engine::cpuset_planner::{CpusetAllowance, CpusetPlanner, CpusetPlannerConfig};
use tidegate_engine::domain::{Asked, DOMAINS_MAX, DomainInputs, Keeps, Resolved, resolve};

const MS: u64 = 1_000_000;
const CPU: u64 = 1_000_000;

fn asked(cpus: Option<&[u32]>, percent: u32, from: &str) -> Asked {
    Asked {
        cpus: cpus.map(<[u32]>::to_vec),
        headroom_ppm: percent * 10_000,
        from: from.to_owned(),
    }
}

/// Sixteen CPUs, side work on these.
fn inputs(root: impl IntoIterator<Item = u32>) -> DomainInputs {
    DomainInputs {
        online: (0..16).collect(),
        root: Some(root.into_iter().collect()),
        ..DomainInputs::default()
    }
}

fn kept(resolved: &Resolved) -> Vec<(&[u32], u32, Keeps)> {
    let domains = resolved.domains.iter();
    domains
        .map(|domain| (&*domain.cpus, domain.headroom_ppm / 10_000, domain.keeps))
        .collect()
}

#[test]
fn a_main_of_its_own_cpus_is_those_cpus_concern() {
    let one = [asked(Some(&[0, 1, 2, 3]), 30, "web")];
    let resolved = resolve(&one, &inputs(0..16));
    assert_eq!(kept(&resolved), [(&[0, 1, 2, 3][..], 30, Keeps::Cpuset)]);
    assert_eq!((resolved.whole, resolved.notes.len()), (None, 0));
    assert_eq!(resolved.outside, 12);
    let inside = resolve(&one, &inputs(1..3));
    assert_eq!(kept(&inside), [(&[0, 1, 2, 3][..], 30, Keeps::Quota)]);
    let apart = resolve(&one, &inputs(4..16));
    assert_eq!((kept(&apart).len(), apart.whole.clone()), (0, None));
    assert!(apart.notes[0].contains("web"), "{:?}", apart.notes);
}

#[test]
fn all_cpus_or_none_that_is_online_are_the_machine() {
    let all: Vec<u32> = (0..64).collect();
    for cpus in [None, Some(&all[..]), Some(&all[..16]), Some(&all[40..50])] {
        let resolved = resolve(&[asked(cpus, 30, "web")], &inputs(0..16));
        assert_eq!(resolved.whole, Some((300_000, "web".to_owned())));
        assert!(resolved.domains.is_empty());
    }
}

#[test]
fn of_one_set_the_largest_counts_and_each_set_has_its_own() {
    let resolved = resolve(
        &[
            asked(Some(&[0, 1]), 20, "a"),
            asked(Some(&[0, 1]), 40, "b"),
            asked(Some(&[1, 2]), 10, "c"),
            asked(None, 0, "d"),
        ],
        &inputs(0..16),
    );
    let by_cpuset = |cpus| (cpus, Keeps::Cpuset);
    let found: Vec<_> = kept(&resolved).iter().map(|one| (one.0, one.2)).collect();
    assert_eq!(found, [by_cpuset(&[0, 1][..]), by_cpuset(&[1, 2][..])]);
    assert_eq!(resolved.domains[0].from, "b");
    assert_eq!(
        resolved.whole, None,
        "nobody wants any of the whole machine"
    );
    let with = resolve(
        &[asked(Some(&[0]), 20, "a"), asked(None, 5, "d")],
        &inputs(0..16),
    );
    assert_eq!((with.whole.unwrap().0, with.domains.len()), (50_000, 1));
}

#[test]
fn what_cannot_be_kept_apart_is_kept_machine_wide_and_said() {
    let one = [asked(Some(&[0, 1]), 30, "web")];
    let blind = DomainInputs {
        by_cpu: Some("no BPF".to_owned()),
        ..inputs(0..16)
    };
    let refused = DomainInputs {
        refused: Some("no cpuset".to_owned()),
        ..inputs(0..16)
    };
    let stays = DomainInputs {
        in_place: vec![("/foreign".to_owned(), (0..16).collect())],
        ..inputs(0..16)
    };
    for (inputs, why) in [
        (blind, "no BPF"),
        (refused, "no cpuset"),
        (stays, "/foreign"),
    ] {
        let resolved = resolve(&one, &inputs);
        assert_eq!(resolved.whole, Some((300_000, "web".to_owned())));
        assert!(resolved.domains.is_empty());
        assert!(resolved.notes[0].contains(why), "{:?}", resolved.notes);
    }
    let elsewhere = DomainInputs {
        in_place: vec![("/foreign".to_owned(), (4..16).collect())],
        ..inputs(0..16)
    };
    assert_eq!(kept(&resolve(&one, &elsewhere)).len(), 1);
}

#[test]
fn too_many_sets_are_one() {
    let each: Vec<[u32; 1]> = (0..10).map(|cpu| [cpu]).collect();
    let many: Vec<Asked> = each
        .iter()
        .map(|cpu| asked(Some(cpu), 10 + cpu[0], "x"))
        .collect();
    assert!(many.len() > DOMAINS_MAX);
    let resolved = resolve(&many, &inputs(0..16));
    let all: Vec<u32> = (0..10).collect();
    assert_eq!(kept(&resolved), [(&all[..], 19, Keeps::Cpuset)]);
    assert!(resolved.notes[0].contains("10 main gates"));
}

/// Cores of two threads, `n` and `n + cores`, `per_llc` cores to a cache.
fn machine(cores: u32, per_llc: u32) -> Topology {
    let core = |nth: u32| Core {
        llc: nth / per_llc * per_llc,
        cpus: vec![nth, nth + cores],
    };
    Topology::new((0..cores).map(core).collect())
}

fn of(rooms: &[u64]) -> CpusetAllowance<'_> {
    CpusetAllowance {
        whole_ucpu: None,
        domains_ucpu: rooms,
    }
}

#[test]
fn side_work_has_all_outside_and_whole_cpus_inside() {
    let topology = machine(4, 4);
    let mut planner = CpusetPlanner::new(CpusetPlannerConfig::default());
    // Cores 0 and 1 are main's: CPUs 0, 1, 4, 5.
    planner.set_cpus(&topology, &topology.cpus(), &[vec![0, 1, 4, 5]]);
    let mut now_ns = 0;
    let mut settle = |room_ucpu: u64| {
        for _ in 0..80 {
            now_ns += 20 * MS;
            planner.step(now_ns, of(&[room_ucpu]));
        }
        planner.standing()
    };
    let outside = [2, 3, 6, 7];
    assert_eq!(settle(9 * CPU / 10), outside);
    assert_eq!(settle(19 * CPU / 10), [1, 2, 3, 6, 7]);
    assert_eq!(settle(2 * CPU), [1, 2, 3, 5, 6, 7], "a whole core");
    assert_eq!(settle(39 * CPU / 10), [0, 1, 2, 3, 5, 6, 7]);
    assert_eq!(settle(4 * CPU), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_domain_is_left_at_once_and_taken_late() {
    let topology = machine(4, 4);
    let mut planner = CpusetPlanner::new(CpusetPlannerConfig::default());
    planner.set_cpus(&topology, &topology.cpus(), &[vec![0, 1, 4, 5]]);
    assert_eq!(planner.step(0, of(&[2 * CPU])).unwrap().len(), 6);
    assert_eq!(
        planner.step(20 * MS, of(&[197 * CPU / 100])),
        None,
        "a hundredth of the domain short"
    );
    assert_eq!(
        planner.step(40 * MS, of(&[190 * CPU / 100])).unwrap().len(),
        5
    );
    assert_eq!(planner.step(60 * MS, of(&[3 * CPU])), None);
    assert_eq!(planner.step(900 * MS, of(&[2 * CPU])), None);
    assert_eq!(planner.step(1_060 * MS, of(&[4 * CPU])).unwrap().len(), 6);
    assert_eq!(planner.step(1_080 * MS, of(&[0])).unwrap(), [2, 3, 6, 7]);
    // A dip begins the wait anew.
    planner.step(1_100 * MS, of(&[CPU]));
    planner.step(1_900 * MS, of(&[0]));
    assert_eq!(planner.step(2_100 * MS, of(&[CPU])), None);
    assert!(planner.step(3_100 * MS, of(&[CPU])).is_some());
}

#[test]
fn domains_that_are_all_the_machine_leave_side_work_one_cpu() {
    let topology = machine(4, 4);
    let (low, high) = (vec![0, 1, 4, 5], vec![2, 3, 6, 7]);
    let mut planner = CpusetPlanner::new(CpusetPlannerConfig::default());
    planner.set_cpus(&topology, &topology.cpus(), &[low, high]);
    let plan = planner.step(0, of(&[CPU / 2, CPU / 3])).unwrap();
    assert_eq!(plan, [1]);
    planner.step(20 * MS, of(&[CPU / 3, CPU]));
    assert_eq!(planner.step(1_020 * MS, of(&[CPU / 3, CPU])).unwrap(), [3]);
}

#[test]
fn a_whole_machines_allowance_takes_what_is_outside_first() {
    let topology = machine(4, 4);
    let mut planner = CpusetPlanner::new(CpusetPlannerConfig::default());
    planner.set_cpus(&topology, &topology.cpus(), &[vec![3, 7]]);
    let room = |whole_ucpu| CpusetAllowance {
        whole_ucpu: Some(whole_ucpu),
        domains_ucpu: &[2 * CPU],
    };
    assert_eq!(planner.step(0, room(2 * CPU)).unwrap(), [2, 6]);
    let all = topology.cpus();
    assert_eq!(planner.step(1_000 * MS, room(8 * CPU)).unwrap(), all);
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
    let core = |nth: u32| Core {
        llc: nth / 4 * 4,
        cpus: vec![nth],
    };
    let topology = Topology::new((0..8).map(core).collect());
    let first = |planner: &mut CpusetPlanner, now_ns| {
        let room = CpusetAllowance {
            whole_ucpu: Some(2 * CPU),
            domains_ucpu: &[],
        };
        planner.step(now_ns, room);
        planner.standing()
    };
    let mut planner = CpusetPlanner::new(CpusetPlannerConfig::default());
    planner.set_cpus(&topology, &topology.cpus(), &[]);
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
    let core = |nth: u32| Core {
        llc: nth / 4 * 4,
        cpus: vec![nth],
    };
    let topology = Topology::new((0..8).map(core).collect());
    let mut planner = CpusetPlanner::new(CpusetPlannerConfig::default());
    planner.set_cpus(&topology, &topology.cpus(), &[]);
    let mut times = vec![0_u64; 8];
    let mut changes = 0;
    for look in 0..50_u64 {
        // Now a little more here, now there: 5 % of a cache.
        for (cpu, ns) in times.iter_mut().enumerate() {
            let more = (look % 2 == 0) == (cpu < 4);
            *ns += if more { 350 * MS } else { 300 * MS };
        }
        planner.note_main(&times);
        let room = CpusetAllowance {
            whole_ucpu: Some(2 * CPU),
            domains_ucpu: &[],
        };
        changes += u32::from(planner.step(look * 1_000 * MS, room).is_some());
    }
    assert_eq!(changes, 1);
}

proptest! {
    /// Whatever overlaps: no domain gives more CPUs than its law allows, all outside is side work's, and a law that allows more comes to
    /// be used where no other law forbids it.
    #[test]
    fn each_domain_gives_what_its_law_allows(
        domains in prop::collection::vec(prop::collection::btree_set(0..16u32, 1..12), 1..4),
        allowed in prop::collection::btree_set(0..16u32, 1..16),
        rooms in prop::collection::vec((1..400 * MS, prop::collection::vec(0..12 * CPU, 4)), 1..40),
    ) {
        let topology = machine(8, 4);
        let allowed: Vec<u32> = allowed.into_iter().collect();
        let domains: Vec<Vec<u32>> = domains.into_iter().map(|set| set.into_iter().collect()).collect();
        let mut planner = CpusetPlanner::new(CpusetPlannerConfig::default());
        planner.set_cpus(&topology, &allowed, &domains);
        let inside: BTreeSet<u32> = domains.iter().flatten().copied().collect();
        let mut now_ns = 0;
        for (wait_ns, rooms) in &rooms {
            now_ns += wait_ns;
            planner.step(now_ns, of(rooms));
            let stands = planner.standing();
            prop_assert!(!stands.is_empty());
            let last_resort = stands.len() == 1 && allowed.iter().all(|cpu| inside.contains(cpu));
            for (domain, room_ucpu) in domains.iter().zip(rooms) {
                let has = domain.iter().filter(|cpu| stands.contains(cpu)).count() as u64;
                let slack_ucpu = domain.len() as u64 * CPU / 100;
                prop_assert!(last_resort || has * CPU <= room_ucpu + slack_ucpu, "{has} of {domain:?} by {room_ucpu}");
            }
            for cpu in allowed.iter().filter(|cpu| !inside.contains(cpu)) {
                prop_assert!(stands.contains(cpu));
            }
            prop_assert!(stands.iter().all(|cpu| allowed.contains(cpu)));
        }
        let (_, last) = &rooms[rooms.len() - 1];
        for _ in 0..3 {
            now_ns += 1_000 * MS;
            planner.step(now_ns, of(last));
        }
        let stands = planner.standing();
        for cpu in allowed.iter().filter(|cpu| !stands.contains(cpu)) {
            let full = domains.iter().zip(last).any(|(domain, room_ucpu)| {
                let has = domain.iter().filter(|cpu| stands.contains(cpu)).count() as u64;
                domain.contains(cpu) && has >= room_ucpu / CPU
            });
            prop_assert!(full || stands.len() == 1, "{cpu} is free: {stands:?}");
        }
    }
}
