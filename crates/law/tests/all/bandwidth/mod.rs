//! The bandwidth law against a slow model, against its bounds, and over every state of small machines.

mod bounds;
mod examples;
mod machine;
mod model;
mod walk;
mod walk_changes;
