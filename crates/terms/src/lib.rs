//! Terms of a gate: from what a user wrote to one resolved type, at one place.
//!
//! ```text
//! files, flags, socket ──> RawTerms (text and where it came from) ──> Terms (typed, with sources)
//! ```
//!
//! * [`units`]: shares of the machine, times, CPU amounts. Exact: decimal text to integers and
//!   back, no floats.
//! * [`Term`], [`Terms`]: the table of terms. One row gives a term its name, type, default, range,
//!   help line and the classes that take it; parsing, messages, help and docs are all made from the
//!   row.
//! * [`Setting`], [`Settings`]: the machine's settings, by the same table.
//! * [`RawTerms`], [`Source`]: what was typed, where.
//! * [`Config`]: the files, weakest to strongest, and [`Config::resolve`], after which nothing is
//!   parsed again.
//! * [`policy`]: rules, by which the files give terms to what they match.
//! * [`combine`]: what several gates' terms come to for the machine.
//!
//! Every refusal is a [`TermError`] that names the input, the place and the remedy.

pub mod combine;
mod config;
mod error;
mod layer;
mod limits;
mod objective;
pub mod policy;
mod raw;
mod reader;
mod refusal;
mod restriction;
mod room;
mod rule_reader;
pub mod schema;
mod source;
mod table;
mod together;
pub mod units;
mod values;

pub use config::{Config, Roots, read_file};
pub use error::{ConfigErrors, TermError, quoted, remedy_for_unknown};
pub use limits::{Burst, Cap, CapScope, Latency, Quota, Switch};
pub use objective::Objective;
pub use raw::RawTerms;
pub use refusal::Refusal;
pub use room::Room;
pub use source::{Overridden, RawTerm, Resolved, Source, View};
pub use table::{Setting, Settings, Term, Terms};
pub use units::{CpuAmount, Share, TimeSpan};
pub use values::{
    ApiListen, Class, Count, CpusetMode, Engine, Fallback, Headroom, LoopPeriod, Sense, Tolerance,
    Value, Weight,
};
