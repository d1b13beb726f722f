//! The command line: what can be typed. What was typed is resolved in `cmd/`.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd::{
    agent, completions, doctor, explain, ext, guardian, lab, lab_worker, man, repair, run, set,
    show, sim, status, stop, unset,
};
use crate::exit::{Exit, Failure};

/// CPU headroom on Linux: side work runs on what main work leaves, and gives way at once
///
/// Start best-effort work with `tidegate run --side -- CMD`. While it runs, Tidegate keeps a part of the machine idle
/// (the headroom) for the bursts of everything else.
#[derive(Parser)]
#[command(name = "tidegate", version, max_term_width = 80, after_help = Exit::table())]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

/// What was typed.
#[derive(Subcommand)]
pub enum Cmd {
    Run(run::Args),
    Set(set::Args),
    Unset(unset::Args),
    Show(show::Args),
    Status(status::Args),
    Explain(explain::Args),
    Doctor(doctor::Args),
    Lab(lab::Args),
    Sim(sim::Args),
    Ext(ext::Args),
    Agent(agent::Args),
    Stop(stop::Args),
    Repair(repair::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[command(hide = true)]
    Guardian(guardian::Args),
    #[command(hide = true)]
    LabWorker(lab_worker::Args),
}

/// The whole command line as clap knows it, for completions and man pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Reads the command line. Help and version are printed here and end the program with success.
pub fn parse(words: &[OsString]) -> Result<Option<Cmd>, Failure> {
    let error = match Cli::try_parse_from(words) {
        Ok(cli) => return Ok(Some(cli.command)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe (`tidegate --help | head -1`) is no failure.
            let _ = error.print();
            return Ok(None);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return Err(Failure::new(Exit::Usage, ""));
        }
        _ => {}
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    let (exit, what) = match words.get(1).map(OsString::as_os_str) {
        // Any status below 125 could be the command's own.
        Some(word) if word == OsStr::new("run") => (Exit::RunFailed, "run: "),
        _ => (Exit::Usage, ""),
    };
    // clap's text has a usage line and a hint after the first line; only the first gets our name.
    use std::io::Write;
    let _ = writeln!(anstream::stderr(), "tidegate: {what}{text}");
    Err(Failure::new(exit, ""))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definitions_agree_with_each_other() {
        super::command().debug_assert();
    }
}
