//! The burst of limits that other programs gave.

use super::journal::{Journal, JournalResult};
use crate::ledger::{Change, Fallback};
use tidegate_cgroup::group::GroupPath;
use tracing::warn;

/// When a burst is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstWrite {
    /// Whenever another one stands.
    Always,
    /// When it is another one than was recorded: an outside writer's burst stays.
    IfNew,
}

impl Journal {
    /// Gives the limit of `group` this burst. The quota stays as its owner wrote it.
    pub fn set_burst(
        &mut self,
        group: &GroupPath,
        gate: &str,
        burst_us: u64,
        fallback: Fallback,
        write: BurstWrite,
    ) -> JournalResult<()> {
        let standing_us = self.groups.bandwidth(group)?.burst_us;
        let known = self.entry(group, Change::is_burst).map(|entry| entry.id);
        let id = match known {
            None if standing_us == burst_us => return Ok(()),
            None => {
                let change = Change::Burst {
                    was_us: standing_us,
                    previous_us: standing_us,
                    ours_us: burst_us,
                };
                let entry = self.new_entry(group, gate, change, fallback)?;
                self.ledger.record(entry)?
            }
            Some(id) => {
                self.belongs_to(id, gate)?;
                if !self.note_burst(id, burst_us)? && write == BurstWrite::IfNew {
                    return Ok(());
                }
                id
            }
        };
        if standing_us == burst_us {
            return Ok(());
        }
        if let Err(error) = self.groups.set_burst(group, burst_us) {
            // Its owner has just lowered the quota: what stands is no outside write.
            self.note_burst(id, standing_us)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Returns whether that is another burst than the last one.
    fn note_burst(&mut self, id: u64, burst_us: u64) -> JournalResult<bool> {
        let is_noted = self.ledger.get(id).is_some_and(
            |entry| matches!(entry.change, Change::Burst { ours_us, .. } if ours_us == burst_us),
        );
        if !is_noted {
            self.ledger.update(id, |entry| {
                if let Change::Burst {
                    previous_us,
                    ours_us,
                    ..
                } = &mut entry.change
                {
                    *previous_us = std::mem::replace(ours_us, burst_us);
                }
            })?;
        }
        Ok(!is_noted)
    }

    /// Returns the gate that gave the limit of `group` its burst.
    pub fn burst_of(&self, group: &GroupPath) -> Option<&str> {
        let entry = self.entry(group, Change::is_burst)?;
        Some(&entry.gate)
    }

    /// Returns the groups to whose limits `gate` gave a burst.
    pub fn bursts_of(&self, gate: &str) -> Vec<GroupPath> {
        let of_gate = self.ledger.of_gate(gate);
        let bursts = of_gate.filter(|entry| entry.change.is_burst());
        bursts.map(|entry| entry.group.clone()).collect()
    }

    /// Puts back the burst of `group`, as before its quota is ours. Returns whether it had one.
    pub fn end_burst(&mut self, group: &GroupPath) -> bool {
        let had = self.burst_of(group).is_some();
        if had {
            for line in self.restore_lines_of(group, Change::is_burst) {
                warn!("{line}");
            }
        }
        had
    }
}
