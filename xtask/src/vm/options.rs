//! The words after `cargo xtask vm`.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use tidegate_vm::Mode;
use tidegate_vm::catalog::SERIES;

/// Boots a stock Debian kernel under software emulation and runs the tests of tests/vm/cases in it
///
/// Ends with `N passed, N failed, N skipped`; exit code 0 passed, 1 failed, 2 usage, 77 all
/// skipped.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask vm")]
pub struct Options {
    /// Only this mode: precise (one CPU under virtual time), smp (two in real time) or wide (up to
    /// eight under virtual time)
    #[arg(long, value_parser = mode)]
    pub mode: Option<Mode>,
    /// 6.18, 7.3, or another series that Debian's backports have; all: each test on the kernels
    /// that its head names
    #[arg(long, value_name = "SERIES", default_value = "6.18", value_parser = kernels)]
    pub kernel: Kernels,
    /// short leaves out what heads call long, as make test does
    #[arg(long, default_value = "all")]
    pub tier: Tier,
    /// The cargo profile of the tidegate binary
    #[arg(long, default_value = "dev")]
    pub profile: String,
    /// Test this tidegate instead of building one
    #[arg(long, value_name = "PATH")]
    pub binary: Option<PathBuf>,
    /// Wall time for the whole run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub limit: u64,
    /// Keep the guest's images beside the logs in target/vm
    #[arg(long)]
    pub keep: bool,
    /// Print the tests, their modes, and what each shows
    #[arg(long)]
    pub list: bool,
    /// Names of tests, or parts of names; all run without any. `fetch` alone fetches the kernel
    #[arg(value_name = "TEST")]
    pub tests: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    Short,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kernels {
    /// Every chosen test on this series.
    One(String),
    /// Each test on those that its head names.
    AsNamed,
}

impl Kernels {
    pub fn series(&self) -> Vec<&str> {
        match self {
            Kernels::One(series) => vec![series],
            Kernels::AsNamed => SERIES.to_vec(),
        }
    }
}

fn mode(name: &str) -> Result<Mode, &'static str> {
    Mode::parse(name).ok_or("it is precise, smp or wide")
}

fn kernels(text: &str) -> Result<Kernels, &'static str> {
    if text == "all" {
        return Ok(Kernels::AsNamed);
    }
    let numbers = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = text.split('.').collect();
    if (2..=3).contains(&parts.len()) && parts.into_iter().all(numbers) {
        Ok(Kernels::One(text.to_owned()))
    } else {
        Err("it is a series such as 6.18, or all")
    }
}
