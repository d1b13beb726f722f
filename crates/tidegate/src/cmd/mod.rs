//! The command line: what can be typed, one file a subcommand.

pub mod agent;
mod check;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod guardian;
pub mod measure;
pub mod metrics;
pub mod policy;
pub mod recording;
mod repair;
pub mod report;
pub mod run;
pub mod set;
pub mod status;
mod stop;
pub mod top;
pub mod unset;
pub mod web;

use clap::{Command, CommandFactory, Parser, Subcommand};
use tidegate_api::Exit;
use tidegate_api::cli::{self, Failure};

/// Run side work on the CPU time that main work leaves
#[derive(Parser)]
#[command(
    name = "tidegate",
    version,
    max_term_width = 80,
    arg_required_else_help = true
)]
#[command(help_template = "{about}\n\n{usage-heading} tidegate COMMAND ...{after-help}")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Cmd,
}

/// What was typed.
#[derive(Subcommand)]
pub enum Cmd {
    Run(run::Args),
    Set(set::Args),
    Unset(unset::Args),
    Measure(measure::Args),
    Status(status::Args),
    Explain(explain::Args),
    Top(top::Args),
    Events(events::Args),
    Web(web::Args),
    Doctor(doctor::Args),
    Policy(policy::Args),
    Agent(agent::Args),
    Metrics(metrics::Args),
    Report(report::Args),
    Recording(recording::Args),
    #[command(hide = true)]
    Completions(cli::completions::Args),
    #[command(hide = true)]
    Man(cli::man::Args),
    #[command(hide = true)]
    Guardian(guardian::Args),
}

/// The help of a command that is a group of others.
const GROUP_HELP: &str = "{about}\n\n{usage-heading} {usage}\n\n{subcommands}";

const GROUPS: &[(&str, &[&str])] = &[
    ("Work", &["run", "set", "unset", "measure"]),
    (
        "See",
        &["status", "explain", "top", "events", "web", "doctor"],
    ),
    ("Policy", &["policy"]),
    ("Agent", &["agent", "metrics", "report", "recording"]),
];

pub fn command() -> Command {
    let command = Cli::command();
    let (short, long) = (names_by_group(&command), lines_by_group(&command));
    command.after_help(short).after_long_help(long)
}

fn names_by_group(command: &Command) -> String {
    let mut text = String::new();
    for (group, names) in GROUPS {
        let names = names.iter().map(|name| {
            let found = command.find_subcommand(name).into_iter();
            let within: Vec<&str> = found
                .flat_map(Command::get_subcommands)
                .filter(|one| !one.is_hide_set())
                .map(Command::get_name)
                .collect();
            match within.is_empty() {
                true => (*name).to_owned(),
                false => format!("{name} {}", within.join("|")),
            }
        });
        let names: Vec<String> = names.collect();
        text += &format!("{:8} {}\n", format!("{group}:"), names.join(", "));
    }
    text + "\nSee tidegate --help for a line about each, tidegate help COMMAND about one."
}

fn lines_by_group(command: &Command) -> String {
    let mut text = String::new();
    for (group, names) in GROUPS {
        text += &format!("{group}:\n");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text += &format!("  {name:10} {about}\n");
        }
    }
    text + "See tidegate help COMMAND about one command, man tidegate for exit codes."
}

pub fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    match cli.command {
        Cmd::Run(args) => run::main(args),
        Cmd::Set(args) => set::main(&args),
        Cmd::Unset(args) => unset::main(&args),
        Cmd::Measure(args) => measure::main(&args),
        Cmd::Status(args) => status::main(&args),
        Cmd::Explain(args) => explain::main(&args),
        Cmd::Top(args) => top::main(&args),
        Cmd::Events(args) => events::main(&args),
        Cmd::Web(args) => web::main(&args),
        Cmd::Doctor(args) => doctor::main(&args),
        Cmd::Policy(args) => policy::main(&args),
        Cmd::Agent(args) => agent::main(&args),
        Cmd::Metrics(args) => metrics::main(&args),
        Cmd::Report(args) => report::main(&args),
        Cmd::Recording(args) => recording::main(&args),
        Cmd::Completions(args) => cli::completions::main(&args, command()),
        Cmd::Man(args) => cli::man::main(&args, command().after_long_help(Exit::table())),
        Cmd::Guardian(args) => guardian::main(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn listed(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let path = format!("{path} {}", one.get_name());
            listed(one, &path, found);
            found.push((path, one.clone()));
        }
    }

    #[test]
    fn the_definitions_agree_with_each_other() {
        command().debug_assert();
    }

    #[test]
    fn each_command_is_in_a_group_and_there_are_few() {
        let command = command();
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        let names: Vec<&str> = shown.map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.1).copied().collect();
        assert_eq!(names, grouped);
        assert!(names.len() <= 18, "{names:?}");
    }

    #[test]
    fn help_fits_a_screen_and_short_help_half_of_one() {
        let fits = |text: &str, lines: usize| {
            text.lines().count() <= lines && text.lines().all(|line| line.chars().count() <= 80)
        };
        let mut all = command();
        let help = all.render_long_help().to_string();
        assert!(fits(&help, 24), "{help}");
        let mut found = vec![("tidegate".to_owned(), command())];
        listed(&command(), "tidegate", &mut found);
        for (path, one) in &mut found {
            let help = one.clone().term_width(80).render_help().to_string();
            assert!(fits(&help, 12), "{path} -h:\n{help}");
        }
    }

    fn row(arg: &Arg) -> String {
        let short = arg.get_short().map(|short| format!("-{short}, "));
        let help = arg
            .get_long_help()
            .or(arg.get_help())
            .map(ToString::to_string);
        let mut text = help
            .unwrap_or_default()
            .replace("\n\n", ". ")
            .replace('|', "\\|");
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        text.extend(aliases.iter().map(|alias| format!(" [alias: --{alias}]")));
        if arg.get_action().takes_values() {
            let values = arg.get_possible_values();
            let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
            if !values.is_empty() {
                text += &format!(" [possible values: {}]", values.join(", "));
            }
            for value in arg.get_default_values() {
                text += &format!(" [default: {}]", value.display());
            }
        }
        let name = format!("{}{arg}", short.unwrap_or_default()).replace('|', "\\|");
        format!("| `{name}` | {text} |\n")
    }

    #[test]
    fn docs_have_every_command() {
        let (mut found, mut text) = (Vec::new(), String::new());
        listed(&command(), "tidegate", &mut found);
        found.retain(|(_, one)| !one.has_subcommands());
        found.sort_by(|one, other| one.0.cmp(&other.0));
        for (path, one) in found {
            let mut one = one.bin_name(&path);
            let usage = one.render_usage().to_string().replace("Usage: ", "");
            let about = one.get_about().cloned().unwrap_or_default();
            text += &format!("\n## {path}\n\n{about}.\n`{usage}`\n\n| | |\n|---|---|\n");
            let (first, rest): (Vec<&Arg>, Vec<&Arg>) =
                one.get_arguments().partition(|arg| arg.is_positional());
            let shown = first.into_iter().chain(rest);
            text.extend(shown.filter(|arg| arg.get_id() != "help").map(row));
            let notes = one.get_after_long_help().or(one.get_after_help());
            let notes = notes.map(ToString::to_string).unwrap_or_default();
            if !notes.is_empty() {
                let notes = notes.replace(&set::terms_table(), "");
                text += &format!("\n```text\n{}\n```\n", notes.trim());
            }
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let page = std::fs::read_to_string(path).unwrap();
        let mark = "<!-- commands: written by UPDATE_DOCS=1 cargo test -p tidegate docs -->\n";
        let (before, now) = page.split_once(mark).expect(mark);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{before}{mark}{text}")).unwrap();
        } else {
            assert!(now == text, "docs/cli.md: run {mark}");
        }
    }
}
