//! `cargo xtask TASK`: the developer's entry point, behind `make`. Each task is a module; this file only
//! finds it. Exit codes: 0 done, 1 failed, 2 usage, 77 skipped for a stated reason.

mod checks;
mod ext_cost;
mod fuzz;
mod fuzz_parsers;
mod kube;
mod licences;
mod mutants;
mod shared_lines;
mod support;
mod tidy;
mod vm;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test                     every check and test; ends with `N passed, N failed, N skipped`
  lint                     format, lints, house rules, licences
  tidy                     the house rules alone
  licences                 the licences of dependencies alone
  fuzz [--runs N] [HEADER...]
                           libFuzzer over the law's headers (10,000,000 executions each)
  fuzz-parsers [--runs N] [TARGET...]
                           libFuzzer over the parsers of kernel files, terms, units and targets (2,000,000 executions each)
  mutants [WORD...]        break the law line by line; its tests must notice each
  vm [OPTIONS] [TEST...]   boot a stock kernel under software emulation and run tests/vm in it
  ext-cost [--write]       docs/ext.md's table of callbacks against what is recorded; `--write` measures again in the VM
  shared-lines [OPTIONS]   which cache lines the kernel moves between CPUs at a task switch, by scheduler, in the VM
  support [--write]        docs/support.md against `doctor`; `--write` writes it
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
        "mutants" => mutants::main(rest),
        "licences" => licences::main(),
        "fuzz" => fuzz::main(rest),
        "ext-cost" => ext_cost::main(rest),
        "shared-lines" => shared_lines::main(rest),
        "support" => support::main(rest),
        "kube" => kube::main(rest),
        "fuzz-parsers" => fuzz_parsers::main(rest),
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
