//! Starting this program again, as an agent or a guardian: a process that outlives the one that starts it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tidegate_terms::Engine;

use crate::paths::RunDir;
use crate::process::Mode;

/// This program, to be started with nothing of ours but standard input, output and error.
///
/// A shell's own descriptors (a lock's, a pipe's) are inherited by whatever it starts; held by a process that stays for
/// days, they would keep that lock taken and that pipe open.
pub fn own_program() -> io::Result<Command> {
    // A unit test is no agent: its housekeeping starts a program that does nothing for a guardian.
    let path = if cfg!(test) {
        PathBuf::from("true")
    } else {
        own_path()?
    };
    let mut command = Command::new(path);
    // SAFETY: one system call without pointers, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            close_the_rest_on_exec();
            Ok(())
        });
    }
    Ok(command)
}

/// Where this program is. After an update its file is gone; the running one can still be executed.
fn own_path() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if path.exists() {
        path
    } else {
        PathBuf::from("/proc/self/exe")
    })
}

/// Kernels before 5.11 cannot: what is inherited then stays open.
fn close_the_rest_on_exec() {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: close_range(2) takes plain numbers; nothing is closed before the exec.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_CLOEXEC) };
}

/// Starts a guardian in a session of its own.
pub fn start_guardian(
    run_dir: &RunDir,
    mode: Mode,
    engine: Option<Engine>,
) -> std::io::Result<std::process::Child> {
    let mut command = own_program()?;
    command.args(["guardian", "--agent", &std::process::id().to_string()]);
    if mode == Mode::OnDemand {
        command.arg("--on-demand");
    }
    // For the agent that it may start.
    if let Some(engine) = engine {
        command.args(["--engine", &engine.to_string()]);
    }
    command
        .envs(run_dir.env())
        .current_dir("/")
        .stdin(Stdio::null());
    // Standard output may still be the pipe on which the starter waits for us: the guardian must not hold it open.
    command.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
    // SAFETY: setsid is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_a_shell_left_open_is_not_held_on() {
        let held = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: makes an inheritable duplicate of an open descriptor; closed below.
        let inherited = unsafe { libc::dup(held.as_raw_fd()) };
        let path = format!("/proc/self/fd/{inherited}");
        let mut plain = Command::new("test");
        assert!(plain.args(["-e", &path]).status().unwrap().success());
        let mut ours = Command::new("test");
        ours.args(["-e", &path]);
        // SAFETY: as in `own_program`.
        unsafe {
            ours.pre_exec(|| {
                close_the_rest_on_exec();
                Ok(())
            })
        };
        assert!(!ours.status().unwrap().success());
        // SAFETY: ours, and not used again.
        unsafe { libc::close(inherited) };
    }

    #[test]
    fn this_program_is_found() {
        assert!(own_path().unwrap().is_absolute());
    }
}
