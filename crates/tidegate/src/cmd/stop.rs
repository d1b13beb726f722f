//! `tidegate stop`: ends the owner.

use tidegate_agent::api::Done;
use tidegate_agent::client::{Client, ErrorKind};
use tidegate_agent::paths::RunDir;

use crate::exit::{Exit, Failure};
use crate::render;

/// End the owner: what it changed is put back, commands go on without limits
#[derive(clap::Args)]
pub struct Args {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let done = match Client::connect(&RunDir::from_env()) {
        Ok(client) => client.stop()?,
        // What was asked for is so already.
        Err(error) if error.kind == ErrorKind::Unreachable => Done {
            message: "no owner runs; nothing to stop".to_owned(),
        },
        Err(error) => return Err(error.into()),
    };
    if args.json {
        render::json(&done)
    } else {
        render::print(&format!("{}\n", done.message))
    }
}
