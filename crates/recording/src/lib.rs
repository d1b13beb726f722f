//! Recordings of a machine: what is in one ([`record`]), how it lies in a file ([`frame`]), the
//! directory that an agent keeps of them ([`store`]), and the last minutes step by step
//! ([`flight`]).

pub mod flight;
pub mod frame;
pub mod load;
pub mod record;
pub mod recording;
#[cfg(feature = "cli")]
pub mod span;
pub mod store;
mod whole_file;

pub use frame::VERSION;
pub use load::{LoadError, load, save};
pub use record::{Event, Machine, Record, Second, Step, Work, WorkSecond};
pub use recording::Recording;
pub use whole_file::write_whole;

pub const ENDING: &str = "tgr";
