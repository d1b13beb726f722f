//! Messages to the service manager that started this agent: datagrams to the socket that it names
//! (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// Between two messages of the watchdog; the unit allows 15 s.
const WATCHDOG_PERIOD_NS: u64 = 1_000_000_000;

/// Reports that the agent answers calls; without a service manager it does nothing.
pub fn send_ready() {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = connect(&path).and_then(|socket| socket.send(b"READY=1"))
    {
        warn!("NOTIFY_SOCKET: {error}");
    }
}

fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match path.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(path)?,
    }
    Ok(socket)
}

/// The service manager kills an agent whose control loop does not feed this.
///
/// The loop feeds it, and no timer's row: a call of any user may hold the gates' lock for long, and
/// the rows wait for that.
#[derive(Default)]
pub struct Watchdog {
    socket: Option<UnixDatagram>,
    fed_ns: u64,
}

impl Watchdog {
    pub fn from_env() -> Self {
        let is_asked_for = std::env::var_os("WATCHDOG_USEC").is_some();
        let path = std::env::var_os("NOTIFY_SOCKET").filter(|_| is_asked_for);
        path.map(|path| Self::at(&path)).unwrap_or_default()
    }

    pub(crate) fn at(path: &OsStr) -> Self {
        // The loop waits for no reader: a message that finds the socket full is sent again a second
        // later.
        let socket = connect(path).and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self {
            socket: socket
                .inspect_err(|error| warn!("NOTIFY_SOCKET: {error}"))
                .ok(),
            fed_ns: 0,
        }
    }

    pub fn feed(&mut self, now_ns: u64) {
        if let Some(socket) = &self.socket
            && now_ns.saturating_sub(self.fed_ns) >= WATCHDOG_PERIOD_NS
        {
            self.fed_ns = now_ns;
            if let Err(error) = socket.send(b"WATCHDOG=1") {
                warn!("watchdog: NOTIFY_SOCKET: {error}");
            }
        }
    }
}
