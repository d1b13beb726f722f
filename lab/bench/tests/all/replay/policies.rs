//! Which rule gives which work its terms.

use tidegate_lab::replay::arm::Arm;
use tidegate_lab::replay::scenario::write;
use tidegate_lab::replay::simulate::Prepared;
use tidegate_lab::replay::{Demand, Policy};
use tidegate_recording::{Recording, Second, Work, WorkSecond};

use super::support::{policy, recorded, work};

/// Every work uses a tenth of a CPU for five seconds.
fn recording(works: Vec<Work>) -> Recording {
    let second = |nth: u64| Second {
        unix_ms: nth * 1_000,
        capacity_cpus: 4.0,
        main_cpus: 0.5,
        idle_cpus: 3.0,
        works: works
            .iter()
            .map(|work| WorkSecond {
                id: work.id,
                used_cpus: 0.1,
                ..WorkSecond::default()
            })
            .collect(),
        ..Second::default()
    };
    let seconds = (1..=5).map(second).collect();
    recorded(4, works.clone(), seconds)
}

/// A group that is no gate.
fn plain(id: u32, cgroup: &str) -> Work {
    work(id, cgroup, cgroup, &[])
}

fn under(recording: &Recording, policy: &Policy) -> (Demand, Arm) {
    let demand = Demand::of(recording);
    let arm = Arm::under(recording, &demand, policy);
    (demand, arm)
}

fn class_and_weight(demand: &Demand, arm: &Arm, name: &str) -> (String, String) {
    let at = demand.works.iter().position(|work| work.name == name);
    let node = arm.node_of(at.unwrap()).unwrap();
    let weight = arm.nodes[node]
        .terms
        .as_ref()
        .map(|terms| terms.weight.value);
    let weight = weight.map_or("none".to_owned(), |weight| weight.to_string());
    (arm.class_of(node).to_string(), weight)
}

#[test]
fn rules_and_what_was_set_have_the_agents_precedence() {
    let recording = recording(vec![
        work(
            0,
            "web",
            "/system.slice/web.service",
            &[("class", "side", "/etc/t.toml:1:1")],
        ),
        work(
            1,
            "job",
            "/tidegate-side/job",
            &[("class", "side", "run flag"), ("weight", "7", "run flag")],
        ),
        work(
            2,
            "db",
            "/system.slice/db.service",
            &[("weight", "50", "set"), ("class", "neutral", "default")],
        ),
        plain(3, "/system.slice/backup-1.service"),
        plain(4, "/user.slice/a.scope"),
    ]);
    let toml = "\
[[rule]]
name = \"all\"
match = { cgroup = \"/**\" }
terms = { class = \"neutral\" }
[[rule]]
name = \"web\"
match = { unit = \"web.service\" }
terms = { class = \"main\", weight = 300 }
[[rule]]
name = \"backups\"
match = { unit = \"backup-*.service\" }
terms = { class = \"side\", weight = 20 }
[[rule]]
name = \"db\"
match = { unit = \"db.service\" }
terms = { class = \"main\", weight = 200 }
[[rule]]
name = \"nothing\"
match = { unit = \"no.service\" }
terms = { class = \"side\" }
";
    let (demand, arm) = under(&recording, &policy("p.toml", toml));
    for (name, class, weight) in [
        ("web", "main", "300"),
        ("job", "side", "7"),
        ("db", "main", "50"),
        ("/system.slice/backup-1.service", "side", "20"),
        ("/user.slice/a.scope", "neutral", "none"),
    ] {
        let got = class_and_weight(&demand, &arm, name);
        assert_eq!(got, (class.to_owned(), weight.to_owned()), "{name}");
    }
    assert_eq!(
        arm.notes,
        ["p.toml: rule \"nothing\" matches nothing in this recording."]
    );
}

#[test]
fn a_rule_for_a_slice_holds_for_all_in_it_together() {
    let recording = recording(vec![
        plain(0, "/batch.slice/a.service"),
        plain(1, "/batch.slice/b.service"),
        plain(2, "/system.slice/web.service"),
    ]);
    let toml = "[[rule]]\nname = \"batch\"\nmatch = { unit = \"*.slice\" }\nterms = { class = \"side\", quota = \"0.15cpu\", headroom = \"0%\" }\n\
                [[rule]]\nname = \"web\"\nmatch = { unit = \"system.slice\" }\nmode = \"observe\"\nterms = { class = \"main\" }\n";
    let (demand, arm) = under(&recording, &policy("p.toml", toml));
    let class = |name: &str| class_and_weight(&demand, &arm, name).0;
    assert_eq!(class("/batch.slice/a.service"), "side");
    assert_eq!(class("/system.slice/web.service"), "neutral");
    assert!(
        arm.notes[0].contains("\"web\" only observes"),
        "{:?}",
        arm.notes
    );
    let prepared = Prepared::new(&recording, &demand, &arm);
    assert_eq!(prepared.written.side_tops.len(), 1);
    let outcome = prepared.run(1, &|_| {}).unwrap();
    let batch = outcome
        .groups
        .iter()
        .find(|group| group.name == "batch-slice");
    let used = batch.unwrap().usage_ns as f64 / outcome.measured_ns as f64;
    assert!((0.14..=0.16).contains(&used), "{used}");
}

/// Whatever terms there are, the text is a scenario: each that a gate can have, in every class.
#[test]
fn every_term_becomes_a_scenario() {
    let recording = recording(vec![
        work(0, "web \"x\"\n", "/system.slice/web.service", &[]),
        work(1, "job", "/system.slice/job.service", &[]),
    ]);
    for (web, job) in [
        ("objective = \"p99<5ms\"", "class = \"side\""),
        (
            "headroom = \"none\"",
            "class = \"side\", tolerance = \"none\"",
        ),
        (
            "tolerance = \"2%\"",
            "class = \"side\", objective = \"p99.9<1ms\"",
        ),
        (
            "objective = \"reported<80ms\"",
            "class = \"side\", weight = \"idle\"",
        ),
        (
            "quota = \"50ms\", burst = \"max\"",
            "quota = \"0.5cpu\", period = \"20ms\", burst = \"2ms\"",
        ),
        (
            "cap_hard = \"200‰\", cap_scope = \"task\"",
            "cap_soft = \"0\"",
        ),
        (
            "cap_hard = \"0.5cpu\", cap_scope = \"process\"",
            "cap_soft = \"200m\", cap_scope = \"task\"",
        ),
        (
            "latency = \"-10\"",
            "class = \"side\", headroom = \"100%\", latency = 19",
        ),
    ] {
        let toml = format!(
            "[[rule]]\nname = \"web\"\nmatch = {{ unit = \"web.service\" }}\nterms = {{ class = \"main\", {web} }}\n\
             [[rule]]\nname = \"job\"\nmatch = {{ unit = \"job.service\" }}\nterms = {{ {job} }}\n"
        );
        let (demand, arm) = under(&recording, &policy("p", &toml));
        let written = write(&recording, &demand, &arm);
        let prepared = Prepared::new(&recording, &demand, &arm);
        prepared
            .run(1, &|_| {})
            .unwrap_or_else(|error| panic!("{error}\n{}", written.text));
    }
}
