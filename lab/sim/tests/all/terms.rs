//! Terms under the engine cgroup: a scenario gets what the product's own resolution of them gives
//! on a host.

use super::support::{run, scenario, text};

/// CPUs that each group uses on four CPUs, with `tasks` hogs in each.
fn used_cpus(engine: &str, groups: &[&str], tasks: u32) -> Vec<f64> {
    let mut toml =
        format!("duration = \"10s\"\nwarmup = \"2s\"\n[machine]\ncpus = 4\n[engine]\n{engine}\n");
    for (nth, terms) in groups.iter().enumerate() {
        toml += &format!(
            "[group.g{nth}]\n{terms}\n[workload.w{nth}]\nkind = \"hog\"\ngroup = \"g{nth}\"\ntasks = {tasks}\n"
        );
    }
    let outcome = run(&scenario(&text(&toml), &[]));
    assert!(outcome.refusals.is_empty(), "{:?}", outcome.refusals);
    let of = |nth: usize| {
        let name = format!("g{nth}");
        let group = outcome.groups.iter().find(|group| group.name == name);
        group.unwrap().usage_ns as f64 / outcome.measured_ns as f64
    };
    (0..groups.len()).map(of).collect()
}

const TIDEGATE: &str = "name = \"cgroup\"";

#[track_caller]
fn near(got: f64, want: f64) {
    assert!((got - want).abs() < 0.02 * want, "{got} is not {want}");
}

#[test]
fn a_groups_own_terms_are_held() {
    let (side, quota, cap) = (
        "class = \"side\"\n",
        "quota = \"0.5cpu\"\n",
        "cap_hard = \"0.2cpu\"\n",
    );
    let (task, headroom) = ("cap_scope = \"task\"\n", "headroom = \"20%\"\n");
    for (terms, cpus) in [
        (vec![cap], 0.2),
        (vec![quota, cap], 0.2),
        (vec!["quota = \"10ms\"\n", cap], 0.1),
        (vec![side, cap], 0.2),
        (vec![side, quota, cap], 0.2),
        (vec![side, headroom, quota, cap], 0.2),
        (vec![cap, task], 0.8),
        (vec![side, cap, task], 0.8),
        (vec![side, headroom, cap, task], 0.8),
        (vec![quota, cap, task], 0.5),
        (vec!["cap_hard = \"1cpu\"\n", task], 4.0),
    ] {
        println!("{terms:?}");
        near(used_cpus(TIDEGATE, &[&terms.concat()], 4)[0], cpus);
    }
}

#[test]
fn side_groups_below_one_root_keep_their_own_terms() {
    let capped = "class = \"side\"\ncap_hard = \"0.2cpu\"";
    let each = format!("{capped}\ncap_scope = \"task\"");
    let quota = "class = \"side\"\nquota = \"0.3cpu\"";
    let used = used_cpus(TIDEGATE, &[capped, &each, quota], 4);
    for (got, want) in used.into_iter().zip([0.2, 0.8, 0.3]) {
        near(got, want);
    }
}

/// Out of the background it competes with its own weight: with the default one it got 2 of 4 CPUs.
#[test]
fn a_soft_cap_keeps_the_weight() {
    let soft = "weight = 1000\ncap_soft = \"2.4cpu\"";
    let used = used_cpus(TIDEGATE, &[soft, ""], 4)[0];
    assert!((2.2..=2.45).contains(&used), "{used}");
}

/// It gets 1 of 101 parts: `cpu.weight` of 1, as the command writes it, and not `cpu.idle`.
#[test]
fn the_weight_idle_is_the_least_weight() {
    let used = used_cpus(TIDEGATE, &["weight = \"idle\"", ""], 4);
    let share = used[0] / 4.0;
    assert!((0.008..=0.012).contains(&share), "{share}");
}
