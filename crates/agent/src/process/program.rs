//! Starting this program again, as an agent or a guardian: a process that outlives the one that
//! starts it.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_terms::Engine;

use crate::paths::RunDir;
use crate::process::Mode;

/// This program, to be started with nothing of ours but standard input, output and error.
///
/// A shell's own descriptors (a lock's, a pipe's) are inherited by whatever it starts; held by a
/// process that stays for days, they would keep that lock taken and that pipe open.
pub fn own_program() -> Command {
    // A unit test is no agent: its housekeeping starts a program that does nothing for a guardian.
    let path = match cfg!(test) {
        true => PathBuf::from("true"),
        false => own_path(),
    };
    let mut command = Command::new(path);
    command.arg0("tidegate");
    // SAFETY: one system call without pointers, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            close_the_rest_on_exec();
            Ok(())
        });
    }
    command
}

/// The program file that this process was started from, even if its path has another file now: a
/// user who may write the path must not choose what root runs next. A new file at the path is an
/// upgrade, and runs, if only root could have put it there.
fn own_path() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    match std::env::current_exe() {
        Ok(path) if !is_same_file(&path, &running) && is_roots_alone(&path) => path,
        _ => running,
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((identity(a), identity(b)), (Ok(a), Ok(b)) if a == b)
}

/// Whether root owns the regular file and every folder above it, and no other user may write any of
/// them.
fn is_roots_alone(path: &Path) -> bool {
    let is_roots = |path: &Path| {
        std::fs::symlink_metadata(path)
            .is_ok_and(|file| file.uid() == 0 && !file.is_symlink() && file.mode() & 0o022 == 0)
    };
    path.is_file() && path.ancestors().all(is_roots)
}

/// Kernels before 5.11 cannot: what is inherited then stays open.
fn close_the_rest_on_exec() {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: close_range(2) takes plain numbers; nothing is closed before the exec.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_CLOEXEC) };
}

pub fn start_guardian(
    run_dir: &RunDir,
    mode: Mode,
    engine: Option<Engine>,
) -> std::io::Result<std::process::Child> {
    let mut command = own_program();
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
    // Standard output may still be the pipe on which the starter waits for us: the guardian must
    // not hold it open.
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
    fn this_very_file_is_started_and_another_only_if_root_alone_could_put_it_there() {
        assert_eq!(own_path(), Path::new("/proc/self/exe"));
        assert!(is_roots_alone(
            Path::new("/bin/sh").canonicalize().unwrap().as_path()
        ));
        assert!(!is_roots_alone(Path::new("/bin")), "no program");
        assert!(!is_roots_alone(Path::new("/nowhere")));
        // /tmp, or wherever it is, may be written by all.
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let file = dir.path().join("tidegate");
        std::fs::write(&file, "").unwrap();
        assert!(!is_roots_alone(&file));
        let shell = std::env::current_exe().unwrap();
        assert!(is_same_file(&shell, Path::new("/proc/self/exe")));
        assert!(!is_same_file(&file, &shell) && !is_same_file(Path::new("/nowhere"), &shell));
    }
}
