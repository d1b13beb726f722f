//! Running another program to its end: its standard output, or the line of its errors that tells
//! most.

use crate::VmError;
use std::path::Path;
use std::process::Command;

/// Runs `command`; when it fails, the first line that `tells` accepts (else the last) is the reason
/// given.
pub fn output(
    command: &mut Command,
    what: &str,
    tells: impl Fn(&str) -> bool,
    remedy: &str,
) -> Result<String, VmError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|e| VmError::io(what, Path::new(&program), &e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let why = errors
        .lines()
        .find(|line| tells(line))
        .or(errors.lines().last())
        .unwrap_or("it failed without a word");
    Err(VmError::new(what, &program, why.trim(), remedy))
}
