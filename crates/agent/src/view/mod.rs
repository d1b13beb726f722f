//! What the agent shows: `status` and `explain`.

mod domains;
mod explain;
mod figures;
mod readers;
mod status;

pub(crate) use explain::explain;
#[cfg(test)]
pub(crate) use explain::name_of;
pub use readers::Readers;
pub(crate) use status::status;
