//! Caps: law/cap.h over tasks, processes and groups.
//!
//! A task stands under the bucket of its own cap and those of the groups above it; the strictest state counts. Out of a hard
//! cap it waits in that bucket's own queue, out of a soft one it is background: it runs where nothing else wants the CPU. Side work
//! stays side work: it runs there and only while the headroom controller lets it.
//! Both are looked at again at the very time at which the bucket will hold something.

use tidegate_law::cap::{Bucket, Cap, Family, Loan, NEVER_NS, NONE, Scope, State, Terms};
use tidegate_law::tuning::{
    CAP_AGAIN_NS, CAP_LEND_NS, CAP_RECHECK_NS, CAP_RESERVE_NS, CAP_RUN_MIN_NS,
};

use super::{ExtTask, Kind};
use crate::{CapScope, CapTerms, Ns, TaskId};

/// One cap and who waits for it.
pub(super) struct Slot {
    cap: Cap,
    family: usize,
    users: u32,
    /// Parked or in the background because of it.
    held: Vec<Held>,
    /// What those that it parked will use: each comes back when there is something for it, not all at each drop.
    booked_ns: u64,
    timer_ns: Ns,
    /// One was let go before its time then.
    spared_ns: Ns,
}

/// Who waits for a slot.
struct Held {
    /// To be looked at then.
    at_ns: Ns,
    task: TaskId,
    parked: bool,
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
    Terms::new(
        some(terms.hard_ppt),
        some(terms.soft_ppt),
        scope,
        CAP_RUN_MIN_NS,
    )
}

/// A quarter of a bucket at most: what several have booked should fit, or what comes in is lost.
fn want_ns(bucket: &Bucket) -> u64 {
    CAP_RESERVE_NS.min(bucket.depth_ns / 4).max(1)
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
            users: 0,
            held: Vec::new(),
            booked_ns: 0,
            timer_ns: Ns::MAX,
            spared_ns: 0,
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

    /// `task` is parked: when will the slot have something for it? It books that.
    pub(super) fn book(&mut self, index: u32, task: TaskId, now_ns: Ns) -> (u32, u64) {
        let slot = &mut self.slots[index as usize];
        let want_ns = want_ns(&slot.cap.hard);
        let before_ns = slot.booked_ns;
        slot.booked_ns += want_ns;
        let mut at_ns = slot.cap.ready_at_ns(&self.families[slot.family], want_ns);
        let rate_ppt = u64::from(slot.cap.hard.rate_ppt);
        if at_ns != NEVER_NS && rate_ppt > 0 {
            at_ns += before_ns * 1_000 / rate_ppt;
        }
        let at_ns = at_ns.min(now_ns + CAP_RECHECK_NS);
        self.look_at(index, (at_ns, task, true), now_ns);
        (index, want_ns)
    }

    /// What was booked is used, or not wanted any more.
    pub(super) fn unbook(&mut self, (index, want_ns): (u32, u64)) {
        let slot = &mut self.slots[index as usize];
        slot.booked_ns = slot.booked_ns.saturating_sub(want_ns);
    }

    /// `task` is in the background until the slot holds something again.
    pub(super) fn call_back(&mut self, index: u32, task: TaskId, now_ns: Ns) {
        let slot = &mut self.slots[index as usize];
        let want_ns = want_ns(&slot.cap.soft);
        let at_ns = slot.cap.ready_at_ns(&self.families[slot.family], want_ns);
        let at_ns = at_ns.clamp(now_ns + CAP_AGAIN_NS, now_ns + CAP_RECHECK_NS);
        self.look_at(index, (at_ns, task, false), now_ns);
    }

    fn look_at(&mut self, index: u32, (at_ns, task, parked): (Ns, TaskId, bool), now_ns: Ns) {
        let held = Held {
            at_ns,
            task,
            parked,
        };
        self.slots[index as usize].held.push(held);
        self.arm(index, now_ns);
    }

    /// When the bucket will hold half of what it can: by then the first that it has parked is let go, though his time has not come,
    /// for what comes in to a full bucket is lost; one in a quarter of what fills it.
    fn spare_at_ns(&mut self, index: u32, now_ns: Ns) -> Ns {
        let slot = &mut self.slots[index as usize];
        let family = &mut self.families[slot.family];
        slot.cap.state(family, now_ns, 0);
        let bucket = &slot.cap.hard;
        let rate_ppt = u64::from(bucket.rate_ppt);
        if rate_ppt == 0 || !slot.held.iter().any(|held| held.parked) {
            return Ns::MAX;
        }
        let want_ns = (bucket.depth_ns / 2 + family.hard_debt_ns).min(bucket.depth_ns);
        let short_ns = (i64::try_from(want_ns).unwrap_or(i64::MAX) - bucket.level_ns).max(0);
        let full_ns = now_ns + (short_ns.unsigned_abs() * 1_000).div_ceil(rate_ppt);
        full_ns.max(slot.spared_ns + bucket.depth_ns / 4 * 1_000 / rate_ppt)
    }

    /// Sets the slot's timer for the first whom it holds.
    pub(super) fn arm(&mut self, index: u32, now_ns: Ns) {
        let spare_ns = self.spare_at_ns(index, now_ns);
        let slot = &mut self.slots[index as usize];
        let first_ns = slot.held.iter().map(|held| held.at_ns.min(spare_ns)).min();
        if let Some(at_ns) = first_ns.filter(|at_ns| *at_ns < slot.timer_ns) {
            slot.timer_ns = at_ns;
            self.timers.push((at_ns, index));
        }
    }

    pub(super) fn unhold(&mut self, index: u32, task: TaskId) {
        self.slots[index as usize]
            .held
            .retain(|held| held.task != task);
    }

    /// The slot's timer: those whose time has come, in its order, and the first that it has enough for before.
    pub(super) fn timer(&mut self, index: u32, now_ns: Ns) -> Vec<TaskId> {
        let spare_ns = self.spare_at_ns(index, now_ns);
        let slot = &mut self.slots[index as usize];
        if slot.timer_ns > now_ns {
            return Vec::new();
        }
        slot.timer_ns = Ns::MAX;
        let (mut due, later): (Vec<_>, Vec<_>) =
            slot.held.drain(..).partition(|held| held.at_ns <= now_ns);
        slot.held = later;
        due.sort_by_key(|held| held.at_ns);
        let first = (0..slot.held.len())
            .filter(|at| slot.held[*at].parked)
            .min_by_key(|at| slot.held[*at].at_ns);
        if let Some(first) = first.filter(|_| spare_ns <= now_ns) {
            slot.spared_ns = now_ns;
            due.push(slot.held.remove(first));
        }
        due.into_iter().map(|held| held.task).collect()
    }

    /// A run starts, and borrows from each; how long it may last.
    pub(super) fn lend(&mut self, task: &mut ExtTask, now_ns: Ns) -> u64 {
        let background = task.kind != Kind::Main;
        task.loans.resize(task.slots.len(), Loan::default());
        task.slots
            .iter()
            .zip(&mut task.loans)
            .map(|(slot, loan)| {
                let cap = &mut self.slots[*slot as usize].cap;
                cap.lend(loan, now_ns, background, CAP_RUN_MIN_NS, CAP_LEND_NS)
            })
            .min()
            .unwrap_or(NEVER_NS)
    }

    /// A run ends; what it has left of its loans goes back.
    pub(super) fn repay(&mut self, task: &mut ExtTask) {
        for (slot, loan) in task.slots.iter().zip(&mut task.loans) {
            self.slots[*slot as usize].cap.repay(loan);
        }
    }

    pub(super) fn charge(&mut self, task: &mut ExtTask, ran_ns: u64, now_ns: Ns, background: bool) {
        task.loans.resize(task.slots.len(), Loan::default());
        for (slot, loan) in task.slots.iter().zip(&mut task.loans) {
            let cap = &mut self.slots[*slot as usize].cap;
            cap.charge_run(loan, ran_ns, now_ns, background, 0);
        }
    }
}
