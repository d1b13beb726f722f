//! Experiments on a stock kernel in virtual time: the VM boots with this very program and
//! `tidegate`, and runs the same experiment there as it would on this machine, on one CPU on which
//! an instruction is a nanosecond. What another program does on this machine changes how long that
//! takes, and nothing that it finds.

use std::time::Duration;

use tidegate_vm::{Job, Mode, Setup};

use super::Measured;
use super::host::tidegate;
use crate::experiment::LabOptions;
use crate::loads::spin::NOPS_VARIABLE;
use crate::machine::Guest;
use crate::{Engine, LabError};

/// The kernel where none is asked for.
pub const SERIES: &str = "6.18";
const WIDE_CPUS: u32 = 8;
/// The guest's own time; an experiment takes a few minutes of it.
const LIMIT_S: u32 = 3000;
/// Wall time: under five minutes on an idle machine, many times that on an overloaded one.
const WALL_LIMIT: Duration = Duration::from_secs(3 * 3600);

pub fn run(options: &LabOptions) -> Result<(Guest, Measured), LabError> {
    let name = options.experiment().name;
    let engine = match options.engine {
        Engine::Cgroup => "",
        Engine::SchedExt => "-sched-ext",
    };
    let series = options.kernel.clone().unwrap_or_else(|| SERIES.into());
    let (mode, cpus) = guest(options)?;
    let programs = vec![
        ("/bin/tidegate".to_string(), tidegate::executable()?),
        ("/bin/tidegate-lab".to_string(), tidegate::own_executable()?),
    ];
    let job = Job {
        setup: Setup {
            cache: tidegate_vm::cache(),
            work: options
                .out_dir()
                .join(format!("{name}{engine}-vm-{series}.logs")),
            series: series.clone(),
            scripts: None,
            binaries: programs,
        },
        mode,
        cpus,
        command: command(options),
        environment: vec![(NOPS_VARIABLE.into(), "1".into())],
        files: Vec::new(),
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
    let worth = match cpus {
        1 => {
            "On one emulated CPU in virtual time: an instruction is a nanosecond, and nothing outside the guest can be seen in \
             the figures. Caches, other CPUs and real devices do not exist; a system call or a switch takes about as many \
             microseconds as thousands of instructions."
        }
        _ => {
            "On emulated CPUs that share one virtual time in turns of 10 us: CPU time is good to half a percent, latencies to \
             some turns (80 us on eight CPUs), and nothing outside the guest can be seen in them."
        }
    };
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

/// One CPU is exact; an experiment about several has one size, since each is a boot.
fn guest(options: &LabOptions) -> Result<(Mode, u32), LabError> {
    match (options.experiment().name, options.cpus.as_deref()) {
        ("slices", None) => Ok((Mode::Wide, WIDE_CPUS)),
        (_, None | Some([1])) => Ok((Mode::Precise, 1)),
        ("slices", Some([cpus @ 2..=WIDE_CPUS])) => Ok((Mode::Wide, *cpus)),
        (_, Some(sizes)) => Err(LabError::asked(
            format!("--cpus {sizes:?}"),
            "a guest has one size",
            format!("give one number up to {WIDE_CPUS} to slices, or leave it out"),
        )),
    }
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
        let mut options = LabOptions::new(&crate::experiments::BURST);
        options.quick = true;
        options.rounds = Some(2);
        assert_eq!(
            command(&options).join(" "),
            "/bin/tidegate-lab burst --on host --out . --serialise --seed 1 --rounds 2 --quick"
        );
        options.engine = Engine::SchedExt;
        options.loads = Some(vec![1.0, 1.4]);
        let words = command(&options).join(" ");
        assert!(words.contains("--on host") && words.contains("--engine sched_ext"));
        assert!(words.contains("--loads 1,1.4"));
    }
}
