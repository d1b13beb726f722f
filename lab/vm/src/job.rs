//! One command in a guest, for programs that want a real kernel in virtual time (`tidegate-lab ...
//! --on vm`): it goes in with its shared libraries, and its standard output, its exit status and
//! whatever it left in `/tmp/results` come back.
//!
//! The results leave as one tar archive on the guest's third serial port, which the emulator writes
//! to a file.

use crate::boot::Boot;
use crate::catalog::{Case, Mode, Userland};
use crate::command;
use crate::progress::Progress;
use crate::protocol::Outcome;
use crate::{Bed, Setup, VmError, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where the command may leave files, in the guest; it exists and is empty.
pub const RESULTS: &str = "/tmp/results";
/// The job's name in frames and logs.
const NAME: &str = "job";

/// A command to run in a guest of its own.
pub struct Job {
    /// The bed; its `binaries` should hold the command's own program.
    pub setup: Setup,
    /// Program and arguments, as in the guest (`/bin/tidegate`, ...).
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// The guest's own time; beyond it the command is killed.
    pub limit_s: u32,
    /// Wall time for all of it.
    pub wall_limit: Duration,
}

/// What came of a job that ran to its end.
#[derive(Debug)]
pub struct Done {
    /// The guest's kernel: package and version.
    pub kernel: String,
    /// The command's exit status, as a shell has it (128 + signal).
    pub status: u8,
    /// The folder here that holds what it left in [`RESULTS`], and what it said in `.stdout`.
    pub results: PathBuf,
    /// How long it ran, in the guest's seconds.
    pub guest_s: f64,
}

impl Job {
    /// Boots, runs the command and brings back what it left. Each line of its standard error goes
    /// to `line` as it comes.
    pub fn run(&self, line: &mut dyn FnMut(&str)) -> Result<Done, VmError> {
        let mut bed = Bed::prepare(&self.setup)?;
        bed.add_files(bed.kernel.config_file().into_iter().collect());
        let logs = bed.work.join(format!("{}-{NAME}", Mode::Precise.name()));
        // Nothing of an earlier run may pass for this one's.
        let _ = fs::remove_dir_all(&logs);
        fs::create_dir_all(&logs).map_err(|e| VmError::io("make the log folder", &logs, &e))?;
        let script = logs.join(format!("{NAME}.sh"));
        fs::write(&script, self.script())
            .map_err(|e| VmError::io("write the guest's script", &script, &e))?;
        let case = Case {
            name: NAME.into(),
            file: script,
            what: self.command.join(" "),
            modes: vec![Mode::Precise],
            kernels: vec![self.setup.series.clone()],
            userland: Userland::Bare,
            long_on: Vec::new(),
            needs: Vec::new(),
            limit_s: self.limit_s,
            expect: None,
            promised: false,
        };
        let image = logs.join("image.cpio");
        bed.parts
            .write(&[&case], Mode::Precise.name(), None, &image)?;
        let boot = Boot {
            label: NAME,
            mode: Mode::Precise,
            kernel: &bed.kernel,
            image: &image,
            logs: &logs,
            cases: &[&case],
            deadline: Instant::now() + self.wall_limit,
        };
        let report = boot.run(&Progress::silent(), line)?;
        fs::remove_file(&image).map_err(|e| VmError::io("remove the guest's image", &image, &e))?;
        let failed = |why: &str| {
            let log = logs.join("guest.log").display().to_string();
            VmError::new(
                "run a command in the bed",
                &log,
                why,
                "its last lines say why",
            )
        };
        let Some(finished) = report.finished.first() else {
            return Err(failed(report.broken.as_deref().unwrap_or("it never began")));
        };
        if let Outcome::Failed(why) | Outcome::Skipped(why) = &finished.outcome {
            return Err(failed(why));
        }
        let results = unpacked(&logs)?;
        let file = results.join(".status");
        let status = fs::read_to_string(&file)
            .map_err(|e| VmError::io("read a job's results", &file, &e))?;
        Ok(Done {
            kernel: format!("{} {}", bed.kernel.package, bed.kernel.version),
            status: status
                .trim()
                .parse()
                .map_err(|_| failed(&format!("its status is `{}`", status.trim())))?,
            results,
            guest_s: finished.guest_s,
        })
    }

    /// The guest's side: only a guest that could not send its results fails; the command's status
    /// is one of them.
    fn script(&self) -> String {
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        let mut text = format!("mkdir -p {RESULTS}\ncd {RESULTS}\n");
        for (name, value) in &self.environment {
            text.push_str(&format!("export {name}={}\n", quoted(value)));
        }
        text.push_str(&format!(
            "status=0\n{} >.stdout || status=$?\necho $status >.status\n\
             stty -F /dev/ttyS2 raw -echo\ntar -cf - . >/dev/ttyS2\n",
            words.join(" ")
        ));
        text
    }
}

/// A word that the guest's shell takes for itself.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn unpacked(logs: &Path) -> Result<PathBuf, VmError> {
    let results = logs.join("results");
    fs::create_dir_all(&results)
        .map_err(|e| VmError::io("make the results' folder", &results, &e))?;
    let mut tar = Command::new(tool("tar")?);
    tar.arg("--no-same-owner")
        .arg("-C")
        .arg(&results)
        .arg("-xf")
        .arg(logs.join("results.tar"));
    let remedy = "see the guest's log beside it";
    command::output(&mut tar, "unpack a job's results", |_| true, remedy)?;
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_guest_as_they_are() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
