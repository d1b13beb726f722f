//! Main's use of each node's CPUs over days.

mod generated;
mod recorded;

pub use generated::Generated;
pub use recorded::{Recorded, RecordedError};

pub enum Days {
    /// Made up, from a seed.
    Generated(Generated),
    /// Read from a file.
    Recorded(Recorded),
}

impl Days {
    /// Main's use on every node, each with its own state.
    pub fn of_nodes(&self, nodes: usize) -> Vec<Box<dyn NodeDay + '_>> {
        (0..nodes as u64)
            .map(|node| match self {
                Days::Generated(days) => Box::new(days.node(node)) as Box<dyn NodeDay>,
                Days::Recorded(days) => Box::new(days.node(node)),
            })
            .collect()
    }
}

pub trait NodeDay: Send {
    /// What main uses at this second, which never goes back.
    fn main_milli(&mut self, time_s: u64) -> u64;
}
