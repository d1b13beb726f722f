//! `tidegate-lab demo`: a tour of the five mechanisms on this machine, each beside its strongest
//! simple alternative. It is an experiment like the others, run station by station.

mod stations;

use tidegate_api::cli::wrapped;

use self::stations::{Found, STATIONS};
use crate::experiment::{Ask, Cell, Experiment, LabOptions};
use crate::machine::Machine;
use crate::options::On;
use crate::report::{self, Report, Table, build, text};
use crate::runners;
use crate::runners::host::{Host, cleanup};
use crate::scene::{Kind, MS, Outcome};
use crate::settle::Trace;
use crate::{LabError, clock, stop};

static DEMO: Experiment = Experiment {
    name: "demo",
    question: "Tidegate's five mechanisms on this machine",
    places: &[On::Host],
    parts: |ask| {
        let parts = STATIONS.iter().map(|station| (station.parts)(ask));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        Ok(parts.into_iter().flatten().collect())
    },
    notes: &[
        "Each figure is the median of the rounds, which are interleaved. By hand is the strongest simple alternative.",
        "Run delay is how long a thread waits for a CPU each time, by the kernel's count.",
        "cpu.idle by hand and Tidegate without a headroom are the same kernel setting. So are cpu.max.burst and burst, and \
         a slice and a hint.",
        "The 1 s loop is the rule of resctl-demo's sideloader with exact counters.",
    ],
};

/// A step of the traces.
const STEP_NS: u64 = 100 * MS;

/// A load's part of the machine in each step, 0 to 1.
type Shares = (String, Vec<f64>);

pub struct Demo {
    pub report: Report,
    /// The table, the page, and what to try next.
    pub text: String,
}

/// Runs the stations one after another, says the result of each as soon as it ends, and writes the
/// report under [`LabOptions::out`]. A station that cannot run here says why.
pub fn run(options: &LabOptions, say: &mut dyn FnMut(&str)) -> Result<Demo, LabError> {
    let options = &LabOptions {
        experiment: Some(&DEMO),
        ..options.clone()
    };
    crate::check(options)?;
    report::make_folder(&options.out_dir())?;
    let _signals = stop::catch_signals();
    let began_ns = clock::monotonic_ns();
    cleanup::sweep();
    let mut host = Host::new()?;
    host.tree()?;
    let ask = Ask {
        options,
        cpus: host.machine.cpus as u32,
    };
    let mut table = Table::new("The tour", &["figure", "without", "by hand", "Tidegate"]);
    let (mut parts, mut samples, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let mut traces: Vec<Shares> = Vec::new();
    for (at, station) in STATIONS.iter().enumerate() {
        let label = format!("{} {}: ", at + 1, station.name);
        say(&wrapped(&label, station.about));
        let found = (station.parts)(&ask).and_then(|own| {
            let mut seen = |cell: &Cell, outcome: &Outcome| trace(&mut traces, cell, outcome);
            let found = runners::perform(&mut host, options, station.name, &own, &mut seen);
            parts.extend(own);
            found
        });
        let (found, left_out) = match found {
            Err(e @ LabError::Interrupted) => return Err(e),
            Err(e) => (Vec::new(), vec![format!("It cannot run here: {e}.")]),
            Ok(found) => found,
        };
        if !found.is_empty() {
            let rows = (station.rows)(&Found(&found));
            let [what, without, by_hand, ours] = &rows[0];
            let by_hand = format!("by hand {by_hand}; Tidegate {ours}");
            say(&format!("   {what}: {without}; {by_hand}\n"));
            rows.into_iter().for_each(|row| table.push(row));
        }
        if station.name == "headroom" {
            let lines = traces.iter().map(|(name, shares)| sparkline(name, shares));
            say(&lines.collect::<String>());
        }
        left_out.iter().for_each(|why| say(&wrapped("   ", why)));
        missing.extend(left_out);
        samples.extend(found);
    }
    let command = host.command();
    let machine = Machine::Host(host.finish());
    let seconds = (clock::monotonic_ns() - began_ns) as f64 / 1e9;
    let mut report = build::report(&DEMO, machine, &parts, &samples);
    report.notes.push(format!("The tour took {seconds:.0} s."));
    report.notes.extend(missing);
    let loud = report
        .notes
        .iter()
        .find(|note| note.starts_with(build::LOUD_NOTE));
    let loud = loud.map_or_else(String::new, |note| wrapped("", note));
    let text = text::table(&table);
    report.tables.insert(0, table);
    report.write_files(&options.out_dir())?;
    let page = options.out_dir().join("demo.html");
    let text = format!(
        "\n{text}\n{}\n{loud}It took {seconds:.0} s.\nPlots: {}\nTry next:\n  {command} run make -j8\n  {command} top\n",
        report.machine.line(),
        page.display(),
    );
    Ok(Demo { report, text })
}

/// Keeps what main and side had over time where main steps, main once.
fn trace(traces: &mut Vec<Shares>, cell: &Cell, o: &Outcome) {
    let (Some(main), Some(from), Some(to)) =
        (cell.scene.loads.first(), o.looks.first(), o.looks.last())
    else {
        return;
    };
    if !matches!(main.kind, Kind::Level(_)) {
        return;
    }
    let shares = |load| {
        let trace = Trace::of(o, load);
        let steps = (from.at_ns..to.at_ns).step_by(STEP_NS as usize);
        steps
            .filter_map(|at_ns| trace.rate(at_ns, at_ns + STEP_NS))
            .collect()
    };
    if traces.is_empty() {
        traces.push(("main".into(), shares(0)));
    }
    traces.push((cell.arm.label.clone(), shares(1)));
}

fn sparkline(name: &str, shares: &[f64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = |share: &f64| LEVELS[(share.clamp(0.0, 1.0) * 7.0).round() as usize];
    format!(
        "   {name:18} {}\n",
        shares.iter().map(level).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_has_a_level_for_each_step() {
        assert!(sparkline("main", &[0.0, 0.5, 1.2]).ends_with(" ▁▅█\n"));
    }

    #[test]
    fn sentences_are_short() {
        let about = STATIONS.iter().map(|station| station.about);
        for text in about.chain(DEMO.notes.iter().copied()) {
            for sentence in text.split(['.', ':', ';']) {
                let words = sentence.split_whitespace().count();
                assert!(words <= 25, "{words} words: {sentence}");
            }
        }
    }
}
