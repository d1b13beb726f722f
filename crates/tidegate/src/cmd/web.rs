//! `tidegate web`: the same in a browser.

use std::net::SocketAddr;

use crate::connect;
use crate::exit::{Exit, Failure};
use crate::web;

const SAMPLE: &str = "\
Examples:
  tidegate web
      then open http://127.0.0.1:9480/; Ctrl-C ends it
  ssh -L 9480:127.0.0.1:9480 HOST tidegate web
      the page of another machine

The page only reads, shows no command lines, and is for programs of this machine
alone. It needs no agent to start: it waits for one, and follows the next.";

/// Serve a page that shows the machine, its gates, events and policy
#[derive(clap::Args)]
#[command(after_help = SAMPLE)]
pub struct Args {
    /// Listen at this loopback address; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9480")]
    listen: String,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let text = &args.listen;
    let wrong = |why: &str| {
        let mend = "write a loopback address with a port, as in 127.0.0.1:9480";
        let what = format!("web: --listen: \"{text}\" {why}; {mend}");
        Failure::new(Exit::Usage, what)
    };
    let address: SocketAddr = text
        .parse()
        .map_err(|_| wrong("is no address with a port"))?;
    match address.ip().is_loopback() {
        true => web::serve(address, &connect::socket()),
        false => Err(wrong("is not an address of this machine alone")),
    }
}
