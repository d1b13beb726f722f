//! The `completions` command: what a shell needs to complete a command line.

use super::{Failure, print};
use crate::Exit;

/// Print completions for a shell
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the completions of a program.
pub fn main(args: &Args, mut command: clap::Command) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    print(&String::from_utf8_lossy(&text))
}
