//! The tests that a guest can run: `tests/vm/cases/NAME.sh`, each with a head that says where it
//! belongs.
//!
//! ```text
//! # what: a side command gets its group
//! # modes: precise smp
//! # kernels: 6.18
//! # tier: long
//! # userland: systemd
//! # needs: stress-ng
//! # seconds: 40
//! # expect: Kernel panic
//! ```
//!
//! - `what`: one line, shown in listings.
//! - `kernels`: the series it runs on under `--kernel all`; all by default.
//! - `tier: long`: not in the short run that `make test` does; `long 7.3`: not on that series.
//! - `userland: systemd`: Debian's systemd is the first process; a shell of busybox by default.
//! - `needs`: this machine's program of that name; `test_cpu`: the kernel's own test of cgroups;
//!   `deb`: two versions of the package, in /vm/deb. The test checks whether it is there.
//! - `seconds`: the guest's own time; beyond it the test has hung.
//! - `expect`: passes only by failing with this in its reason; it tests the bed.

use crate::VmError;
use crate::protocol::Outcome;
use std::fs;
use std::path::{Path, PathBuf};

/// The kernels' series that the suite knows.
pub const SERIES: [&str; 2] = ["6.18", "7.3"];

const PROGRAMS: [&str; 5] = ["stress-ng", "make", "cc1", "test_cpu", "deb"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One CPU, one nanosecond of virtual time an instruction: times and shares repeat exactly.
    Precise,
    /// Two CPUs in real time: functional checks only.
    Smp,
    /// Up to eight CPUs (two sockets of two cores of two threads) that share one virtual time in
    /// turns of 10 µs.
    Wide,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Precise, Mode::Smp, Mode::Wide];

    /// The word for it in options and heads.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Precise => "precise",
            Mode::Smp => "smp",
            Mode::Wide => "wide",
        }
    }

    pub fn parse(word: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == word)
    }
}

/// What runs in the guest besides the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Userland {
    /// A script that runs the tests, and nothing else.
    Bare,
    /// Debian's systemd, with its bus and journal.
    Systemd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The file's name without its ending.
    pub name: String,
    pub file: PathBuf,
    pub what: String,
    pub modes: Vec<Mode>,
    /// The kernels' series that it is to run on by itself.
    pub kernels: Vec<String>,
    /// The series on which a short run leaves it out.
    pub long_on: Vec<String>,
    pub userland: Userland,
    /// Programs that it runs besides ours, of [`PROGRAMS`].
    pub needs: Vec<String>,
    /// The guest's own time; beyond it the test has hung.
    pub limit_s: u32,
    /// It passes only by failing with this in its reason.
    pub expect: Option<String>,
    /// The failure contract names it, so it has no second try.
    pub promised: bool,
}

impl Case {
    pub fn needs(&self, program: &str) -> bool {
        self.needs.iter().any(|need| need == program)
    }

    /// What the outcome means for this test: the bed's own tests are there to fail in one known
    /// way.
    pub fn judge(&self, outcome: Outcome) -> Outcome {
        match (&self.expect, outcome) {
            (None, outcome) => outcome,
            (Some(expected), Outcome::Failed(why)) if why.contains(expected) => Outcome::Passed,
            (Some(expected), other) => Outcome::Failed(format!(
                "it had to fail with `{expected}`, and came out as {other:?}"
            )),
        }
    }
}

/// All tests under `cases`, by name.
pub fn read(cases: &Path) -> Result<Vec<Case>, VmError> {
    let entries =
        fs::read_dir(cases).map_err(|e| VmError::io("list the guest's tests", cases, &e))?;
    let mut found = Vec::new();
    for file in entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|x| x == "sh"))
    {
        let text =
            fs::read_to_string(&file).map_err(|e| VmError::io("read a guest test", &file, &e))?;
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let case = parse(name, file.clone(), &text).map_err(|why| {
            VmError::new(
                "read a guest test's head",
                &file.display().to_string(),
                &why,
                "see lab/vm/src/catalog.rs",
            )
        })?;
        found.push(case);
    }
    // Those that end the guest come last, so that they cost one more boot at most.
    found.sort_by(|a, b| (a.expect.is_some(), &a.name).cmp(&(b.expect.is_some(), &b.name)));
    Ok(found)
}

fn parse(name: String, file: PathBuf, text: &str) -> Result<Case, String> {
    let field = |key: &str| {
        text.lines()
            .take_while(|l| l.starts_with('#'))
            .find_map(|l| l.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
    };
    let what = field("what").ok_or("no `# what:` line")?.to_string();
    let modes = field("modes")
        .ok_or("no `# modes:` line")?
        .split_whitespace()
        .map(|word| Mode::parse(word).ok_or(format!("`{word}` is no mode")))
        .collect::<Result<Vec<_>, _>>()?;
    let kernels = field("kernels").map_or(SERIES.to_vec(), |one| one.split_whitespace().collect());
    let kernels: Vec<String> = kernels.into_iter().map(str::to_owned).collect();
    if let Some(odd) = kernels.iter().find(|k| !SERIES.contains(&k.as_str())) {
        return Err(format!("kernel `{odd}` is none of {SERIES:?}"));
    }
    let tier: Vec<&str> = field("tier")
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let long_on: Vec<String> = match tier.split_first() {
        None => Vec::new(),
        Some((&"long", [])) => SERIES.map(str::to_owned).to_vec(),
        Some((&"long", on)) if on.iter().all(|series| SERIES.contains(series)) => {
            on.iter().map(|&series| series.to_owned()).collect()
        }
        Some(_) => return Err(format!("tier `{}`, which is none", tier.join(" "))),
    };
    let userland = match field("userland") {
        None => Userland::Bare,
        Some("systemd") => Userland::Systemd,
        Some(other) => return Err(format!("userland `{other}`, which nothing provides")),
    };
    let needs = field("needs").unwrap_or_default();
    let needs: Vec<String> = needs.split_whitespace().map(str::to_owned).collect();
    if let Some(odd) = needs.iter().find(|need| !PROGRAMS.contains(&need.as_str())) {
        return Err(format!("needs `{odd}`, which nothing provides"));
    }
    let limit_s = match field("seconds") {
        None => 30,
        Some(text) => text
            .trim()
            .parse()
            .map_err(|_| format!("`{text}` is no number of seconds"))?,
    };
    let expect = field("expect").map(str::to_string);
    Ok(Case {
        name,
        file,
        what,
        modes,
        kernels,
        long_on,
        userland,
        needs,
        limit_s,
        expect,
        promised: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Result<Case, String> {
        parse("x".into(), PathBuf::from("x.sh"), text)
    }

    #[test]
    fn heads_are_read() {
        let read = case("#!/bin/sh\n# what: a thing\n# modes: precise smp\n# needs: make\n# seconds: 45\necho\n").unwrap();
        assert_eq!(
            (
                read.what.as_str(),
                read.modes.len(),
                read.needs("make"),
                read.limit_s
            ),
            ("a thing", 2, true, 45)
        );
        let plain = case("# what: w\n# modes: smp\n").unwrap();
        assert_eq!((plain.limit_s, plain.long_on.len()), (30, 0));
        assert_eq!(plain.kernels, SERIES);
        let one = case("# what: w\n# modes: smp\n# kernels: 6.18\n").unwrap();
        assert_eq!(one.kernels, ["6.18"]);
        let long = case("# what: w\n# modes: smp\n# tier: long\n").unwrap();
        assert_eq!(long.long_on, SERIES);
        let other = case("# what: w\n# modes: smp\n# needs: make stress-ng\n").unwrap();
        assert!(other.needs("make") && other.needs("stress-ng"));
        assert!(long.needs.is_empty());
        let partly = case("# what: w\n# modes: smp\n# tier: long 7.3\n").unwrap();
        assert_eq!(partly.long_on, ["7.3"]);
    }

    #[test]
    fn a_head_with_a_mistake_is_refused() {
        for text in [
            "# modes: smp\n",
            "# what: w\n",
            "# what: w\n# modes: fast\n",
            "# what: w\n# modes: smp\n# needs: luck\n",
            "# what: w\n# modes: smp\n# seconds: ten\n",
            "# what: w\n# modes: smp\n# kernels: 2.6\n",
            "# what: w\n# modes: smp\n# userland: sysv\n",
            "# what: w\n# modes: smp\n# tier: longer\n",
            "# what: w\n# modes: smp\n# tier: long 2.6\n",
        ] {
            assert!(case(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_test_of_the_bed_passes_only_by_its_own_failure() {
        let panics = case("# what: w\n# modes: smp\n# expect: Kernel panic\n").unwrap();
        assert_eq!(
            panics.judge(Outcome::Failed("x: Kernel panic - y".into())),
            Outcome::Passed
        );
        assert!(matches!(
            panics.judge(Outcome::Failed("hung".into())),
            Outcome::Failed(_)
        ));
        assert!(matches!(panics.judge(Outcome::Passed), Outcome::Failed(_)));
        let plain = case("# what: w\n# modes: smp\n").unwrap();
        assert_eq!(plain.judge(Outcome::Passed), Outcome::Passed);
    }

    #[test]
    fn the_repositorys_own_tests_are_well_formed() {
        let cases =
            read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm/cases")).unwrap();
        assert!(!cases.is_empty());
    }
}
