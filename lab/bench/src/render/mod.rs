//! Answers for people.

pub mod replay;
pub mod tune;
