//! The words after `cargo xtask vm`.

use std::path::PathBuf;
use tidegate_vm::Mode;

pub const HELP: &str = "\
usage: cargo xtask vm [OPTIONS] [TEST...]
       cargo xtask vm fetch [--kernel SERIES]

Boots a stock Debian kernel under software emulation and runs the tests of tests/vm/cases in it. A TEST is a
name or a part of one; without any, all run.

  --mode MODE          precise, smp or wide, only this one (all by default): precise has one CPU under virtual time,
                       smp two in real time, wide up to eight under virtual time
  --kernel SERIES      6.18 (the default), 7.3, or another that Debian's backports have; all: each test on the
                       kernels that its head names
  --tier short|all     short leaves out what heads call long, as make test does; all by default
  --profile PROFILE    the cargo profile of the tidegate binary (dev by default)
  --binary PATH        test this tidegate instead of building one
  --limit SECONDS      wall time for the whole run (900 by default)
  --keep               keep the guest's images beside the logs in target/vm
  --list               the tests, their modes, and what each shows

Ends with `N passed, N failed, N skipped`; exit code 0 passed, 1 failed, 2 usage, 77 all skipped.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Run,
    Fetch,
    List,
    Help,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kernels {
    /// Every chosen test on this series.
    One(String),
    /// Each test on those that its head names.
    AsNamed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub action: Action,
    pub modes: Vec<Mode>,
    pub kernels: Kernels,
    /// Those that heads call long are left out.
    pub short: bool,
    pub profile: String,
    pub binary: Option<PathBuf>,
    pub limit_s: u64,
    pub keep: bool,
    pub tests: Vec<String>,
}

/// Reads the arguments; the error is the rest of a one-line message.
pub fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        action: Action::Run,
        modes: Mode::ALL.to_vec(),
        kernels: Kernels::One("6.18".into()),
        short: false,
        profile: "dev".into(),
        binary: None,
        limit_s: 900,
        keep: false,
        tests: Vec::new(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words.next().cloned().ok_or(format!(
                "{word}: it needs a value; see `cargo xtask vm --help`"
            ))
        };
        match word.as_str() {
            "--help" | "-h" => options.action = Action::Help,
            "--list" => options.action = Action::List,
            "--keep" => options.keep = true,
            "--mode" => {
                let name = value()?;
                let mode = Mode::parse(&name)
                    .ok_or(format!("--mode {name}: it is precise, smp or wide"))?;
                options.modes = vec![mode];
            }
            "--tier" => {
                options.short = match value()?.as_str() {
                    "short" => true,
                    "all" => false,
                    other => return Err(format!("--tier {other}: it is short or all")),
                };
            }
            "--kernel" => options.kernels = kernels(value()?)?,
            "--profile" => options.profile = value()?,
            "--binary" => options.binary = Some(value()?.into()),
            "--limit" => {
                let text = value()?;
                options.limit_s = text
                    .parse()
                    .map_err(|_| format!("--limit {text}: it is a number of seconds"))?;
            }
            "fetch" if options.tests.is_empty() => options.action = Action::Fetch,
            other if other.starts_with('-') => {
                return Err(format!(
                    "{other}: no such option; see `cargo xtask vm --help`"
                ));
            }
            test => options.tests.push(test.into()),
        }
    }
    Ok(options)
}

fn kernels(text: String) -> Result<Kernels, String> {
    if text == "all" {
        return Ok(Kernels::AsNamed);
    }
    let numbers = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = text.split('.').collect();
    if (2..=3).contains(&parts.len()) && parts.into_iter().all(numbers) {
        Ok(Kernels::One(text))
    } else {
        Err(format!(
            "--kernel {text}: it is a series such as 6.18, or all"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Result<Options, String> {
        parse(
            &words
                .split_whitespace()
                .map(str::to_string)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn words_become_options() {
        let options = of("--mode smp --kernel 7.3 --keep shares quota").unwrap();
        assert_eq!(
            (options.modes, options.kernels, options.keep),
            (vec![Mode::Smp], Kernels::One("7.3".into()), true)
        );
        assert_eq!(options.tests, ["shares", "quota"]);
        assert_eq!(of("--kernel all").unwrap().kernels, Kernels::AsNamed);
        assert!(of("--tier short").unwrap().short && !of("--tier all").unwrap().short);
        assert_eq!(of("fetch").unwrap().action, Action::Fetch);
        assert_eq!(of("").unwrap().modes.len(), 3);
    }

    #[test]
    fn mistakes_name_the_word() {
        for (words, named) in [
            ("--mode fast", "fast"),
            ("--kernel six", "six"),
            ("--kernel", "--kernel"),
            ("--fast", "--fast"),
            ("--tier quick", "quick"),
            ("--limit x", "x"),
        ] {
            assert!(of(words).unwrap_err().contains(named), "{words}");
        }
    }
}
