//! The configuration files, weakest to strongest, and the one place where terms are resolved.
//!
//! ```toml
//! default_headroom = "20%"    # the machine's settings stand at the top
//! lease = "2s"
//!
//! [side]                      # terms of every gate of this class
//! tolerance = "2%"
//! ```

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ConfigErrors, TermError, mend_for_unknown};
use crate::raw::RawTerms;
use crate::source::{RawTerm, Source};
use crate::table::{Setting, Settings, Term, Terms};
use crate::values::Class;

/// The folders that hold configuration, weakest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// The distribution's.
    pub vendor: PathBuf,
    /// The administrator's.
    pub admin: PathBuf,
    /// Until the next boot.
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

    /// The same below another root, for tests and images.
    pub fn under(root: &Path) -> Roots {
        Roots {
            vendor: root.join("usr/lib/tidegate"),
            admin: root.join("etc/tidegate"),
            runtime: root.join("run/tidegate"),
        }
    }

    /// Files that exist, weakest first: each root's `tidegate.toml`, the administrator's `tidegate.toml.d/*.toml` by
    /// name in between.
    fn files(&self) -> Result<Vec<PathBuf>, TermError> {
        let mut files = vec![
            self.vendor.join("tidegate.toml"),
            self.admin.join("tidegate.toml"),
        ];
        let drop_ins = self.admin.join("tidegate.toml.d");
        match std::fs::read_dir(&drop_ins) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&drop_ins, &error)),
            Ok(entries) => {
                let mut found = Vec::new();
                for entry in entries {
                    let path = entry.map_err(|error| unreadable(&drop_ins, &error))?.path();
                    if path.extension().is_some_and(|ext| ext == "toml") {
                        found.push(path);
                    }
                }
                found.sort();
                files.extend(found);
            }
        }
        files.push(self.runtime.join("tidegate.toml"));
        Ok(files)
    }
}

/// What the files say. Checked in full when loaded: resolving later can only fail on what was asked for then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// One entry a file, weakest first.
    layers: Vec<Layer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Layer {
    settings: RawTerms,
    classes: BTreeMap<Class, RawTerms>,
}

impl Config {
    /// Reads every file. Files that do not exist say nothing.
    ///
    /// # Errors
    /// All that is wrong in all of them: a machine must not run on half of what its administrator wrote.
    pub fn load(roots: &Roots) -> Result<Config, ConfigErrors> {
        let mut config = Config::default();
        let mut errors = Vec::new();
        let files = roots.files().map_err(|error| ConfigErrors(vec![error]))?;
        for path in files {
            match std::fs::read_to_string(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => errors.push(unreadable(&path, &error)),
                Ok(text) => config.add(&path, &text, &mut errors),
            }
        }
        config.checked(errors)
    }

    /// The configuration that is this one file's text.
    ///
    /// # Errors
    /// All that is wrong in it.
    pub fn from_text(path: &Path, text: &str) -> Result<Config, ConfigErrors> {
        let mut config = Config::default();
        let mut errors = Vec::new();
        config.add(path, text, &mut errors);
        config.checked(errors)
    }

    fn add(&mut self, path: &Path, text: &str, errors: &mut Vec<TermError>) {
        self.layers.push(Reader { path, text }.read(errors));
    }

    fn checked(self, mut errors: Vec<TermError>) -> Result<Config, ConfigErrors> {
        if errors.is_empty() {
            errors.extend(self.contradictions());
        }
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

    /// The machine's settings.
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
    /// An unknown name, a text that is no value, a term that gates of the class do not take, terms that contradict
    /// each other.
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

/// The term in a layer, also when it was written with dashes.
fn candidate<'r>(layer: &&'r RawTerms, term: Term) -> Option<&'r RawTerm> {
    layer
        .0
        .iter()
        .find(|(name, _)| Term::from_name(name) == Some(term))
        .map(|(_, raw)| raw)
}

fn takes(class: Class, term: Term, source: &Source) -> Result<(), TermError> {
    if term.classes().contains(&class) {
        return Ok(());
    }
    let names: Vec<&str> = term.classes().iter().map(|class| class.name()).collect();
    Err(TermError::WrongClass {
        name: term.name(),
        source_place: source.clone(),
        class,
        mend: format!("make it {}, or leave the term out", names.join(" or ")),
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> TermError {
    TermError::Read {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

/// One file being read.
struct Reader<'t> {
    path: &'t Path,
    text: &'t str,
}

impl Reader<'_> {
    fn read(&self, errors: &mut Vec<TermError>) -> Layer {
        let mut layer = Layer::default();
        let table = match DeTable::parse(self.text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                // The parser's message may span lines; the first says what is wrong.
                let why = error
                    .message()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                errors.push(TermError::Toml {
                    source_place: self.place(at),
                    why,
                });
                return layer;
            }
        };
        for (key, value) in &table {
            let name: &str = key.get_ref();
            let at = self.place(key.span().start);
            let read = match (Class::from_name(name), Setting::from_name(name)) {
                (Some(class), _) => self.class_terms(class, value, errors).map(|terms| {
                    layer.classes.insert(class, terms);
                }),
                (None, Some(setting)) => {
                    self.text_of(name, setting.example(), value)
                        .and_then(|raw| {
                            setting.check(&raw)?;
                            let set = layer.settings.0.insert(setting.name().to_owned(), raw);
                            let why = "set twice in this file, by two names; keep this one";
                            match set {
                                Some(_) => Err(TermError::Toml {
                                    source_place: self.place(key.span().start),
                                    why: format!("{}: {why}", setting.name()),
                                }),
                                None => Ok(()),
                            }
                        })
                }
                (None, None) => Err(Setting::unknown(name, at)),
            };
            errors.extend(read.err());
        }
        layer
    }

    fn class_terms(
        &self,
        class: Class,
        value: &Spanned<DeValue<'_>>,
        errors: &mut Vec<TermError>,
    ) -> Result<RawTerms, TermError> {
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.not_text(class.name(), &format!("[{class}]"), value));
        };
        let mut terms = RawTerms::default();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let read = self.class_term(class, name, key.span().start, value);
            match read {
                Ok((term, raw)) => {
                    terms.0.insert(term.name().to_owned(), raw);
                }
                Err(error) => errors.push(error),
            }
        }
        Ok(terms)
    }

    fn class_term(
        &self,
        class: Class,
        name: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(Term, RawTerm), TermError> {
        let source = self.place(at);
        let known: Vec<&str> = Term::names()
            .into_iter()
            .filter(|name| *name != "class")
            .collect();
        let term = match Term::from_name(name) {
            // The table's own name is the class.
            Some(Term::Class) | None => {
                return Err(TermError::Unknown {
                    name: name.to_owned(),
                    source_place: source,
                    kind: "term",
                    mend: mend_for_unknown(name, &known),
                });
            }
            Some(term) => term,
        };
        let raw = self.text_of(name, term.example(), value)?;
        term.check(&raw)?;
        takes(class, term, &source)?;
        Ok((term, raw))
    }

    /// Text, or a number as it was written: the digits are kept, so that `0.3` stays exact.
    fn text_of(
        &self,
        name: &str,
        example: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<RawTerm, TermError> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            _ => return Err(self.not_text(name, &format!("{name} = \"{example}\""), value)),
        };
        Ok(RawTerm {
            text,
            source: self.place(value.span().start),
        })
    }

    fn not_text(&self, name: &str, example: &str, value: &Spanned<DeValue<'_>>) -> TermError {
        let written = self.text.get(value.span()).unwrap_or_default();
        TermError::NotText {
            name: name.to_owned(),
            source_place: self.place(value.span().start),
            found: format!(
                "{} ({})",
                crate::error::quoted(written),
                value.get_ref().type_str()
            ),
            example: example.to_owned(),
        }
    }

    /// Line and column of a byte, both from 1.
    fn place(&self, byte: usize) -> Source {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Source::File {
            path: self.path.to_owned(),
            line: u32::try_from(before.matches('\n').count() + 1).unwrap_or(u32::MAX),
            column: u32::try_from(before[line_start..].chars().count() + 1).unwrap_or(u32::MAX),
        }
    }
}
