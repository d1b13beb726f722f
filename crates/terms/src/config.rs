//! The configuration files, weakest to strongest, and the one place where terms are resolved.
//!
//! ```toml
//! lease = "2s"                # the machine's settings are at the top
//!
//! [side]                      # terms of every gate of this class
//! tolerance = "2%"
//! default_headroom = "20%"    # where no gate names one
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::{ConfigErrors, TermError};
use crate::layer::{Layer, candidate, takes};
use crate::policy::{Kind, Match, Mode, Rule, merged};
use crate::raw::RawTerms;
use crate::reader::Reader;
use crate::source::Source;
use crate::table::{Settings, Term, Terms};
use crate::values::Class;

/// The folders that hold configuration, weakest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub vendor: PathBuf,
    pub admin: PathBuf,
    pub runtime: PathBuf,
}

impl Roots {
    /// `/usr/lib/tidegate`, `/etc/tidegate` and the run directory.
    pub fn system(run_dir: &Path) -> Roots {
        Roots {
            vendor: "/usr/lib/tidegate".into(),
            admin: "/etc/tidegate".into(),
            runtime: run_dir.to_owned(),
        }
    }

    pub fn under(root: &Path) -> Roots {
        Roots {
            vendor: root.join("usr/lib/tidegate"),
            admin: root.join("etc/tidegate"),
            runtime: root.join("run/tidegate"),
        }
    }

    /// The files that are there with their texts, weakest first: the distribution's and the
    /// administrator's `tidegate.toml`, the files in every root's `tidegate.toml.d` by name, and
    /// the `tidegate.toml` until the next boot. Of two files of one name in `tidegate.toml.d` the
    /// stronger root's counts; a link to `/dev/null` so removes a weaker one.
    pub fn read(&self) -> Result<Vec<(PathBuf, String)>, ConfigErrors> {
        let (mut texts, mut errors) = (Vec::new(), Vec::new());
        let mut drop_ins = BTreeMap::new();
        for root in [&self.vendor, &self.admin, &self.runtime] {
            match drop_ins_of(root) {
                Ok(found) => drop_ins.extend(found),
                Err(error) => errors.push(error),
            }
        }
        let main = |root: &Path| root.join("tidegate.toml");
        let files = [main(&self.vendor), main(&self.admin)]
            .into_iter()
            .chain(drop_ins.into_values())
            .chain([main(&self.runtime)]);
        for path in files {
            match read_file(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => errors.push(unreadable(&path, &error)),
                Ok(text) => texts.push((path, text)),
            }
        }
        match errors.is_empty() {
            true => Ok(texts),
            false => Err(ConfigErrors(errors)),
        }
    }
}

const FILE_BYTES_MAX: u64 = 4 << 20;

/// The text of a configuration file. A pipe or a device could keep the reader waiting for ever; a
/// link to /dev/null is an empty file.
///
/// # Errors
/// It cannot be read, is no regular file, or is longer than any configuration.
pub fn read_file(path: &Path) -> io::Result<String> {
    let refused = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, why));
    let file = path.metadata()?;
    if !file.is_file() {
        return match path.canonicalize()?.as_os_str() == "/dev/null" {
            true => Ok(String::new()),
            false => refused("is not a regular file"),
        };
    }
    if file.len() > FILE_BYTES_MAX {
        return refused("is larger than 4 MiB");
    }
    let mut text = String::new();
    File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// A root's `tidegate.toml.d/*.toml`, by name.
fn drop_ins_of(root: &Path) -> Result<BTreeMap<OsString, PathBuf>, TermError> {
    let dir = root.join("tidegate.toml.d");
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(unreadable(&dir, &error)),
        Ok(entries) => entries,
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(|error| unreadable(&dir, &error))?.path();
        if let Some(name) = path.file_name()
            && path.extension().is_some_and(|ext| ext == "toml")
        {
            found.insert(name.to_owned(), path);
        }
    }
    Ok(found)
}

/// What the files say. Checked in full when loaded: resolving later can only fail on what was asked
/// for then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// One entry a file, weakest first.
    layers: Vec<Layer>,
    rules: Vec<Rule>,
}

impl Config {
    /// Reads every file. Files that do not exist say nothing.
    ///
    /// # Errors
    /// All that is wrong in all of them: a machine must not run on half of what its administrator
    /// wrote.
    pub fn load(roots: &Roots) -> Result<Config, ConfigErrors> {
        Config::from_texts(&roots.read()?)
    }

    /// The configuration that these files' texts are, weakest first.
    pub fn from_texts(texts: &[(PathBuf, String)]) -> Result<Config, ConfigErrors> {
        let mut config = Config::default();
        let mut errors = Vec::new();
        for (path, text) in texts {
            config
                .layers
                .push(Reader::new(path, text).read(&mut errors));
        }
        config.checked(errors)
    }

    /// The configuration that is this one file's text.
    pub fn from_text(path: &Path, text: &str) -> Result<Config, ConfigErrors> {
        Config::from_texts(&[(path.to_owned(), text.to_owned())])
    }

    fn checked(mut self, mut errors: Vec<TermError>) -> Result<Config, ConfigErrors> {
        self.rules = merged(self.layers.iter().flat_map(|layer| &layer.rules));
        if errors.is_empty() {
            errors.extend(self.contradictions());
        }
        for rule in &self.rules {
            self.check_rule(rule, &mut errors);
        }
        errors.sort_by_key(TermError::position);
        if errors.is_empty() {
            Ok(self)
        } else {
            Err(ConfigErrors(errors))
        }
    }

    /// What the files say of a class that cannot hold together.
    fn contradictions(&self) -> Vec<TermError> {
        let of_class = |class: Class| {
            let mut asked = RawTerms::default();
            asked.insert(Term::Class.name(), class.name(), Source::Default);
            self.resolve(&[&asked]).err()
        };
        Term::Class
            .classes()
            .iter()
            .filter_map(|class| of_class(*class))
            .collect()
    }

    fn check_rule(&self, rule: &Rule, errors: &mut Vec<TermError>) {
        if rule.matches == Match::default() && !rule.wrong.matches {
            let remedy = "write match = { unit = \"backup-*.service\" } or another of unit, cgroup, exe and user";
            errors.push(rule.refused("it matches nothing", remedy));
        }
        if rule.terms.iter().all(RawTerms::is_empty) && !rule.wrong.terms {
            errors.push(rule.refused("it has no terms", "write terms = { class = \"side\" }"));
        }
        let layers: Vec<&RawTerms> = rule.terms.iter().collect();
        let is_of_all_users =
            !rule.matches.exe.is_empty() && rule.matches.user.is_empty() && !rule.wrong.matches;
        match self.resolve(&layers) {
            Ok(terms) if is_of_all_users && terms.take_from_others() => {
                let why =
                    "every user may run that file, and it would take CPU from others for them";
                errors
                    .push(rule.refused(why, "add the users who run it, as in user = \"postgres\""));
            }
            Err(error) if !rule.wrong.terms => errors.push(error),
            _ => {}
        }
    }

    /// The rules, in the order in which they first stand.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub fn has_rules_of(&self, kind: Kind) -> bool {
        self.rules.iter().any(|rule| rule.matches.kind() == kind)
    }

    pub fn enforcing(&self, name: &str) -> Config {
        let mut config = self.clone();
        for rule in config.rules.iter_mut().filter(|rule| rule.name == name) {
            rule.mode = Mode::Enforce;
        }
        config
    }

    pub fn mode_of(&self, rule: &str) -> Option<Mode> {
        self.rule(rule).map(|rule| rule.mode)
    }

    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.name == name)
    }

    pub fn settings(&self) -> Settings {
        Settings::from_candidates(|setting| {
            self.layers
                .iter()
                .filter_map(|layer| layer.settings.0.get(setting.name()))
                .collect()
        })
        .expect("every candidate was checked when its file was loaded")
    }

    /// One gate's terms from the files and from what was asked for, weakest first.
    ///
    /// The class comes from what was asked for alone; the files' terms for that class lie below.
    ///
    /// # Errors
    /// An unknown name, a text that is no value, a term that gates of the class do not take, terms
    /// that contradict each other.
    pub fn resolve(&self, asked: &[&RawTerms]) -> Result<Terms, TermError> {
        for layer in asked {
            layer.check()?;
        }
        let class_raw = asked
            .iter()
            .rev()
            .find_map(|layer| layer.0.get(Term::Class.name()));
        let class = class_raw
            .and_then(|raw| Class::from_name(raw.text.trim()))
            .unwrap_or_default();
        for layer in asked {
            for (name, raw) in &layer.0 {
                takes(class, Term::named(name, &raw.source)?, &raw.source)?;
            }
        }
        let from_files: Vec<&RawTerms> = self
            .layers
            .iter()
            .filter_map(|layer| layer.classes.get(&class))
            .collect();
        let terms = Terms::from_candidates(|term| {
            from_files
                .iter()
                .chain(asked)
                .filter_map(|layer| candidate(layer, term))
                .collect()
        })?;
        terms.check_together()?;
        Ok(terms)
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> TermError {
    TermError::Read {
        path: path.to_owned(),
        why: error.to_string(),
    }
}
