//! What gates' tasks have used and how long they waited to run once woken: `bpf/core/account.h`,
//! its CPUs added up.

use std::collections::{BTreeMap, VecDeque};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

use crate::delays::Delays;
use crate::error::{SchedExtError, refused};
use crate::intf::{ACCOUNTS_LEAST, Account, KINDS, value};

/// After that of the kernel's threads (`EXT_ACCOUNT_KERNEL`).
const FIRST: u32 = 2;
/// An account for each gate that can be (`EXT_GATES_MAX`), if the machine is small enough.
const MOST: u32 = 8_192 + FIRST;
/// What all accounts of all CPUs may take.
const ROOM_BYTES: u32 = 32 << 20;

/// How many accounts there are on a machine of so many CPUs.
pub fn accounts_for(cpus: u32) -> u32 {
    (ROOM_BYTES / (size_of::<Account>() as u32 * cpus)).clamp(ACCOUNTS_LEAST, MOST)
}

/// CPU time used, and delays, since the gate was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkStat {
    /// CPU time as main or neutral work.
    pub main_ns: u64,
    pub side_ns: u64,
    /// CPU time out of a soft cap.
    pub background_ns: u64,
    pub run_delay: Delays,
}

impl WorkStat {
    pub fn used_ns(&self) -> u64 {
        self.main_ns + self.side_ns + self.background_ns
    }

    pub fn add(&mut self, other: &WorkStat) {
        self.main_ns += other.main_ns;
        self.side_ns += other.side_ns;
        self.background_ns += other.background_ns;
        self.run_delay.add(&other.run_delay);
    }

    /// What was added since `before`, which was read earlier; the longest delay stays that of the
    /// whole time.
    pub fn since(&self, before: &WorkStat) -> WorkStat {
        WorkStat {
            main_ns: self.main_ns.saturating_sub(before.main_ns),
            side_ns: self.side_ns.saturating_sub(before.side_ns),
            background_ns: self.background_ns.saturating_sub(before.background_ns),
            run_delay: self.run_delay.since(&before.run_delay),
        }
    }
}

impl From<&Account> for WorkStat {
    fn from(account: &Account) -> WorkStat {
        let [main_ns, side_ns, background_ns]: [u64; KINDS] = account.ran_ns;
        WorkStat {
            main_ns,
            side_ns,
            background_ns,
            run_delay: Delays {
                counts: account.delays,
                sum_ns: account.delay_ns,
                longest_ns: account.longest_ns,
            },
        }
    }
}

/// Which gate has which account. What is given back is used again last, for a task that runs on may
/// still count there.
#[derive(Debug)]
pub struct Accounts {
    map: MapHandle,
    by_gate: BTreeMap<u64, u32>,
    next: u32,
    end: u32,
    free: VecDeque<u32>,
}

impl Accounts {
    pub fn new(map: MapHandle) -> Accounts {
        Accounts {
            by_gate: BTreeMap::new(),
            next: FIRST,
            end: map.max_entries(),
            free: VecDeque::new(),
            map,
        }
    }

    /// The gate's account, a fresh one if it has none; None: all are taken.
    pub fn open(&mut self, cgroup_id: u64) -> Result<Option<u32>, SchedExtError> {
        if let Some(index) = self.by_gate.get(&cgroup_id) {
            return Ok(Some(*index));
        }
        let index = if self.next < self.end {
            self.next += 1;
            self.next - 1
        } else {
            match self.free.pop_front() {
                Some(index) => index,
                None => return Ok(None),
            }
        };
        self.clear(index)?;
        self.by_gate.insert(cgroup_id, index);
        Ok(Some(index))
    }

    /// The gate is no more.
    pub fn close(&mut self, cgroup_id: u64) {
        if let Some(index) = self.by_gate.remove(&cgroup_id) {
            self.free.push_back(index);
        }
    }

    fn clear(&self, index: u32) -> Result<(), SchedExtError> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(|why| refused("count the CPUs", &why))?;
        let zeros = vec![vec![0_u8; size_of::<Account>()]; cpus];
        self.map
            .update_percpu(&index.to_ne_bytes(), &zeros, MapFlags::ANY)
            .map_err(|why| refused("clear an account", &why))
    }

    fn read(&self, index: u32) -> Result<WorkStat, SchedExtError> {
        let found = self
            .map
            .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|why| refused("read an account", &why))?;
        let mut sum = WorkStat::default();
        for bytes in found.unwrap_or_default() {
            if let Some(account) = value::<Account>(&bytes) {
                sum.add(&WorkStat::from(&account));
            }
        }
        Ok(sum)
    }

    /// What one gate's tasks used and how long they waited; None: it is no gate, or is not counted
    /// on its own.
    pub fn work(&self, cgroup_id: u64) -> Result<Option<WorkStat>, SchedExtError> {
        let index = self.by_gate.get(&cgroup_id);
        index.map(|&index| self.read(index)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_accounts_as_there_is_room_for() {
        assert_eq!(accounts_for(2), MOST);
        assert_eq!(accounts_for(128), 992);
        assert_eq!(accounts_for(8_192), ACCOUNTS_LEAST);
    }

    #[test]
    fn cpus_are_added_up_and_a_span_is_the_difference() {
        let mut account = Account {
            ran_ns: [5, 6, 7],
            delay_ns: 3_000,
            longest_ns: 2_000,
            ..Account::default()
        };
        account.delays[1] = 2;
        let mut one = WorkStat::default();
        one.add(&WorkStat::from(&account));
        let mut both = one;
        account.longest_ns = 9_000;
        both.add(&WorkStat::from(&account));
        assert_eq!((both.used_ns(), both.side_ns), (36, 12));
        assert_eq!(both.run_delay.count(), 4);
        assert_eq!(both.run_delay.longest_ns, 9_000);
        let span = both.since(&one);
        assert_eq!((span.used_ns(), span.run_delay.sum_ns), (18, 3_000));
    }
}
