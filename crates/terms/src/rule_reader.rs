//! `[[rule]]` tables of a file being read.

use glob::Pattern;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{TermError, remedy_for_unknown};
use crate::policy::{MATCH_KEYS, Match, Mode, UNIT_SUFFIXES, WrittenRule, Wrong};
use crate::raw::RawTerms;
use crate::reader::Reader;
use crate::table::Term;

const RULE_KEYS: [&str; 4] = ["name", "match", "mode", "terms"];

type Value<'v> = Spanned<DeValue<'v>>;

impl Reader<'_> {
    /// Every rule of `rule = [...]`; what is wrong with one costs no other its reading.
    pub(crate) fn rules(&self, value: &Value<'_>, errors: &mut Vec<TermError>) -> Vec<WrittenRule> {
        let Some(tables) = value.get_ref().as_array() else {
            errors.push(self.not_text("rule", "[[rule]]", value));
            return Vec::new();
        };
        let mut rules = Vec::new();
        for table in tables.iter() {
            match table.get_ref().as_table() {
                Some(fields) => rules.extend(self.rule(fields, table.span().start, errors)),
                None => errors.push(self.not_text("rule", "[[rule]]", table)),
            }
        }
        rules
    }

    fn rule(
        &self,
        fields: &DeTable<'_>,
        at: usize,
        errors: &mut Vec<TermError>,
    ) -> Option<WrittenRule> {
        let mut rule = WrittenRule {
            name: String::new(),
            place: self.place(at),
            matches: None,
            mode: None,
            terms: RawTerms::default(),
            wrong: Wrong::default(),
        };
        for (key, value) in fields {
            let before = errors.len();
            let read = match key.get_ref().as_ref() {
                "name" => self.rule_name(value).map(|name| rule.name = name),
                "match" => {
                    rule.matches = Some(self.match_of(value, errors));
                    rule.wrong.matches = errors.len() > before;
                    Ok(())
                }
                "mode" => self.mode(value).map(|mode| rule.mode = Some(mode)),
                "terms" => {
                    rule.terms = self.rule_terms(value, errors);
                    rule.wrong.terms = errors.len() > before;
                    Ok(())
                }
                unknown => {
                    Err(self.unknown(unknown, "key of a rule", key.span().start, &RULE_KEYS))
                }
            };
            errors.extend(read.err());
        }
        if !fields.contains_key("name") {
            errors.push(TermError::Rule {
                name: "rule".to_owned(),
                source_place: self.place(at),
                why: "it has no name".to_owned(),
                remedy: "write name = \"backups\"".to_owned(),
            });
        }
        (!rule.name.is_empty()).then_some(rule)
    }

    fn unknown(&self, name: &str, kind: &'static str, at: usize, known: &[&str]) -> TermError {
        TermError::Unknown {
            name: name.to_owned(),
            source_place: self.place(at),
            kind,
            remedy: remedy_for_unknown(name, known),
        }
    }

    fn refused(&self, what: &str, value: &Value<'_>, why: String, remedy: &str) -> TermError {
        TermError::Rule {
            name: what.to_owned(),
            source_place: self.place(value.span().start),
            why,
            remedy: remedy.to_owned(),
        }
    }

    fn rule_name(&self, value: &Value<'_>) -> Result<String, TermError> {
        let text = self.text_of("name", "backups", value)?.text;
        let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if text.is_empty() || text.len() > 64 || !text.chars().all(is_fine) {
            let why = format!("\"{}\" is no name", crate::error::quoted(&text));
            let remedy = "use letters, digits, '.', '_' and '-', at most 64";
            return Err(self.refused("name", value, why, remedy));
        }
        Ok(text)
    }

    fn mode(&self, value: &Value<'_>) -> Result<Mode, TermError> {
        let text = self.text_of("mode", "observe", value)?.text;
        Mode::from_name(&text).ok_or_else(|| {
            let why = format!("\"{}\" is no mode", crate::error::quoted(&text));
            self.refused("mode", value, why, "write enforce or observe")
        })
    }

    fn match_of(&self, value: &Value<'_>, errors: &mut Vec<TermError>) -> Match {
        let mut matches = Match::default();
        let Some(fields) = value.get_ref().as_table() else {
            errors.push(self.not_text("match", "match = { unit = \"x.service\" }", value));
            return matches;
        };
        for (key, value) in fields {
            let name: &str = key.get_ref();
            let read = match name {
                "unit" => self.patterns(name, value).map(|all| matches.unit = all),
                "cgroup" => self.patterns(name, value).map(|all| matches.cgroup = all),
                "exe" => self.patterns(name, value).map(|all| matches.exe = all),
                "user" => self.users(value).map(|all| matches.user = all),
                unknown => {
                    Err(self.unknown(unknown, "key of match", key.span().start, &MATCH_KEYS))
                }
            };
            errors.extend(read.err());
        }
        matches
    }

    /// Names or numbers.
    fn users(&self, value: &Value<'_>) -> Result<Vec<String>, TermError> {
        let texts = self.texts("user", value)?;
        match texts
            .iter()
            .find(|(text, _)| text.contains(['*', '?', '[']))
        {
            None => Ok(texts.into_iter().map(|(text, _)| text).collect()),
            Some((text, value)) => {
                let why = format!("\"{text}\" is a pattern, and a user is a name or a number");
                let remedy = "for one gate a user, write unit = \"user-*.slice\"";
                Err(self.refused("user", value, why, remedy))
            }
        }
    }

    /// One text or a list of them, each with where it stands.
    fn texts<'v>(
        &self,
        name: &str,
        value: &'v Value<'v>,
    ) -> Result<Vec<(String, &'v Value<'v>)>, TermError> {
        let one = |value: &'v Value<'v>| {
            let text = self.text_of(name, "x", value)?.text;
            match text.is_empty() {
                false => Ok((text, value)),
                true => {
                    let why = "\"\" matches nothing".to_owned();
                    Err(self.refused(name, value, why, "name what is meant, or leave the key out"))
                }
            }
        };
        match value.get_ref().as_array() {
            Some(all) if all.is_empty() => {
                let why = "[] matches nothing".to_owned();
                Err(self.refused(name, value, why, "name what is meant, or leave the key out"))
            }
            Some(all) => all.iter().map(one).collect(),
            None => Ok(vec![one(value)?]),
        }
    }

    fn patterns(&self, name: &str, value: &Value<'_>) -> Result<Vec<Pattern>, TermError> {
        let pattern = |(text, value): (String, &Value<'_>)| {
            // A single star stops at a slash, with which every path begins.
            if name != "unit" && !text.starts_with('/') && !text.starts_with("**") {
                let why = format!("\"{}\" matches no path", crate::error::quoted(&text));
                let remedy = "begin it with a slash or **/, as in /batch.slice/* or **/ffmpeg";
                return Err(self.refused(name, value, why, remedy));
            }
            // As in every command of systemd, a name without a suffix is a service.
            let has_suffix =
                text.ends_with('*') || UNIT_SUFFIXES.iter().any(|suffix| text.ends_with(suffix));
            let suffix = match name == "unit" && !has_suffix {
                true => ".service",
                false => "",
            };
            Pattern::new(&format!("{text}{suffix}")).map_err(|error| {
                let why = format!("\"{}\": {}", crate::error::quoted(&text), error.msg);
                self.refused(
                    name,
                    value,
                    why,
                    "write * ? or [a-z], as in backup-*.service",
                )
            })
        };
        self.texts(name, value)?.into_iter().map(pattern).collect()
    }

    fn rule_terms(&self, value: &Value<'_>, errors: &mut Vec<TermError>) -> RawTerms {
        let mut terms = RawTerms::default();
        let Some(fields) = value.get_ref().as_table() else {
            errors.push(self.not_text("terms", "terms = { class = \"side\" }", value));
            return terms;
        };
        for (key, value) in fields {
            let source = self.place(key.span().start);
            let read = Term::named(key.get_ref(), &source).and_then(|term| {
                let raw = self.text_of(term.name(), term.example(), value)?;
                term.check(&raw)?;
                match terms.0.insert(term.name().to_owned(), raw) {
                    Some(_) => Err(self.set_twice(term, key.span().start)),
                    None => Ok(()),
                }
            });
            errors.extend(read.err());
        }
        terms
    }
}
