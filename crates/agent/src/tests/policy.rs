//! Rules on groups of every kind of machine: applied, changed, refused, gone back from, and on what
//! starts later.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_api::{ApiResult, ApplyRequest, ErrorKind, PolicyChangeView};
use tidegate_cgroup::testkit::Rule as FaultRule;
use tidegate_cgroup::{KernelFs, Op};
use tidegate_engine::clock::Clock;
use tidegate_engine::starts::{Start, Starts};
use tidegate_terms::Config;

use super::sim_clock::in_time;
use super::{Bed, KINDS, Kind, begun, gate_names, in_journal, path, root, set, unset, user};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::policy::apply::{apply, begin, confirm, diff, end_trial, rollback, view};
use crate::policy::starts;

const BATCH: &str = r#"
[[rule]]
name = "batch"
match = { cgroup = "/batch-*" }
terms = { class = "side", weight = 50 }
"#;

pub(super) fn write(bed: &Bed, name: &str, text: &str) {
    let dir = bed.run_dir().dir().join("etc/tidegate/tidegate.toml.d");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join(name), text).unwrap();
}

pub(super) fn group(bed: &Bed, name: &str) {
    let path = format!("{}/{name}", super::cpu_mount(bed.kind));
    bed.fake.mkdir(Path::new(&path)).unwrap();
}

/// An agent beside these groups, with this policy in its files and not in force.
fn bed_with(kind: Kind, groups: &[&str], policy: &str) -> (Bed, Agent) {
    let bed = Bed::new(kind);
    groups.iter().for_each(|name| group(&bed, name));
    let agent = bed.agent().unwrap();
    write(&bed, "10-batch.toml", policy);
    (bed, agent)
}

pub(super) fn apply_now(agent: &Agent) -> ApiResult<PolicyChangeView> {
    apply(agent, &root(1), &ApplyRequest::default())
}

/// The kernel tells of these groups, which were made.
fn started(agent: &Agent, groups: &[&str]) {
    let told = groups.iter().map(|group| Start::Group(path(group)));
    let told = Starts {
        told: told.collect(),
        has_lost: false,
    };
    starts::look(agent, told);
}

fn trial(seconds: u64) -> ApplyRequest {
    ApplyRequest {
        for_seconds: Some(seconds),
        is_first: false,
    }
}

#[test]
fn what_matches_gets_its_rules_terms_and_loses_them_with_the_rule() {
    for kind in KINDS {
        let (bed, agent) = bed_with(kind, &["batch-1", "batch-2"], BATCH);
        let fresh = bed.values("/batch-1");
        let changes = apply_now(&agent).unwrap();
        let made: Vec<_> = changes.gates.iter().map(|gate| &*gate.target).collect();
        assert_eq!(made, ["cgroup:/batch-1", "cgroup:/batch-2"]);
        assert!(bed.is_limited("/batch-1") && bed.is_limited("/batch-2"));
        assert!(!bed.is_limited("/other"));
        assert_eq!(apply_now(&agent).unwrap().gates, [], "the same again");
        let back = rollback(&agent, &root(1)).unwrap();
        assert_eq!(back.gates.len(), 2, "the way back is kept");
        let again = rollback(&agent, &root(1)).unwrap_err().to_string();
        assert!(again.contains("is in force already"), "{again}");
        apply_now(&agent).unwrap();
        std::fs::remove_dir_all(bed.run_dir().dir().join("etc")).unwrap();
        let changes = apply_now(&agent).unwrap();
        assert!(changes.gates.iter().all(|gate| gate.change == "ended"));
        assert_eq!(bed.values("/batch-1"), fresh);
        assert_eq!(in_journal(&agent), []);
        agent.leave();
        let kept = bed.run_dir().dir().join("policy.json");
        assert!(!kept.exists(), "the files count at the next start");
    }
}

#[test]
fn the_apply_that_starts_the_agent_names_the_gates_that_its_start_made() {
    for kind in KINDS {
        let (_bed, agent) = bed_with(kind, &["batch-1"], BATCH);
        let texts = agent.policy.roots.read().unwrap();
        let config = Config::from_texts(&texts).unwrap();
        agent.gates.set_config(Arc::new(config));
        let mut state = agent.policy.lock();
        (state.kept.texts, state.unasked) = (texts, Some(Vec::new()));
        drop(state);
        begin(&agent, None);
        let first = ApplyRequest {
            is_first: true,
            ..ApplyRequest::default()
        };
        let made = apply(&agent, &root(1), &first).unwrap().gates;
        let made: Vec<_> = made
            .iter()
            .map(|gate| (&*gate.change, &*gate.target))
            .collect();
        assert_eq!(made, [("made", "cgroup:/batch-1")], "{kind:?}");
        let events = agent.runtime.events.after(0).events;
        let told = events.last().map(|event| &*event.message);
        assert_eq!(told, Some("1 rule, 1 gate changed"), "{kind:?}");
        let again = apply(&agent, &root(1), &first).unwrap();
        assert_eq!(again.gates, [], "{kind:?}");
    }
}

#[test]
fn a_diff_changes_nothing_and_says_what_apply_then_does() {
    for kind in KINDS {
        let (bed, agent) = bed_with(kind, &["batch-1"], BATCH);
        let fresh = bed.values("/batch-1");
        let since = bed.fs.log().len();
        let said = diff(&agent, &root(1)).unwrap();
        let below = |path: &Path| path.starts_with("/sys/fs/cgroup");
        let log = bed.fs.log();
        let wrote = |(op, path): &&(Op, std::path::PathBuf)| *op == Op::Write && below(path);
        assert_eq!(log[since..].iter().find(wrote), None);
        assert_eq!(bed.values("/batch-1"), fresh);
        let done = apply_now(&agent).unwrap();
        assert_eq!(said.gates, done.gates);
        assert!(said.writes.len() >= 2, "{:?}", said.writes);
        for write in &said.writes {
            let stands = bed.fake.text(&write.path);
            assert_eq!(stands.trim(), write.to, "{}", write.path);
        }
        let again = diff(&agent, &root(1)).unwrap();
        assert!(again.gates.is_empty() && again.writes.is_empty());
    }
}

#[test]
fn a_mistake_leaves_everything_as_it_was() {
    for kind in KINDS {
        let (bed, agent) = bed_with(kind, &["batch-1"], BATCH);
        apply_now(&agent).unwrap();
        let values = bed.values("/batch-1");
        write(
            &bed,
            "20-wrong.toml",
            "[side]\nwieght = 3\n[[rule]]\nname = \"x\"\n",
        );
        let error = apply_now(&agent).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        for part in ["20-wrong.toml:2:1", "mean weight?", "it matches nothing"] {
            assert!(error.detail.contains(part), "{}", error.detail);
        }
        assert_eq!(bed.values("/batch-1"), values);
        let view = view(&agent, Some(&root(1)));
        assert!(view.refused.is_some() && view.generation == 1);
        assert!(agent.status().policy_refused);
    }
}

/// With an error at the operation of this number; `None` where there are not so many.
fn apply_with_fault(bed: &Bed, agent: &Agent, nth: u64) -> Option<ApiResult<PolicyChangeView>> {
    let at = bed.fs.count() + nth;
    bed.fs.add(FaultRule::nth(at, libc::EIO));
    let answer = apply_now(agent);
    bed.fs.clear();
    (bed.fs.count() >= at).then_some(answer)
}

/// Each write of the second policy is refused once: what the first one had is there again.
#[test]
fn a_refusal_half_way_goes_back() {
    for kind in KINDS {
        for nth in 1.. {
            let (bed, agent) = bed_with(kind, &["batch-1", "batch-2", "other-1"], BATCH);
            apply_now(&agent).unwrap();
            let groups = ["/batch-1", "/batch-2", "/other-1"];
            let values = groups.map(|group| bed.values(group));
            let second = BATCH.replace("/batch-*", "/*-1").replace("50", "70");
            write(&bed, "10-batch.toml", &second);
            let Some(answer) = apply_with_fault(&bed, &agent, nth * 7) else {
                break;
            };
            if answer.is_ok() {
                continue;
            }
            let now = groups.map(|group| bed.values(group));
            for (nth_group, (had, has)) in values.iter().zip(&now).enumerate() {
                let limited = bed.is_limited(groups[nth_group]);
                assert!(
                    had == has || limited && nth_group < 2,
                    "{nth}: {had:?} {has:?}"
                );
            }
            assert_eq!(gate_names(&agent).len(), 2, "{nth}: {answer:?}");
        }
    }
}

/// What the refused policy was about to do to a gate that it never came to is not done later, as if
/// it had been lost.
#[test]
fn what_was_only_written_down_is_not_done_afterwards() {
    let mut refused = 0;
    for kind in KINDS {
        for nth in 1.. {
            let neutral = BATCH.replace("side", "neutral");
            let (bed, agent) = bed_with(kind, &["batch-1", "batch-2"], &neutral);
            apply_now(&agent).unwrap();
            let values = ["/batch-1", "/batch-2"].map(|group| bed.values(group));
            write(&bed, "10-batch.toml", BATCH);
            let Some(answer) = apply_with_fault(&bed, &agent, nth) else {
                break;
            };
            if answer.is_ok() {
                continue;
            }
            refused += 1;
            let mut housekeeping = Housekeeping::new(None);
            for _ in 0..3 {
                housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
            }
            let now = ["/batch-1", "/batch-2"].map(|group| bed.values(group));
            assert_eq!(now, values, "{nth}: {answer:?}");
        }
    }
    assert!(refused > 30, "{refused}");
}

#[test]
fn what_a_user_set_before_does_not_loosen_a_rule() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        group(&bed, "batch-1");
        let terms = [("class", "side"), ("quota", "90ms"), ("weight", "100")];
        set(&agent, "cgroup:/batch-1", &terms).unwrap();
        // As if it had been set without privilege.
        agent.gates.lock()[0].record.by_admin.clear();
        let rule = BATCH.replace("weight = 50", "weight = 10, quota = \"20ms\"");
        write(&bed, "10-batch.toml", &rule);
        apply_now(&agent).unwrap();
        let terms = agent.gates.lock()[0].terms.clone();
        assert_eq!(terms.quota.value.to_string(), "20ms");
        assert_eq!(terms.weight.value.to_string(), "10");
        // The administrator's own stay.
        set(&agent, "cgroup:/batch-1", &[("quota", "70ms")]).unwrap();
        apply_now(&agent).unwrap();
        let terms = agent.gates.lock()[0].terms.clone();
        assert_eq!(terms.quota.value.to_string(), "70ms");
    }
}

#[test]
fn a_trial_of_what_is_in_force_ends_with_it_in_force() {
    let (bed, clock) = in_time(Bed::new(Kind::V2));
    group(&bed, "batch-1");
    let agent = bed.agent().unwrap();
    write(&bed, "10-batch.toml", BATCH);
    apply_now(&agent).unwrap();
    // As a roll-out that is run again, and does not get to its end.
    apply(&agent, &root(1), &trial(600)).unwrap();
    clock.sleep(Duration::from_secs(601));
    end_trial(&agent);
    assert!(bed.is_limited("/batch-1"));
    assert!(confirm(&agent, &root(1)).is_err(), "nothing is on trial");
    // A change goes back to it.
    apply(&agent, &root(1), &trial(600)).unwrap();
    write(&bed, "10-batch.toml", &BATCH.replace("side", "neutral"));
    apply(&agent, &root(1), &trial(600)).unwrap();
    assert!(!bed.is_limited("/batch-1"));
    clock.sleep(Duration::from_secs(601));
    end_trial(&agent);
    assert!(bed.is_limited("/batch-1"));
}

#[test]
fn a_group_that_is_made_again_is_gated_again() {
    for kind in KINDS {
        let (bed, agent) = bed_with(kind, &[], BATCH);
        group(&bed, "batch-7");
        apply_now(&agent).unwrap();
        assert!(agent.groups().remove(&path("/batch-7")).unwrap());
        group(&bed, "batch-7");
        assert!(!bed.is_limited("/batch-7"));
        // No poll came between: the gate is still there.
        started(&agent, &["/batch-7"]);
        assert!(bed.is_limited("/batch-7"));
        assert_eq!(gate_names(&agent), ["batch-7"]);
        agent.leave();
        assert_eq!(in_journal(&agent), []);
    }
}

#[test]
fn what_is_set_lies_over_the_rule_and_unset_goes_back_to_it() {
    for kind in KINDS {
        let (bed, agent) = bed_with(kind, &["batch-1"], &BATCH.replace("side", "neutral"));
        apply_now(&agent).unwrap();
        assert!(!bed.is_limited("/batch-1"));
        set(&agent, "cgroup:/batch-1", &[("quota", "20ms")]).unwrap();
        let view = &agent.status().gates[0];
        assert_eq!(view.rule.as_deref(), Some("batch"));
        let limited = bed.values("/batch-1");
        unset(&agent, "cgroup:/batch-1").unwrap();
        assert_ne!(bed.values("/batch-1"), limited, "the quota is gone");
        assert_eq!(gate_names(&agent), ["batch-1"]);
        let error = unset(&agent, "cgroup:/batch-1").unwrap_err();
        assert!(error.detail.contains("rule batch"), "{error:?}");
        // The rule goes; what was set stays.
        set(&agent, "cgroup:/batch-1", &[("quota", "20ms")]).unwrap();
        std::fs::remove_dir_all(bed.run_dir().dir().join("etc")).unwrap();
        apply_now(&agent).unwrap();
        assert_eq!(bed.values("/batch-1"), limited);
        assert_eq!(agent.status().gates[0].rule, None);
    }
}

#[test]
fn the_policy_is_the_administrators() {
    let (_bed, agent) = begun(KINDS[0]);
    let user = user(1);
    for denied in [
        apply(&agent, &user, &ApplyRequest::default()).map(drop),
        diff(&agent, &user).map(drop),
        rollback(&agent, &user).map(drop),
        confirm(&agent, &user).map(drop),
    ] {
        assert_eq!(denied.unwrap_err().kind, ErrorKind::Denied);
    }
}
