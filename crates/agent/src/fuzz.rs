//! What `crates/fuzz` reaches: requests, `gates.json` and the lease, each through the functions
//! that the agent itself uses, with what must hold of every answer. Nothing else uses it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_api::{RunRequest, SetRequest, UnsetRequest};
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{GateName, Target};
use tidegate_engine::limit::{caps_for_each, with_burst};
use tidegate_terms::{Class, Config, RawTerms, Source};

use crate::gates::budget::check_size;
use crate::gates::privilege::only_tightens;
use crate::gates::{Attachment, Gate, Record, find_in, stored};
use crate::lifecycle::guardian::agent_state;
use crate::peer::{Peer, may_give};
use crate::process::lease::Lease;
use crate::process::liveness::is_alive;
use crate::server::parse;

/// The bounds of the kernel's `cpu.max`, and of weights.
const PERIOD_US: std::ops::RangeInclusive<u64> = 1_000..=1_000_000;
const QUOTA_MIN_US: u64 = 1_000;
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=10_000;
/// Of a command line, with the marks of one that was cut.
const COMMAND_BYTES_MAX: usize = 4_096 + 8;
const USER: u32 = 1000;

/// The body of `run`, `set` or `unset`: it is refused, or what it asks for stays in bounds.
pub fn request(call: u8, body: &[u8]) {
    match call % 3 {
        0 => {
            let Ok(request) = parse::<RunRequest>(body) else {
                return;
            };
            let kept = RunRequest::begin_of_command(&request.command);
            let bytes: usize = kept.iter().map(|word| word.len() + 3).sum();
            assert!(bytes <= COMMAND_BYTES_MAX, "{bytes} bytes");
            if let Some(name) = request.name.map(|name| GateName::parse(&name)) {
                let plain = |name: GateName| GroupPath::root().join(name.as_str()).is_ok();
                assert!(name.is_err() || name.is_ok_and(plain));
            }
            let program = request.command.first().map_or("command", String::as_str);
            assert!(GateName::parse(GateName::from_command(program, 2).as_str()).is_ok());
            judge(&request.terms, &Source::RunFlag);
        }
        1 => {
            let Ok(request) = parse::<SetRequest>(body) else {
                return;
            };
            if Target::parse(&request.target).is_ok() {
                judge(&request.terms, &Source::Set);
            }
        }
        _ => {
            let Ok(request) = parse::<UnsetRequest>(body) else {
                return;
            };
            let gates = [gate(&RawTerms::default()).expect("no terms are no contradiction")];
            if let Ok(index) = find_in(&gates, &request.target, |_, _| false) {
                assert!(request.target.ends_with(&gates[index].record.name));
            }
        }
    }
}

fn judge(terms: &BTreeMap<String, String>, source: &Source) {
    if check_size(terms).is_err() {
        return;
    }
    let user = Peer {
        uid: USER,
        ..Peer::default()
    };
    let may = may_give(&user, false, USER, terms).is_ok();
    assert!(may_give(&user, false, USER + 1, terms).is_err());
    let Some(gate) = gate(&RawTerms::from_map(terms, source)) else {
        return;
    };
    if may {
        assert_eq!(gate.class(), Class::Side, "{terms:?}");
        assert!(gate.terms.cpu_weight() <= 100, "{terms:?}");
        assert!(gate.terms.latency.value.hint() >= 0, "{terms:?}");
    }
    check(&gate);
}

fn gate(raw: &RawTerms) -> Option<Gate> {
    let attachment = Attachment::Owned {
        group: GroupPath::root(),
    };
    let record = Record {
        uid: USER,
        by_admin: raw.0.keys().cloned().collect(),
        ..Record::new("job".to_owned(), "run", raw.clone(), attachment)
    };
    Gate::new(record, &Config::default()).ok()
}

/// What the agent writes for a gate is what the kernel takes.
fn check(gate: &Gate) {
    let limits = [gate.own_limit(), with_burst(&gate.terms, u64::MAX)];
    for limit in limits.into_iter().flatten() {
        let quota_us = limit.quota_us.expect("an own limit has a quota");
        let good = quota_us >= QUOTA_MIN_US
            && limit.burst_us <= quota_us
            && PERIOD_US.contains(&limit.period_us);
        assert!(good, "{limit:?} of {:?}", gate.record.raw);
    }
    assert!(
        WEIGHTS.contains(&gate.terms.cpu_weight()),
        "{:?}",
        gate.record.raw
    );
    assert!(gate.terms.soft_ppt().is_none_or(|soft| soft <= 8_192_000));
    let _ = (
        caps_for_each(&gate.terms),
        gate.terms.soft_for_all_ppt(),
        gate.own_fallback(),
    );
    assert_eq!(only_tightens(gate, gate), Ok(()), "{:?}", gate.record.raw);
    let text = stored::written(&[&gate.record], &[]).expect("records are plain data");
    let stored = stored::read(&String::from_utf8_lossy(&text)).expect("it was just written");
    assert!(stored.unread.is_empty() && stored.records == [gate.record.clone()]);
}

/// The text of `gates.json`: what is read of it stays in bounds, garbage beside it costs none of
/// it, and what cannot be read is written back.
pub fn gates(text: &str) {
    let Ok(found) = stored::read(text) else {
        return;
    };
    for record in &found.records {
        let (gate, left_out) = stored::gate_of(record.clone(), &Config::default());
        check(&gate);
        let strict = Gate::new(record.clone(), &Config::default());
        assert_eq!(strict.is_ok(), left_out.is_empty(), "{:?}", record.raw);
    }
    let all: Vec<Value> = serde_json::from_str(text).expect("it was read");
    let garbage = [Value::Null, json!({"name": "job"}), json!([1, "x"])];
    let mut among = Vec::new();
    for (nth, one) in all.iter().enumerate() {
        among.push(garbage[nth % garbage.len()].clone());
        among.push(one.clone());
    }
    let again = stored::read(&json!(among).to_string()).expect("a list");
    assert_eq!(again.records, found.records);
    let unread = again.unread.len();
    assert_eq!(unread, found.unread.len() + all.len());
    let written = stored::written(&[], &again.unread).expect("what was read is written");
    let kept = stored::read(&String::from_utf8_lossy(&written)).expect("it was just written");
    assert_eq!(kept.unread, again.unread);
}

/// A page of the lease with any bytes in it, at any time, as agent and guardian read it; then an
/// agent takes it.
pub fn lease(path: &Path, now_ns: u64, pid: i32) {
    let Ok(lease) = Lease::open(path) else { return };
    let (age_ns, _) = lease.age_and_lease_ns(now_ns);
    assert!(age_ns <= now_ns);
    let holder = lease.agent_pid();
    for dead in [false, true] {
        let _ = (
            agent_state(&lease, holder, dead, now_ns),
            agent_state(&lease, pid, dead, now_ns),
        );
    }
    let guardian = lease.guardian_pid();
    let silent_ns = lease.guardian_silent_ns(guardian, now_ns);
    assert!(silent_ns.is_none_or(|silent_ns| silent_ns <= now_ns));
    assert!(guardian > 0 || !is_alive(guardian));
    let marked = lease.has_fallback();
    assert_eq!(lease.take_fallback(), marked);
    // A page may say that restarts were so many that counting one more begins at nothing.
    let restarts = (0..20).filter(|_| lease.may_restart(now_ns)).count();
    assert!(restarts <= 5, "{restarts} restarts");
    lease.take(pid, 2_000_000_000);
    lease.beat(now_ns);
    assert!(!lease.left() && !lease.has_fallback() && lease.agent_pid() == pid);
    assert_eq!(lease.age_and_lease_ns(now_ns), (0, 2_000_000_000));
    lease.guardian_beat(pid, now_ns);
    assert_eq!(
        lease.guardian_silent_ns(pid, now_ns),
        (now_ns > 0).then_some(0)
    );
}
