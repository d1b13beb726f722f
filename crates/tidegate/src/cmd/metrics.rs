//! `tidegate metrics`: what Prometheus scrapes, without an address.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tidegate_agent::metrics::{Format, text_without_agent};

use crate::connect;
use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::{Failure, escaped};

/// node_exporter is another user.
const READABLE: u32 = 0o644;

const SAMPLE: &str = "\
Examples:
  tidegate metrics
      OpenMetrics, as a scrape gets it
  tidegate metrics --textfile /var/lib/prometheus/node-exporter/tidegate.prom
      for node_exporter, once a minute from cron or a systemd timer

The file is in the Prometheus text format, since node_exporter does not read
OpenMetrics. It is replaced as a whole. While no agent runs, it has
tidegate_agent_up 0 alone, and the command ends with 3.";

/// Print the agent's metrics, or write them for node_exporter
#[derive(clap::Args)]
#[command(after_long_help = SAMPLE)]
pub struct Args {
    /// Write Prometheus text into this file instead; its name must end in .prom
    #[arg(long, value_name = "PATH")]
    textfile: Option<PathBuf>,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let Some(path) = &args.textfile else {
        // A line at a time: what acts on a terminal is escaped, but for the ends of lines.
        let text = read(Format::OpenMetrics)?;
        let lines: Vec<String> = text.lines().map(escaped).collect();
        return render::print(&(lines.join("\n") + "\n"));
    };
    if path.extension().is_none_or(|extension| extension != "prom") {
        let what = format!(
            "metrics: {}: node_exporter reads names that end in .prom only; choose one",
            path.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let (text, ended) = match read(Format::Prometheus) {
        Ok(text) => (text, Ok(Exit::Ok)),
        Err(failure) if failure.exit == Exit::Unreachable => {
            (text_without_agent(Format::Prometheus), Err(failure))
        }
        Err(failure) => return Err(failure),
    };
    replace(path, &text).map_err(|error| {
        let what = format!(
            "metrics: {}: {error}; choose a folder that can be written",
            path.display()
        );
        Failure::new(Exit::Failure, what)
    })?;
    ended
}

fn read(format: Format) -> Result<String, Failure> {
    Ok(connect::to_agent()?.metrics(format.media_type())?)
}

/// A reader finds the old text or the new one, never a part.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(READABLE)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&partial)?;
    let replaced = fill(file, text).and_then(|()| std::fs::rename(&partial, path));
    if replaced.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    replaced
}

fn fill(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    // Whatever the umask.
    file.set_permissions(Permissions::from_mode(READABLE))
}
