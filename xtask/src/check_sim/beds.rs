//! Where the scenarios run on a real kernel.

use crate::vm;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tidegate_vm::catalog::DEFAULT_SERIES;

/// All of the scenarios take the emulator a minute or two on an idle core, and many times that on a busy one.
const VM_LIMIT: Duration = Duration::from_secs(1_500);

/// What every bed needs.
pub struct Place<'a> {
    pub repository: &'a Path,
    pub work: &'a Path,
    pub kernelbed: &'a Path,
    /// The simulator's side, which also exports the scenarios.
    pub against_kernel: &'a Path,
}

/// A kernel that could not be asked, or that failed.
pub enum Missing {
    Lacking(String),
    Failed(String),
}

impl From<tidegate_vm::VmError> for Missing {
    fn from(trouble: tidegate_vm::VmError) -> Missing {
        if trouble.is_lacking() {
            Missing::Lacking(trouble.to_string())
        } else {
            Missing::Failed(trouble.to_string())
        }
    }
}

/// A kernel with a scheduler.
pub trait Bed {
    /// Also of the file with its figures.
    fn name(&self) -> String;
    /// As scenarios call it in `on`.
    fn on(&self) -> &'static str;
    /// Its figures for the exported scenarios of that file, a line each, after a title.
    fn ask(&self, place: &Place<'_>, scenarios: &Path) -> Result<String, Missing>;
}

/// Whose figures are kept in tests/check, by the file of scenarios.
pub fn kept(scenarios: &str) -> &'static [&'static str] {
    if scenarios.ends_with("ext.toml") {
        &["ext-6.18", "ext-7.3"]
    } else {
        &["vm"]
    }
}

/// The fair class in the precise machine.
pub struct Vm;

impl Bed for Vm {
    fn name(&self) -> String {
        "vm".into()
    }

    fn on(&self) -> &'static str {
        "vm"
    }

    fn ask(&self, place: &Place<'_>, scenarios: &Path) -> Result<String, Missing> {
        // Its own folder, so that it does not wait for the suite.
        let setup = vm::setup(place.repository, "check-sim", DEFAULT_SERIES);
        ask_vm(place, scenarios, &setup, "tests/check")
    }
}

/// The ext engine in the precise machine.
pub struct Ext {
    pub series: &'static str,
}

impl Bed for Ext {
    fn name(&self) -> String {
        format!("ext-{}", self.series)
    }

    fn on(&self) -> &'static str {
        "ext"
    }

    fn ask(&self, place: &Place<'_>, scenarios: &Path) -> Result<String, Missing> {
        let mut setup = vm::setup(place.repository, "check-sim", self.series);
        setup.binaries = vm::guest_programs(place.repository, "dev")?;
        ask_vm(place, scenarios, &setup, "tests/check/ext")
    }
}

fn ask_vm(
    place: &Place<'_>,
    scenarios: &Path,
    setup: &tidegate_vm::Setup,
    cases: &str,
) -> Result<String, Missing> {
    let extras: Vec<(String, PathBuf)> = vec![
        ("bin/kernelbed".into(), place.kernelbed.to_owned()),
        ("lib/scenarios".into(), scenarios.to_owned()),
    ];
    let cases = place.repository.join(cases);
    let measured = tidegate_vm::measures(setup, &cases, extras, VM_LIMIT)?;
    let mut text = format!("# {}\n", measured.kernel);
    for (name, value, unit) in measured.measures {
        text.push_str(&format!("{name} {value} {unit}\n"));
    }
    Ok(text)
}

/// This machine's kernel.
pub struct Host {
    pub span_ms: u64,
}

impl Bed for Host {
    fn name(&self) -> String {
        "host".into()
    }

    fn on(&self) -> &'static str {
        "host"
    }

    fn ask(&self, place: &Place<'_>, scenarios: &Path) -> Result<String, Missing> {
        if !rustix::process::geteuid().is_root() {
            return Err(Missing::Lacking(
                "the host's kernel: not root, so no control groups can be made".into(),
            ));
        }
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut command = Command::new(place.kernelbed);
        command
            .arg(scenarios)
            .arg("host")
            .arg(self.span_ms.to_string());
        // What else ran shows in the figures, so it is said beside them.
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load: Vec<&str> = load.split(' ').take(2).collect();
        let mut text = format!(
            "# {}, load average {} as it began\n",
            release.trim(),
            load.join(" ")
        );
        text.push_str(&figures(Command::new(place.kernelbed).arg("costs"))?);
        text.push_str(&figures(&mut command)?);
        Ok(text)
    }
}

/// What the runner measured, a line each: name, value, unit.
fn figures(bed: &mut Command) -> Result<String, Missing> {
    let output = bed
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| Missing::Failed(format!("kernelbed: {e}")))?;
    if !output.status.success() {
        let why = "the host's kernel: its run failed; see above";
        return Err(Missing::Failed(why.into()));
    }
    let mut text = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // "@@tg UPTIME measure check NAME VALUE UNIT"
        let words: Vec<&str> = line.split(' ').collect();
        if let ["@@tg", _, "measure", "check", name, value, unit] = words[..] {
            text.push_str(&format!("{name} {value} {unit}\n"));
        }
    }
    Ok(text)
}
