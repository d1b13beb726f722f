//! One file a subcommand.

pub mod agent;
pub mod completions;
pub mod doctor;
pub mod explain;
pub mod ext;
pub mod guardian;
pub mod lab;
pub mod lab_worker;
pub mod man;
pub mod repair;
pub mod run;
pub mod set;
pub mod show;
pub mod sim;
mod sim_asked;
pub mod status;
pub mod stop;
pub mod unset;

use crate::cli::Cmd;
use crate::exit::{Exit, Failure};

/// Does what was typed.
pub fn dispatch(command: Option<Cmd>) -> Result<Exit, Failure> {
    match command {
        None => Ok(Exit::Ok),
        Some(Cmd::Run(args)) => run::main(args),
        Some(Cmd::Set(args)) => set::main(&args),
        Some(Cmd::Unset(args)) => unset::main(&args),
        Some(Cmd::Show(args)) => show::main(&args),
        Some(Cmd::Status(args)) => status::main(&args),
        Some(Cmd::Explain(args)) => explain::main(&args),
        Some(Cmd::Doctor(args)) => doctor::main(&args),
        Some(Cmd::Lab(args)) => lab::main(&args),
        Some(Cmd::Sim(args)) => sim::main(&args),
        Some(Cmd::Ext(args)) => ext::main(&args),
        Some(Cmd::Agent(args)) => agent::main(&args),
        Some(Cmd::Stop(args)) => stop::main(&args),
        Some(Cmd::Repair(args)) => repair::main(&args),
        Some(Cmd::Completions(args)) => completions::main(&args),
        Some(Cmd::Man(args)) => man::main(&args),
        Some(Cmd::Guardian(args)) => guardian::main(&args),
        Some(Cmd::LabWorker(args)) => lab_worker::main(&args),
    }
}
