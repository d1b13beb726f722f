//! Soft caps: the law's bucket over a group's use; empty, the group is in the background until it is above zero again.
//!
//! In the background a group runs only where nothing beside it wants the CPU: `cpu.idle`, or the least weight where the
//! kernel has no such file. The bucket needs no exact instant, only sums that do not drift: a group's own usage file, which
//! the kernel brings up to date at ticks, is late by a tick and never wrong by more. So the granularity of the law
//! (`law/cap.md`) is the time between two looks and a tick, whatever senses the headroom.
//!
//! A cap of 0 is the background for good: set once, never looked at again.

use tidegate_law::cap::{Cap, Family, State, Terms};

use super::quotas::Apply;
use crate::group::GroupPath;

/// Capped groups are looked at this often.
pub const LOOK_NS: u64 = 5_000_000;
/// After a write that failed: not before.
const AGAIN_NS: u64 = 1_000_000_000;
/// So many looks a step; with more groups each has its turn less often (and a granularity that is as much coarser).
const LOOKS_A_STEP: usize = 16;

/// What a capped group did, for those who ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// In the background since.
    pub background_since_ns: Option<u64>,
    /// Time in the background, up to the last look.
    pub in_background_ns: u64,
    /// Time under the cap, up to the last look.
    pub capped_ns: u64,
    /// How often it went to the background.
    pub turns: u64,
    /// What the bucket holds; debt where negative.
    pub level_ns: i64,
    /// CPU that it used in the background, which nobody else wanted.
    pub used_background_ns: u64,
    /// ... and otherwise.
    pub used_foreground_ns: u64,
}

/// The bucket of one group.
#[derive(Clone, Debug)]
pub struct Soft {
    cap: Cap,
    family: Family,
    soft_ppt: u32,
    used_ns: Option<u64>,
    looked_ns: u64,
    /// What stands, if that is known.
    background: Option<bool>,
    /// It stood so at the last look already, so that what is read since is of that time.
    is_told: bool,
    story: Story,
}

impl Soft {
    /// A cap of `soft_ppt` parts per thousand of one CPU. Its bucket is empty.
    pub fn new(soft_ppt: u32) -> Self {
        Self {
            cap: Cap::default(),
            family: Family::default(),
            soft_ppt,
            used_ns: None,
            looked_ns: 0,
            background: None,
            is_told: false,
            story: Story::default(),
        }
    }

    /// Another rate; what was used and owed stands.
    pub fn set_rate(&mut self, soft_ppt: u32, now_ns: u64) {
        if soft_ppt != self.soft_ppt {
            self.soft_ppt = soft_ppt;
            if self.used_ns.is_some() {
                self.set(now_ns);
            }
        }
    }

    fn set(&mut self, now_ns: u64) {
        self.cap
            .set(&Terms::group(None, Some(self.soft_ppt), LOOK_NS), now_ns);
    }

    /// Whether there is nothing to look for: it is in the background and stays there.
    pub fn is_settled(&self) -> bool {
        self.soft_ppt == 0 && self.background == Some(true)
    }

    /// Takes in what the group has used up to now; whether it is to be in the background from now on. Nothing read means that
    /// nobody knows, which is no reason to take CPU from others.
    pub fn look(&mut self, now_ns: u64, used_ns: Option<u64>) -> bool {
        let dt_ns = now_ns.saturating_sub(self.looked_ns);
        let Some(used_ns) = used_ns else {
            self.used_ns = None;
            self.looked_ns = now_ns;
            return true;
        };
        match self.used_ns.replace(used_ns) {
            None => self.set(now_ns),
            Some(before_ns) => {
                // A counter never goes back; one that does is another group's, and counts from here.
                let spent_ns = used_ns.saturating_sub(before_ns);
                // Use is told late by a tick, and the kernel's change of mind takes as long: what the first look in the
                // background finds was taken from others. Forgiven, it was 4 % of a CPU beside a hog.
                let background = self.background == Some(true) && self.is_told;
                self.cap.charge(spent_ns, now_ns, background, 0);
                self.story.capped_ns += dt_ns;
                if self.background == Some(true) {
                    self.story.in_background_ns += dt_ns;
                }
                if background {
                    self.story.used_background_ns += spent_ns;
                } else {
                    self.story.used_foreground_ns += spent_ns;
                }
            }
        }
        self.looked_ns = now_ns;
        self.is_told = self.background == Some(true);
        let state = self.cap.state(&mut self.family, now_ns, 0);
        self.story.level_ns = self.cap.soft.level_ns;
        state == State::Background
    }

    /// The group is in the background from now on, or out of it.
    pub fn turned(&mut self, now_ns: u64, background: bool) {
        if self.background.replace(background) == Some(background) {
            return;
        }
        self.is_told = false;
        self.story.turns += u64::from(background);
        self.story.background_since_ns = background.then_some(now_ns);
    }

    /// What stands is not known any more: it is written, whatever it is to be.
    pub fn forget_standing(&mut self) {
        self.background = None;
        self.story.background_since_ns = None;
    }

    /// Whether the group is in the background, if that is known.
    pub fn background(&self) -> Option<bool> {
        self.background
    }

    /// What it did.
    pub fn story(&self) -> Story {
        self.story
    }
}

/// Reads what groups have used.
pub trait Usage {
    /// CPU time of the group since it was made; `None` where that cannot be read just now.
    fn usage_ns(&mut self, group: &GroupPath) -> Option<u64>;
}

/// A group that is to have a soft cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftCapped {
    /// The group.
    pub group: GroupPath,
    /// In parts per thousand of one CPU.
    pub soft_ppt: u32,
}

struct Target {
    group: GroupPath,
    soft: Soft,
    again_ns: u64,
}

/// Every group with a soft cap.
#[derive(Default)]
pub struct Softs {
    targets: Vec<Target>,
    next: usize,
    /// Times that a group was put into the background or taken out. They come and go too fast for the log of writes.
    pub writes: u64,
    /// The last failure of a write, until one succeeds.
    pub trouble: Option<String>,
}

impl Softs {
    /// The groups that have one now. Known ones keep their bucket: setting a cap again is no way to get CPU. The background
    /// of groups that are left out is the caller's to end.
    pub fn set(&mut self, wanted: &[SoftCapped], now_ns: u64) {
        let mut old = std::mem::take(&mut self.targets);
        for one in wanted {
            let known = old.iter().position(|target| target.group == one.group);
            let mut target = match known {
                Some(index) => old.swap_remove(index),
                None => Target {
                    group: one.group.clone(),
                    soft: Soft::new(one.soft_ppt),
                    again_ns: 0,
                },
            };
            target.soft.set_rate(one.soft_ppt, now_ns);
            self.targets.push(target);
        }
        if self.targets.is_empty() {
            self.trouble = None;
        }
    }

    /// `group` is not to be written any more.
    pub fn drop(&mut self, group: &GroupPath) {
        self.targets.retain(|target| target.group != *group);
    }

    /// Somebody else wrote what stands on `group`: it is written again.
    pub fn invalidate(&mut self, group: &GroupPath) {
        for target in self.targets.iter_mut().filter(|one| one.group == *group) {
            target.soft.forget_standing();
            target.again_ns = 0;
        }
    }

    /// The guardian wrote the fallback.
    pub fn fell_back(&mut self) {
        for target in &mut self.targets {
            target.soft.forget_standing();
        }
    }

    /// Whether there is nothing to look at, step by step.
    pub fn is_idle(&self) -> bool {
        self.targets.iter().all(|target| target.soft.is_settled())
    }

    /// What a group did.
    pub fn story(&self, group: &GroupPath) -> Option<(Story, u32)> {
        let target = self.targets.iter().find(|one| one.group == *group)?;
        Some((target.soft.story(), target.soft.soft_ppt))
    }

    /// One look at each that has its turn.
    pub fn step(&mut self, now_ns: u64, usage: &mut dyn Usage, apply: &mut dyn Apply) {
        let count = self.targets.len();
        let looks = count.min(LOOKS_A_STEP);
        for turn in 0..looks {
            let target = &mut self.targets[(self.next + turn) % count];
            if target.soft.is_settled() {
                continue;
            }
            let background = target.soft.look(now_ns, usage.usage_ns(&target.group));
            if Some(background) == target.soft.background() || now_ns < target.again_ns {
                continue;
            }
            match apply.set_background(&target.group, background) {
                Err(why) => {
                    target.again_ns = now_ns.saturating_add(AGAIN_NS);
                    self.trouble = Some(why);
                }
                Ok(()) => {
                    target.soft.turned(now_ns, background);
                    self.trouble = None;
                    self.writes += 1;
                }
            }
        }
        self.next = if count == 0 {
            0
        } else {
            (self.next + looks) % count
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bandwidth::Bandwidth;

    const MS: u64 = 1_000_000;

    /// A machine of one CPU: the group wants all of it, and so does another or not. In the background it gets what the other
    /// leaves, else half.
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
        ) -> Result<(), String> {
            Err("no quotas here".to_owned())
        }

        fn set_yielding(&mut self, _: &GroupPath, _: bool) -> Result<(), String> {
            Err("nothing to relieve here".to_owned())
        }

        fn set_background(&mut self, group: &GroupPath, background: bool) -> Result<(), String> {
            let mut machine = self.0.borrow_mut();
            machine.writes += 1;
            if machine.refuses {
                return Err("refused".to_owned());
            }
            machine.background.insert(group.to_string(), background);
            Ok(())
        }
    }

    fn path(name: &str) -> GroupPath {
        GroupPath::parse(name).unwrap()
    }

    fn capped(soft_ppt: u32) -> Softs {
        let mut softs = Softs::default();
        let one = SoftCapped {
            group: path("/a"),
            soft_ppt,
        };
        softs.set(&[one], 0);
        softs
    }

    fn go(
        softs: &mut Softs,
        machine: &std::cell::RefCell<Machine>,
        span: (u64, u64),
        busy: bool,
    ) -> u64 {
        let mut got_ns = 0;
        for step in span.0 / LOOK_NS..span.1 / LOOK_NS {
            softs.step(step * LOOK_NS, &mut Doors(machine), &mut Doors(machine));
            got_ns += machine.borrow_mut().run("/a", LOOK_NS, busy);
        }
        got_ns
    }

    #[test]
    fn beside_others_it_gets_its_cap_and_alone_all() {
        for soft_ppt in [10, 200, 400] {
            let machine = std::cell::RefCell::new(Machine::new());
            let mut softs = capped(soft_ppt);
            let alone_ns = go(&mut softs, &machine, (0, 1_000 * MS), false);
            assert_eq!(alone_ns, 1_000 * MS);
            let writes = machine.borrow().writes;
            assert_eq!(
                writes, 1,
                "alone it stays in the background: nothing to write"
            );
            let beside_ns = go(&mut softs, &machine, (1_000 * MS, 11_000 * MS), true);
            let want_ns = 10_000 * MS * u64::from(soft_ppt) / 1000;
            let off_ns = beside_ns.abs_diff(want_ns);
            assert!(off_ns <= 10 * MS, "{soft_ppt}: {beside_ns} for {want_ns}");
            let (story, _) = softs.story(&path("/a")).unwrap();
            assert!(
                story.turns > 10 && story.in_background_ns > story.capped_ns / 5,
                "{story:?}"
            );
            assert!(story.used_background_ns >= 900 * MS, "{story:?}");
        }
    }

    #[test]
    fn zero_is_the_background_for_good() {
        let machine = std::cell::RefCell::new(Machine::new());
        let mut softs = capped(0);
        assert!(!softs.is_idle());
        assert_eq!(go(&mut softs, &machine, (0, 1_000 * MS), true), 0);
        assert!(softs.is_idle());
        assert_eq!(machine.borrow().writes, 1);
        softs.invalidate(&path("/a"));
        assert!(
            !softs.is_idle(),
            "somebody else ended it: it is written again"
        );
    }

    #[test]
    fn what_cannot_be_read_takes_nothing_from_others() {
        let machine = std::cell::RefCell::new(Machine::new());
        let mut softs = capped(900);
        go(&mut softs, &machine, (0, 100 * MS), true);
        assert!(
            machine
                .borrow()
                .background
                .values()
                .all(|background| !background)
        );
        machine.borrow_mut().readable = false;
        go(&mut softs, &machine, (100 * MS, 200 * MS), true);
        assert!(machine.borrow().background["/a"]);
        machine.borrow_mut().readable = true;
        go(&mut softs, &machine, (200 * MS, 300 * MS), true);
        assert!(!machine.borrow().background["/a"], "and it comes back");
    }

    #[test]
    fn a_refused_write_is_tried_again_once_a_second() {
        let machine = std::cell::RefCell::new(Machine::new());
        machine.borrow_mut().refuses = true;
        let mut softs = capped(100);
        go(&mut softs, &machine, (0, 2_500 * MS), true);
        assert_eq!(machine.borrow().writes, 3);
        assert_eq!(softs.trouble.as_deref(), Some("refused"));
        machine.borrow_mut().refuses = false;
        go(&mut softs, &machine, (2_500 * MS, 3_500 * MS), true);
        assert_eq!(softs.trouble, None);
    }

    #[test]
    fn setting_a_cap_again_pays_nothing_back() {
        let machine = std::cell::RefCell::new(Machine::new());
        let mut softs = capped(500);
        go(&mut softs, &machine, (0, 50 * MS), true);
        let before = softs.story(&path("/a")).unwrap().0.level_ns;
        let one = SoftCapped {
            group: path("/a"),
            soft_ppt: 100,
        };
        softs.set(std::slice::from_ref(&one), 50 * MS);
        softs.set(&[one], 50 * MS);
        softs.step(50 * MS, &mut Doors(&machine), &mut Doors(&machine));
        let (story, soft_ppt) = softs.story(&path("/a")).unwrap();
        assert_eq!(soft_ppt, 100);
        assert!(
            story.level_ns <= before.max(0) + LOOK_NS as i64,
            "{before} {story:?}"
        );
    }
}
