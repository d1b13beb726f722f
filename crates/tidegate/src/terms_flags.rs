//! One flag a term, made from the table of terms: a term that is added there is a flag of `run`
//! here.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tidegate_terms::{RawTerms, Source, Term};

#[derive(Clone, Debug, Default)]
pub struct TermFlags(pub RawTerms);

/// Terms that `run` has no flag of the usual form for: `class` also has `--main` and `--side`, and
/// `fallback` is for processes and groups that Tidegate did not start.
const NOT_PLAIN: &[Term] = &[Term::Class, Term::Fallback];

const IN_SHORT_HELP: &[Term] = &[Term::Headroom, Term::Quota, Term::CapHard];

fn plain() -> impl Iterator<Item = Term> {
    Term::ALL
        .iter()
        .copied()
        .filter(|term| !NOT_PLAIN.contains(term))
}

fn flag(term: Term) -> String {
    term.name().replace('_', "-")
}

impl Args for TermFlags {
    fn augment_args(command: Command) -> Command {
        let classes = ["main", "side"].map(|class| {
            Arg::new(class)
                .long(class)
                .action(ArgAction::SetTrue)
                .group("the class")
                .help(format!("Short for --class {class}"))
        });
        let class = Arg::new(Term::Class.name())
            .long("class")
            .value_name(Term::Class.value_name())
            .group("the class")
            .hide_short_help(true)
            .help(format!("{} ({})", Term::Class.doc(), Term::Class.range()));
        let rest = plain().map(|term| {
            let is_switch = term == Term::Jobserver;
            let arg = Arg::new(term.name());
            let arg = match is_switch {
                true => arg
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("yes"),
                false => arg.allow_hyphen_values(true),
            };
            arg.long(flag(term))
                .hide_short_help(!IN_SHORT_HELP.contains(&term))
                .visible_aliases(term.alias())
                .value_name(term.value_name())
                .help(term.doc().split(';').next().unwrap_or_default())
                .long_help(format!(
                    "{}: {} [default: {}]",
                    term.doc(),
                    term.range(),
                    term.unsaid()
                ))
        });
        command
            .args(classes)
            .arg(class)
            .args(rest)
            .group(clap::ArgGroup::new("the class").multiple(false))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TermFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<TermFlags, clap::Error> {
        let mut terms = RawTerms::default();
        for class in ["main", "side"] {
            if matches.get_flag(class) {
                terms.insert(Term::Class.name(), class, Source::RunFlag);
            }
        }
        for term in plain().chain([Term::Class]) {
            if let Some(text) = matches.get_one::<String>(term.name()) {
                terms.insert(term.name(), text, Source::RunFlag);
            }
        }
        Ok(TermFlags(terms))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = TermFlags::from_arg_matches(matches)?;
        Ok(())
    }
}
