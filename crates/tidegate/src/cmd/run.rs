//! `tidegate run`: a command in a gate of its own.
//!
//! The agent puts *this* process into the gate's group, and this process becomes the command.
//! Nothing stands between the command and its starter: exit code, signals, terminal, job control
//! and descriptors need no forwarding.

use std::ffi::{OsStr, OsString};

use tidegate_agent::has_records;
use tidegate_agent::paths::RunDir;
use tidegate_api::{RunReply, RunRequest};
use tidegate_terms::{Class, Config, Source, Term, Terms};

use crate::connect;
use crate::exec;
use crate::identity::{self, Caller};
use crate::jobserver;
use crate::terms_flags::TermFlags;
use crate::without_agent;
use tidegate_api::Exit;
use tidegate_api::cli::{Failure, report};

const SAMPLE: &str = "\
Examples:
  sudo tidegate run ffmpeg -i in.mkv out.mp4
      encode on the CPU time that the rest of the machine leaves; ffmpeg runs as you
  sudo tidegate run --headroom 30% --tolerance 2% make -j8
      keep 30 % of the machine idle meanwhile, but give make 2 % at the least
  sudo tidegate run --main --headroom 40% ./server
      side work keeps 40 % of the machine idle while the server runs

Without a class the command is side work, unless it is only limited (--quota,
--cap) or hinted (--latency). The largest --headroom of all gates counts.
Fails with 125 before CMD starts, 126 if CMD cannot be executed, 127 if it is
not found; else ends as CMD does.";

/// Run a command in a gate of its own
#[derive(clap::Args)]
#[command(after_long_help = SAMPLE)]
pub struct Args {
    #[command(flatten)]
    terms: TermFlags,
    /// The gate's name [default: made from CMD]
    #[arg(long, hide_short_help = true)]
    name: Option<String>,
    /// Enter the gate of this name if it still has tasks; terms given here become the gate's
    #[arg(long, requires = "name", hide_short_help = true)]
    join: bool,
    /// No notes on standard error
    #[arg(short, long, hide_short_help = true)]
    quiet: bool,
    /// Under sudo, run CMD as root, not as the user who called sudo
    #[arg(long, hide_short_help = true)]
    as_root: bool,
    /// Fail where no agent can be had, rather than yield by what CMD may do to itself
    #[arg(long, hide_short_help = true, conflicts_with = "or_bare")]
    strict: bool,
    /// If no gate is available, say so and run CMD without one
    #[arg(long, hide_short_help = true)]
    or_bare: bool,
    /// The command and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        hide_short_help = true,
        trailing_var_arg = true
    )]
    command: Vec<OsString>,
}

/// Comes back only if there is no command to become.
pub fn main(mut args: Args) -> Result<Exit, Failure> {
    let is_side_by_default = is_side_by_default(&args.terms)?;
    if is_side_by_default {
        args.terms.0.insert("class", "side", Source::RunFlag);
    }
    let terms = resolved(&args.terms)?;
    let caller = if args.as_root {
        None
    } else {
        identity::behind_sudo()
    };
    // `required` above: there is at least one word.
    let word = args.command.first().cloned().unwrap_or_default();
    let file = exec::find(&word)?;
    let mut variables = Vec::new();
    let may_stay = !args.strict && terms.class.value == Class::Side && without_agent::is_needed();
    // What a dead agent left in force is taken over by the next.
    let needs_agent = rustix::process::geteuid().is_root()
        || !limits(&args).is_empty()
        || has_records(&RunDir::from_env());
    let placed = match may_stay && !needs_agent {
        true => Err(None),
        false => place(&args).map_err(Some),
    };
    match placed {
        Ok(mut reply) => {
            if let Some(fifo) = &reply.jobserver {
                match jobserver::offer(fifo, &args.command, caller.as_ref()) {
                    Ok((found, notes)) => {
                        variables = found;
                        reply.notes.extend(notes);
                    }
                    Err(error) => reply.notes.push(format!("jobserver: {error}")),
                }
            }
            if !args.quiet {
                tell(&word, caller.as_ref(), is_side_by_default, &reply.notes);
            }
        }
        Err(failure) if may_stay => {
            let place = without_agent::take_last_place();
            if !args.quiet {
                report(&yields(&args, &place, failure.as_ref()));
            }
        }
        Err(Some(failure)) if args.or_bare => {
            failure.before_run().report();
            report(&format!(
                "run: {}: runs without a gate (--or-bare)",
                word.to_string_lossy()
            ));
        }
        Err(Some(failure)) => return Err(failure.before_run()),
        Err(None) => {}
    }
    if terms.class.value == Class::Side {
        without_agent::take_last_io();
    }
    let caller = caller.as_ref();
    Err(exec::become_command(
        &file,
        &args.command,
        caller,
        variables,
    ))
}

fn tell(word: &OsStr, caller: Option<&Caller>, is_side_by_default: bool, notes: &[String]) {
    if let Some(caller) = caller {
        let word = word.to_string_lossy();
        report(&format!(
            "run: {word} runs as {caller} (--as-root keeps root)"
        ));
    }
    if is_side_by_default {
        report("run: side work, which yields to all other work (--main protects it instead)");
    }
    for note in notes {
        report(&format!("run: {note}"));
    }
}

/// What is asked for that only an agent can hold.
fn limits(args: &Args) -> Vec<String> {
    let asked = args.terms.0.to_map();
    asked.into_keys().filter(|term| term != "class").collect()
}

/// What holds without an agent, and what does not.
fn yields(args: &Args, place: &str, failure: Option<&Failure>) -> String {
    let missing = match (limits(args).join(", "), failure) {
        (_, None) => String::new(),
        (missing, Some(failure)) if missing.is_empty() => format!("; {failure}"),
        (missing, Some(failure)) => format!("; not in force: {missing}; {failure}"),
    };
    format!("run: side work by {place}{missing}")
}

/// Checks the terms before an agent starts, which checks them again with its own files.
fn resolved(flags: &TermFlags) -> Result<Terms, Failure> {
    // The flags alone are resolved: an error names no file.
    let terms = Config::default().resolve(&[&flags.0]);
    terms.map_err(|error| Failure::from(error).before_run())
}

/// The command becomes side work because it has no class, and either neither limit nor hint or a
/// term that neutral work does not take.
fn is_side_by_default(flags: &TermFlags) -> Result<bool, Failure> {
    let has = |term: &Term| flags.0.0.contains_key(term.name());
    if has(&Term::Class) {
        return Ok(false);
    }
    let is_for_neutral = |term: &Term| term.classes().contains(&Class::Neutral);
    if Term::ALL
        .iter()
        .filter(|term| has(term))
        .any(|term| !is_for_neutral(term))
    {
        return Ok(true);
    }
    let terms = resolved(flags)?;
    Ok(!terms.is_bounded() && terms.latency.is_default())
}

fn place(args: &Args) -> Result<RunReply, Failure> {
    let request = RunRequest {
        // This process: the kernel gives its number, as the agent sees it.
        pid: 0,
        name: args.name.clone(),
        command: RunRequest::begin_of_command(
            args.command.iter().map(|word| word.to_string_lossy()),
        ),
        terms: args.terms.0.to_map(),
        join: args.join,
    };
    connect::call_starting(|client| client.run(&request))
}
