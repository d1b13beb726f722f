//! Finding a command as a shell would, and becoming it.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::identity::Caller;
use crate::inherited;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

pub type Variable = (&'static str, OsString);

/// The file that `word` means: a path when it has a slash, else the first executable of that name
/// in `PATH`.
///
/// Found before a gate is made for it, so that a misspelled command leaves no trace.
pub fn find(word: &OsStr) -> Result<PathBuf, Failure> {
    let shown = word.to_string_lossy();
    if word.as_bytes().contains(&b'/') {
        let path = PathBuf::from(word);
        return match check(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(refusal(&shown, &error)),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut denied = None;
    for dir in std::env::split_paths(&path).filter(|_| !word.is_empty()) {
        let candidate = dir.join(word);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            // As execvp does: a file that cannot be executed is told only if no other is found.
            Err(error) => denied = denied.or(Some(refusal(&shown, &error))),
        }
    }
    Err(denied.unwrap_or_else(|| {
        let remedy = match std::env::var_os("SUDO_UID") {
            Some(_) => "check the spelling, or give its path (sudo has a PATH of its own)",
            None => "check the spelling, or give its path",
        };
        Failure::new(
            Exit::RunNotFound,
            format!("run: {shown}: command not found; {remedy}"),
        )
    }))
}

fn check(path: &Path) -> Result<(), rustix::io::Errno> {
    use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, stat};
    if FileType::from_raw_mode(stat(path)?.st_mode) == FileType::Directory {
        return Err(rustix::io::Errno::ISDIR);
    }
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
}

fn refusal(shown: &str, error: &rustix::io::Errno) -> Failure {
    use rustix::io::Errno;
    let (exit, why, remedy) = match *error {
        Errno::NOENT | Errno::NOTDIR => (
            Exit::RunNotFound,
            "no such file".to_owned(),
            "check the path",
        ),
        Errno::ISDIR => (
            Exit::RunCannotExecute,
            "is a directory".to_owned(),
            "name a program in it",
        ),
        Errno::ACCESS => (
            Exit::RunCannotExecute,
            "permission denied".to_owned(),
            "make it executable (chmod +x) or run it through its interpreter",
        ),
        other => (
            Exit::RunCannotExecute,
            std::io::Error::from(other).to_string(),
            "check the file",
        ),
    };
    Failure::new(exit, format!("run: {shown}: {why}; {remedy}"))
}

/// Becomes the command, with these variables over its own. Comes back only with the reason why not.
///
/// Not `std::process::Command::exec`: that empties the signal mask and resets SIGPIPE, and the
/// command is to find both as they were. Our own descriptors are all close-on-exec.
pub fn become_command(
    file: &Path,
    words: &[OsString],
    caller: Option<&Caller>,
    variables: Vec<Variable>,
) -> Failure {
    let shown = words
        .first()
        .map(|word| word.to_string_lossy().into_owned())
        .unwrap_or_default();
    let of_caller = caller.map(Caller::environment).unwrap_or_default();
    let variables: Vec<Variable> = of_caller.into_iter().chain(variables).collect();
    let Some((file, argv, env)) = arguments(file, words, &variables) else {
        // exec's strings end at a zero byte; the kernel never passes us one, so this is only
        // reachable from PATH.
        return Failure::new(
            Exit::RunCannotExecute,
            format!("run: {shown}: holds a zero byte; remedy PATH"),
        );
    };
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (argv_pointers, env_pointers) = (pointers(&argv), pointers(&env));
    if let Some(caller) = caller
        && let Err(failure) = caller.become_it()
    {
        return failure.before_run();
    }
    inherited::restore();
    // SAFETY: a C string and two null-terminated lists of C strings, all alive until the call
    // replaces the process. The file holds a slash, so there is no second search; a script without
    // `#!` goes to sh, as in a shell.
    unsafe { libc::execvpe(file.as_ptr(), argv_pointers.as_ptr(), env_pointers.as_ptr()) };
    let error = std::io::Error::last_os_error();
    match error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error)
    {
        // The file was there a moment ago: what is missing now is its interpreter, unless it was
        // removed meanwhile.
        Some(rustix::io::Errno::NOENT) => Failure::new(
            Exit::RunCannotExecute,
            format!("run: {shown}: its interpreter is missing; see its first line (`file` tells)"),
        ),
        Some(error) => refusal(&shown, &error),
        None => Failure::new(
            Exit::RunCannotExecute,
            format!("run: {shown}: {error}; check the file"),
        ),
    }
}

type Arguments = (CString, Vec<CString>, Vec<CString>);

fn arguments(file: &Path, words: &[OsString], overrides: &[Variable]) -> Option<Arguments> {
    // An empty entry in PATH means the working directory; execvpe must see a slash in any case.
    let file = match file.as_os_str().as_bytes().contains(&b'/') {
        true => file.to_owned(),
        false => Path::new(".").join(file),
    };
    let file = CString::new(file.as_os_str().as_bytes()).ok()?;
    let argv: Option<Vec<CString>> = words
        .iter()
        .map(|w| CString::new(w.as_bytes()).ok())
        .collect();
    let mut env = Vec::new();
    for (name, value) in std::env::vars_os() {
        if !overrides.iter().any(|(changed, _)| name == *changed) {
            env.push(variable(&name, &value)?);
        }
    }
    for (name, value) in overrides {
        env.push(variable(OsStr::new(name), value)?);
    }
    Some((file, argv?, env))
}

fn variable(name: &OsStr, value: &OsStr) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
}
