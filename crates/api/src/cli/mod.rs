//! What the programs of the command line share: failures, answers, text and progress.

pub mod completions;
mod failure;
pub mod lengths;
pub mod man;
mod parse;
mod print;
mod progress;
mod text;

pub use failure::{Failure, program, report, set_program};
pub use parse::parse;
pub use print::{json, print};
pub use progress::Progress;
pub use text::{BAD, BOLD, GOOD, WIDTH, count, cpus, escaped, fit, span, styled, wrapped};
