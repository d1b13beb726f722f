//! What is run on a real kernel: which part, hinted how, and for how long.

use super::Part;
use super::report::Way;
use crate::Engine;

/// How something is hinted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Not at all.
    Nothing,
    /// The kernel's shortest slice (or, for what should yield, its longest), set by its own call.
    Slice,
    /// ... on a kernel that preempts itself (`preempt=full`), which the lab may switch only in a guest.
    SliceFull,
    /// `tidegate set pid:N latency=H`.
    Tidegate,
    /// Not at all, under the ext engine.
    ExtNothing,
    /// A gate of the ext engine for a group of its own.
    Ext,
}

impl How {
    /// In the tables' order.
    pub const ALL: [How; 6] = [
        How::Nothing,
        How::Slice,
        How::SliceFull,
        How::Tidegate,
        How::ExtNothing,
        How::Ext,
    ];

    /// Those that every part is run with.
    pub fn of(engine: Engine) -> &'static [How] {
        match engine {
            Engine::Knobs => &[How::Nothing, How::Slice, How::Tidegate],
            Engine::Ext => &[How::Nothing, How::Slice, How::ExtNothing, How::Ext],
        }
    }

    /// Whether the ext engine runs it.
    pub fn is_ext(self) -> bool {
        matches!(self, How::ExtNothing | How::Ext)
    }

    /// In reports.
    pub fn way(self) -> Way {
        let (key, label) = match self {
            How::Nothing => ("nothing", "nothing"),
            How::Slice => ("slice", "slice by hand"),
            How::SliceFull => ("slice_preempt_full", "slice by hand, preempt=full"),
            How::Tidegate => ("tidegate", "Tidegate"),
            How::ExtNothing => ("ext_nothing", "ext engine, nothing"),
            How::Ext => ("ext", "ext engine"),
        };
        Way {
            key,
            label,
            hinted: !matches!(self, How::Nothing | How::ExtNothing),
        }
    }
}

/// A part, hinted in some way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What runs.
    pub part: Part,
    /// How it is hinted.
    pub how: How,
}

/// Lengths of a run.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Until a window begins.
    pub warm_s: f64,
    /// A window.
    pub window_s: f64,
    /// Three hogs settle their shares over this long.
    pub shares_s: f64,
    /// Messages of hackbench from a sender to a receiver, over its groups.
    pub loops: u32,
}
