//! Messages between many processes, as hackbench sends them: in each group twenty senders, each of which writes 100 bytes
//! to each of twenty receivers over a pipe (or a socket pair) of the receiver's, again and again.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use serde_json::json;

use super::shared_page::{SharedPage, Slot};
use super::{Args, attributes, serve_commands};
use crate::LabError;
use crate::clock::monotonic_ns;

/// Senders, and receivers, of a group.
pub const PAIRS: usize = 20;
const MESSAGE_BYTES: usize = 100;
/// Receivers tell how far they are each so many messages.
const TELL_EACH: u64 = 32;

#[derive(Clone, Copy)]
struct Shape {
    groups: usize,
    /// From each sender to each receiver; 0: without end.
    loops: u64,
    pipes: bool,
}

/// `hackbench --page F --groups N --loops L [--pipes 0] [--slice-us N]`.
///
/// `run` sends all messages and answers with the seconds; with 0 loops it answers at once, and they are sent until the
/// worker ends. `report` answers with the messages so far.
pub fn run(page: Arc<SharedPage>, args: &Args) -> Result<(), LabError> {
    let shape = Shape {
        groups: args.number("groups", 1)?,
        loops: args.number("loops", 100)?,
        pipes: args.number("pipes", 1)? != 0,
    };
    attributes::set_slice_us(args.number("slice-us", 0)?)?;
    // This process has one thread, so a child may do after fork what its parent may.
    page.check_in(0);
    let mut children = Vec::new();
    let served = serve_commands(&page, |command| match command {
        "run" => {
            let seconds = started(&page, shape, &mut children).map(|from_ns| {
                if shape.loops == 0 {
                    0.0
                } else {
                    ended(&mut children, from_ns)
                }
            });
            match seconds {
                Ok(seconds) => json!({"seconds": seconds, "messages": page.count()}),
                Err(e) => json!({"error": e.to_string()}),
            }
        }
        _ => json!({"messages": page.count(), "children": children.len()}),
    });
    for pid in &children {
        // SAFETY: our own children that have not been waited for: their numbers cannot be another's.
        unsafe {
            libc::kill(*pid, libc::SIGKILL);
        }
    }
    served
}

/// Waits for all children. Returns the time since `from_ns` in seconds.
fn ended(children: &mut Vec<i32>, from_ns: u64) -> f64 {
    for pid in children.drain(..) {
        // SAFETY: waits for a child of ours; no status is asked for.
        unsafe {
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
    (monotonic_ns() - from_ns) as f64 / 1e9
}

fn io(what: &str) -> LabError {
    LabError::process(
        "hackbench",
        format!("{what}: {}", std::io::Error::last_os_error()),
    )
}

/// The reading and the writing end.
fn channel(pipes: bool) -> Result<(OwnedFd, OwnedFd), LabError> {
    let made = if pipes {
        rustix::pipe::pipe()
    } else {
        rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::empty(),
            None,
        )
    };
    made.map_err(|e| LabError::process("hackbench", format!("no pipe: {e}")))
}

/// Makes all processes, waits until each is there, and lets them go. Returns when.
fn started(page: &SharedPage, shape: Shape, children: &mut Vec<i32>) -> Result<u64, LabError> {
    let (ready, tell_ready) = channel(true)?;
    let (go, tell_go) = channel(true)?;
    let gate = (tell_ready.as_raw_fd(), go.as_raw_fd());
    for group in 0..shape.groups {
        let slot = page.slot(1 + group % (crate::loads::shared_page::SLOTS_MAX - 1));
        let channels: Vec<_> = (0..PAIRS)
            .map(|_| channel(shape.pipes))
            .collect::<Result<_, _>>()?;
        for (from, _) in &channels {
            let fd = from.as_raw_fd();
            children.push(child(gate, || receive(fd, shape.loops, slot))?);
        }
        for _ in 0..PAIRS {
            let to: Vec<i32> = channels.iter().map(|(_, to)| to.as_raw_fd()).collect();
            children.push(child(gate, || send(&to, shape.loops))?);
        }
    }
    let mut there = [0u8; 1];
    for _ in 0..children.len() {
        transfer(ready.as_raw_fd(), &mut there, true)?;
    }
    let from_ns = monotonic_ns();
    // Each child reads one byte: the pipe wakes them all and they pass it on, as a byte a child would fill it.
    let mut all = vec![1u8; children.len()];
    transfer(tell_go.as_raw_fd(), &mut all, false)?;
    Ok(from_ns)
}

/// Forks; the child says that it is there, waits for its start, does its part and ends.
fn child(gate: (i32, i32), part: impl FnOnce() -> Result<(), LabError>) -> Result<i32, LabError> {
    // SAFETY: this process has a single thread, so nothing that the child uses can be half done.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io("fork")),
        0 => {
            super::die_with_parent();
            let mut byte = [1u8];
            let done = transfer(gate.0, &mut byte, false)
                .and_then(|()| transfer(gate.1, &mut byte, true))
                .and_then(|()| part());
            // SAFETY: ends the child without running what its parent has registered for its own end.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => Ok(pid),
    }
}

fn receive(fd: i32, loops: u64, slot: &Slot) -> Result<(), LabError> {
    let mut message = [0u8; MESSAGE_BYTES];
    let all = if loops == 0 {
        u64::MAX
    } else {
        loops * PAIRS as u64
    };
    for n in 1..=all {
        transfer(fd, &mut message, true)?;
        if n % TELL_EACH == 0 {
            slot.add(0, TELL_EACH);
        }
    }
    Ok(())
}

fn send(to: &[i32], loops: u64) -> Result<(), LabError> {
    let mut message = [7u8; MESSAGE_BYTES];
    for _ in 0..if loops == 0 { u64::MAX } else { loops } {
        for &fd in to {
            transfer(fd, &mut message, false)?;
        }
    }
    Ok(())
}

/// All of `bytes` in or out.
fn transfer(fd: i32, bytes: &mut [u8], read: bool) -> Result<(), LabError> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: the kernel reads or writes at most the length of the slice that it is given.
        let n = unsafe {
            if read {
                libc::read(fd, rest.as_mut_ptr().cast(), rest.len())
            } else {
                libc::write(fd, rest.as_ptr().cast(), rest.len())
            }
        };
        match n {
            n if n > 0 => done += n as usize,
            _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            _ => return Err(io("a message")),
        }
    }
    Ok(())
}
