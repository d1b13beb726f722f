//! The failure contract on the running kernel, at every write boundary: the real agent, guardian
//! and `repair` die, stop or are refused after their n-th change of a file, in the midst of a life
//! in which they are asked everything.
//!
//! `TIDEGATE_FAULTS=all cargo test -p tidegate --test all boundaries:: -- --nocapture` is the long
//! form. It needs a build with debug assertions, which alone knows `TIDEGATE_FAULT`
//! (crates/cgroup/src/inject.rs).

use crate::support_fault::{Fault, What, long, strike_all};

const ERRNOS: [i32; 6] = [
    libc::ENOSPC,
    libc::EIO,
    libc::EBUSY,
    libc::EPERM,
    libc::ENOENT,
    libc::ENODEV,
];

#[test]
fn the_agent_dies_at_every_write_boundary() {
    strike_all("agent-dies", 75, |nth| {
        let [killed, panics] = [What::Kill, What::Panic].map(|what| Fault::new("agent", nth, what));
        match long() {
            true => vec![killed, panics],
            // Both end the process there; what follows is the same.
            false => vec![if nth % 3 == 1 { panics } else { killed }],
        }
    });
}

/// Both processes of Tidegate are dead; the next command restores order.
#[test]
fn agent_and_guardian_die_at_every_write_boundary() {
    strike_all("both-die", 75, |nth| {
        vec![Fault::new("agent", nth, What::KillBoth)]
    });
}

#[test]
fn the_agent_is_refused_at_every_write() {
    strike_all("agent-refused", 70, |nth| {
        let all = ERRNOS.map(|errno| Fault::new("agent", nth, What::Errno(errno)));
        match long() {
            true => all.to_vec(),
            false => vec![all[nth as usize % all.len()].clone()],
        }
    });
}

#[test]
fn the_agent_freezes_at_write_boundaries() {
    strike_all("agent-freezes", 18, |nth| match long() || nth % 4 == 1 {
        true => vec![Fault::new("agent", nth, What::Stop)],
        false => Vec::new(),
    });
}

#[test]
fn the_guardian_dies_at_every_write_boundary() {
    strike_all("guardian-dies", 5, |nth| {
        vec![Fault::new("guardian", nth, What::Kill)]
    });
}

#[test]
fn repair_dies_at_every_write_boundary() {
    strike_all("repair-dies", 5, |nth| {
        vec![Fault::new("repair", nth, What::Kill)]
    });
}
