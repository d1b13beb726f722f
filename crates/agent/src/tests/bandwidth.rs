//! Limits of their own: on every kind of target and class, on v1 and v2, beside moving quotas, and
//! put back.

use std::sync::atomic::Ordering;

use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::testkit::FakeProcess;

use super::{
    Bed, KINDS, Kind, PIDS, alerts, begun, gate_names, in_journal, make_group, path, run, set,
    stands, unset, write_quota,
};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::process::lease::monotonic_ns;
use crate::runtime::mechanisms::burst::follow_limits;

fn steps(bed: &Bed, agent: &Agent, count: u32) {
    let mut writer = agent.runtime.quota_writer();
    let side = path("/tg-side");
    for _ in 0..count {
        agent.runtime.control().step(monotonic_ns(), 0, &mut writer);
        let given = agent.groups().bandwidth(&side).ok();
        let given = given.and_then(|given| given.rate_ucpu());
        let ucpu = given.unwrap_or(0).min(1_500_000);
        let main_ppm = bed.sensor.main_ppm.load(Ordering::Relaxed);
        let side_ppm = (ucpu / super::CPUS).min(1_000_000 - main_ppm);
        bed.sensor.side_ppm.store(side_ppm, Ordering::Relaxed);
    }
}

const QUOTA: [(&str, &str); 3] = [("quota", "30ms"), ("period", "100ms"), ("burst", "10ms")];
const OWN: Bandwidth = Bandwidth {
    burst_us: 10_000,
    ..Bandwidth::limit(30_000, 100_000)
};

fn with_class(class: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut all = QUOTA.to_vec();
    all.push(("class", class));
    all
}

#[test]
fn a_limit_of_another_program_is_not_exceeded() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let theirs = |quota_us| Bandwidth::limit(quota_us, 100_000);
        write_quota(&agent, "/other", theirs(50_000));
        for term in ["quota", "cap_hard"] {
            let notes = set(&agent, "cgroup:/other", &[(term, "2cpu")]).unwrap();
            assert!(
                notes.iter().any(|note| note.contains("by another program")),
                "{notes:?}"
            );
            assert_eq!(
                stands(&agent, "/other").rate_ucpu(),
                Some(500_000),
                "{kind:?} {term}"
            );
            unset(&agent, "cgroup:/other").unwrap();
            assert_eq!(stands(&agent, "/other"), theirs(50_000), "{kind:?} {term}");
        }
        set(
            &agent,
            "cgroup:/other",
            &[("quota", "0.6cpu"), ("burst", "max")],
        )
        .unwrap();
        assert_eq!(stands(&agent, "/other").rate_ucpu(), Some(500_000));
        assert_eq!(
            stands(&agent, "/other").burst_us,
            50_000,
            "a burst leaves the mean"
        );
        let mut housekeeping = Housekeeping::new(None);
        for (written_us, holds_us) in [(90_000, 60_000), (40_000, 40_000)] {
            write_quota(&agent, "/other", theirs(written_us));
            housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
            let quota_us = stands(&agent, "/other").quota_us;
            assert_eq!(quota_us, Some(holds_us), "{kind:?} {written_us}");
        }
        unset(&agent, "cgroup:/other").unwrap();
        assert_eq!(stands(&agent, "/other").quota_us, Some(40_000));
        drop(bed);
    }
}

/// A pod's group and its container's, as kubelet makes them with either driver, with its limits.
const PODS: [[&str; 2]; 2] = [
    [
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-1.scope",
    ],
    ["/kubepods/burstable/pod1", "/kubepods/burstable/pod1/1"],
];

#[test]
fn no_term_lifts_what_kubelet_has_set_for_a_pod_and_its_containers() {
    for kind in KINDS {
        for [pod, container] in PODS {
            let (_bed, agent) = begun(kind);
            make_group(&agent, &path(container));
            let kubelets = [(pod, 150_000), (container, 100_000)];
            for (group, quota_us) in kubelets {
                write_quota(&agent, group, Bandwidth::limit(quota_us, 100_000));
            }
            let are_kept = |what: &str| {
                for (group, quota_us) in kubelets {
                    let standing = stands(&agent, group);
                    let least = standing.rate_ucpu().unwrap_or(u64::MAX);
                    // v1 has none below a lower one of the pod's, which then is the container's.
                    let is_lifted = kind != Kind::V2
                        && group == container
                        && stands(&agent, pod).rate_ucpu() < Some(quota_us * 10);
                    assert!(
                        least <= quota_us * 10 || is_lifted,
                        "{kind:?} {group} {what}: {standing}"
                    );
                }
            };
            for target in [pod, container] {
                let target = format!("cgroup:{target}");
                for terms in [
                    &[("quota", "1000cpu")][..],
                    &[("quota", "20ms"), ("burst", "max")],
                    &[("cap_hard", "64cpu")],
                    &[("cap_hard", "0.5cpu")],
                    &[("quota", "1000cpu"), ("burst", "max")],
                    &[("class", "side"), ("headroom", "30%")],
                ] {
                    set(&agent, &target, terms).unwrap();
                    are_kept(&format!("{target} {terms:?}"));
                }
                unset(&agent, &target).unwrap();
                for (group, quota_us) in kubelets {
                    let kubelets = Bandwidth::limit(quota_us, 100_000);
                    assert_eq!(stands(&agent, group), kubelets, "{kind:?} {group} {target}");
                }
            }
        }
    }
}

/// The limits of a pod and of its containers change as under kubelet, and their bursts follow.
#[test]
fn a_burst_without_a_quota_follows_the_limits_of_other_programs() {
    for kind in KINDS {
        for [pod, container] in PODS {
            let (_bed, agent) = begun(kind);
            let next = &format!("{container}2");
            make_group(&agent, &path(container));
            let with_burst = |quota_us, burst_us| Bandwidth {
                burst_us,
                ..Bandwidth::limit(quota_us, 100_000)
            };
            let target = format!("cgroup:{pod}");
            let notes = set(&agent, &target, &[("burst", "max")]).unwrap();
            assert!(notes[0].contains("no effect yet"), "{notes:?}");
            for (group, quota_us) in [(pod, 200_000), (container, 100_000)] {
                write_quota(&agent, group, with_burst(quota_us, 0));
            }
            let follow = || follow_limits(&agent.gates, &agent.runtime);
            let are = |wanted: [(&str, Bandwidth); 2]| {
                for (group, limit) in wanted {
                    assert_eq!(stands(&agent, group), limit, "{kind:?} {group}");
                }
            };
            follow();
            are([
                (pod, with_burst(200_000, 200_000)),
                (container, with_burst(100_000, 100_000)),
            ]);
            // A raised limit and a new container are found; a lower one is refused by the kernel.
            write_quota(&agent, container, with_burst(120_000, 100_000));
            agent.groups().create(&path(next)).unwrap();
            write_quota(&agent, next, with_burst(20_000, 0));
            let lower =
                agent
                    .groups()
                    .set_bandwidth(&path(pod), None, with_burst(150_000, 200_000));
            assert!(lower.is_err());
            follow();
            are([
                (next, with_burst(20_000, 20_000)),
                (container, with_burst(120_000, 120_000)),
            ]);
            // Another writer of the burst is answered once.
            let mut housekeeping = Housekeeping::new(None);
            for holds_us in [120_000, 7] {
                write_quota(&agent, container, with_burst(120_000, 7));
                follow();
                housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
                assert_eq!(stands(&agent, container).burst_us, holds_us, "{kind:?}");
            }
            assert_eq!(alerts(&agent).lines().count(), 1, "{}", alerts(&agent));
            set(&agent, &target, &[("burst", "30ms")]).unwrap();
            are([
                (pod, with_burst(200_000, 30_000)),
                (container, with_burst(120_000, 30_000)),
            ]);
            let one = format!("cgroup:{container}");
            set(&agent, &one, &[("burst", "5ms")]).unwrap();
            follow();
            assert_eq!(
                stands(&agent, container).burst_us,
                5_000,
                "a gate of its own"
            );
            unset(&agent, &one).unwrap();
            follow();
            assert_eq!(stands(&agent, container).burst_us, 30_000);
            // While kubelet resizes the pod it has no gate. The quota was changed in the last
            // second, and stays.
            write_quota(&agent, container, with_burst(130_000, 30_000));
            agent.groups().remove(&path(next)).unwrap();
            unset(&agent, &target).unwrap();
            assert!(in_journal(&agent).is_empty());
            are([
                (pod, with_burst(200_000, 0)),
                (container, with_burst(130_000, 0)),
            ]);
            write_quota(&agent, container, with_burst(50_000, 0));
            let notes = set(&agent, &target, &[("burst", "max")]).unwrap();
            assert!(notes[1].contains(container), "{notes:?}");
            are([
                (pod, with_burst(200_000, 200_000)),
                (container, with_burst(50_000, 50_000)),
            ]);
            // With a quota of its own the gate's burst is for that alone.
            set(&agent, &target, &[("quota", "90ms")]).unwrap();
            are([
                (pod, with_burst(90_000, 90_000)),
                (container, with_burst(50_000, 0)),
            ]);
            unset(&agent, &target).unwrap();
            are([
                (pod, with_burst(200_000, 0)),
                (container, with_burst(50_000, 0)),
            ]);
            assert_eq!(alerts(&agent), "");
        }
    }
}

#[test]
fn a_burst_below_a_moving_quota_is_put_back() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let web = "/other/web";
        agent.groups().create(&path(web)).unwrap();
        let theirs = Bandwidth::limit(150_000, 100_000);
        write_quota(&agent, web, theirs);
        set(&agent, "cgroup:/other/web", &[("burst", "max")]).unwrap();
        assert_eq!(stands(&agent, web).burst_us, 150_000);
        let side = [("class", "side"), ("headroom", "30%")];
        set(&agent, "cgroup:/other", &side).unwrap();
        for main_ppm in [900_000, 0] {
            bed.main_uses(main_ppm);
            steps(&bed, &agent, 400);
            follow_limits(&agent.gates, &agent.runtime);
        }
        unset(&agent, "cgroup:/other").unwrap();
        unset(&agent, "cgroup:/other/web").unwrap();
        assert_eq!(stands(&agent, web), theirs, "{kind:?}");
        assert!(in_journal(&agent).is_empty());
    }
}

/// Kubelet resizes a pod in place: 150 ms, then 70 ms, then 50 ms of each 100 ms.
#[test]
fn a_limit_that_its_owner_has_replaced_is_never_put_back() {
    for kind in KINDS {
        for terms in [
            vec![("class", "side"), ("headroom", "30%")],
            vec![("class", "side")],
            vec![("quota", "60ms"), ("burst", "10ms")],
        ] {
            let (bed, agent) = begun(kind);
            let theirs = |quota_us| Bandwidth::limit(quota_us, 100_000);
            write_quota(&agent, "/other", theirs(150_000));
            set(&agent, "cgroup:/other", &terms).unwrap();
            bed.main_uses(0);
            for quota_us in [70_000, 50_000] {
                steps(&bed, &agent, 50);
                let standing = stands(&agent, "/other");
                // Kubelet writes the quota and the period.
                let burst_us = standing.burst_us.min(quota_us);
                let resized = Bandwidth {
                    burst_us,
                    ..theirs(quota_us)
                };
                write_quota(&agent, "/other", resized);
                let mut housekeeping = Housekeeping::new(None);
                for _ in 0..2 {
                    housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
                    steps(&bed, &agent, 50);
                }
                let rate = stands(&agent, "/other").rate_ucpu();
                assert!(rate <= Some(quota_us * 10), "{kind:?} {terms:?}: {rate:?}");
            }
            assert!(alerts(&agent).is_empty(), "{:?}", alerts(&agent));
            unset(&agent, "cgroup:/other").unwrap();
            assert_eq!(
                stands(&agent, "/other"),
                theirs(50_000),
                "{kind:?} {terms:?}"
            );
        }
    }
}

/// As systemd writes the floor that it was told for a unit, at its own time.
#[test]
fn the_fallback_in_a_group_is_not_its_owners_limit() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let theirs = Bandwidth::limit(150_000, 100_000);
        write_quota(&agent, "/other", theirs);
        let terms = [("class", "side"), ("headroom", "30%")];
        set(&agent, "cgroup:/other", &terms).unwrap();
        let floor = agent.runtime.control_loop.floor_now();
        for _ in 0..2 {
            write_quota(&agent, "/other", floor);
            Housekeeping::new(None).check_outside_writes(&agent.gates, &agent.runtime);
            super::life::steps(&bed, &agent, 400);
            let standing = stands(&agent, "/other");
            assert!(!standing.rate_no_above(&floor), "{kind:?}: {standing}");
        }
        unset(&agent, "cgroup:/other").unwrap();
        assert_eq!(stands(&agent, "/other"), theirs, "{kind:?}");
    }
}

#[test]
fn tidegate_does_not_limit_itself() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let own = std::process::id() as i32;
        bed.fake.add_process(FakeProcess::new(own));
        let agent = bed.agent().unwrap();
        agent.groups().create(&path("/other")).unwrap();
        agent.groups().place(&path("/other"), own).unwrap();
        for target in [format!("pid:{own}"), "cgroup:/other".to_owned()] {
            let refused = set(&agent, &target, &[("quota", "10ms")]).unwrap_err();
            assert!(refused.to_string().contains("itself"), "{}", refused);
        }
        set(&agent, "cgroup:/other", &[("class", "main")]).unwrap();
        assert!(set(&agent, "cgroup:/other", &[("quota", "10ms")]).is_err());
        assert_eq!(stands(&agent, "/other").quota_us, None);
    }
}

#[test]
fn the_guardians_floor_is_never_refused_either_and_a_restart_takes_the_gate_up() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        bed.main_uses(100_000);
        let group = run(&agent, PIDS[0], &with_class("side")).unwrap();
        let alone = run(&agent, PIDS[1], &with_class("main")).unwrap();
        let capped = [("class", "side"), ("cap_hard", "5‰")];
        set(&agent, "cgroup:/other", &capped).unwrap();
        steps(&bed, &agent, 400);
        assert_eq!(stands(&agent, &group), OWN);
        drop(agent);
        let mut groups = bed.without_agent();
        let report = groups.1.fall_back(10);
        let floor_ucpu = groups.0.bandwidth(&path("/tg-side")).unwrap().rate_ucpu();
        assert!(
            floor_ucpu.is_some_and(|floor| floor <= 20_000),
            "{report:?}"
        );
        assert_eq!(groups.0.bandwidth(&path(&alone)).unwrap(), OWN);
        let other = groups.0.bandwidth(&path("/other")).unwrap();
        assert!(
            other.rate_ucpu().unwrap() <= 5_000,
            "its own limit is the lower one: {other}"
        );
        drop(groups);
        let agent = bed.agent().unwrap();
        steps(&bed, &agent, 600);
        assert_eq!(gate_names(&agent).len(), 3);
        assert_eq!(stands(&agent, &group), OWN);
        assert_eq!(stands(&agent, &alone), OWN);
        unset(&agent, "cgroup:/other").unwrap();
        assert_eq!(stands(&agent, "/other").quota_us, None);
    }
}

/// systemd writes what it was told at each start in a slice: a pod's gate is for the group, not for
/// the unit. Another program is answered once.
#[test]
fn what_systemd_puts_back_in_a_units_group_is_written_over_each_time() {
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        for (group, is_units) in [("/other/pod1.slice", true), ("/other/pod1", false)] {
            agent.groups().create(&path(group)).unwrap();
            let theirs = stands(&agent, group);
            set(&agent, &format!("cgroup:{group}"), &QUOTA).unwrap();
            let mut housekeeping = Housekeeping::new(None);
            for round in 0..3 {
                write_quota(&agent, group, theirs);
                housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
                let expected = if is_units || round == 0 { OWN } else { theirs };
                assert_eq!(stands(&agent, group), expected, "{group} {round}");
            }
            assert_eq!(alerts(&agent).is_empty(), is_units, "{group}");
            set(&agent, &format!("cgroup:{group}"), &[("quota", "40ms")]).unwrap();
            assert_eq!(stands(&agent, group).quota_us, Some(40_000), "set again");
        }
    }
}

/// Kubelet resizes a pod in place by systemd, which writes its quota, its class and its weight.
#[test]
fn what_systemd_gives_a_limited_group_is_put_back() {
    let (bed, agent) = begun(Kind::V2);
    let group = path("/other/pod1.slice");
    let groups = agent.groups();
    groups.create(&group).unwrap();
    let terms = [("class", "side"), ("cap_hard", "200m")];
    set(&agent, "cgroup:/other/pod1.slice", &terms).unwrap();
    steps(&bed, &agent, 50);
    let burst_us = stands(&agent, "/other/pod1.slice").burst_us;
    assert!(burst_us > 0);
    let by_systemd = Bandwidth {
        burst_us,
        ..Bandwidth::unlimited()
    };
    write_quota(&agent, "/other/pod1.slice", by_systemd);
    groups.set_idle(&group, false).unwrap();
    groups.set_weight_raw(&group, 4).unwrap();
    steps(&bed, &agent, 50);
    Housekeeping::new(None).check_outside_writes(&agent.gates, &agent.runtime);
    assert_eq!(groups.idle(&group).unwrap(), Some(true));
    steps(&bed, &agent, 50);
    unset(&agent, "cgroup:/other/pod1.slice").unwrap();
    assert_eq!(stands(&agent, "/other/pod1.slice"), Bandwidth::unlimited());
    let class = groups.class(&group).unwrap();
    assert_eq!((class.idle, class.weight_raw), (Some(false), 4));
}

#[test]
fn a_quota_above_a_parents_is_refused_by_name_on_v1_and_noted_on_v2() {
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        let parent = Bandwidth::limit(20_000, 100_000);
        write_quota(&agent, "/other", parent);
        agent.groups().create(&path("/other/web")).unwrap();
        let answer = set(&agent, "cgroup:/other/web", &with_class("main"));
        if kind == Kind::V2 {
            let notes = answer.unwrap().join("; ");
            assert!(
                notes.contains("binds: ") && notes.contains("/other"),
                "{notes}"
            );
        } else {
            let why = answer.unwrap_err().to_string();
            assert!(
                why.contains("/other above it has") && why.contains("at most 200m"),
                "{why}"
            );
            assert_eq!(stands(&agent, "/other/web"), Bandwidth::unlimited());
            assert!(in_journal(&agent).is_empty() && gate_names(&agent).is_empty());
        }
    }
}

#[test]
fn a_weight_is_in_the_kernel_or_the_answer_says_what_it_does() {
    let told = |notes: &[String]| {
        let mut found = notes.iter().filter(|note| note.starts_with("weight: "));
        found.next().cloned().unwrap_or_default()
    };
    for kind in KINDS {
        let (_bed, agent) = begun(kind);
        let pid = format!("pid:{}", PIDS[1]);
        let notes = set(&agent, &pid, &[("class", "side"), ("weight", "300")]).unwrap();
        let group = agent.gates.lock()[0].record.attachment.group().clone();
        let is_below_others = kind == Kind::V2;
        match is_below_others {
            true => assert!(told(&notes).contains("divides the allowance"), "{notes:?}"),
            false => {
                assert_eq!(agent.groups().weight(&group).unwrap(), 300);
                assert_eq!(told(&notes), "");
                set(&agent, &pid, &[("weight", "20")]).unwrap();
                assert_eq!(agent.groups().weight(&group).unwrap(), 20);
            }
        }
        let notes = set(&agent, "cgroup:/other", &[("weight", "300")]).unwrap();
        assert!(
            told(&notes).ends_with("this one has no effect"),
            "{notes:?}"
        );
    }
}
