//! `tidegate completions`: what a shell needs to complete our command line.

use crate::exit::{Exit, Failure};
use crate::render;

/// Print completions for a shell
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidegate completions bash > /etc/bash_completion.d/tidegate")]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "tidegate", &mut text);
    render::print(&String::from_utf8_lossy(&text))
}
