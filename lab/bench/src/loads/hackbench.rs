//! Messages between many processes, as hackbench sends them: in each group twenty senders, each of
//! which writes 100 bytes to each of twenty receivers over a pipe of the receiver's, again and
//! again.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _, pipe};

use serde_json::json;

use super::serve_commands;
use super::shared_page::{SLOTS_MAX, SharedPage, Slot};
use crate::LabError;
use crate::clock::monotonic_ns;

pub const PAIRS: usize = 20;
const MESSAGE_BYTES: usize = 100;
/// Receivers tell how far they are each so many messages.
const TELL_EACH: u64 = 32;

/// `run` sends all messages and answers with the seconds; with 0 loops it answers at once, and they
/// are sent until the worker ends. `report` answers with the messages so far.
pub fn run(page: &SharedPage, groups: usize, loops: u64) -> Result<(), LabError> {
    // This process has one thread, so a child may do after fork what its parent may.
    page.check_in();
    let mut children = Vec::new();
    let served = serve_commands(page, |command| match command {
        "run" => match started(page, groups, loops, &mut children) {
            Ok(from_ns) => {
                if loops > 0 {
                    wait_for(&mut children);
                }
                let seconds = (monotonic_ns() - from_ns) as f64 / 1e9;
                json!({"seconds": seconds, "messages": page.count()})
            }
            Err(e) => json!({"error": e.to_string()}),
        },
        _ => json!({"messages": page.count(), "children": children.len()}),
    });
    for pid in &children {
        // SAFETY: our own children that have not been waited for: their numbers cannot be
        // another's.
        unsafe {
            libc::kill(*pid, libc::SIGKILL);
        }
    }
    served
}

fn wait_for(children: &mut Vec<i32>) {
    for pid in children.drain(..) {
        // SAFETY: waits for a child of ours; no status is asked for.
        unsafe {
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Makes all processes, waits until each is there, and lets them go. Returns when.
fn started(
    page: &SharedPage,
    groups: usize,
    loops: u64,
    children: &mut Vec<i32>,
) -> io::Result<u64> {
    let (mut ready, tell_ready) = pipe()?;
    let (go, mut tell_go) = pipe()?;
    let gate = (&tell_ready, &go);
    for group in 0..groups {
        let slot = page.slot(1 + group % (SLOTS_MAX - 1));
        let pipes: Vec<(PipeReader, PipeWriter)> =
            (0..PAIRS).map(|_| pipe()).collect::<Result<_, _>>()?;
        for (from, _) in &pipes {
            children.push(child(gate, || receive(from, loops, slot))?);
        }
        for _ in 0..PAIRS {
            children.push(child(gate, || send(&pipes, loops))?);
        }
    }
    ready.read_exact(&mut vec![0; children.len()])?;
    let from_ns = monotonic_ns();
    // Each child reads one byte: the pipe wakes them all.
    tell_go.write_all(&vec![1; children.len()])?;
    Ok(from_ns)
}

/// Forks; the child says that it is there, waits for its start, does its part and ends.
fn child(
    (mut ready, mut go): (&PipeWriter, &PipeReader),
    part: impl FnOnce() -> io::Result<()>,
) -> io::Result<i32> {
    // SAFETY: this process has a single thread, so nothing that the child uses can be half done.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            super::die_with_parent();
            let done = ready
                .write_all(&[1])
                .and_then(|()| go.read_exact(&mut [0]))
                .and_then(|()| part());
            // SAFETY: ends the child without running what its parent has registered for its own
            // end.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => Ok(pid),
    }
}

fn receive(mut from: &PipeReader, loops: u64, slot: &Slot) -> io::Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    let all = if loops == 0 {
        u64::MAX
    } else {
        loops * PAIRS as u64
    };
    for n in 1..=all {
        from.read_exact(&mut message)?;
        if n % TELL_EACH == 0 {
            slot.add(0, TELL_EACH);
        }
    }
    Ok(())
}

fn send(pipes: &[(PipeReader, PipeWriter)], loops: u64) -> io::Result<()> {
    for _ in 0..if loops == 0 { u64::MAX } else { loops } {
        for (_, to) in pipes {
            let mut to = to;
            to.write_all(&[7; MESSAGE_BYTES])?;
        }
    }
    Ok(())
}
