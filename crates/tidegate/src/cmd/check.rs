//! `tidegate policy check`: whether policy files are right, without an agent.

use std::path::PathBuf;

use serde::Serialize;
use tidegate_agent::paths::RunDir;
use tidegate_terms::{Config, ConfigErrors, Roots, Source, TermError, read_file, schema};

use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::{Failure, report};

const SAMPLE: &str = "\
Examples:
  tidegate policy check
      the files that an agent here would read
  tidegate policy check tidegate.toml web.toml
      these files together, the last one the strongest
  tidegate policy check --root ~/image
      the files of a machine whose root is there
  tidegate policy check --schema > tidegate.schema.json
      for an editor that completes and marks as one types

Ends with 2 if a file is wrong (each mistake with file, line and column), and
with 5 if a file does not exist.";

/// Check policy files: every mistake, each with its line and column
#[derive(clap::Args)]
#[command(after_long_help = SAMPLE)]
pub struct Args {
    /// Files to read instead of the machine's, weakest first
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Read the files below this directory instead of /
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    root: Option<PathBuf>,
    /// Print the mistakes as JSON
    #[arg(long)]
    json: bool,
    /// Print the JSON schema of the files
    #[arg(long, conflicts_with_all = ["files", "root", "json"])]
    schema: bool,
}

#[derive(Serialize)]
struct Checked {
    mistakes: Vec<Mistake>,
}

#[derive(Serialize)]
struct Mistake {
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    message: String,
}

impl Mistake {
    fn of(error: &TermError) -> Mistake {
        let (file, line, column) = match error.place() {
            Some(Source::File { path, line, column }) => {
                (Some(path.display().to_string()), Some(*line), Some(*column))
            }
            _ => (None, None, None),
        };
        Mistake {
            file,
            line,
            column,
            message: error.to_string(),
        }
    }
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    if args.schema {
        return render::json(&schema::of_files());
    }
    let read = match (&args.root, args.files.is_empty()) {
        (Some(root), _) => Roots::under(root).read(),
        (None, true) => RunDir::from_env().config_roots().read(),
        (None, false) => read(&args.files),
    };
    let checked = read.and_then(|texts| {
        let config = Config::from_texts(&texts)?;
        Ok((texts.len(), config.rules().len()))
    });
    let mistakes = checked.as_ref().err().map_or(&[][..], |errors| &errors.0);
    if args.json {
        let mistakes = mistakes.iter().map(Mistake::of).collect();
        render::json(&Checked { mistakes })?;
    }
    match checked {
        Err(errors) => {
            if !args.json {
                report(&errors.to_string());
            }
            let is_absent = args.files.iter().any(|path| !path.exists());
            let exit = match is_absent {
                true => Exit::NoTarget,
                false => Exit::Usage,
            };
            Err(Failure::new(exit, ""))
        }
        Ok(_) if args.json => Ok(Exit::Ok),
        Ok((0, _)) => render::print("no policy files: every term has its default\n"),
        Ok((files, rules)) => {
            let plural = |n: usize| if n == 1 { "" } else { "s" };
            render::print(&format!(
                "{files} file{}, {rules} rule{}: no mistake\n",
                plural(files),
                plural(rules)
            ))
        }
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<(PathBuf, String)>, ConfigErrors> {
    let (mut texts, mut errors) = (Vec::new(), Vec::new());
    for path in files {
        match read_file(path) {
            Ok(text) => texts.push((path.clone(), text)),
            Err(error) => errors.push(TermError::Read {
                path: path.clone(),
                why: error.to_string(),
            }),
        }
    }
    match errors.is_empty() {
        true => Ok(texts),
        false => Err(ConfigErrors(errors)),
    }
}
