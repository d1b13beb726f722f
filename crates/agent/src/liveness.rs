//! Whether an agent lives behind the socket: a connection alone does not tell, for that of a process which is being killed takes
//! connections until the kernel has come to close it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::paths::RunDir;

/// One that takes longer to answer is not dead: it is busy, or frozen.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn who_closes_without_a_word_is_dead_and_who_is_silent_is_not() {
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
