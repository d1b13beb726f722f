//! The bandwidth law against its bounds and over every state of small machines.

mod bounds;
mod examples;
mod machine;
mod walk;
