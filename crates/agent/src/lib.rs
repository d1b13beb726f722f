//! The owner process, its guardian and the socket between them and everyone else.

pub mod api;
