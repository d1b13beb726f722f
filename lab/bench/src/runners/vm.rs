//! Experiments on a stock kernel in virtual time: the VM boots with this very program and
//! `tidegate`, and runs the same experiment there as it would on this machine, on one CPU on which
//! an instruction is a nanosecond. What another program does on this machine changes how long that
//! takes, and nothing that it finds.

use std::time::Duration;

use tidegate_vm::{Job, Setup};

use super::Measured;
use super::host::tidegate;
use crate::LabError;
use crate::experiment::LabOptions;
use crate::loads::spin::NOPS_VARIABLE;
use crate::machine::Guest;

/// The kernel where none is asked for.
pub const SERIES: &str = "6.18";
/// The guest's own time; an experiment takes a few minutes of it.
const LIMIT_S: u32 = 3000;
/// Wall time: under five minutes on an idle machine, many times that on an overloaded one.
const WALL_LIMIT: Duration = Duration::from_secs(3 * 3600);

pub fn run(options: &LabOptions) -> Result<(Guest, Measured), LabError> {
    let name = options.experiment().name;
    let series = options.kernel.clone().unwrap_or_else(|| SERIES.into());
    let programs = vec![
        ("/bin/tidegate".to_string(), tidegate::executable()?),
        ("/bin/tidegate-lab".to_string(), tidegate::own_executable()?),
    ];
    let job = Job {
        setup: Setup {
            cache: tidegate_vm::cache(),
            work: options.out_dir().join(format!("{name}-vm-{series}.logs")),
            series: series.clone(),
            scripts: None,
            binaries: programs,
        },
        command: command(options),
        environment: vec![(NOPS_VARIABLE.into(), "1".into())],
        limit_s: LIMIT_S,
        wall_limit: WALL_LIMIT,
    };
    // What its lab says of its progress is shown; its last complaint is kept for a failure.
    let mut why = String::new();
    let done = job.run(&mut |line| {
        if line.starts_with("tidegate-lab:") {
            why = line.to_string();
        }
        if !options.quiet {
            eprintln!("{line}");
        }
    })?;
    if done.status != 0 {
        return Err(LabError::process(
            format!("tidegate-lab {name} in the VM"),
            format!("ended with {}: {why}", done.status),
        ));
    }
    let path = done.results.join(format!("{name}.samples"));
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|e| LabError::file("read the guest's samples", &path, e))?;
    let mut measured: Measured = serde_json::from_str(&text)
        .map_err(|e| LabError::process("the guest's samples", e.to_string()))?;
    let worth = "On one emulated CPU in virtual time: an instruction is a nanosecond, and nothing outside the guest can be \
                 seen in the figures. Caches, other CPUs and real devices do not exist; a system call or a switch takes about \
                 as many microseconds as thousands of instructions.";
    let seconds = done.guest_s;
    let note = format!("{worth} The guest ran for {seconds:.0} s of its time.");
    measured.missing.push(note);
    let guest = Guest {
        machine: measured.machine.clone(),
        package: done.kernel,
        series,
    };
    Ok((guest, measured))
}

fn command(options: &LabOptions) -> Vec<String> {
    let run = ["/bin/tidegate-lab", options.experiment().name];
    let place = ["--on", "host", "--out", ".", "--serialise"];
    let mut words: Vec<String> = run.iter().chain(&place).map(ToString::to_string).collect();
    words.extend(options.words());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_asked_for_the_same_thing() {
        let mut options = LabOptions::new(&crate::experiments::CAPS);
        options.quick = true;
        options.rounds = Some(2);
        assert_eq!(
            command(&options).join(" "),
            "/bin/tidegate-lab caps --on host --out . --serialise --seed 1 --rounds 2 --quick"
        );
    }
}
