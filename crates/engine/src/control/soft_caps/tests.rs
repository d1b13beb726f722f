//! Soft caps against a machine of one CPU.

use crate::control::ApplyError;
use std::collections::BTreeMap;

use super::*;
use tidegate_cgroup::bandwidth::Bandwidth;

const MS: u64 = 1_000_000;

/// A machine of one CPU: the group wants all of it, and so does another or not. In the background
/// it gets what the other leaves, else half.
struct Machine {
    used_ns: BTreeMap<String, u64>,
    background: BTreeMap<String, bool>,
    readable: bool,
    refuses: bool,
    writes: u32,
}

impl Machine {
    fn new() -> Self {
        Self {
            used_ns: BTreeMap::new(),
            background: BTreeMap::new(),
            readable: true,
            refuses: false,
            writes: 0,
        }
    }

    fn run(&mut self, group: &str, wall_ns: u64, contended: bool) -> u64 {
        let background = self.background.get(group).copied().unwrap_or(false);
        let got_ns = match (contended, background) {
            (false, _) => wall_ns,
            (true, true) => 0,
            (true, false) => wall_ns / 2,
        };
        *self.used_ns.entry(group.to_owned()).or_default() += got_ns;
        got_ns
    }
}

struct Doors<'a>(&'a std::cell::RefCell<Machine>);

impl Usage for Doors<'_> {
    fn usage_ns(&mut self, group: &GroupPath) -> Option<u64> {
        let machine = self.0.borrow();
        machine
            .readable
            .then(|| machine.used_ns.get(group.as_str()).copied().unwrap_or(0))
    }
}

impl Apply for Doors<'_> {
    fn set_quota(
        &mut self,
        _: &GroupPath,
        _: Option<Bandwidth>,
        _: Bandwidth,
    ) -> Result<(), ApplyError> {
        Err("no quotas here".to_owned().into())
    }

    fn set_yielding(&mut self, _: &GroupPath, _: bool) -> Result<(), ApplyError> {
        Err("nothing to relieve here".to_owned().into())
    }

    fn set_background(&mut self, group: &GroupPath, background: bool) -> Result<(), ApplyError> {
        let mut machine = self.0.borrow_mut();
        machine.writes += 1;
        if machine.refuses {
            return Err("refused".to_owned().into());
        }
        machine.background.insert(group.to_string(), background);
        Ok(())
    }
}

fn path(name: &str) -> GroupPath {
    GroupPath::parse(name).unwrap()
}

fn capped(soft_ppt: u32) -> SoftCaps {
    let mut soft_caps = SoftCaps::default();
    let one = SoftCapped {
        group: path("/a"),
        soft_ppt,
    };
    soft_caps.set(&[one], 0);
    soft_caps
}

fn go(
    soft_caps: &mut SoftCaps,
    machine: &std::cell::RefCell<Machine>,
    span: (u64, u64),
    busy: bool,
) -> u64 {
    let mut got_ns = 0;
    for step in span.0 / POLL_NS..span.1 / POLL_NS {
        soft_caps.step(step * POLL_NS, &mut Doors(machine), &mut Doors(machine));
        got_ns += machine.borrow_mut().run("/a", POLL_NS, busy);
    }
    got_ns
}

#[test]
fn beside_others_it_gets_its_cap_and_alone_all() {
    for soft_ppt in [10, 200, 400] {
        let machine = std::cell::RefCell::new(Machine::new());
        let mut soft_caps = capped(soft_ppt);
        let alone_ns = go(&mut soft_caps, &machine, (0, 1_000 * MS), false);
        assert_eq!(alone_ns, 1_000 * MS);
        let writes = machine.borrow().writes;
        assert_eq!(
            writes, 1,
            "alone it stays in the background: nothing to write"
        );
        let beside_ns = go(&mut soft_caps, &machine, (1_000 * MS, 11_000 * MS), true);
        let want_ns = 10_000 * MS * u64::from(soft_ppt) / 1000;
        let off_ns = beside_ns.abs_diff(want_ns);
        assert!(off_ns <= 10 * MS, "{soft_ppt}: {beside_ns} for {want_ns}");
        let (stats, _) = soft_caps.stats(&path("/a")).unwrap();
        assert!(
            stats.turns > 10 && stats.in_background_ns > stats.capped_ns / 5,
            "{stats:?}"
        );
        assert!(stats.used_background_ns >= 900 * MS, "{stats:?}");
    }
}

#[test]
fn a_cap_rests_once_the_use_was_unknown_for_a_second() {
    let machine = std::cell::RefCell::new(Machine::new());
    let mut soft_caps = capped(10);
    let in_background = || machine.borrow().background["/a"];
    go(&mut soft_caps, &machine, (0, 1_000 * MS), true);
    assert!(in_background());
    machine.borrow_mut().readable = false;
    go(&mut soft_caps, &machine, (1_000 * MS, 1_900 * MS), true);
    assert!(in_background(), "it stays as it was");
    let got_ns = go(&mut soft_caps, &machine, (1_900 * MS, 4_000 * MS), true);
    assert!(!in_background());
    assert!(
        got_ns > 900 * MS,
        "a cap of 1 % held it down to {got_ns} ns"
    );
    assert_eq!(soft_caps.stats(&path("/a")).unwrap().0.level_ns, None);
    machine.borrow_mut().readable = true;
    let got_ns = go(&mut soft_caps, &machine, (4_000 * MS, 14_000 * MS), true);
    assert!(
        got_ns < 120 * MS,
        "{got_ns}: it goes on with an empty bucket"
    );
}

#[test]
fn a_refused_write_is_tried_again_once_a_second() {
    let machine = std::cell::RefCell::new(Machine::new());
    machine.borrow_mut().refuses = true;
    let mut soft_caps = capped(100);
    go(&mut soft_caps, &machine, (0, 2_500 * MS), true);
    assert_eq!(machine.borrow().writes, 3);
    assert_eq!(soft_caps.write_errors().collect::<Vec<_>>(), ["refused"]);
    machine.borrow_mut().refuses = false;
    go(&mut soft_caps, &machine, (2_500 * MS, 3_500 * MS), true);
    assert_eq!(soft_caps.write_errors().count(), 0);
}

#[test]
fn setting_a_cap_again_pays_nothing_back() {
    let machine = std::cell::RefCell::new(Machine::new());
    let mut soft_caps = capped(500);
    go(&mut soft_caps, &machine, (0, 50 * MS), true);
    let before = soft_caps.stats(&path("/a")).unwrap().0.level_ns.unwrap();
    let one = SoftCapped {
        group: path("/a"),
        soft_ppt: 100,
    };
    soft_caps.set(std::slice::from_ref(&one), 50 * MS);
    soft_caps.set(&[one], 50 * MS);
    soft_caps.step(50 * MS, &mut Doors(&machine), &mut Doors(&machine));
    let (stats, soft_ppt) = soft_caps.stats(&path("/a")).unwrap();
    assert_eq!(soft_ppt, 100);
    assert!(
        stats.level_ns.unwrap() <= before.max(0) + POLL_NS as i64,
        "{before} {stats:?}"
    );
}

struct Counted<'a>(Doors<'a>, usize);

impl Usage for Counted<'_> {
    fn usage_ns(&mut self, group: &GroupPath) -> Option<u64> {
        self.1 += 1;
        self.0.usage_ns(group)
    }
}

#[test]
fn thousands_in_the_background_for_good_take_no_turns_from_one_that_comes_and_goes() {
    let machine = std::cell::RefCell::new(Machine::new());
    let mut soft_caps = SoftCaps::default();
    let mut wanted: Vec<SoftCapped> = (0..3_000)
        .map(|nth| SoftCapped {
            group: path(&format!("/still{nth}")),
            soft_ppt: 0,
        })
        .collect();
    wanted.push(SoftCapped {
        group: path("/lively"),
        soft_ppt: 100,
    });
    soft_caps.set(&wanted, 0);
    let mut usage = Counted(Doors(&machine), 0);
    let mut now_ns = 0;
    let mut step = |soft_caps: &mut SoftCaps, usage: &mut Counted<'_>| {
        now_ns += POLL_NS;
        soft_caps.step(now_ns, usage, &mut Doors(&machine));
    };
    // Each has one look until it is there for good.
    for _ in 0..3_100_usize.div_ceil(POLLS_PER_STEP) + 1 {
        step(&mut soft_caps, &mut usage);
    }
    assert!(machine.borrow().background.len() > 3_000);
    let polls = usage.1;
    for _ in 0..100 {
        step(&mut soft_caps, &mut usage);
    }
    assert_eq!(usage.1 - polls, 100, "one poll a step: the lively one's");
    soft_caps.drop(&path("/lively"));
    assert_eq!(soft_caps.count(), 3_000);
    step(&mut soft_caps, &mut usage);
    assert!(soft_caps.is_idle());
    // Somebody writes one of the others: that is looked at again, and no other.
    let polls = usage.1;
    soft_caps.invalidate(&path("/still7"));
    assert!(!soft_caps.is_idle());
    step(&mut soft_caps, &mut usage);
    step(&mut soft_caps, &mut usage);
    assert_eq!(usage.1 - polls, 1);
    soft_caps.set(&[], 0);
    assert!(soft_caps.is_idle() && soft_caps.count() == 0);
}
