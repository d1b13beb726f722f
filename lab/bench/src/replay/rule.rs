//! Terms that were found, as a policy file.

use crate::replay::recorded_terms::is_in_own_group;
use crate::replay::target::unit_of;

/// Why there is no rule for a work.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RuleError {
    /// It is in a group of Tidegate's own.
    #[error(
        "{name}: tidegate run started it, and no rule matches that; start it with --side --headroom {headroom_pct}%, or write `tidegate set gate:{name} headroom={headroom_pct}%`"
    )]
    OfRun { name: String, headroom_pct: u32 },
}

/// A policy file with one rule, that gives the group the class side and a headroom.
///
/// # Errors
/// No rule could match it.
pub fn policy(
    name: &str,
    cgroup: &str,
    headroom_pct: u32,
    about: &str,
) -> Result<String, RuleError> {
    if is_in_own_group(cgroup) {
        return Err(RuleError::OfRun {
            name: name.to_owned(),
            headroom_pct,
        });
    }
    let (key, text) = match unit_of(cgroup) {
        Some(unit) => ("unit", unit),
        None => ("cgroup", cgroup),
    };
    let last = text.rsplit('/').next().unwrap_or(text);
    let of_rule: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let comment: String = about.lines().map(|line| format!("# {line}\n")).collect();
    Ok(format!(
        "{comment}version = 1\n\n[[rule]]\nname = \"{of_rule}\"\nmatch = {{ {key} = {} }}\nterms = {{ class = \"side\", headroom = \"{headroom_pct}%\" }}\n",
        quoted(&glob_escaped(text))
    ))
}

/// As a TOML text.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\u{:04X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out + "\""
}

/// With what a pattern would take for more than itself in brackets.
fn glob_escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '?' | '*' | '[' | ']' => out.extend(['[', c, ']']),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_terms::Config;

    use super::*;

    #[test]
    fn what_is_written_is_a_policy_that_matches_the_group() {
        for cgroup in [
            "/system.slice/backup.service",
            "/a.slice/a-b.slice/_cpu.service",
            "/docker/b*d [x]",
            "/docker/\"quoted\\\"",
        ] {
            let text = policy("it", cgroup, 20, "found\nhere").unwrap();
            let config = Config::from_text(Path::new("p.toml"), &text);
            let config = config.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            assert!(config.rules()[0].matches.allows_group(cgroup), "{text}");
        }
        assert!(policy("it", "/tidegate-side/it", 20, "").is_err());
    }
}
