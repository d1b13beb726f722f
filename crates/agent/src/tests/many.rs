//! What thousands of gates cost: counted in operations, since time is the machine's.

use tidegate_cgroup::{KernelFs, Op};

use tidegate_cgroup::testkit::FakeProcess;

use super::{Bed, KINDS, Kind, begun, policy, run, run_limited};
use crate::lifecycle::housekeeping::Housekeeping;
use crate::lifecycle::repair as fallback;
use crate::metrics::GATES_MAX;
use crate::view::Detail;

const FIRST_PID: i32 = 10_000;

const QUOTA: &str = r#"
[[rule]]
name = "batch"
match = { cgroup = "/batch-*" }
terms = { quota = "20ms" }
"#;

/// Side gates, a process in each.
fn fill(bed: &Bed, agent: &crate::agent::Agent, count: i32) {
    for pid in FIRST_PID..FIRST_PID + count {
        bed.fake.add_process(FakeProcess::new(pid));
        run_limited(agent, pid).unwrap();
    }
}

fn all_end(bed: &Bed, count: i32) {
    for pid in FIRST_PID..FIRST_PID + count {
        bed.fake.end_process(pid);
    }
}

/// How often the ledger was written since the log had this many lines.
fn ledgers_written(bed: &Bed, since: usize) -> usize {
    let log = bed.fs.log();
    let of_ledger = log[since..]
        .iter()
        .filter(|(op, path)| *op == Op::Replace && path.ends_with("ledger.json"));
    of_ledger.count()
}

/// What it costs on each kind of machine, for 200 as for 20: however many there are.
fn for_many_as_for_few(cost: impl Fn(Kind, i32) -> usize) -> usize {
    let costs = KINDS.map(|kind| {
        let [few, many] = [20, 200].map(|count| cost(kind, count));
        assert_eq!(few, many, "{kind:?}");
        few
    });
    costs[0].max(costs[1]).max(costs[2])
}

#[test]
fn gates_that_end_together_are_found_in_two_polls_and_leave_the_journal_at_once() {
    let written = for_many_as_for_few(|kind, count| {
        let (bed, agent) = begun(kind);
        fill(&bed, &agent, count);
        all_end(&bed, count);
        let since = bed.fs.log().len();
        let mut housekeeping = Housekeeping::new(None);
        housekeeping.poll_gates(&agent.gates, &agent.runtime);
        housekeeping.poll_gates(&agent.gates, &agent.runtime);
        assert!(agent.gates.lock().is_empty());
        assert!(!bed.exists("/tg-side"));
        assert_eq!(agent.runtime.journal().entries().len(), 0);
        ledgers_written(&bed, since)
    });
    assert!(written <= 4, "{written}");
}

#[test]
fn an_agent_that_leaves_writes_its_journal_as_often_for_many_gates_as_for_few() {
    for_many_as_for_few(|kind, count| {
        let (bed, agent) = begun(kind);
        fill(&bed, &agent, count);
        all_end(&bed, count);
        let since = bed.fs.log().len();
        assert_eq!(agent.leave(), 0);
        assert!(!bed.exists("/tg-side"));
        ledgers_written(&bed, since)
    });
}

#[test]
fn what_orphans_leave_is_removed_with_as_many_writes_for_many_as_for_few() {
    for_many_as_for_few(|kind, count| {
        let (bed, agent) = begun(kind);
        fill(&bed, &agent, count);
        assert_eq!(agent.leave(), count as usize, "all go on");
        assert!(bed.fake.exists(&bed.run_dir().gates()));
        drop(agent);
        let since = bed.fs.log().len();
        let (groups, mut journal) = bed.without_agent();
        let run_dir = bed.run_dir();
        assert!(!fallback::clean_with(&groups, &mut journal, &run_dir));
        all_end(&bed, count);
        assert!(fallback::clean_with(&groups, &mut journal, &run_dir));
        assert!(!bed.exists("/tg-side"));
        ledgers_written(&bed, since)
    });
}

#[test]
fn another_gate_costs_as_much_beside_many_soft_caps_as_beside_few() {
    for_many_as_for_few(|kind, count| {
        let (bed, agent) = begun(kind);
        for pid in FIRST_PID..FIRST_PID + count {
            bed.fake.add_process(FakeProcess::new(pid));
            run(&agent, pid, &[("cap_soft", "200‰")]).unwrap();
        }
        assert_eq!(agent.runtime.control().soft_caps.count(), count as usize);
        let since = bed.fs.log().len();
        run_limited(&agent, super::PIDS[0]).unwrap();
        bed.fs.log().len() - since
    });
}

#[test]
fn a_policy_writes_the_ledger_as_often_for_many_groups_as_for_few() {
    for_many_as_for_few(|kind, count| {
        let (bed, agent) = begun(kind);
        (0..count).for_each(|nth| policy::group(&bed, &format!("batch-{nth}")));
        let since = bed.fs.log().len();
        for text in [QUOTA, &QUOTA.replace("20ms", "30ms"), ""] {
            policy::write(&bed, "10-batch.toml", text);
            let changed = policy::apply_now(&agent).unwrap().gates.len();
            assert_eq!(changed, count as usize);
        }
        assert_eq!(agent.runtime.journal().entries().len(), 0);
        ledgers_written(&bed, since)
    });
}

#[test]
fn a_status_without_gates_reads_no_file_of_one() {
    let bed = Bed::new(Kind::V2);
    (0..40).for_each(|nth| policy::group(&bed, &format!("batch-{nth}")));
    let agent = bed.agent().unwrap();
    policy::write(&bed, "10-batch.toml", QUOTA);
    policy::apply_now(&agent).unwrap();
    let whole = agent.status();
    let since = bed.fs.log().len();
    let without = agent.status_in(Detail::NoGates);
    let log = bed.fs.log();
    let of_gates = log[since..]
        .iter()
        .filter(|(_, path)| path.to_string_lossy().contains("batch-"));
    assert_eq!(of_gates.count(), 0);
    assert!(without.gates.is_empty());
    assert_eq!(
        (without.headroom_ratio, without.decision),
        (whole.headroom_ratio, whole.decision)
    );
}

#[test]
fn a_scrape_measures_the_gates_that_have_series_of_their_own() {
    let bed = Bed::new(Kind::V1);
    let count = GATES_MAX + 10;
    (0..count).for_each(|nth| policy::group(&bed, &format!("batch-{nth}")));
    let agent = bed.agent().unwrap();
    policy::write(&bed, "10-batch.toml", QUOTA);
    policy::apply_now(&agent).unwrap();
    let since = bed.fs.log().len();
    let figures = agent.status_in(Detail::Figures);
    let log = bed.fs.log();
    let measured = log[since..]
        .iter()
        .filter(|(op, path)| *op == Op::Read && path.ends_with("cpu.stat"));
    assert_eq!(measured.count(), GATES_MAX);
    assert_eq!(figures.gates.len(), count);
    assert!(figures.gates.iter().all(|gate| gate.terms.is_empty()));
    let whole = agent.status();
    assert!(whole.gates.iter().all(|gate| !gate.terms.is_empty()));
}
