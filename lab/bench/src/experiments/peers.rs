//! Ordinary work, without a gate, under the kernel's own scheduler, under the sched_ext engine and
//! under other schedulers of sched_ext that are installed (`--peer NAME=PATH`), one after another
//! in each round. The work is done by programs that others wrote; those that are not installed are
//! left out.

use serde_json::Value;

use super::{HOST, VM};
use crate::LabError;
use crate::experiment::{
    Alternatives, Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target,
    metric,
};
use crate::runners::{host, sim};
use crate::scene::{Keeper, Kind, MS, Outcome, Output, S, Scene};

pub static PEERS: Experiment = Experiment {
    name: "peers",
    question: "Ordinary work under other schedulers of sched_ext",
    places: &[HOST, VM],
    parts,
    notes: &[
        "Each figure is a time (an operation's, a request's, a wakeup's), so less is better; medians over the rounds. `tidegate` \
         is the agent with the sched_ext engine, without a gate; each other scheduler has its own defaults.",
    ],
};

const MARGIN: f64 = 1.05;

/// A kind of work a line: its name, what runs next to it, and its command line (`sh` takes the rest
/// as a script).
///
/// schbench without `-L` takes a spinlock of its own on each CPU, which threads that do not run
/// would hold. cyclictest's interval is out of step with any tick: with 2 ms each wakeup came at
/// one of two moments between ticks of 4 ms, which another boot moved. `build` is what make does:
/// jobs that compute, four at a time.
const WORK: &str = "\
hackbench 1, sockets | - | hackbench -g 1 -l 200
hackbench 4, threads, pipes | - | hackbench -g 4 -T -p -l 50
hackbench 8, pipes | - | hackbench -g 8 -p -l 25
hackbench 16, sockets | - | hackbench -g 16 -l 12
schbench, 8 workers | - | schbench -L -m 1 -t 8 -F 16 -n 1 -r 3 -w 0 -i 60 -j -
schbench, pipe | - | schbench -m 1 -t 1 -p 64 -r 2 -j -
cyclictest | - | cyclictest -q -i 2117 -D 8 -h 100000 --histfile=/dev/null --json=/proc/self/fd/2
cyclictest, 4 hogs a CPU | hogs | cyclictest -q -i 2117 -D 8 -h 100000 --histfile=/dev/null --json=/proc/self/fd/2
cyclictest, hackbench | hackbench | cyclictest -q -i 2117 -D 8 -h 100000 --histfile=/dev/null --json=/proc/self/fd/2
stress-ng switch | - | stress-ng --switch 2 --switch-ops 20000
stress-ng fork | - | stress-ng --fork 2 --fork-ops 400
shell | - | sh i=0; while [ $i -lt 200 ]; do /bin/busybox true; i=$((i+1)); done
build | - | sh seq 32 | xargs -P 4 -n 1 sh -c 'head -c 100000 /bin/busybox | gzip >/dev/null'";

/// The lines of [`WORK`]: name, what runs next to it, program, arguments.
fn work() -> impl Iterator<Item = (&'static str, &'static str, &'static str, &'static str)> {
    WORK.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" | ")?;
        let (beside, command) = rest.split_once(" | ")?;
        let (program, arguments) = command.split_once(' ')?;
        Some((name, beside, program, arguments))
    })
}

const TIME: Metric = metric("time_us", "time, us", 0);
const METRICS: [Metric; 6] = [
    TIME,
    metric("operation_us", "operation, us", 1),
    metric("wakeup_p50_us", "wakeup p50, us", 1),
    metric("wakeup_p99_us", "wakeup p99, us", 1),
    metric("request_p50_us", "request p50, us", 1),
    metric("request_p99_us", "request p99, us", 1),
];

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    if let Some((name, path)) = ask.options.peers.iter().find(|p| !p.1.is_file()) {
        return Err(LabError::asked(
            format!("--peer {name}={}", path.display()),
            "there is no such file",
            "give the program of an installed scheduler, or leave it out",
        ));
    }
    let mut arms = vec![(Arm::new("eevdf", "EEVDF"), Keeper::Nobody)];
    if ask.is_virtual() || host::sched_ext_supported().is_ok() {
        arms.push((Arm::new("tidegate", "Tidegate"), Keeper::SchedExt));
    }
    let peers = ask.options.peers.iter().enumerate();
    arms.extend(peers.map(|(at, (name, _))| (Arm::new(name, name), Keeper::Peer(at))));
    let mut cells = Vec::new();
    for round in 0..ask.rounds(1, 3) {
        for (name, beside, program, args) in work() {
            if program != "sh" && !ask.is_virtual() && !host::is_installed(program) {
                continue;
            }
            let case = Case::new("", name).with("work", name);
            for (arm, keeper) in &arms {
                let mut scene = Scene::new(sim::plain(ask.cpus.max(1)), 500 * MS, S, 1);
                scene.keeper = *keeper;
                let words = match program {
                    "sh" => vec!["sh".into(), "-c".into(), args.into()],
                    _ => std::iter::once(program)
                        .chain(args.split(' '))
                        .map(String::from)
                        .collect(),
                };
                let command = Kind::Command {
                    words,
                    measures: true,
                };
                scene.load(program, None, command);
                match beside {
                    "hogs" => scene.load("hogs", None, Kind::hogs(4 * ask.cpus)),
                    "hackbench" => {
                        let (groups, loops) = (1, 0);
                        scene.load("hackbench", None, Kind::Hackbench { groups, loops })
                    }
                    _ => 0,
                };
                cells.push(Cell::new(&case, arm.clone(), round, scene));
            }
        }
    }
    let others: Vec<&str> = arms[1..].iter().map(|(arm, _)| arm.key.as_str()).collect();
    let worst = |m: &Metric| {
        let what = format!("{} over EEVDF, worst work: {{arm}}", m.head);
        let target = Target::new(what, &others, *m, "×").over("eevdf");
        target.of(Of::Most).bound(Bound::Most(MARGIN))
    };
    let targets = METRICS.iter().filter(|_| !others.is_empty()).map(worst);
    let over: Alternatives = &[(
        "eevdf",
        &["time_us", "operation_us", "wakeup_p99_us", "request_p99_us"],
    )];
    let part = Part::new("work", "Ordinary work", cells, figures, &METRICS);
    Ok(vec![part.over(over).targets(targets)])
}

fn figures(cell: &Cell, o: &Outcome) -> Vec<Figures> {
    let Some(output) = &o.loads[0].output else {
        return Vec::new();
    };
    let read = read(cell.scene.loads[0].name, output, o.seconds() * 1e6);
    read.into_iter().collect()
}

fn read(program: &str, output: &Output, time_us: f64) -> Option<Figures> {
    let figures = Figures::default();
    match program {
        "hackbench" => Some(figures.with("time_us", 1e6 * number(&output.stdout, "Time: ")?)),
        "schbench" => match number(&output.stderr, "avg worker transfer: ") {
            Some(rate) => Some(figures.with("operation_us", 1e6 / rate)),
            None => requests(output),
        },
        "cyclictest" => wakeups(&output.stderr),
        _ => Some(figures.with("time_us", time_us)),
    }
}

fn number(text: &str, words: &str) -> Option<f64> {
    let rest = text.split_once(words)?.1.trim_start();
    rest.split_whitespace().next()?.parse().ok()
}

fn requests(output: &Output) -> Option<Figures> {
    let found: Value = serde_json::from_str(output.stdout.trim()).ok()?;
    let mut figures = Figures::default();
    for (name, field) in [
        ("wakeup_p50_us", "wakeup_latency_pct50.0"),
        ("wakeup_p99_us", "wakeup_latency_pct99.0"),
        ("request_p50_us", "request_latency_pct50.0"),
        ("request_p99_us", "request_latency_pct99.0"),
    ] {
        figures = figures.with(name, found["int"][field].as_f64()?);
    }
    Some(figures.with(
        "operation_us",
        1e6 / number(&output.stderr, "average rps: ")?,
    ))
}

/// Percentiles of the JSON between messages, which has how many wakeups took each number of
/// microseconds.
fn wakeups(text: &str) -> Option<Figures> {
    let json = text.get(text.find('{')?..=text.rfind('}')?)?;
    let found: Value = serde_json::from_str(json).ok()?;
    let thread = &found["thread"]["0"];
    let all = thread["cycles"].as_u64().filter(|all| *all > 0)?;
    let histogram = thread["histogram"].as_object()?.iter();
    let mut counts: Vec<(u64, u64)> = histogram
        .filter_map(|(us, count)| Some((us.parse().ok()?, count.as_u64()?)))
        .collect();
    counts.sort_unstable();
    let percentile = |percent: u64| {
        let mut seen = 0;
        let at = counts.iter().find(|(_, count)| {
            seen += count;
            seen * 100 >= all * percent
        });
        // Beyond the histogram's end.
        at.map_or(f64::INFINITY, |(us, _)| *us as f64)
    };
    let figures = Figures::default().with("wakeup_p50_us", percentile(50));
    Some(figures.with("wakeup_p99_us", percentile(99)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runners::vm::PEERS_PROGRAMS;

    #[test]
    fn a_guest_has_the_programs_of_the_work() {
        for (_, _, program, _) in work().filter(|work| work.2 != "sh") {
            assert!(PEERS_PROGRAMS.contains(&program), "{program}");
        }
    }

    fn found(program: &str, stdout: &str, stderr: &str) -> Option<Vec<f64>> {
        let output = Output {
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let figures = read(program, &output, 12.5)?;
        Some(figures.0.into_iter().map(|f| f.1).collect())
    }

    #[test]
    fn figures_are_read_from_what_each_program_says() {
        let text = "Running in process mode\nTime: 0.020\n";
        assert_eq!(found("hackbench", text, ""), Some(vec![20_000.0]));
        let text = "warmup done\navg worker transfer: 50000.00 ops/sec 3.05MB/s\n";
        assert_eq!(found("schbench", "{}", text), Some(vec![20.0]));
        let json = r#"{"normal": {"version": "6"},"int": {"time": 1, "wakeup_latency_pct50.0": 6, "wakeup_latency_pct99.0": 1102,
            "request_latency_pct50.0": 224, "request_latency_pct99.0": 480, "runtime": 3}}"#;
        let requests = found("schbench", json, "average rps: 4000.00\n");
        assert_eq!(requests, Some(vec![6.0, 1102.0, 224.0, 480.0, 250.0]));
        assert_eq!(found("schbench", "", "no memory"), None);
        assert_eq!(found("sh", "", ""), Some(vec![12.5]));
    }

    #[test]
    fn wakeups_beyond_the_histogram_count() {
        let json = |cycles: u32| {
            format!(
                "# a warning\n{{\"thread\": {{\"0\": {{\"histogram\": {{\"21\": 50, \"105\": 49}}, \"cycles\": {cycles}}}}}}}\n"
            )
        };
        assert_eq!(found("cyclictest", "", &json(99)), Some(vec![21.0, 105.0]));
        assert_eq!(
            found("cyclictest", "", &json(110)),
            Some(vec![105.0, f64::INFINITY])
        );
        assert_eq!(found("cyclictest", "", "Unable to open\n"), None);
    }
}
