//! The work: a command each, what runs beside it, and what its output tells. Every figure is a time: less is better.

use serde_json::Value;

/// What runs beside the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// So many threads a CPU that never sleep.
    Hogs(usize),
    /// hackbench, without end.
    Hackbench,
}

/// A kind of work.
#[derive(Debug, PartialEq, Eq)]
pub struct Work {
    /// In tables, JSON and CSV.
    pub name: &'static str,
    /// Its program.
    pub program: &'static str,
    /// Its arguments, by words; a script for a shell.
    pub args: &'static str,
    /// What runs beside it.
    pub beside: Beside,
    /// What is measured; names end in their unit.
    pub figures: &'static [&'static str],
}

const TIME: &[&str] = &["time_ms"];
const WAKEUPS: &[&str] = &["wakeup_p50_us", "wakeup_p99_us"];
const REQUESTS: &[&str] = &[
    "wakeup_p50_us",
    "wakeup_p99_us",
    "request_p50_us",
    "request_p99_us",
    "request_us",
];
const ANSWERS: &[&str] = &["request_p50_us", "request_p99_us"];
const OPERATION: &[&str] = &["operation_us"];

type Words = &'static str;

const fn load(name: Words, program: Words, args: Words, figures: &'static [Words]) -> Work {
    Work {
        name,
        program,
        args,
        beside: Beside::Nothing,
        figures,
    }
}

const fn hackbench(name: Words, args: Words) -> Work {
    load(name, "hackbench", args, TIME)
}

/// Its interval is out of step with any tick: with 2 ms each wakeup came at one of two moments between ticks of 4 ms, which
/// another boot moved (the p99 beside hogs was 0.9 or 2.4 times EEVDF's).
const fn cyclictest(name: Words, beside: Beside) -> Work {
    let args = "-q -i 2117 -D 8 -h 100000 --histfile=/dev/null --json=/proc/self/fd/2";
    Work {
        beside,
        ..load(name, "cyclictest", args, WAKEUPS)
    }
}

/// All of it. schbench without `-L` takes a spinlock of its own on each CPU, which threads that do not run would hold. `build`
/// is what make does: jobs that compute, four at a time.
pub const LOADS: [Work; 14] = [
    hackbench("hackbench 1, sockets", "-g 1 -l 200"),
    hackbench("hackbench 4, threads, pipes", "-g 4 -T -p -l 50"),
    hackbench("hackbench 8, pipes", "-g 8 -p -l 25"),
    hackbench("hackbench 16, sockets", "-g 16 -l 12"),
    load(
        "schbench, 8 workers",
        "schbench",
        "-L -m 1 -t 8 -F 16 -n 1 -r 3 -w 0 -i 60 -j -",
        REQUESTS,
    ),
    load(
        "schbench, pipe",
        "schbench",
        "-m 1 -t 1 -p 64 -r 2 -j -",
        OPERATION,
    ),
    cyclictest("cyclictest", Beside::Nothing),
    cyclictest("cyclictest, 4 hogs a CPU", Beside::Hogs(4)),
    cyclictest("cyclictest, hackbench", Beside::Hackbench),
    load(
        "stress-ng switch",
        "stress-ng",
        "--switch 2 --switch-ops 20000",
        TIME,
    ),
    load("nginx, half the machine", "nginx", "", ANSWERS),
    load(
        "stress-ng fork",
        "stress-ng",
        "--fork 2 --fork-ops 400",
        TIME,
    ),
    load(
        "shell",
        "sh",
        "i=0; while [ $i -lt 200 ]; do /bin/busybox true; i=$((i+1)); done",
        TIME,
    ),
    load(
        "build",
        "sh",
        "seq 32 | xargs -P 4 -n 1 sh -c 'head -c 100000 /bin/busybox | gzip >/dev/null'",
        TIME,
    ),
];

/// What a command left.
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// From its start to its end.
    pub time_ms: f64,
}

impl Work {
    /// Its arguments.
    pub fn words(&self) -> Vec<&'static str> {
        match self.program {
            "sh" => vec!["-c", self.args],
            _ => self.args.split_whitespace().collect(),
        }
    }

    /// Its figures, in their order.
    pub fn read(&self, output: &Output) -> Option<Vec<f64>> {
        match (self.program, self.figures) {
            ("hackbench", _) => Some(vec![1000.0 * number(&output.stdout, "Time: ")?]),
            ("schbench", OPERATION) => {
                Some(vec![1e6 / number(&output.stderr, "avg worker transfer: ")?])
            }
            ("schbench", _) => requests(output),
            ("cyclictest", _) => wakeups(&output.stderr),
            _ => Some(vec![output.time_ms]),
        }
    }
}

/// The number that follows these words.
fn number(text: &str, words: &str) -> Option<f64> {
    let rest = text.split_once(words)?.1.trim_start();
    rest.split_whitespace().next()?.parse().ok()
}

fn requests(output: &Output) -> Option<Vec<f64>> {
    let found: Value = serde_json::from_str(output.stdout.trim()).ok()?;
    let percentile = |of: &str| found["int"][of].as_f64();
    Some(vec![
        percentile("wakeup_latency_pct50.0")?,
        percentile("wakeup_latency_pct99.0")?,
        percentile("request_latency_pct50.0")?,
        percentile("request_latency_pct99.0")?,
        1e6 / number(&output.stderr, "average rps: ")?,
    ])
}

/// Percentiles of the JSON between messages, which has how many wakeups took each number of microseconds.
fn wakeups(text: &str) -> Option<Vec<f64>> {
    let json = text.get(text.find('{')?..=text.rfind('}')?)?;
    let found: Value = serde_json::from_str(json).ok()?;
    let thread = &found["thread"]["0"];
    let all = thread["cycles"].as_u64()?;
    let mut counts: Vec<(u64, u64)> = thread["histogram"]
        .as_object()?
        .iter()
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
    (all > 0).then(|| vec![percentile(50), percentile(99)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &str, stderr: &str) -> Output {
        Output {
            stdout: stdout.into(),
            stderr: stderr.into(),
            time_ms: 12.5,
        }
    }

    fn read(name: &str, stdout: &str, stderr: &str) -> Option<Vec<f64>> {
        let load = LOADS.iter().find(|load| load.name == name)?;
        let figures = load.read(&output(stdout, stderr))?;
        assert_eq!(figures.len(), load.figures.len());
        Some(figures)
    }

    #[test]
    fn figures_are_read_from_what_each_program_says() {
        let text = "Running in process mode\nTime: 0.020\n";
        assert_eq!(read("hackbench 1, sockets", text, ""), Some(vec![20.0]));
        let text = "warmup done\navg worker transfer: 50000.00 ops/sec 3.05MB/s\n";
        assert_eq!(read("schbench, pipe", "{}", text), Some(vec![20.0]));
        let json = r#"{"normal": {"version": "6"},"int": {"time": 1, "wakeup_latency_pct50.0": 6, "wakeup_latency_pct99.0": 1102,
            "request_latency_pct50.0": 224, "request_latency_pct99.0": 480, "runtime": 3}}"#;
        let found = read("schbench, 8 workers", json, "average rps: 4000.00\n");
        assert_eq!(found, Some(vec![6.0, 1102.0, 224.0, 480.0, 250.0]));
        assert_eq!(read("schbench, 8 workers", "", "no memory"), None);
        assert_eq!(read("shell", "", ""), Some(vec![12.5]));
    }

    #[test]
    fn wakeups_beyond_the_histogram_count() {
        let json = |cycles: u32| {
            format!(
                "# a warning\n{{\"thread\": {{\"0\": {{\"histogram\": {{\"21\": 50, \"105\": 49}}, \"cycles\": {cycles}}}}}}}\n"
            )
        };
        assert_eq!(read("cyclictest", "", &json(99)), Some(vec![21.0, 105.0]));
        let found = read("cyclictest", "", &json(110));
        assert_eq!(found, Some(vec![105.0, f64::INFINITY]));
        assert_eq!(read("cyclictest", "", "Unable to open\n"), None);
    }

    #[test]
    fn a_shell_has_its_script_as_one_word() {
        let words = |name| LOADS.iter().find(|l| l.name == name).map(Work::words);
        assert_eq!(words("shell").map(|w| w.len()), Some(2));
        assert_eq!(
            words("hackbench 1, sockets"),
            Some(vec!["-g", "1", "-l", "200"])
        );
    }
}
