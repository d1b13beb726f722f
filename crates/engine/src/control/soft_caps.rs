//! Soft caps: the law's bucket over a group's use; empty, the group is in the background until it
//! is above zero again.
//!
//! In the background a group runs only where nothing beside it wants the CPU: `cpu.idle`, or the
//! least weight where the kernel has no such file. The bucket needs no exact instant, only sums
//! that do not drift: a group's own usage file, which the kernel brings up to date at ticks, is
//! late by a tick and never wrong by more. So the granularity of the law (`law/cap.md`) is the time
//! between two polls and a tick, whatever senses the headroom.
//!
//! A cap of 0 is the background for good: set once, never looked at again. A group whose use stays
//! unknown is out of the background: its cap rests.

use std::collections::BTreeMap;

use tidegate_law::cap::{Cap, Family, State, Terms};

use super::apply::Apply;
use tidegate_cgroup::group::GroupPath;

pub const POLL_NS: u64 = 5_000_000;
/// After a write that failed: not before.
const AGAIN_NS: u64 = 1_000_000_000;
/// A cap rests once its group's use was unknown for so long.
const REST_AFTER_NS: u64 = 1_000_000_000;
/// So many polls a step; with more groups each has its turn less often (and a granularity that is
/// as much coarser).
const POLLS_PER_STEP: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftCapStats {
    pub background_since_ns: Option<u64>,
    pub in_background_ns: u64,
    pub capped_ns: u64,
    pub turns: u64,
    /// What the bucket holds; debt where negative, none while the group's use is unknown.
    pub level_ns: Option<i64>,
    /// CPU that it used in the background, which no other task wanted.
    pub used_background_ns: u64,
    pub used_foreground_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Soft {
    cap: Cap,
    family: Family,
    soft_ppt: u32,
    used_ns: Option<u64>,
    unknown_since_ns: Option<u64>,
    polled_ns: u64,
    background: Option<bool>,
    /// It stood so at the last poll already, so that what is read since is of that time.
    is_told: bool,
    stats: SoftCapStats,
}

impl Soft {
    /// A cap of `soft_ppt` parts per thousand of one CPU. Its bucket is empty.
    pub fn new(soft_ppt: u32) -> Self {
        Self {
            soft_ppt,
            ..Self::default()
        }
    }

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
            .set(&Terms::group(None, Some(self.soft_ppt), POLL_NS), now_ns);
    }

    /// Whether there is nothing to look for: it is in the background and stays there.
    pub fn is_settled(&self) -> bool {
        self.soft_ppt == 0 && self.background == Some(true)
    }

    /// Takes in what the group has used up to now; whether it is to be in the background from now
    /// on. It stays as it is while its use is unknown for less than [`REST_AFTER_NS`].
    pub fn poll(&mut self, now_ns: u64, used_ns: Option<u64>) -> bool {
        let dt_ns = now_ns.saturating_sub(self.polled_ns);
        let Some(used_ns) = used_ns else {
            self.used_ns = None;
            self.polled_ns = now_ns;
            self.stats.level_ns = None;
            let since_ns = *self.unknown_since_ns.get_or_insert(now_ns);
            let rests = self.soft_ppt > 0 && now_ns.saturating_sub(since_ns) >= REST_AFTER_NS;
            return !rests && self.background.unwrap_or(true);
        };
        self.unknown_since_ns = None;
        match self.used_ns.replace(used_ns) {
            None => self.set(now_ns),
            Some(before_ns) => {
                // A counter never goes back; one that does is another group's, and counts from
                // here.
                let spent_ns = used_ns.saturating_sub(before_ns);
                // Use is told late by a tick, and the kernel's change of mind takes as long: what
                // the first look in the background finds was taken from others. Forgiven, it was 4
                // % of a CPU beside a hog.
                let background = self.background == Some(true) && self.is_told;
                self.cap.charge(spent_ns, now_ns, background, 0);
                self.stats.capped_ns += dt_ns;
                if self.background == Some(true) {
                    self.stats.in_background_ns += dt_ns;
                }
                if background {
                    self.stats.used_background_ns += spent_ns;
                } else {
                    self.stats.used_foreground_ns += spent_ns;
                }
            }
        }
        self.polled_ns = now_ns;
        self.is_told = self.background == Some(true);
        let state = self.cap.state(&mut self.family, now_ns, 0);
        self.stats.level_ns = Some(self.cap.soft.level_ns);
        state == State::Background
    }

    pub fn turned(&mut self, now_ns: u64, background: bool) {
        if self.background.replace(background) == Some(background) {
            return;
        }
        self.is_told = false;
        self.stats.turns += u64::from(background);
        self.stats.background_since_ns = background.then_some(now_ns);
    }

    /// What stands is not known any more: it is written, whatever it is to be.
    pub fn forget_standing(&mut self) {
        self.background = None;
        self.stats.background_since_ns = None;
    }

    pub fn background(&self) -> Option<bool> {
        self.background
    }

    pub fn stats(&self) -> SoftCapStats {
        self.stats
    }
}

pub trait Usage {
    /// CPU time of the group since it was made; `None` where that cannot be read just now.
    fn usage_ns(&mut self, group: &GroupPath) -> Option<u64>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftCapped {
    pub group: GroupPath,
    pub soft_ppt: u32,
}

struct Target {
    group: GroupPath,
    soft: Soft,
    again_ns: u64,
    write_error: Option<String>,
    /// Asked for by the latest [`SoftCaps::set`].
    wanted: bool,
}

/// Every group with a soft cap. The loop waits while this is changed, so that costs no more than
/// one walk, however many there are.
#[derive(Default)]
pub struct SoftCaps {
    targets: Vec<Target>,
    index: BTreeMap<GroupPath, usize>,
    /// Those that are to be looked at: not what is in the background for good, however much there
    /// is of it.
    turns: Vec<usize>,
    next: usize,
    stale: bool,
    /// Times that a group was put into the background or taken out. They come and go too fast for
    /// the log of writes.
    pub writes: u64,
}

impl SoftCaps {
    /// The groups that have one now. Known ones keep their bucket: setting a cap again is no way to
    /// get CPU. The background of groups that are left out is the caller's to end.
    pub fn set(&mut self, wanted: &[SoftCapped], now_ns: u64) {
        for target in &mut self.targets {
            target.wanted = false;
        }
        for one in wanted {
            let at = *self.index.entry(one.group.clone()).or_insert_with(|| {
                self.targets.push(Target {
                    group: one.group.clone(),
                    soft: Soft::new(one.soft_ppt),
                    again_ns: 0,
                    write_error: None,
                    wanted: true,
                });
                self.targets.len() - 1
            });
            self.targets[at].wanted = true;
            self.targets[at].soft.set_rate(one.soft_ppt, now_ns);
        }
        if self.targets.iter().any(|target| !target.wanted) {
            self.targets.retain(|target| target.wanted);
            let groups = self.targets.iter().map(|target| target.group.clone());
            self.index = groups.enumerate().map(|(at, group)| (group, at)).collect();
        }
        self.stale = true;
    }

    pub fn write_errors(&self) -> impl Iterator<Item = &String> {
        let errors = self.targets.iter().map(|target| &target.write_error);
        errors.flatten()
    }

    pub fn count(&self) -> usize {
        self.targets.len()
    }

    pub fn drop(&mut self, group: &GroupPath) {
        let Some(at) = self.index.remove(group) else {
            return;
        };
        self.targets.swap_remove(at);
        if let Some(moved) = self.targets.get(at) {
            self.index.insert(moved.group.clone(), at);
        }
        self.stale = true;
    }

    fn target(&mut self, group: &GroupPath) -> Option<&mut Target> {
        self.index.get(group).map(|at| &mut self.targets[*at])
    }

    pub fn invalidate(&mut self, group: &GroupPath) {
        if let Some(target) = self.target(group) {
            target.soft.forget_standing();
            target.again_ns = 0;
            self.stale = true;
        }
    }

    pub fn fell_back(&mut self) {
        for target in &mut self.targets {
            target.soft.forget_standing();
        }
        self.stale = true;
    }

    pub fn is_idle(&self) -> bool {
        self.turns.is_empty() && (self.targets.is_empty() || !self.stale)
    }

    pub fn stats(&self, group: &GroupPath) -> Option<(SoftCapStats, u32)> {
        let target = &self.targets[*self.index.get(group)?];
        Some((target.soft.stats(), target.soft.soft_ppt))
    }

    fn find_turns(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.turns.clear();
        let due = |at: &usize| !self.targets[*at].soft.is_settled();
        self.turns.extend((0..self.targets.len()).filter(due));
        self.next = self.next.checked_rem(self.turns.len()).unwrap_or(0);
    }

    pub fn step(&mut self, now_ns: u64, usage: &mut dyn Usage, apply: &mut dyn Apply) {
        self.find_turns();
        let count = self.turns.len();
        let polls = count.min(POLLS_PER_STEP);
        for turn in 0..polls {
            let target = &mut self.targets[self.turns[(self.next + turn) % count]];
            let background = target.soft.poll(now_ns, usage.usage_ns(&target.group));
            if Some(background) == target.soft.background() || now_ns < target.again_ns {
                continue;
            }
            match apply.set_background(&target.group, background) {
                Err(why) => {
                    target.again_ns = now_ns.saturating_add(AGAIN_NS);
                    target.write_error = Some(why.message);
                }
                Ok(()) => {
                    target.soft.turned(now_ns, background);
                    self.stale |= target.soft.is_settled();
                    target.write_error = None;
                    self.writes += 1;
                }
            }
        }
        self.next = (self.next + polls).checked_rem(count).unwrap_or(0);
        self.find_turns();
    }
}

#[cfg(test)]
mod tests;
