use super::*;

fn settings(nodes: usize, hours: u64, pods: u64) -> Settings {
    Settings {
        nodes,
        cpus_milli: 16_000,
        seconds: hours * 3_600,
        step_s: 10,
        headroom_ppt: 200,
        tolerance_ppt: 10,
        pods,
        request_milli: 1_000,
        work_s: 1_800,
        seed: 1,
        days: Days {
            cpus_milli: 16_000,
            peak_ppt: 500,
            seed: 1,
        },
        constants: Constants::default(),
    }
}

#[test]
fn our_rule_never_stands_below_what_is_bound_and_no_pod_is_rejected() {
    let outcome = run(&settings(20, 24, 200), RuleKind::Tidegate);
    assert_eq!(
        (outcome.below_bound_node_seconds, outcome.rejections),
        (0, 0)
    );
    assert!(outcome.pods_done > 1_000, "{outcome:?}");
}

#[test]
fn no_more_is_used_than_is_there_and_nothing_is_lost_without_a_cause() {
    for rule in RuleKind::ALL {
        let outcome = run(&settings(10, 12, 100), rule);
        let there = outcome.surplus_core_seconds + outcome.in_headroom_core_seconds;
        assert!(outcome.side_core_seconds > 0.0, "{outcome:?}");
        assert!(outcome.side_core_seconds <= there, "{outcome:?}");
        assert_eq!(
            outcome.lost_core_seconds > 0.0,
            outcome.evictions + outcome.rejections > 0,
            "{outcome:?}"
        );
    }
}

#[test]
fn the_same_settings_give_the_same_figures() {
    for rule in RuleKind::ALL {
        assert_eq!(
            run(&settings(5, 6, 40), rule),
            run(&settings(5, 6, 40), rule)
        );
    }
}

#[test]
fn without_pods_only_what_is_published_counts() {
    let outcome = run(&settings(3, 6, 0), RuleKind::Tidegate);
    assert_eq!(
        (
            outcome.pods_done,
            outcome.evictions,
            outcome.starved_pod_seconds
        ),
        (0, 0, 0)
    );
    assert!(outcome.writes > 3, "{outcome:?}");
    assert!(
        outcome.under_core_seconds < outcome.surplus_core_seconds / 2.0,
        "{outcome:?}"
    );
}
