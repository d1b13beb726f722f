//! The failure contract over a whole life: a fault at each operation of the agent, of its guardian,
//! of `repair` and of the next agent's start; after each, what must hold holds, and the next
//! process leaves nothing behind.
//!
//! `TIDEGATE_FAULTS=all` strikes at every operation; otherwise at every change, with two refusals
//! of seven, deaths after each and freezes at an eighth of the looks between.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidegate_cgroup::{KernelFs, Op};

use tidegate_cgroup::testkit::{Fault, Rule};
use tidegate_engine::sync::lock;

use super::life::{Ask, FALL, RISE, guardian_acts, thaw};
use super::sim_clock::SimClock;
use super::{Bed, KINDS, Kind};
use crate::After;
use crate::agent::Agent;

/// What strikes: death, or a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strike {
    Death,
    /// Its guardian stands in for it meanwhile.
    Freeze,
    Errno(i32),
}

const STRIKES: [Strike; 9] = [
    Strike::Death,
    Strike::Freeze,
    Strike::Errno(libc::ENOSPC),
    Strike::Errno(libc::EIO),
    Strike::Errno(libc::EBUSY),
    Strike::Errno(libc::EPERM),
    Strike::Errno(libc::ENOENT),
    Strike::Errno(libc::ENODEV),
    Strike::Errno(libc::EROFS),
];

impl Strike {
    fn name(self) -> String {
        match self {
            Strike::Death => "death".to_owned(),
            Strike::Freeze => "freeze".to_owned(),
            Strike::Errno(libc::ENOSPC) => "ENOSPC".to_owned(),
            Strike::Errno(libc::EIO) => "EIO".to_owned(),
            Strike::Errno(libc::EBUSY) => "EBUSY".to_owned(),
            Strike::Errno(libc::EPERM) => "EPERM".to_owned(),
            Strike::Errno(libc::ENOENT) => "ENOENT".to_owned(),
            Strike::Errno(libc::ENODEV) => "ENODEV".to_owned(),
            Strike::Errno(libc::EROFS) => "EROFS".to_owned(),
            Strike::Errno(other) => format!("errno {other}"),
        }
    }

    /// Some are answers, not faults: to a look, that this kernel has no such file, that there is no
    /// ledger, that one may not write there; to a removal, that it is gone already, and so is a
    /// task.
    fn is_answer(self, op: Op) -> bool {
        let says_gone = matches!(self, Strike::Errno(libc::ENOENT | libc::ENODEV));
        let ends = matches!(op, Op::Rmdir | Op::Unlink | Op::SchedSet);
        let refusal = matches!(self, Strike::Errno(_));
        refusal && op == Op::Access || says_gone && (ends || !op.is_change())
    }

    /// Between two changes nothing that lasts happens: there, a death at one look is a death at
    /// each.
    fn is_worth(self, op: Op, after_a_change: bool, nth: usize) -> bool {
        let short = match self {
            // Each change meets two of the seven.
            Strike::Errno(errno) => op.is_change() && (nth as u64 + errno as u64).is_multiple_of(4),
            Strike::Death => op.is_change() || after_a_change,
            Strike::Freeze => op.is_change() || nth.is_multiple_of(8),
        };
        !self.is_answer(op) && (short || everything())
    }

    fn rule(self, nth: u64, bed: &Bed) -> Rule {
        let fault = match self {
            Strike::Death => Fault::Halt,
            Strike::Freeze => {
                let machine: Arc<dyn KernelFs> = Arc::clone(&bed.fake) as Arc<dyn KernelFs>;
                Fault::Meanwhile(guardian_acts(machine, &bed.run_dir(), &bed.acted))
            }
            Strike::Errno(errno) => Fault::Errno(errno),
        };
        Rule {
            fault,
            ..Rule::nth(nth, 0)
        }
    }
}

fn everything() -> bool {
    std::env::var("TIDEGATE_FAULTS").is_ok_and(|text| text == "all")
}

/// How often what was injected, and what broke.
#[derive(Default)]
struct Tally {
    injected: BTreeMap<String, u64>,
    broken: Vec<String>,
}

/// Strikes `act` at each of its operations on every kind of machine; `after` says what is wrong
/// then.
///
/// `before` brings the machine to where `act` begins, without a fault.
fn at_each_operation(
    who: &str,
    before: impl Fn(&Bed) + Sync,
    act: impl Fn(&Bed) -> Vec<String> + Sync,
    after: impl Fn(&Bed, u64, Strike) -> Vec<String> + Sync,
) {
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for kind in KINDS {
            let (before, act, after, tally) = (&before, &act, &after, &tally);
            scope.spawn(move || strike_all(who, kind, before, act, after, tally));
        }
    });
    let tally = lock(&tally);
    for (what, count) in &tally.injected {
        eprintln!("faults: memory: {who}: {what}: {count}");
    }
    let shown: Vec<&String> = tally.broken.iter().take(8).collect();
    assert!(
        shown.is_empty(),
        "{} of {}: {shown:#?}",
        tally.broken.len(),
        tally.injected.values().sum::<u64>()
    );
}

/// The bed's clock stands still, so an agent makes the same kernel operations in the same order on
/// a slow machine as on a fast one.
fn in_still_time(kind: Kind) -> Bed {
    Bed {
        clock: Arc::new(SimClock::default()),
        ..Bed::new(kind)
    }
}

fn strike_all(
    who: &str,
    kind: Kind,
    before: &impl Fn(&Bed),
    act: &impl Fn(&Bed) -> Vec<String>,
    after: &impl Fn(&Bed, u64, Strike) -> Vec<String>,
    tally: &Mutex<Tally>,
) {
    let plain = in_still_time(kind);
    before(&plain);
    let first = plain.fs.count();
    assert_eq!(
        act(&plain),
        Vec::<String>::new(),
        "{kind:?}: without a fault"
    );
    let log = plain.fs.log();
    assert!(log.len() as u64 > first + 5, "{kind:?}: it does something");
    for (nth, (op, path)) in log.iter().enumerate().skip(first as usize) {
        for strike in STRIKES {
            let before_op = log[..nth].last().is_some_and(|(op, _)| op.is_change());
            if !strike.is_worth(*op, before_op, nth) {
                continue;
            }
            let bed = in_still_time(kind);
            before(&bed);
            bed.fs.add(strike.rule(nth as u64 + 1, &bed));
            let mut wrong = act(&bed);
            bed.fs.clear();
            if let Some((struck, _)) = bed.fs.log().get(nth) {
                assert_eq!(
                    struck, op,
                    "{kind:?}: operation {nth} is the same in each life"
                );
            }
            wrong.extend(bed.breaches());
            wrong.extend(after(&bed, nth as u64, strike));
            let mut tally = lock(tally);
            *tally.injected.entry(strike.name()).or_default() += 1;
            if !wrong.is_empty() {
                let at = nth as u64 - first + 1;
                let what = strike.name();
                let path = path.display();
                tally.broken.push(format!(
                    "{who}, {kind:?}, {what} at operation {at} ({op} {path}): {}",
                    wrong.join("; ")
                ));
            }
        }
    }
}

fn go_through(bed: &Bed, agent: &Agent, asks: &[Ask]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, ask) in asks {
        ask(bed, agent);
        thaw(agent, &bed.acted);
        wrong.extend(bed.breaches().iter().map(|one| format!("{name}: {one}")));
    }
    wrong
}

fn fresh(kind: Kind) -> Vec<String> {
    Bed::new(kind).values("/other")
}

/// A new agent takes up what it finds, ends it, and leaves nothing.
fn next_agent(bed: &Bed) -> Vec<String> {
    let agent = match bed.agent() {
        Ok(agent) => agent,
        Err(why) => return vec![format!("no next agent: {why}")],
    };
    let mut wrong = bed.breaches();
    if let Err(why) = bed.wind_up(&agent) {
        wrong.push(why);
    }
    wrong.extend(bed.left_behind(&fresh(bed.kind)));
    wrong
}

/// Only `repair` follows: once while commands run, once after they have ended.
fn only_repair(bed: &Bed) -> Vec<String> {
    let mut wrong = Vec::new();
    wrong.extend(bed.repair(After::End).err());
    wrong.extend(bed.breaches());
    for pid in [
        super::PIDS[super::life::SIDE],
        super::PIDS[super::life::MAIN],
    ] {
        bed.fake.end_process(pid);
    }
    let report = bed.repair(After::End);
    let left = bed.left_behind(&fresh(bed.kind));
    if !left.is_empty() {
        wrong.push(format!("repair said {report:?}"));
    }
    wrong.extend(left);
    wrong
}

/// Those who may come after a death, in turn.
fn the_next_process(bed: &Bed, nth: u64, _: Strike) -> Vec<String> {
    match nth % 4 {
        0 => next_agent(bed),
        1 => {
            let mut wrong: Vec<String> = bed.fall_back().err().into_iter().collect();
            wrong.extend(bed.breaches());
            wrong.extend(next_agent(bed));
            wrong
        }
        2 => only_repair(bed),
        _ => {
            let mut wrong: Vec<String> = bed.repair(After::Crash).err().into_iter().collect();
            wrong.extend(bed.breaches());
            wrong.extend(next_agent(bed));
            wrong
        }
    }
}

fn rise(bed: &Bed) {
    let agent = bed.agent().unwrap();
    assert_eq!(go_through(bed, &agent, RISE), Vec::<String>::new());
}

#[test]
fn the_agent_at_every_operation_of_its_rise() {
    let life = |bed: &Bed| match bed.agent() {
        Ok(agent) => go_through(bed, &agent, RISE),
        Err(_) => Vec::new(),
    };
    at_each_operation("agent, rising", |_| {}, life, the_next_process);
}

#[test]
fn the_next_agent_at_every_operation_of_its_start_and_fall() {
    let life = |bed: &Bed| match bed.agent() {
        Ok(agent) => go_through(bed, &agent, FALL),
        Err(_) => Vec::new(),
    };
    at_each_operation("next agent, falling", rise, life, the_next_process);
}

#[test]
fn the_guardian_at_every_operation() {
    let act = |bed: &Bed| {
        let _ = bed.fall_back();
        Vec::new()
    };
    at_each_operation("guardian", rise, act, the_next_process);
}

#[test]
fn repair_at_every_operation() {
    for after in [After::End, After::Crash] {
        let act = |bed: &Bed| {
            let _ = bed.repair(after);
            Vec::new()
        };
        at_each_operation(&format!("repair, {after:?}"), rise, act, the_next_process);
    }
}
