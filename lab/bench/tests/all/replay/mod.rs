//! Recordings made from simulated runs, whose demand is known, through a replay.

mod command;
mod policies;
mod shares;
mod support;
mod tune;
