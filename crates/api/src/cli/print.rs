//! Answers on standard output, with colour only where it goes to a terminal.

use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Failure;
use crate::Exit;

/// Prints to standard output; colours are taken out unless it is a terminal (and by `NO_COLOR`).
pub fn print(text: &str) -> Result<Exit, Failure> {
    let mut stdout = anstream::stdout().lock();
    finish(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

pub fn json<T: serde::Serialize>(value: &T) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        Failure::new(
            Exit::Failure,
            format!("json: {error}; report this as a bug"),
        )
    })?;
    let mut stdout = std::io::stdout().lock();
    finish(
        stdout
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// Whether the other end of a pipe is open, or a terminal still there.
fn has_reader(output: BorrowedFd<'_>) -> bool {
    let mut looked = [PollFd::from_borrowed_fd(output, PollFlags::empty())];
    let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    // Where poll fails, a reader is assumed: a write finds out.
    match poll(&mut looked, Some(&Timespec::default())) {
        Ok(_) => !looked[0].revents().intersects(gone),
        Err(_) => true,
    }
}

fn finish(written: std::io::Result<()>) -> Result<Exit, Failure> {
    finished(written, std::io::stdout().as_fd())
}

fn finished(written: std::io::Result<()>, output: BorrowedFd<'_>) -> Result<Exit, Failure> {
    match written {
        Ok(()) => Ok(Exit::Ok),
        // The reader has seen enough (`tidegate status | head -3`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Ok),
        // The terminal is gone, which a write is told as an error of input and output, as a broken
        // disk's is.
        Err(error) if is_io(&error) && !has_reader(output) => Ok(Exit::Ok),
        Err(error) => Err(Failure::new(
            Exit::Failure,
            format!("standard output: cannot be written: {error}; check where it goes"),
        )),
    }
}

fn is_io(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    #[test]
    fn a_closed_reader_is_noticed_without_a_write() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(has_reader(writer.as_fd()), "nothing was read so far");
        drop(reader);
        assert!(!has_reader(writer.as_fd()));
        let file = tempfile::tempfile().unwrap();
        assert!(has_reader(file.as_fd()), "a file is never left");
    }

    /// The window and the other side of a new terminal.
    fn terminal() -> (std::fs::File, std::fs::File) {
        // SAFETY: each call gets a descriptor that is open, or a buffer as long as it is told; the
        // name ends in a zero.
        unsafe {
            let window = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
            assert!(window >= 0, "{}", std::io::Error::last_os_error());
            let mut name = [0_u8; 64];
            assert_eq!(libc::grantpt(window) + libc::unlockpt(window), 0);
            let told = libc::ptsname_r(window, name.as_mut_ptr().cast(), name.len());
            assert_eq!(told, 0);
            let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
            let other = libc::open(name.as_ptr().cast(), flags);
            assert!(other >= 0, "{}", std::io::Error::last_os_error());
            let own = |descriptor| std::fs::File::from_raw_fd(descriptor);
            (own(window), own(other))
        }
    }

    #[test]
    fn a_terminal_that_is_gone_is_a_reader_that_has_left_and_another_error_is_told() {
        let (window, mut other) = terminal();
        let written = other.write_all(b"a table\n");
        assert!(finished(written, other.as_fd()).is_ok() && has_reader(other.as_fd()));
        drop(window);
        let written = other.write_all(b"another\n");
        let code = written.as_ref().unwrap_err().raw_os_error();
        assert_eq!(code, Some(libc::EIO), "as kernels have it");
        assert!(finished(written, other.as_fd()).is_ok());
        // The same of a file is its disk's.
        let broken = || Err(std::io::Error::from_raw_os_error(libc::EIO));
        let file = tempfile::tempfile().unwrap();
        let said = finished(broken(), file.as_fd()).unwrap_err().message;
        assert!(
            said.starts_with("standard output: cannot be written: "),
            "{said}"
        );
    }
}
