//! The variables by which a command finds its gate's jobserver.
//!
//! make from 4.4, cargo, rustc, ninja and gcc from 13 take the path of the fifo. Older ones stop at
//! a path and take a descriptor, which is open here and so in all that the command starts. make
//! hands on what follows `--` without reading it, so the path is there as well. The descriptor also
//! keeps the tokens while no agent runs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::fchown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::exec::Variable;
use crate::identity::Caller;

/// Above the numbers that shells and build tools use: where the descriptor was closed, an older
/// make would write its tokens to whatever has the number.
const FD_MIN: libc::c_int = 100;

/// The variables, with what the caller should know.
pub fn offer(
    fifo: &Path,
    command: &[OsString],
    caller: Option<&Caller>,
) -> io::Result<(Vec<Variable>, Option<String>)> {
    // A fifo that is opened for both waits for no other end.
    let file = File::options().read(true).write(true).open(fifo)?;
    if let Some((uid, _)) = caller.map(Caller::ids) {
        fchown(&file, Some(uid), None)?;
    }
    // SAFETY: a descriptor and a number; no memory is passed. The copy is not close-on-exec.
    let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, FD_MIN) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let by_path = format!("--jobserver-auth=fifo:{}", fifo.display());
    let makeflags = std::env::var_os("MAKEFLAGS").unwrap_or_default();
    let makeflags = match takes_path(&version_of_make(caller)) {
        true => with_auth(&makeflags.to_string_lossy(), &by_path, ""),
        false => {
            let by_fd = format!("--jobserver-auth={fd},{fd}");
            with_auth(&makeflags.to_string_lossy(), &by_fd, &by_path)
        }
    };
    let variables = vec![
        ("MAKEFLAGS", makeflags.into()),
        ("CARGO_MAKEFLAGS", by_path.into()),
    ];
    Ok((variables, overridden(command)))
}

/// The flags with `auth` in place of an earlier jobserver, and `unread` after the variables.
fn with_auth(makeflags: &str, auth: &str, unread: &str) -> String {
    let words: Vec<&str> = makeflags
        .split_ascii_whitespace()
        .filter(|word| !word.starts_with("--jobserver-"))
        .collect();
    let end = words.iter().position(|word| *word == "--");
    let (flags, variables) = words.split_at(end.unwrap_or(words.len()));
    // Letters without a dash may come first, so never `auth`.
    let mut text = format!("{} {auth}", flags.join(" "));
    let variables = variables.iter().skip(1).copied();
    let after: Vec<&str> = variables
        .chain([unread].into_iter().filter(|one| !one.is_empty()))
        .collect();
    if !after.is_empty() {
        text.push_str(&format!(" -- {}", after.join(" ")));
    }
    text
}

fn version_of_make(caller: Option<&Caller>) -> String {
    let mut make = Command::new("make");
    make.arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    if let Some((uid, gid)) = caller.map(Caller::ids) {
        make.uid(uid).gid(gid);
    }
    let output = make
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    String::from_utf8_lossy(&output).into_owned()
}

/// Whether the make of this `--version` takes the path of a fifo; another make has no jobserver.
fn takes_path(version: &str) -> bool {
    let number = version.strip_prefix("GNU Make ").unwrap_or("4.4");
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut part = || parts.next().and_then(Result::ok).unwrap_or(0_u32);
    (part(), part()) >= (4, 4)
}

/// A number of jobs on the command line is stronger than any jobserver.
fn overridden(command: &[OsString]) -> Option<String> {
    let (word, arguments) = command.split_first()?;
    let program = Path::new(word).file_name().and_then(OsStr::to_str)?;
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let jobs = words.find(|word| word.starts_with("-j") || word.starts_with("--jobs"))?;
    let is_stronger = ["make", "gmake", "ninja"].contains(&program);
    is_stronger.then(|| format!("jobserver: {program} {jobs} overrides it; leave {jobs} out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_auth_replaces_an_earlier_one_and_comes_before_variables() {
        for (before, after) in [
            ("", " AUTH"),
            ("ks", "ks AUTH"),
            (" -j8 --jobserver-auth=3,4 -Otarget", "-j8 -Otarget AUTH"),
            ("w --jobserver-fds=3,4 -- A=1 B=2", "w AUTH -- A=1 B=2"),
        ] {
            assert_eq!(with_auth(before, "AUTH", ""), after, "{before}");
        }
        assert_eq!(with_auth("", "AUTH", "PATH"), " AUTH -- PATH");
        assert_eq!(with_auth("k -- A=1", "AUTH", "PATH"), "k AUTH -- A=1 PATH");
    }

    #[test]
    fn a_path_is_for_makes_that_take_it() {
        for (version, is_taken) in [
            ("GNU Make 4.3\nBuilt for x86_64", false),
            ("GNU Make 3.81\n", false),
            ("GNU Make 4.4.1\n", true),
            ("GNU Make 5.0\n", true),
            ("", true),
            ("bmake", true),
        ] {
            assert_eq!(takes_path(version), is_taken, "{version}");
        }
    }

    #[test]
    fn a_number_of_jobs_for_make_is_told_of() {
        let told = |words: &[&str]| overridden(&words.iter().map(Into::into).collect::<Vec<_>>());
        assert!(told(&["/usr/bin/make", "-j16"]).is_some());
        assert!(told(&["ninja", "-C", "out", "-j", "4"]).is_some());
        assert_eq!(told(&["make", "all"]), None);
        assert_eq!(told(&["cargo", "build", "-j4"]), None);
    }
}
