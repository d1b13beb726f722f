//! Whether an agent lives behind the socket: a connection alone does not tell, for that of a
//! process which is being killed takes connections until the kernel has come to close it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

use crate::paths::RunDir;
use crate::process::lease::{Lease, monotonic_ns};

/// One that takes longer to answer is not dead: it is busy, or frozen.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

const NEXT_AGENT_POLL: Duration = Duration::from_millis(20);

/// Asks the agent anything at all. One that is dying closes without a word.
pub(crate) fn agent_lives(run_dir: &RunDir) -> bool {
    let asked = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(run_dir.socket())?;
        stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
        stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        Ok(stream.read(&mut [0; 1])? > 0)
    };
    match asked() {
        Ok(answered) => answered,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

/// The same; where a service restarts, its next agent is waited for, within the lease.
pub(crate) fn next_agent_lives(run_dir: &RunDir) -> bool {
    let lease = Lease::of_an_agent(&run_dir.lease());
    loop {
        if agent_lives(run_dir) {
            return true;
        }
        let is_awaited = |lease: &Lease| lease.awaits_next_agent(monotonic_ns());
        if !lease.as_ref().is_some_and(is_awaited) {
            // It may have come between the two.
            return agent_lives(run_dir);
        }
        std::thread::sleep(NEXT_AGENT_POLL);
    }
}

/// Whether the process is there (a zombie is, until it is waited for).
pub fn is_alive(pid: i32) -> bool {
    // The page of a damaged lease may say anything; of a negative number `Pid` makes a panic.
    let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_agent_that_a_service_starts_next_is_waited_for_within_the_lease() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path(), "t");
        assert!(!next_agent_lives(&run_dir), "no lease");
        let lease = Lease::open(&run_dir.lease()).unwrap();
        lease.take(1, 10_000_000_000);
        assert!(!next_agent_lives(&run_dir), "a dead agent's");
        lease.hand_over();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                let listener = UnixListener::bind(run_dir.socket()).unwrap();
                std::thread::sleep(ANSWER_PATIENCE * 3);
                drop(listener);
            });
            assert!(next_agent_lives(&run_dir), "it is silent, and there");
        });
        lease.take(1, 1);
        lease.hand_over();
        assert!(!next_agent_lives(&run_dir), "none came");
    }

    #[test]
    fn a_closed_connection_means_dead_and_a_silent_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path(), "t");
        assert!(!agent_lives(&run_dir), "no socket");
        let listener = UnixListener::bind(run_dir.socket()).unwrap();
        assert!(agent_lives(&run_dir), "it is silent");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // What was left waiting above, and the one that is closed.
                drop(listener.accept().unwrap());
                drop(listener.accept().unwrap());
            });
            assert!(!agent_lives(&run_dir), "it closes");
        });
        drop(listener);
        assert!(!agent_lives(&run_dir), "none is left");
    }
}
