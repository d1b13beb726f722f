//! `tidegate web`: the same in a browser, and recordings and reports.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tidegate_replay::{Options, Replay};

use crate::cmd::replay;
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::progress::Progress;
use crate::recorded_span::{self, load_span};
use crate::render;
use crate::web::recording::Shown;
use crate::web::results::Results;
use crate::web::{self, Sources, single};

const SAMPLE: &str = "\
Examples:
  tidegate web
      then open http://127.0.0.1:9480/; Ctrl-C ends it
  ssh -L 9480:127.0.0.1:9480 HOST tidegate web
      the page of another machine
  tidegate web --recording night.tgr --policy bolder.toml
      what was, and what would have been under a policy, side by side
  tidegate web --recording night.tgr --policy bolder.toml --out night.html
      the same as one file to pass on, which opens without Tidegate
  tidegate lab law --on sim --out results && tidegate web --results results
      the report's plots and tables

The page only reads, shows no command lines, and is for programs of this machine
alone. It needs no agent to start: it waits for one, and follows the next.";

/// Serve a page that shows the machine live, recordings and reports
#[derive(clap::Args)]
#[command(after_help = SAMPLE)]
pub struct Args {
    /// Listen at this loopback address; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9480")]
    listen: String,
    /// Show this recording: a file, or the directory of an agent that records
    #[arg(long, value_name = "RECORDING")]
    recording: Option<PathBuf>,
    /// Replay the recording under this policy file too; repeat for more
    #[arg(long, value_name = "FILE", requires = "recording")]
    policy: Vec<PathBuf>,
    #[command(flatten)]
    span: recorded_span::Span,
    /// Write the view of the recording into this HTML file, and serve nothing
    #[arg(long, value_name = "FILE", requires = "recording", conflicts_with_all = ["listen", "results"])]
    out: Option<PathBuf>,
    /// Show the reports in this folder, as lab and sim write them with --out
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// No progress on standard error
    #[arg(short, long)]
    quiet: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let address = loopback(&args.listen)?;
    web::check_build()?;
    if args.recording.is_none() && args.span.is_said() {
        let why = "web: --from, --to, --last: they are parts of a recording; add --recording FILE";
        return Err(Failure::new(Exit::Usage, why));
    }
    let results = args.results.as_deref().map(results).transpose()?;
    let recording = args.recording.as_deref();
    let recording = recording.map(|path| replayed(path, args)).transpose()?;
    if let (Some(shown), Some(path)) = (&recording, &args.out) {
        return write(shown, path);
    }
    let sources = Sources {
        socket: connect::socket(),
        recording,
        results,
    };
    web::serve(address, sources)
}

fn loopback(text: &str) -> Result<SocketAddr, Failure> {
    let wrong = |why: &str| {
        let mend = "write a loopback address with a port, as in 127.0.0.1:9480";
        let what = format!("web: --listen: \"{text}\" {why}; {mend}");
        Failure::new(Exit::Usage, what)
    };
    let address: SocketAddr = text
        .parse()
        .map_err(|_| wrong("is no address with a port"))?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(wrong("is not an address of this machine alone")),
    }
}

fn results(folder: &Path) -> Result<Results, Failure> {
    Results::open(folder).map_err(|error| {
        let what = folder.display();
        let why = format!(
            "web: --results: {what}: {error}; name a folder that lab or sim wrote with --out"
        );
        Failure::new(Exit::Usage, why)
    })
}

/// The recording beside its arms, as `tidegate replay` has them.
fn replayed(path: &Path, args: &Args) -> Result<Shown, Failure> {
    let policies = replay::read_policies(&args.policy)?;
    let recording = load_span("web", path, &args.span)?;
    let failed = |error| replay::failed("web", &error);
    let options = Options {
        seeds: replay::SEEDS,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let replay = Replay::new(&recording, options).map_err(failed)?;
    let arms = replay.arms(&policies);
    let progress = Progress::new("replay", replay.total_ns(arms.len()), args.quiet);
    let view = replay.view(&arms, &|ns| progress.done(ns));
    progress.finish();
    let name = match path.file_name() {
        Some(name) if path.is_file() => name.to_string_lossy().into_owned(),
        _ => path.display().to_string(),
    };
    Ok(Shown::new(name, &view.map_err(failed)?))
}

fn write(shown: &Shown, path: &Path) -> Result<Exit, Failure> {
    let page = single::page(&shown.name, &shown.json);
    let to = path.display();
    tidegate_recording::write_whole(path, page.as_bytes()).map_err(|error| {
        let why = format!("web: --out: {to}: {error}; choose another place");
        Failure::new(Exit::Failure, why)
    })?;
    let kb = page.len().div_ceil(1_000);
    render::print(&format!("{to}: {kb} kB, opens in a browser\n"))
}
