//! The comparison as a table of Markdown, and its place in the docs.

use crate::figures::{Figure, Figures, Of};
use crate::judge::{Verdict, Window, judge};
use crate::scenario::Scenario;

/// A table: whose decisions, on which two beds.
pub struct Table {
    pub of: Of,
    /// Its place in the document: `<!-- MARK: begin ... -->` to `<!-- MARK: end -->`.
    mark: &'static str,
    /// The beds, as their files are named on the command line.
    pub beds: [&'static str; 2],
    /// And what the table calls them.
    pub names: [&'static str; 2],
    notes: [&'static str; 2],
}

/// The fair class of the VM's kernel and of the host's.
pub const FAIR: Table = Table {
    of: Of::Fair,
    mark: "check-sim",
    beds: ["vm", "host"],
    names: ["VM", "host"],
    notes: ["Virtual machine: ", " (1 CPU, virtual time). Host: "],
};
/// The ext engine on both kernels of the VM.
pub const EXT: Table = Table {
    of: Of::Ext,
    mark: "check-sim ext",
    beds: ["ext-6.18", "ext-7.3"],
    names: ["6.18", "7.3"],
    notes: [
        "The ext engine in the virtual machine (1 CPU, virtual time): ",
        "; ",
    ],
};

/// A kernel's figures and the simulator's for that machine.
pub struct Pair {
    pub kernel: Figures,
    pub sim: Figures,
}

/// On each of a table's two beds.
pub type Both<T> = [Option<T>; 2];

/// One figure of a scenario on the machines where it was taken.
pub struct Row {
    pub name: String,
    pub held: Both<(Figure, Figure, Verdict)>,
}

/// All rows of a scenario.
pub fn rows(of: Of, scenario: &Scenario, pairs: &Both<Pair>) -> Vec<Row> {
    let prefix = format!("{}.", scenario.of.name);
    let mut names: Vec<String> = Vec::new();
    for pair in pairs.iter().flatten() {
        for name in pair.sim.names().filter(|name| name.starts_with(&prefix)) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    let held = |pair: &Option<Pair>, name: &str| {
        let pair = pair.as_ref()?;
        let (kernel, sim) = (pair.kernel.get(name)?, pair.sim.get(name)?);
        let window = Window {
            cpus: scenario.cpus(),
            span_ms: scenario.span_ns() / 1_000_000,
        };
        let verdict = judge(of, name, kernel, sim, window);
        Some((kernel.clone(), sim.clone(), verdict))
    };
    names
        .into_iter()
        .map(|name| Row {
            held: pairs.each_ref().map(|pair| held(pair, &name)),
            name,
        })
        .collect()
}

/// How many judged figures are within, and the names of those that are not.
pub fn outside(rows: &[Row], bed: usize) -> (usize, Vec<&str>) {
    let judged = rows.iter().filter_map(|row| {
        let within = row.held[bed].as_ref()?.2.within?;
        Some((within, row.name.as_str()))
    });
    let (mut good, mut bad) = (0, Vec::new());
    for (within, name) in judged {
        if within {
            good += 1;
        } else {
            bad.push(name);
        }
    }
    (good, bad)
}

fn cells(held: &Option<(Figure, Figure, Verdict)>) -> String {
    let Some((kernel, sim, verdict)) = held else {
        return " | | | ".to_owned();
    };
    let within = match verdict.within {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "",
    };
    let digits = if kernel.unit == "count" { 0 } else { 2 };
    format!(
        "{:.digits$} | {:.digits$} | {} | {within}",
        kernel.value, sim.value, verdict.difference
    )
}

/// The table: a scenario's own line, then its figures.
pub fn markdown(table: &Table, all: &[(&Scenario, Vec<Row>)], pairs: &Both<Pair>) -> String {
    let titles = pairs.each_ref().map(|pair| {
        pair.as_ref()
            .map_or("not asked", |p| p.kernel.title.as_str())
    });
    let mut text = format!(
        "{}{}{}{}.\n\n\
         | figure | unit | {} | sim | difference | within | {} | sim | difference | within |\n\
         |---|---|--:|--:|--:|---|--:|--:|--:|---|\n",
        table.notes[0], titles[0], table.notes[1], titles[1], table.names[0], table.names[1],
    );
    for (scenario, rows) in all {
        text.push_str(&format!(
            "| **{}**: {} | | | | | | | | | |\n",
            scenario.of.name, scenario.of.about
        ));
        for row in rows {
            let unit = row
                .held
                .iter()
                .flatten()
                .next()
                .map_or("", |held| held.0.unit.as_str());
            let (_, short) = row.name.split_once('.').unwrap_or(("", &row.name));
            let [left, right] = row.held.each_ref().map(cells);
            text.push_str(&format!(
                "| {} | {unit} | {left} | {right} |\n",
                short.replace('.', " ")
            ));
        }
    }
    text
}

/// What the simulator was configured with, as measured on each machine.
pub fn constants(table: &Table, pairs: &Both<Pair>) -> String {
    const MEANINGS: [(&str, &str); 11] = [
        ("machine.tick", "the timer tick"),
        ("machine.base_slice", "EEVDF's base slice"),
        (
            "costs.send",
            "write of 100 bytes to a pipe without a waiting reader (with `receive`, the mean: `op_ns`)",
        ),
        ("costs.receive", "read of 100 bytes that are there"),
        (
            "costs.switch",
            "a context switch beyond the call that led to it: `switch_ns`",
        ),
        (
            "costs.wakeup",
            "half a ping-pong less send, receive and switch: blocking and waking, `wakeup_ns`",
        ),
        (
            "costs.timer",
            "how late a sleeper wakes on a busy CPU less the switch: the timer's interrupt and the way back",
        ),
        (
            "costs.idle_exit",
            "how much later on an idle one: `idle_exit_ns`",
        ),
        (
            "costs.tick",
            "what a tick takes from the task it interrupts: `tick_ns`",
        ),
        (
            "costs.yield",
            "a yield to oneself (not used; the cost of a call)",
        ),
        (
            "costs.tide",
            "what a look of the ext engine's ledger takes from the task it interrupts: `look_ns`",
        ),
    ];
    let mut text = format!(
        "| constant | {}, ns | {}, ns | what it is |\n|---|--:|--:|---|\n",
        table.names[0], table.names[1]
    );
    let value = |pair: &Option<Pair>, name: &str| {
        let figure = pair.as_ref().and_then(|pair| pair.kernel.get(name));
        figure.map_or(String::new(), |figure| format!("{:.0}", figure.value))
    };
    for (name, meaning) in MEANINGS {
        let short = name.rsplit('.').next().unwrap_or(name);
        text.push_str(&format!(
            "| {short} | {} | {} | {meaning} |\n",
            value(&pairs[0], name),
            value(&pairs[1], name)
        ));
    }
    text
}

impl Table {
    /// Puts the text between the document's markers.
    pub fn spliced(&self, document: &str, text: &str) -> Result<String, String> {
        let mark = self.mark;
        let begin = format!("<!-- {mark}: begin (written by `cargo xtask check-sim --write`) -->");
        let end = format!("<!-- {mark}: end -->");
        let (before, rest) = document
            .split_once(&begin)
            .ok_or_else(|| format!("no line `{begin}`"))?;
        let (_, after) = rest
            .split_once(&end)
            .ok_or_else(|| format!("no line `{end}`"))?;
        Ok(format!("{before}{begin}\n{text}{end}{after}"))
    }
}
