//! What the plugin counted, by function and by line: with the guest's symbols, and of BPF programs with their source lines.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use tidegate_vm::Done;

/// Whose details are shown.
const OURS: &str = "tidegate";
const TOP: usize = 24;
/// Places named with a line of memory.
const PLACES: usize = 5;
/// CPUs wait there for whole turns of others, which the emulator makes long: no cost of the kernel's.
const SPINS: &str = "queued_spin_lock_slowpath";
/// Called for each task that goes to another CPU.
const MIGRATES: &str = "set_task_cpu";

/// One load under one scheduler.
#[derive(Default)]
struct Interval {
    /// The kernel's blocks of instructions: where each begins, how many it has, how often it was executed.
    blocks: Vec<(u64, u64, u64)>,
    /// Moves, by instruction and address of the line.
    moves: Vec<(u64, u64, u64)>,
}

/// What one function did.
#[derive(Default)]
struct Function {
    moves: u64,
    instructions: u64,
    calls: u64,
}

/// What is where in a guest's kernel.
#[derive(Default)]
struct Names {
    symbols: BTreeMap<u64, String>,
    /// Of BPF programs: file, line and text.
    sources: BTreeMap<u64, String>,
}

/// Prints the table, then the details of the ext engine.
pub fn print(done: &Done, counted: &Path, is_all: bool) -> anyhow::Result<()> {
    let intervals = parse(&std::fs::read_to_string(counted)?)?;
    let rows: Vec<&str> = done.stdout.lines().collect();
    ensure!(
        rows.len() == intervals.len(),
        "{} loads, but {} were counted",
        rows.len(),
        intervals.len()
    );
    println!(
        "| scheduler | load | switches | a message | migrations a switch | kernel instructions a switch | lines a switch \
         | of them by BPF | lines a message |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
    let mut names: HashMap<&str, Names> = HashMap::new();
    let mut details = Vec::new();
    for (row, interval) in rows.iter().zip(&intervals) {
        let words: Vec<&str> = row.split(['|', ' ']).collect();
        let (scheduler, load) = row.split_once('|').context("a row without a load")?;
        let (load, _) = load.split_once('|').context("a row without figures")?;
        let [.., "switches", switches, "messages", messages] = words[..] else {
            anyhow::bail!("{row}: no figures");
        };
        let (switches, messages): (f64, f64) = (switches.parse()?, messages.parse()?);
        if !names.contains_key(scheduler) {
            names.insert(scheduler, Names::read(&done.results, scheduler)?);
        }
        let known = &names[scheduler];
        let functions = by_function(known, interval);
        let counted = functions.iter().filter(|(name, _)| !name.ends_with(SPINS));
        let instructions: u64 = counted.map(|(_, of)| of.instructions).sum();
        let migrations = functions.get(MIGRATES).map_or(0, |of| of.calls);
        let moves: u64 = functions.values().map(|of| of.moves).sum();
        let by_bpf = functions.iter().filter(|(name, _)| is_of_bpf(name));
        let by_bpf: u64 = by_bpf.map(|(_, of)| of.moves).sum();
        let a_switch = |many: u64| many as f64 / switches;
        let a_message = |many: f64| match messages > 0.0 {
            true => format!("{:.1}", many / messages),
            false => "–".into(),
        };
        println!(
            "| {scheduler} | {load} | {switches} | {} | {:.2} | {:.0} | {:.1} | {:.1} | {} |",
            a_message(switches),
            a_switch(migrations),
            a_switch(instructions),
            a_switch(moves),
            a_switch(by_bpf),
            a_message(moves as f64),
        );
        details.push((scheduler, load, switches, interval));
    }
    let last = details.iter().rposition(|d| d.0 == OURS);
    for (at, (scheduler, load, switches, interval)) in details.iter().enumerate() {
        if is_all || Some(at) == last {
            println!("\n{scheduler}, {load}, a switch:");
            detail(&names[scheduler], interval, *switches);
        }
    }
    Ok(())
}

/// Our programs, and what they take their locks by.
fn is_of_bpf(function: &str) -> bool {
    function.starts_with("bpf:") || function.starts_with("__bpf_spin")
}

fn by_function(names: &Names, interval: &Interval) -> HashMap<String, Function> {
    let mut functions: HashMap<String, Function> = HashMap::new();
    for (pc, instructions, executed) in &interval.blocks {
        let function = functions.entry(names.function(*pc)).or_default();
        function.instructions += instructions * executed;
        if names.symbols.contains_key(pc) {
            function.calls += executed;
        }
    }
    for (pc, _, many) in &interval.moves {
        functions.entry(names.function(*pc)).or_default().moves += many;
    }
    functions
}

fn detail(names: &Names, interval: &Interval, switches: f64) {
    let mut lines: HashMap<u64, (u64, HashMap<String, u64>)> = HashMap::new();
    let mut sources: HashMap<String, u64> = HashMap::new();
    for (pc, line, many) in &interval.moves {
        let place = names.source(*pc).unwrap_or_else(|| names.function(*pc));
        let of_line = lines.entry(*line).or_default();
        of_line.0 += many;
        *of_line.1.entry(place.clone()).or_default() += many;
        *sources.entry(place).or_default() += many;
    }
    let a_switch = |many: u64| many as f64 / switches;
    for what in ["lines", "instructions"] {
        println!("\n  lines  instructions  calls  function, by {what}");
        let by = |of: &Function| match what {
            "lines" => of.moves,
            _ => of.instructions,
        };
        for (name, of) in top(by_function(names, interval), by, TOP) {
            let (moves, instructions) = (a_switch(of.moves), a_switch(of.instructions));
            println!(
                "{moves:7.2} {instructions:13.1} {:6.2}  {name}",
                a_switch(of.calls)
            );
        }
    }
    println!("\n  lines  place");
    for (name, moves) in top(sources, |moves| *moves, TOP) {
        println!("{:7.2}  {name}", a_switch(moves));
    }
    println!("\n  lines  address, and from where it moves");
    for (line, (moves, places)) in top(lines, |line| line.0, TOP) {
        println!("{:7.2}  {}", a_switch(moves), names.data(line));
        for (name, moves) in top(places, |moves| *moves, PLACES) {
            println!("{:15.2}  {name}", a_switch(moves));
        }
    }
}

fn top<K: Ord, V>(of: HashMap<K, V>, by: impl Fn(&V) -> u64, many: usize) -> Vec<(K, V)> {
    let mut all: Vec<(K, V)> = of.into_iter().collect();
    all.sort_by(|a, b| by(&b.1).cmp(&by(&a.1)).then(a.0.cmp(&b.0)));
    all.truncate(many);
    all
}

fn parse(text: &str) -> anyhow::Result<Vec<Interval>> {
    let mut all: Vec<Interval> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let hex = |word: &str| u64::from_str_radix(word, 16);
        match (words[..].first().copied(), &words[1..], all.last_mut()) {
            (Some("interval"), _, _) => all.push(Interval::default()),
            (Some("block"), [pc, many, executed], Some(last)) => {
                last.blocks
                    .push((hex(pc)?, many.parse()?, executed.parse()?));
            }
            (Some("move"), [pc, at, reads, writes], Some(last)) => {
                let many = reads.parse::<u64>()? + writes.parse::<u64>()?;
                last.moves.push((hex(pc)?, hex(at)?, many));
            }
            _ => anyhow::bail!("the plugin wrote \"{line}\""),
        }
    }
    Ok(all)
}

impl Names {
    fn read(results: &Path, scheduler: &str) -> anyhow::Result<Names> {
        let mut names = Names::default();
        let packed = results.join(format!("{scheduler}.symbols.gz"));
        let unpacked = Command::new("gzip").arg("-dc").arg(&packed).output()?;
        for line in String::from_utf8_lossy(&unpacked.stdout).lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(at), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let name = match name.strip_prefix("bpf_prog_") {
                // bpf_prog_TAG_NAME
                Some(tagged) => format!("bpf:{}", tagged.split_once('_').map_or(tagged, |t| t.1)),
                None => name.to_owned(),
            };
            names.symbols.insert(u64::from_str_radix(at, 16)?, name);
        }
        let lines = std::fs::read_to_string(results.join(format!("{scheduler}.lines")))?;
        for line in lines.lines() {
            if let Some((at, text)) = line.split_once('\t') {
                let text = text.replace('\t', " ");
                names.sources.insert(u64::from_str_radix(at, 16)?, text);
            }
        }
        Ok(names)
    }

    fn function(&self, pc: u64) -> String {
        let found = self.symbols.range(..=pc).next_back();
        found.map_or_else(|| format!("{pc:x}"), |(_, name)| name.clone())
    }

    /// None: it is in no BPF program.
    fn source(&self, pc: u64) -> Option<String> {
        let (from, name) = self.symbols.range(..=pc).next_back()?;
        let name = name.strip_prefix("bpf:")?;
        let (_, text) = self.sources.range(*from..=pc).next_back()?;
        let (file, text) = text.split_once(' ').unwrap_or((text, ""));
        let file = file.rsplit("bpf/").next().unwrap_or(file);
        Some(format!("{name} {file}: {}", text.trim()))
    }

    /// A variable of the kernel's, or the address alone.
    fn data(&self, line: u64) -> String {
        let found = self.symbols.range(..=line + 63).next_back();
        match found {
            Some((at, name))
                if (0xffff_ffff_8000_0000..0xffff_ffff_a000_0000).contains(at)
                    && line < 0xffff_ffff_a000_0000 =>
            {
                format!("{line:x} {name}")
            }
            _ => format!("{line:x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTED: &str = "interval 0\nblock ffffffff81000010 4 3\nblock ffffffff81000020 2 5\n\
                           move ffffffff81000024 ff11000000000040 2 1\ninterval 1\n";

    fn names() -> Names {
        let symbols = [
            (0xffff_ffff_8100_0000, "first"),
            (0xffff_ffff_8100_0020, "second"),
        ];
        Names {
            symbols: symbols.map(|(at, name)| (at, name.to_owned())).into(),
            sources: BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_counted_is_of_the_function_that_it_is_in() {
        let intervals = parse(COUNTED).unwrap();
        assert_eq!(intervals.len(), 2);
        let functions = by_function(&names(), &intervals[0]);
        let of = |name: &str| {
            let of = &functions[name];
            (of.moves, of.instructions, of.calls)
        };
        assert_eq!(of("first"), (0, 12, 0));
        assert_eq!(of("second"), (3, 10, 5));
    }

    #[test]
    fn what_the_plugin_does_not_write_is_refused() {
        assert!(parse("block ffffffff81000010 4 3\n").is_err());
        assert!(parse("interval 0\nmove 1 2\n").is_err());
    }
}
