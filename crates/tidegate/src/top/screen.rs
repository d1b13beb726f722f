//! What is on the screen, and what changes it.

use std::collections::VecDeque;

use tidegate_api::{EventView, ExplainView, GateView, HistoryPointView, StatusView};

use super::feed::News;
use super::rows::{Column, Row, Sort, rows};

pub const PLOT_S: u64 = 60;

const EVENTS_MAX: usize = 1_000;

/// A drop of the allowance by more than this part of the machine is marked as a cut.
const CUT: f64 = 0.1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Page {
    #[default]
    List,
    Explain,
    Events,
    Help,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    #[default]
    None,
    /// The filter; what it was before.
    Filter(String),
    /// Whether the terms of this gate are to be taken back.
    Unset(Chosen),
    Terms(Chosen, String),
    Jump(String),
}

/// A gate as it was when it was chosen: a later one of the same name is another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    pub name: String,
    /// When it was made, on the clock of the agent that told.
    pub made_s: u64,
    pub agent_pid: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Done(String),
    Error(String),
}

pub struct Screen {
    pub machine: Option<StatusView>,
    pub lost: Option<String>,
    /// The gates as they are listed: those of `machine`, or of the moment when the list was frozen.
    pub gates: Vec<GateView>,
    pub is_frozen: bool,
    /// The machine in the last minute, a point for each look.
    pub points: VecDeque<HistoryPointView>,
    pub events: VecDeque<EventView>,
    pub selected: Option<String>,
    row: usize,
    pub sort: Sort,
    /// Gates are below those in which they were started.
    pub is_tree: bool,
    pub filter: String,
    pub page: Page,
    pub prompt: Prompt,
    pub explained: Option<Result<ExplainView, String>>,
    is_explained_stale: bool,
    /// Lines of a page above the first that is seen; pages keep it within bounds when they are
    /// drawn.
    pub scroll: usize,
    pub note: Option<Note>,
    pub period_s: u64,
    /// A recording is shown: nothing can be changed.
    pub is_recording: bool,
}

impl Screen {
    pub fn new(period_s: u64) -> Self {
        Self {
            machine: None,
            lost: None,
            gates: Vec::new(),
            is_frozen: false,
            points: VecDeque::new(),
            events: VecDeque::new(),
            selected: None,
            row: 0,
            sort: Sort {
                column: Column::Cpus,
                is_reversed: false,
            },
            is_tree: false,
            filter: String::new(),
            page: Page::List,
            prompt: Prompt::None,
            explained: None,
            is_explained_stale: false,
            scroll: 0,
            note: None,
            period_s,
            is_recording: false,
        }
    }

    pub fn of_recording() -> Self {
        Self {
            is_recording: true,
            ..Self::new(1)
        }
    }

    pub fn take(&mut self, news: News, now_unix_s: u64) {
        match news {
            News::History(points) => self.points = points.into(),
            News::Status(machine) => self.take_status(*machine, now_unix_s),
            News::Events(events) => {
                self.events.extend(events);
                let surplus = self.events.len().saturating_sub(EVENTS_MAX);
                self.events.drain(..surplus);
            }
            News::NewAgent => self.events.clear(),
            News::Lost(why) => self.lost = Some(why),
            News::Explained(target, answer) => {
                if self.page == Page::Explain && self.selected.as_ref() == Some(&target) {
                    self.explained = Some(*answer);
                }
            }
            News::Answer(note) => self.note = Some(note),
        }
    }

    fn take_status(&mut self, machine: StatusView, now_unix_s: u64) {
        self.points.push_back(HistoryPointView {
            time_unix_seconds: now_unix_s,
            capacity_cpus: machine.capacity_cpus,
            main_cpus: machine.main_cpus,
            side_cpus: machine.side_cpus,
            allowance_cpus: machine.decision.allowance_cpus,
            ..HistoryPointView::default()
        });
        let since = now_unix_s.saturating_sub(PLOT_S);
        let surplus = self
            .points
            .partition_point(|point| point.time_unix_seconds < since);
        self.points.drain(..surplus);
        if !self.is_frozen {
            self.gates.clone_from(&machine.gates);
        }
        self.lost = None;
        self.machine = Some(machine);
        self.is_explained_stale = true;
    }

    /// The gate to ask the agent about: each look makes the last answer old.
    pub fn wants_explained(&mut self) -> Option<String> {
        if self.page != Page::Explain || !std::mem::take(&mut self.is_explained_stale) {
            return None;
        }
        self.selected.clone()
    }

    pub fn rows(&self) -> Vec<Row<'_>> {
        rows(&self.gates, &self.filter, self.sort, self.is_tree)
    }

    /// Where the selected gate is in `rows`. Where it is in none, nothing is selected.
    pub fn position(&self, rows: &[Row<'_>]) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        rows.iter().position(|row| row.gate.name == *selected)
    }

    pub fn move_by(&mut self, step: isize) {
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else {
            return;
        };
        let to = match self.position(&rows) {
            Some(at) => at.saturating_add_signed(step).min(last),
            // Where it was before it went.
            None => self.row.min(last),
        };
        self.selected = Some(rows[to].gate.name.clone());
        self.row = to;
    }

    /// The selected gate, if it is still there: the newest that is known of it.
    pub fn chosen(&self) -> Option<Chosen> {
        let name = self.selected.as_ref()?;
        let machine = self.machine.as_ref()?;
        let gate = machine.gates.iter().find(|gate| gate.name == *name)?;
        Some(Chosen {
            name: name.clone(),
            made_s: made_s(machine, gate),
            agent_pid: machine.pid,
        })
    }

    pub fn is_there(&self, chosen: &Chosen) -> bool {
        let Some(machine) = &self.machine else {
            return false;
        };
        let gate = machine.gates.iter().find(|gate| gate.name == chosen.name);
        // Ages are told in the agent's own time; its restart is no end of a gate.
        gate.is_some_and(|gate| {
            machine.pid != chosen.agent_pid || made_s(machine, gate).abs_diff(chosen.made_s) <= 2
        })
    }

    pub fn open_explain(&mut self) {
        self.page = Page::Explain;
        self.explained = None;
        self.is_explained_stale = true;
        self.scroll = 0;
    }

    pub fn freeze(&mut self) {
        self.is_frozen = !self.is_frozen;
        if !self.is_frozen
            && let Some(machine) = &self.machine
        {
            self.gates.clone_from(&machine.gates);
        }
    }

    /// Moments of the last minute at which side work was cut.
    pub fn cuts(&self) -> impl Iterator<Item = u64> {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        pairs
            .filter(|(a, b)| {
                a.allowance_cpus - b.allowance_cpus > CUT * b.capacity_cpus && b.capacity_cpus > 0.0
            })
            .map(|(_, b)| b.time_unix_seconds)
    }
}

/// Seconds from the agent's start to the gate's; a gate may be older than its agent.
fn made_s(machine: &StatusView, gate: &GateView) -> u64 {
    (machine.uptime_seconds + 1e9 - gate.age_seconds) as u64
}
