//! `tidegate doctor`: what this machine can enforce.

use serde::Serialize;
use tidegate_agent::sched_ext::machine;
use tidegate_cgroup::RealFs;
use tidegate_sched_ext::{ProgramCost, SchedExtError};

use crate::doctor::{self, Facts};
use crate::render;
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

const NOTES: &str = "\
Looks, and changes nothing that stays: it loads and unloads the BPF sensor and
may make an empty group for a moment. Ends with 0 if headroom can be enforced
here by its caller, else with 1.

--verify-sched-ext needs root and a kernel with sched_ext; without them it ends
with 4, and with 1 if the kernel refuses a program.";

/// Check what this machine can enforce, how, and what to change
#[derive(clap::Args)]
#[command(after_long_help = NOTES)]
pub struct Args {
    /// Instead have the kernel check the sched_ext engine's BPF programs, and print the
    /// instructions it walked; none runs
    #[arg(long)]
    verify_sched_ext: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Verified {
    programs: Vec<ProgramCost>,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    if args.verify_sched_ext {
        return verify_sched_ext(args.json);
    }
    let report = doctor::report(&Facts::gather());
    render::show(args.json, &report, doctor::page::of)?;
    Ok(if report.enforceable {
        Exit::Ok
    } else {
        Exit::Failure
    })
}

fn verify_sched_ext(json: bool) -> Result<Exit, Failure> {
    let failure = |exit, why: &dyn std::fmt::Display| Failure::new(exit, format!("doctor: {why}"));
    let options =
        machine::options(&RealFs::new(), None).map_err(|why| failure(Exit::Failure, &why))?;
    let programs = tidegate_sched_ext::verify(&options).map_err(|error| {
        let exit = match error {
            SchedExtError::Unsupported { .. } | SchedExtError::NotRoot => Exit::Refused,
            _ => Exit::Failure,
        };
        failure(exit, &error)
    })?;
    if json {
        return render::json(&Verified { programs });
    }
    let line =
        |program: &ProgramCost| format!("{:22}{:>8}\n", program.name, program.verified_insns);
    render::print(&programs.iter().map(line).collect::<String>())
}
