//! Caps: law/cap.h over tasks, processes and groups.
//!
//! A task stands under the bucket of its own cap and those of the groups above it; the strictest state counts. Out of a hard
//! cap it waits in that bucket's own queue, out of a soft one it is background: it runs where nothing else wants the CPU. Side work
//! stays side work: it runs there and only while the tide lets it.
//! Both are looked at again at the very time at which the bucket will hold something.

use tidegate_law::cap::{Bucket, Cap, Family, NEVER_NS, NONE, Scope, State, Terms};

use crate::{CapScope, CapTerms, Ns, TaskId};

/// A capped task that was waited for gets at least so much at once, if its bucket can hold twice that.
const WANT_NS: u64 = 250_000;
/// Enforcement is by a timer at the very moment; this is the least run.
const LEAST_NS: u64 = 10_000;

/// One cap and who waits for it.
pub(super) struct Slot {
    cap: Cap,
    family: usize,
    /// Tasks that draw on it, over all CPUs.
    runners: u64,
    users: u32,
    /// Parked or in the background because of it.
    pub(super) held: Vec<TaskId>,
    timer_ns: Ns,
}

/// All caps.
#[derive(Default)]
pub(super) struct Caps {
    slots: Vec<Slot>,
    families: Vec<Family>,
    /// Timers to set: when, for which slot.
    pub(super) timers: Vec<(Ns, u32)>,
}

fn law_terms(terms: &CapTerms) -> Terms {
    let some = |ppt: u32| (ppt != NONE).then_some(ppt);
    let scope = match terms.scope {
        CapScope::Task => Scope::Task,
        CapScope::Process => Scope::Process,
        CapScope::Group => Scope::Group,
    };
    Terms::new(some(terms.hard_ppt), some(terms.soft_ppt), scope, LEAST_NS)
}

impl Slot {
    /// Half a bucket at most: a full one would lose what comes in while the task runs.
    fn want_ns(&self) -> u64 {
        let on = |bucket: &Bucket| (bucket.depth_ns > 0).then_some(bucket.depth_ns);
        let depths = [on(&self.cap.hard), on(&self.cap.soft)];
        let least_ns = depths.into_iter().flatten().min();
        least_ns.map_or(WANT_NS, |depth_ns| WANT_NS.min(depth_ns / 2))
    }
}

impl Caps {
    /// A new bucket, with a family of its own or in another's.
    pub(super) fn add(&mut self, terms: &CapTerms, family: Option<u32>, now_ns: Ns) -> u32 {
        let mut cap = Cap::default();
        cap.set(&law_terms(terms), now_ns);
        self.push(cap, family)
    }

    fn push(&mut self, cap: Cap, family: Option<u32>) -> u32 {
        let family = match family {
            Some(slot) => self.slots[slot as usize].family,
            None => {
                self.families.push(Family::default());
                self.families.len() - 1
            }
        };
        self.slots.push(Slot {
            cap,
            family,
            runners: 0,
            users: 0,
            held: Vec::new(),
            timer_ns: Ns::MAX,
        });
        (self.slots.len() - 1) as u32
    }

    /// The slot of a forked child: its own, or its parent's.
    pub(super) fn fork(&mut self, parent: u32, now_ns: Ns) -> u32 {
        match self.slots[parent as usize].cap.fork(now_ns, 0) {
            Some(cap) => self.push(cap, Some(parent)),
            None => parent,
        }
    }

    pub(super) fn enter(&mut self, slots: &[u32]) {
        for slot in slots {
            self.slots[*slot as usize].users += 1;
        }
    }

    /// A task under them is gone.
    pub(super) fn leave(&mut self, slots: &[u32], now_ns: Ns) {
        for slot in slots {
            let slot = &mut self.slots[*slot as usize];
            slot.users -= 1;
            if slot.users == 0 {
                slot.cap.leave(&mut self.families[slot.family], now_ns);
            }
        }
    }

    /// What a task under these may do, and which slot says so.
    pub(super) fn state(&mut self, slots: &[u32], now_ns: Ns) -> (State, u32) {
        let mut worst = (State::Run, u32::MAX);
        for index in slots {
            let slot = &mut self.slots[*index as usize];
            let state = slot.cap.state(&mut self.families[slot.family], now_ns, 0);
            if state > worst.0 {
                worst = (state, *index);
            }
        }
        worst
    }

    /// `task` waits until `slot` holds something again.
    pub(super) fn hold(&mut self, index: u32, task: TaskId) {
        let slot = &mut self.slots[index as usize];
        slot.held.push(task);
        let at_ns = slot
            .cap
            .ready_at_ns(&self.families[slot.family], slot.want_ns());
        if at_ns != NEVER_NS && at_ns < slot.timer_ns {
            slot.timer_ns = at_ns;
            self.timers.push((at_ns, index));
        }
    }

    pub(super) fn unhold(&mut self, index: u32, task: TaskId) {
        self.slots[index as usize].held.retain(|held| *held != task);
    }

    /// The slot's timer: everybody whom it held may try again.
    pub(super) fn timer(&mut self, index: u32, now_ns: Ns) -> Vec<TaskId> {
        let slot = &mut self.slots[index as usize];
        if slot.timer_ns > now_ns {
            return Vec::new();
        }
        slot.timer_ns = Ns::MAX;
        std::mem::take(&mut slot.held)
    }

    pub(super) fn start(&mut self, slots: &[u32]) {
        for slot in slots {
            self.slots[*slot as usize].runners += 1;
        }
    }

    pub(super) fn stop(&mut self, slots: &[u32]) {
        for slot in slots {
            self.slots[*slot as usize].runners -= 1;
        }
    }

    pub(super) fn charge(&mut self, slots: &[u32], ran_ns: u64, now_ns: Ns, background: bool) {
        for slot in slots {
            let slot = &mut self.slots[*slot as usize];
            slot.cap.charge(ran_ns, now_ns, background, 0);
        }
    }

    /// How long a task under these may run.
    pub(super) fn left_ns(&self, slots: &[u32]) -> u64 {
        slots
            .iter()
            .map(|slot| &self.slots[*slot as usize])
            .map(|slot| slot.cap.slice_ns(slot.runners.max(1), LEAST_NS, u64::MAX))
            .min()
            .unwrap_or(u64::MAX)
    }
}
