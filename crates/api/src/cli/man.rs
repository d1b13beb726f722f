//! The `man` command: the manual pages, from the same definitions as the help.

use std::path::{Path, PathBuf};

use super::{Failure, print};
use crate::Exit;

/// Print the manual page, or write all of them into a folder
#[derive(clap::Args)]
pub struct Args {
    /// Write the page of the program and one a subcommand into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints or writes the pages of a program.
pub fn main(args: &Args, mut command: clap::Command) -> Result<Exit, Failure> {
    // With `tidegate-run` and so on as names of the subcommands.
    command.build();
    let Some(out) = &args.out else {
        return print(&String::from_utf8_lossy(&page(&command)?));
    };
    let failed = |path: &Path, error: &std::io::Error| {
        Failure::new(
            Exit::Failure,
            format!(
                "man: {}: {error}; choose a folder that can be written",
                path.display()
            ),
        )
    };
    std::fs::create_dir_all(out).map_err(|error| failed(out, &error))?;
    for one in with_subcommands(&command) {
        let path = out.join(format!(
            "{}.1",
            one.get_display_name().unwrap_or(one.get_name())
        ));
        std::fs::write(&path, page(one)?).map_err(|error| failed(&path, &error))?;
    }
    Ok(Exit::Ok)
}

fn with_subcommands(command: &clap::Command) -> Vec<&clap::Command> {
    let within = command.get_subcommands();
    let listed = within.filter(|one| !one.is_hide_set() && one.get_name() != "help");
    std::iter::once(command)
        .chain(listed.flat_map(with_subcommands))
        .collect()
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone())
        .source("Tidegate")
        .manual("Tidegate")
        .render(&mut text)
        .map_err(|error| {
            let why = format!("man: rendering a page: {error}; report this as a bug");
            Failure::new(Exit::Failure, why)
        })?;
    Ok(text)
}
