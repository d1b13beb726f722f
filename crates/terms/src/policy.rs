//! Rules: what work is given terms by the configuration files, and which.
//!
//! ```toml
//! [[rule]]
//! name  = "backups"
//! match = { unit = "backup-*.service" }
//! mode  = "observe"
//! terms = { class = "side", weight = 50 }
//! ```
//!
//! A rule of the same name in a stronger file overrides its match, its mode, and its terms one by
//! one. Of several rules that match the same work the last one counts.

use std::collections::{BTreeMap, BTreeSet};

use glob::{MatchOptions, Pattern};

use crate::error::TermError;
use crate::raw::RawTerms;
use crate::source::Source;
use crate::values::words;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Enforce,
    /// What would be done is told, and nothing is written.
    Observe,
}

words!(Mode, "is no mode": Enforce = "enforce", Observe = "observe");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Groups,
    Processes,
}

/// What may stand in `match`.
pub(crate) const MATCH_KEYS: [&str; 4] = ["unit", "cgroup", "exe", "user"];

pub(crate) const UNIT_SUFFIXES: [&str; 3] = [".service", ".scope", ".slice"];

/// Which work a rule is for. Of each key one of its values must match, and every key that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    pub unit: Vec<Pattern>,
    /// Groups below the mount of the cpu controller; `*` stops at a slash, `**` does not.
    pub cgroup: Vec<Pattern>,
    pub exe: Vec<Pattern>,
    /// Users whose processes are meant, by name or number.
    pub user: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct SeenProcess<'a> {
    /// Its group, below the mount of the cpu controller.
    pub group: &'a str,
    pub exe: &'a str,
    pub uid: u32,
    /// Its user's name, where there is one.
    pub user: Option<&'a str>,
}

/// Whether every group around this one is a slice, as around each unit of the system's systemd:
/// elsewhere, users choose their groups' names.
pub fn lies_in_slices(group: &str) -> bool {
    let above = group.rsplit_once('/').map_or("", |(above, _)| above);
    let mut names = above.split('/');
    names.all(|name| name.is_empty() || name.ends_with(".slice"))
}

fn any(patterns: &[Pattern], text: &str) -> bool {
    let within_names = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    patterns
        .iter()
        .any(|pattern| pattern.matches_with(text, within_names))
}

impl Match {
    pub fn kind(&self) -> Kind {
        match self.exe.is_empty() && self.user.is_empty() {
            true => Kind::Groups,
            false => Kind::Processes,
        }
    }

    /// Whether `group`, or a group around it where `around`, is one that unit and cgroup allow.
    pub fn allows_group(&self, group: &str) -> bool {
        let name = group.rsplit('/').next().unwrap_or_default();
        // systemd puts an underscore before a name that the kernel's own files begin with.
        let name = name.strip_prefix('_').unwrap_or(name);
        let is_unit = UNIT_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
        (self.unit.is_empty() || is_unit && lies_in_slices(group) && any(&self.unit, name))
            && (self.cgroup.is_empty() || any(&self.cgroup, group))
    }

    /// Whether the process is meant; one in a group within an allowed one is.
    pub fn allows_process(&self, process: &SeenProcess<'_>) -> bool {
        let number = process.uid.to_string();
        let is_user = |user: &String| *user == number || Some(user.as_str()) == process.user;
        let around = std::iter::successors(Some(process.group), |group| {
            group.rsplit_once('/').map(|(above, _)| above)
        });
        (self.exe.is_empty() || any(&self.exe, process.exe))
            && (self.user.is_empty() || self.user.iter().any(is_user))
            && (self.unit.is_empty() && self.cgroup.is_empty()
                || around.into_iter().any(|group| self.allows_group(group)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenRule {
    pub(crate) name: String,
    pub(crate) place: Source,
    pub(crate) matches: Option<Match>,
    pub(crate) mode: Option<Mode>,
    pub(crate) terms: RawTerms,
    pub(crate) wrong: Wrong,
}

/// The parts of a rule with mistakes: what was not read of them is no other mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) matches: bool,
    pub(crate) terms: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: String,
    pub place: Source,
    pub matches: Match,
    pub mode: Mode,
    /// Its terms, one layer a file, weakest first.
    pub terms: Vec<RawTerms>,
    pub(crate) wrong: Wrong,
}

impl Rule {
    /// Where its mode, match or a term stands last: what a refusal of the whole names.
    pub(crate) fn refused(&self, why: &str, remedy: &str) -> TermError {
        TermError::Rule {
            name: self.name.clone(),
            source_place: self.place.clone(),
            why: why.to_owned(),
            remedy: remedy.to_owned(),
        }
    }
}

/// The rules of all files, in the order in which they first stand; strongest last within each.
pub(crate) fn merged<'w>(written: impl Iterator<Item = &'w WrittenRule>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for one in written {
        let index = *places.entry(&one.name).or_insert(rules.len());
        if index == rules.len() {
            rules.push(Rule {
                name: one.name.clone(),
                place: one.place.clone(),
                matches: Match::default(),
                mode: Mode::default(),
                terms: Vec::new(),
                wrong: Wrong::default(),
            });
        }
        let rule = &mut rules[index];
        if let Some(matches) = &one.matches {
            rule.matches = matches.clone();
        }
        rule.mode = one.mode.unwrap_or(rule.mode);
        rule.terms.push(one.terms.clone());
        rule.wrong.matches |= one.wrong.matches;
        rule.wrong.terms |= one.wrong.terms;
    }
    rules
}

pub(crate) fn twice_named(written: &[WrittenRule]) -> Vec<TermError> {
    let mut names = BTreeSet::new();
    let again = written.iter().filter(|rule| !names.insert(&rule.name));
    let refused = again.map(|rule| TermError::Rule {
        name: rule.name.clone(),
        source_place: rule.place.clone(),
        why: "this file has a rule of this name already".to_owned(),
        remedy: "give it another name".to_owned(),
    });
    refused.collect()
}
