//! A command that asks for its gate again, because the agent that made it died before it answered.

use tidegate_api::{ApiError, ErrorKind, RunReply, RunRequest};
use tidegate_knobs::target::ProcessRef;
use tidegate_terms::{Class, RawTerms};
use tracing::info;

use crate::agent::{Agent, refuse, reply_of};
use crate::gate::{Attachment, Gate};
use crate::limits::kind_of;
use crate::peer::Peer;
use crate::privilege::only_tightens;

impl Agent {
    /// The gate that an earlier agent had made for this very request when it died: the process is alone in it, and asks
    /// again because it had no answer.
    pub(crate) fn asked_before(
        &self,
        gates: &[Gate],
        pid: i32,
        request: &RunRequest,
    ) -> Option<usize> {
        let at = self.groups.group_of(pid).ok()??;
        let index = gates.iter().position(|gate| {
            let record = &gate.record;
            // The record of a gate that was not yet written down is lost, and its command with it.
            let same_command = record.command.is_empty() || record.command == request.command;
            let same_name = request
                .name
                .as_ref()
                .is_none_or(|asked| *asked == record.name);
            let own =
                matches!(&record.attachment, Attachment::Owned { group } if at.is_within(group));
            // Another class is another request: work in a side gate that asks to be main is to be refused.
            let same_class = request.terms.get("class").map(String::as_str)
                == Some(gate.class().to_string().as_str());
            own && same_command && same_name && same_class
        })?;
        let alone = self.groups.procs(&at).is_ok_and(|pids| pids == [pid]);
        alone.then_some(index)
    }

    /// The gate's terms stand, but for what is asked for now: any process in it can ask, so what was set with privilege
    /// since must neither be wiped nor loosened by it.
    pub(crate) fn run_again(
        &self,
        peer: &Peer,
        gate: &mut Gate,
        process: &ProcessRef,
        request: &RunRequest,
        asked: &RawTerms,
    ) -> Result<RunReply, ApiError> {
        let mut record = gate.record.clone();
        record.raw.merge(asked);
        record.by_admin.extend(self.by_admin(peer, asked));
        record.uid = process.uid;
        record.command.clone_from(&request.command);
        record.notes.clear();
        let changed =
            Gate::new(record, &self.config).map_err(|error| refuse(ErrorKind::Usage)(&error))?;
        if !self.is_admin(peer) {
            only_tightens(gate, &changed)?;
        }
        if changed.class() == Class::Side {
            self.ensure_side_root()?;
        }
        // The first agent may have died between two hierarchies.
        let group = gate.record.attachment.group().clone();
        let placement = self.groups.place(&group, process.pid);
        let placement = placement.map_err(|error| refuse(kind_of(&error))(&error))?;
        self.check_moved(&placement, process.start_ticks)?;
        self.gather_cpuset();
        self.agree(gate, changed)?;
        let reply = reply_of(gate);
        info!(gate = reply.gate, pid = process.pid, "asked for again");
        Ok(reply)
    }
}
