//! `cargo xtask TASK`: the developer's entry point, behind `make`. Each task is a module; this file
//! only finds it. Exit codes: 0 done, 1 failed, 2 usage, 77 skipped for a stated reason.

mod checks;
mod kube;
mod results;
mod tidy;
mod vm;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test                     every check and test; ends with `N passed, N failed, N skipped`
  lint                     format, lints, spelling, rules of the tree, licences
  tidy                     the rules of the tree alone
  vm [OPTIONS] [TEST...]   boot a stock kernel under software emulation and run tests/vm in it
  results [RUN...]         repeat docs/results/RUN.json and write its tables; all that are not of this commit
  kube [TEST...]           tidegate-kube against a real control plane, built with Go
  vm fetch                 fetch that kernel (or look for a newer one) and stop

`cargo xtask vm --help` lists its options.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((task, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match task.as_str() {
        "test" => checks::test(),
        "lint" => checks::lint(),
        "tidy" => tidy::main(),
        "results" => results::main(rest),
        "kube" => kube::main(rest),
        "vm" => vm::main(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        other => {
            eprintln!("tidegate: xtask: {other}: no such task; see `cargo xtask help`");
            ExitCode::from(2)
        }
    }
}
