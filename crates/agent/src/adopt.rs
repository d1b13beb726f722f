//! Taking up what an earlier agent left: gates that still have work in them, values that no gate needs any more.

use std::collections::BTreeSet;

use tidegate_knobs::group::GroupPath;
use tidegate_knobs::ledger::{Change, own_groups};
use tidegate_terms::{RawTerms, Source};
use tracing::{info, warn};

use crate::agent::Agent;
use crate::control_thread::lock;
use crate::gate::{Attachment, Gate, Record};
use crate::journal::is_boost;
use crate::lease::monotonic_ns;

impl Agent {
    /// Adopts gates, restores the rest, and tells the loop. Safe to do again at any time.
    pub(crate) fn take_up(&self) {
        let mut gates = lock(&self.gates);
        for record in self.stored_gates() {
            let name = record.name.clone();
            match Gate::new(record, &self.config) {
                Ok(gate) if !self.has_ended(&gate) => gates.push(gate),
                Ok(_) => info!(gate = name, "ended while no agent was there"),
                Err(error) => {
                    lock(&self.alerts)
                        .insert(format!("gate {name}: {error}; its terms were left out"));
                }
            }
        }
        self.take_up_nameless(&mut gates);
        let root = self.side_root();
        let main_root = self.main_root();
        // A gate that nothing limits by its record needs no value of ours: its class was being changed when that agent died.
        let needs = |gate: &Gate, change: &Change| {
            let own = matches!(gate.record.attachment, Attachment::Owned { .. });
            let yields = matches!(change, Change::Idle { .. } | Change::Weight { .. });
            own || gate.is_limited() || (gate.needs_group() && !yields)
        };
        let report = lock(&self.journal).restore_where(|entry| {
            let shared = entry.group == root || entry.group == main_root;
            let gate = gates.iter().find(|gate| gate.record.name == entry.gate);
            // Turns ended with the agent that gave them.
            is_boost(entry) || !shared && !gate.is_some_and(|gate| needs(gate, &entry.change))
        });
        for line in report {
            info!("left by an earlier agent: {line}");
        }
        for line in crate::fallback::yield_again(&self.groups, &mut lock(&self.journal)) {
            info!("left by an earlier agent: {line}");
        }
        for gate in gates.iter_mut() {
            if let Err(error) = self.renew(gate) {
                warn!("gate {}: {error}", gate.record.name);
                lock(&self.alerts).insert(error.to_string());
            }
        }
        self.remove_unused_roots(&gates);
        let has_side = gates
            .iter()
            .any(|gate| gate.record.attachment.group().is_within(&root));
        let result = if has_side {
            self.ensure_side_root()
        } else {
            Ok(())
        };
        if let Err(error) = result.and_then(|()| self.publish(&gates)) {
            warn!("{error}");
            lock(&self.alerts).insert(error.to_string());
        }
        if !gates.is_empty() {
            info!("took up {} gates", gates.len());
        }
    }

    fn stored_gates(&self) -> Vec<Record> {
        let path = self.run_dir.gates();
        let text = match self.fs.read(&path) {
            Ok(text) => text,
            Err(error) if error.is_gone() => return Vec::new(),
            Err(error) => {
                lock(&self.alerts).insert(error.to_string());
                return Vec::new();
            }
        };
        serde_json::from_str(&text).unwrap_or_else(|error| {
            let message = format!(
                "{}: {error}; gates are found by their groups' names instead",
                path.display()
            );
            warn!("{message}");
            lock(&self.alerts).insert(message);
            Vec::new()
        })
    }

    /// Groups of ours with work in them that no record tells of: their gates' terms are lost, their class is not.
    fn take_up_nameless(&self, gates: &mut Vec<Gate>) {
        let own = own_groups(&self.groups, self.run_dir.prefix()).unwrap_or_default();
        let roots = [(self.side_root(), "side"), (self.main_root(), "main")];
        for group in own {
            let Some((_, class)) = roots
                .iter()
                .find(|(root, _)| group.parent().as_ref() == Some(root))
            else {
                continue;
            };
            if gates
                .iter()
                .any(|gate| gate.record.attachment.group() == &group)
            {
                continue;
            }
            if lock(&self.journal).is_moved(&group) {
                // Its `set` was never answered: the process goes back to where it was.
                continue;
            }
            let populated = self.groups.populated(&group);
            if !populated.unwrap_or_else(|error| !error.is_gone()) {
                self.remove_group(&group);
                continue;
            }
            match Gate::new(nameless(&group, class), &self.config) {
                Ok(gate) => gates.push(gate),
                Err(error) => warn!("{error}"),
            }
        }
    }
}

fn nameless(group: &GroupPath, class: &str) -> Record {
    let mut raw = RawTerms::default();
    raw.insert("class", class, Source::Default);
    Record {
        name: group.name().to_owned(),
        target: "run".to_owned(),
        raw,
        uid: 0,
        command: Vec::new(),
        parent: None,
        made_ns: monotonic_ns(),
        attachment: Attachment::Owned {
            group: group.clone(),
        },
        notes: vec!["found by its group's name: the record of its terms was lost".to_owned()],
        by_admin: BTreeSet::new(),
    }
}
