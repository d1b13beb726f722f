//! What has happened to gates, limits and the agent: the last ten thousand events, how often each
//! kind came, and the journal of systemd, where each kind has a MESSAGE_ID.

use std::collections::VecDeque;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;

use tidegate_api::{EventView, EventsView};
use tidegate_engine::clock::since_1970;
use tidegate_engine::sync::lock;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::process::Mode;

const KEPT: usize = 10_000;
const ANSWERED_MAX: usize = 1_000;
const JOURNAL: &str = "/run/systemd/journal/socket";

macro_rules! kinds {
    ($(#[doc = $doc:literal] $Kind:ident = $name:literal, $id:literal;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum EventKind {
            $(#[doc = $doc] $Kind,)+
        }

        impl EventKind {
            pub(crate) const ALL: &[EventKind] = &[$(EventKind::$Kind),+];

            /// As answers and metrics have it.
            pub(crate) fn name(self) -> &'static str {
                match self { $(EventKind::$Kind => $name),+ }
            }

            /// What `journalctl MESSAGE_ID=` finds.
            fn message_id(self) -> &'static str {
                match self { $(EventKind::$Kind => $id),+ }
            }

            /// What it means, in one sentence.
            #[cfg(test)]
            fn doc(self) -> &'static str {
                match self { $(EventKind::$Kind => $doc),+ }
            }
        }
    };
}

kinds! {
    /// A command, process, group or unit got terms.
    GateCreated = "gate.created", "8a80686921144a1b809bc4a35eec5c8f";
    /// A gate ended, or its terms were taken back.
    GateEnded = "gate.ended", "9982c0dea12b4ea5a2f83af9b023fdd0";
    /// Main fills the machine: side work has its tolerance alone.
    StarvationBegan = "starvation.began", "39dfaec3b0ec412aa1e53a9552f24122";
    /// Side work has more again.
    StarvationEnded = "starvation.ended", "58d1753c3b60471fb6654b102406af70";
    /// Another program wrote over a value that the agent had written.
    OutsideWrite = "outside_write", "2882d78a4a5c4f2880da2b54ec343698";
    /// The agent was silent, and the guardian wrote the fallback.
    LeaseExpired = "lease.expired", "e8db9e65fdd4415895646425b746e7db";
    /// The guardian had ended or was stuck, and another was started.
    GuardianReplaced = "guardian.replaced", "7a669ada1e5f4de4a7c79c0a67665f82";
    /// An agent took up the gates of the one before.
    AgentAdopted = "agent.adopted", "1a5bd66dfa8f44c797e501172509085f";
    /// The scheduler of the engine sched_ext is in force.
    SchedExtLoaded = "sched_ext.loaded", "87cb7e67ce784ea8a8e20923760d4a69";
    /// The scheduler of the engine sched_ext ended by itself, or the kernel ended it.
    SchedExtEjected = "sched_ext.ejected", "f2fc3d0353b241a0b681908a04472f05";
    /// Other rules are in force.
    PolicyApplied = "policy.applied", "5e2cd4a3d1f64a0f8a2c8c7d31f5b9e0";
    /// The files were refused; the policy in force stays.
    PolicyRejected = "policy.rejected", "b0f4a1d97c5e4f7e93f6f2f3a6d80c41";
    /// The policy on trial stays.
    PolicyConfirmed = "policy.confirmed", "c9d27a1c7e464e5fb0ad6b1a4d2e8f53";
    /// The policy before is in force again.
    PolicyRolledBack = "policy.rolled_back", "3f6b8f0e2c9c4bd5a1e7d4c95a20b7e8";
    /// Main waits for longer than its objective says, whatever side work is given.
    ObjectiveMissed = "objective.missed", "0d6b7f0b54c84e0c9a8f6e5d3c2b1a47";
    /// Main is within its objective again.
    ObjectiveMet = "objective.met", "7be1c2d94f0a4b6c8d3e5f6071829a3b";
    /// A measurement of what side work costs main has begun.
    MeasureStarted = "measure.started", "b169e623393b43d199c6ee05c37cf39c";
    /// The measurement is done, and this is its advice.
    MeasureDone = "measure.done", "01fdac63dbea4a5ea87eeb9c1f0a41e0";
    /// The measurement ended early; what the gates ask for is in force again.
    MeasureEnded = "measure.ended", "e975fe1d4f854ed7828160f33bc3d586";
}

impl EventKind {
    fn is_warning(self) -> bool {
        EventView::is_warning(self.name())
    }
}

#[derive(Default)]
pub(crate) struct Events {
    state: Mutex<State>,
    /// The journal of systemd, where the agent's own log goes there: else the log has the event.
    journal: Option<UnixDatagram>,
    told: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    kept: VecDeque<EventView>,
    total: u64,
    counts: [u64; EventKind::ALL.len()],
}

impl Events {
    /// Something happened, to a gate where one is named. Where the journal does not take it, the
    /// log has it.
    pub(crate) fn tell(&self, kind: EventKind, gate: Option<&str>, message: impl Into<String>) {
        let message = message.into();
        let journal = |socket: &UnixDatagram| {
            let sent = socket.send(entry(kind, gate, &message).as_bytes());
            sent.is_ok()
        };
        if !self.journal.as_ref().is_some_and(journal) {
            let of_gate = gate.map(|gate| format!("gate {gate}: "));
            let line = of_gate.unwrap_or_default() + &message;
            match kind.is_warning() {
                true => warn!("{line}"),
                false => info!("{line}"),
            }
        }
        let mut state = lock(&self.state);
        state.total += 1;
        state.counts[kind as usize] += 1;
        if state.kept.len() == KEPT {
            state.kept.pop_front();
        }
        let event = EventView {
            seq: state.total,
            time_unix_seconds: since_1970().as_secs_f64(),
            kind: kind.name().to_owned(),
            gate: gate.map(str::to_owned),
            message,
        };
        state.kept.push_back(event);
        self.told.send_replace(state.total);
    }

    /// The last event's number, which changes when something happens.
    pub(crate) fn told(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    pub(crate) fn after(&self, since: u64) -> EventsView {
        self.some_after(since, ANSWERED_MAX)
    }

    pub(crate) fn some_after(&self, since: u64, count_max: usize) -> EventsView {
        let state = lock(&self.state);
        let first = state
            .kept
            .front()
            .map_or(state.total + 1, |event| event.seq);
        let earlier =
            usize::try_from(since.saturating_add(1).saturating_sub(first)).unwrap_or(usize::MAX);
        let later = state.kept.iter().skip(earlier).take(count_max);
        let events: Vec<EventView> = later.cloned().collect();
        EventsView {
            pid: std::process::id() as i32,
            lost: first.saturating_sub(since.saturating_add(1)),
            last_seq: events
                .last()
                .map_or(state.total.min(since), |last| last.seq),
            events,
        }
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = lock(&self.state).counts;
        EventKind::ALL.iter().map(|kind| kind.name()).zip(counts)
    }
}

impl Events {
    /// The log of a service goes to the journal anyway.
    pub(crate) fn of(mode: Mode) -> Self {
        let is_logged_there = mode == Mode::Service && std::env::var_os("JOURNAL_STREAM").is_some();
        let connected = || {
            let socket = UnixDatagram::unbound()?;
            socket.connect(JOURNAL)?;
            socket.set_nonblocking(true)?;
            std::io::Result::Ok(socket)
        };
        Self {
            journal: is_logged_there.then(connected).and_then(Result::ok),
            ..Self::default()
        }
    }
}

/// In the journal's native protocol: a field a line, so that no value has a line end.
fn entry(kind: EventKind, gate: Option<&str>, message: &str) -> String {
    let priority = if kind.is_warning() { 4 } else { 6 };
    let of_gate = gate
        .map(|gate| format!("gate {gate}: "))
        .unwrap_or_default();
    let mut entry = format!(
        "MESSAGE={of_gate}{}\nMESSAGE_ID={}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=tidegate\nTIDEGATE_EVENT={}\n",
        message.replace('\n', " "),
        kind.message_id(),
        kind.name()
    );
    if let Some(gate) = gate {
        entry += &format!("TIDEGATE_GATE={gate}\n");
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_numbered_and_those_that_were_forgotten_are_counted() {
        let events = Events::default();
        assert_eq!(events.after(0).events.len(), 0);
        for nth in 1..=10_005 {
            events.tell(EventKind::GateCreated, Some("g"), format!("{nth}"));
        }
        let first = events.after(0);
        assert_eq!((first.lost, first.events.len()), (5, ANSWERED_MAX));
        assert_eq!((first.events[0].seq, first.last_seq), (6, 1_005));
        let last = events.after(10_004);
        assert_eq!(
            (last.lost, last.events.len(), last.last_seq),
            (0, 1, 10_005)
        );
        assert_eq!(events.after(10_005).last_seq, 10_005);
        assert_eq!(
            events.after(u64::MAX).last_seq,
            10_005,
            "an earlier agent's number"
        );
        let created = events.counts().find(|(kind, _)| *kind == "gate.created");
        assert_eq!(created, Some(("gate.created", 10_005)));
    }

    #[test]
    fn an_entry_of_the_journal_is_a_field_a_line() {
        let text = entry(EventKind::OutsideWrite, Some("web"), "two\nlines");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "MESSAGE=gate web: two lines");
        assert_eq!(lines[2], "PRIORITY=4");
        assert_eq!(lines.last(), Some(&"TIDEGATE_GATE=web"));
        let ids: std::collections::BTreeSet<&str> = EventKind::ALL
            .iter()
            .map(|kind| kind.message_id())
            .collect();
        assert_eq!(ids.len(), EventKind::ALL.len());
        assert!(ids.iter().all(|id| id.len() == 32));
    }

    const BEGIN: &str =
        "<!-- events: written by UPDATE_DOCS=1 cargo test -p tidegate-agent kinds_of_events -->\n";

    #[test]
    fn the_documents_have_all_kinds_of_events() {
        let mut table = "| kind | what happened | MESSAGE_ID |\n|---|---|---|\n".to_owned();
        for kind in EventKind::ALL {
            let (name, doc, id) = (kind.name(), kind.doc().trim(), kind.message_id());
            table += &format!("| `{name}` | {doc} | `{id}` |\n");
        }
        crate::tests::check_metrics_page(BEGIN, "<!-- end of events -->", &table);
    }
}
