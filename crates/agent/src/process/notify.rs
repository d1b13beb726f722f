//! A word to the service manager that started us: one datagram to the socket that it names (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// We answer.
pub const READY: &[u8] = b"READY=1";
/// Housekeeping still goes round; what it needs to, it gets.
pub const ALIVE: &[u8] = b"WATCHDOG=1";

/// Whether the service manager wants to hear that we are alive.
pub fn is_watched() -> bool {
    std::env::var_os("WATCHDOG_USEC").is_some()
}

/// Tells it; without a service manager it does nothing.
pub fn tell(what: &[u8]) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let told =
        UnixDatagram::unbound().and_then(|socket| match path.as_bytes().strip_prefix(b"@") {
            Some(name) => socket.send_to_addr(what, &SocketAddr::from_abstract_name(name)?),
            None => socket.send_to(what, &path),
        });
    if let Err(error) = told {
        warn!("NOTIFY_SOCKET: {error}");
    }
}
