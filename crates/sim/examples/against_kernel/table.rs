//! The comparison as a table of Markdown, and its place in the docs.

use crate::figures::{Figure, Figures};
use crate::judge::{Verdict, judge};
use crate::scenario::Scenario;

const BEGIN: &str = "<!-- check-sim: begin (written by `cargo xtask check-sim --write`) -->";
const END: &str = "<!-- check-sim: end -->";

/// A kernel's figures and the simulator's for that machine.
pub struct Pair {
    pub kernel: Figures,
    pub sim: Figures,
}

/// One figure of a scenario on the machines where it was taken.
pub struct Row {
    pub name: String,
    pub vm: Option<(Figure, Figure, Verdict)>,
    pub host: Option<(Figure, Figure, Verdict)>,
}

/// All rows of a scenario.
pub fn rows(scenario: &Scenario, vm: Option<&Pair>, host: Option<&Pair>) -> Vec<Row> {
    let prefix = format!("{}.", scenario.name);
    let mut names: Vec<String> = Vec::new();
    for pair in [vm, host].into_iter().flatten() {
        for name in pair.sim.names().filter(|name| name.starts_with(&prefix)) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    let held = |pair: Option<&Pair>, name: &str| {
        let pair = pair?;
        let (kernel, sim) = (pair.kernel.get(name)?, pair.sim.get(name)?);
        let verdict = judge(name, kernel, sim, scenario.cpus);
        Some((kernel.clone(), sim.clone(), verdict))
    };
    names
        .into_iter()
        .map(|name| Row {
            vm: held(vm, &name),
            host: held(host, &name),
            name,
        })
        .collect()
}

/// How many judged figures are within, and the names of those that are not.
pub fn outside(
    rows: &[Row],
    pick: fn(&Row) -> &Option<(Figure, Figure, Verdict)>,
) -> (usize, Vec<&str>) {
    let judged = rows.iter().filter_map(|row| {
        let within = pick(row).as_ref()?.2.within?;
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
pub fn markdown(all: &[(&Scenario, Vec<Row>)], vm: Option<&Pair>, host: Option<&Pair>) -> String {
    let title = |pair: Option<&Pair>| {
        pair.map_or("not asked", |p| p.kernel.title.as_str())
            .to_owned()
    };
    let mut text = format!(
        "Virtual machine: {} (1 CPU, virtual time). Host: {}.\n\n\
         | figure | unit | VM | sim | difference | within | host | sim | difference | within |\n\
         |---|---|--:|--:|--:|---|--:|--:|--:|---|\n",
        title(vm),
        title(host)
    );
    for (scenario, rows) in all {
        text.push_str(&format!(
            "| **{}**: {} | | | | | | | | | |\n",
            scenario.name, scenario.what
        ));
        for row in rows {
            let unit = row
                .vm
                .as_ref()
                .or(row.host.as_ref())
                .map_or("", |held| held.0.unit.as_str());
            let (_, short) = row.name.split_once('.').unwrap_or(("", &row.name));
            let (vm, host) = (cells(&row.vm), cells(&row.host));
            text.push_str(&format!(
                "| {} | {unit} | {vm} | {host} |\n",
                short.replace('.', " ")
            ));
        }
    }
    text
}

/// What the simulator was configured with, as measured on each machine.
pub fn constants(vm: Option<&Pair>, host: Option<&Pair>) -> String {
    const MEANINGS: [(&str, &str); 10] = [
        ("machine.tick", "the timer tick"),
        ("machine.base_slice", "EEVDF's base slice"),
        (
            "costs.send",
            "write of 100 bytes to a pipe that nobody waits for (with `receive`, the mean: `op_ns`)",
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
    ];
    let mut text = "| constant | VM, ns | host, ns | what it is |\n|---|--:|--:|---|\n".to_owned();
    let value = |pair: Option<&Pair>, name: &str| {
        let figure = pair.and_then(|pair| pair.kernel.get(name));
        figure.map_or(String::new(), |figure| format!("{:.0}", figure.value))
    };
    for (name, meaning) in MEANINGS {
        let short = name.rsplit('.').next().unwrap_or(name);
        text.push_str(&format!(
            "| {short} | {} | {} | {meaning} |\n",
            value(vm, name),
            value(host, name)
        ));
    }
    text
}

/// Puts the table between the document's markers.
pub fn spliced(document: &str, table: &str) -> Result<String, String> {
    let (before, rest) = document
        .split_once(BEGIN)
        .ok_or_else(|| format!("no line `{BEGIN}`"))?;
    let (_, after) = rest
        .split_once(END)
        .ok_or_else(|| format!("no line `{END}`"))?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}
