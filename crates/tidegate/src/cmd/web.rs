//! `tidegate web`: the same in a browser, and replays.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tidegate_api::Exit;
use tidegate_api::cli::Failure;

use crate::connect;
use crate::web::recording::Shown;
use crate::web::{self, Sources};

const SAMPLE: &str = "\
Examples:
  tidegate web
      then open http://127.0.0.1:9480/; Ctrl-C ends it
  ssh -L 9480:127.0.0.1:9480 HOST tidegate web
      the page of another machine
  tidegate-lab replay night.tgr --policy bolder.toml --json > night.json
  tidegate web --replay night.json
      the recording, and its simulation under a policy, side by side

The page only reads, shows no command lines, and is for programs of this machine
alone. It needs no agent to start: it waits for one, and follows the next.";

/// Serve a page that shows the machine live, and replays
#[derive(clap::Args)]
#[command(after_long_help = SAMPLE)]
pub struct Args {
    /// Loopback address; port 0 is any
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9480")]
    listen: String,
    /// Show a replay that tidegate-lab wrote as JSON
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let address = loopback(&args.listen)?;
    web::check_build()?;
    let recording = args.replay.as_deref().map(replay).transpose()?;
    let sources = Sources {
        socket: connect::socket(),
        recording,
    };
    web::serve(address, sources)
}

fn loopback(text: &str) -> Result<SocketAddr, Failure> {
    let wrong = |why: &str| {
        let remedy = "write a loopback address with a port, as in 127.0.0.1:9480";
        let what = format!("web: --listen: \"{text}\" {why}; {remedy}");
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

fn replay(path: &Path) -> Result<Shown, Failure> {
    Shown::read(path).map_err(|why| {
        let what = path.display();
        let remedy = "name a file that `tidegate-lab replay --json` wrote";
        let why = format!("web: --replay: {what}: {why}; {remedy}");
        let exit = match path.exists() {
            true => Exit::Usage,
            false => Exit::NoTarget,
        };
        Failure::new(exit, why)
    })
}
