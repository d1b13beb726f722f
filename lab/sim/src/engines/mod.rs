//! Tidegate's engines at work on a simulated machine.
//!
//! [`knobs`] runs the agent's own control step against the machine's files. The other engine, ext, is a scheduler and so a
//! part of the machine (`sched::ext`).

pub mod knobs;
