//! The policy in force, and what another changes.

use tidegate_api::{ObservedView, PolicyChangeView, PolicyView, RuleView};

use super::{BAD, BOLD, GOOD, count};
use tidegate_api::cli::escaped;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tense {
    Did,
    Would,
}

pub fn page(view: &PolicyView) -> String {
    let mut out = String::new();
    let files = match view.files.is_empty() {
        true => "no files".to_owned(),
        false => escaped(&view.files.join(", ")).to_string(),
    };
    out += &format!("{BOLD}policy{BOLD:#} {files}\n");
    if let Some(left) = view.trial_seconds_left {
        out += &format!(
            "{BAD}on trial{BAD:#}: back to the policy before in {left:.0} s unless `tidegate policy confirm`ed\n"
        );
    }
    if let Some(why) = &view.refused {
        out += &format!("{BAD}the files were refused{BAD:#}, and the policy before them stays:\n");
        for line in why.lines() {
            out += &format!("  {}\n", escaped(line));
        }
    } else if view.files_differ {
        out += "the files say something else now: see `tidegate policy diff`\n";
    }
    if !view.watch.is_empty() && !view.rules.is_empty() {
        out += &format!("what starts later: {}\n", escaped(&view.watch));
    }
    for rule in &view.rules {
        out += &of_rule(rule);
    }
    out
}

fn of_rule(rule: &RuleView) -> String {
    let mode = match rule.mode.as_str() {
        "observe" => ", observes",
        _ => "",
    };
    let mut out = format!(
        "\n{BOLD}{}{BOLD:#} ({}){mode}\n",
        escaped(&rule.name),
        escaped(&rule.source)
    );
    if rule.gates.is_empty() && rule.observed.is_empty() {
        out += "  no gate has its terms now\n";
    }
    for gate in &rule.gates {
        out += &format!("  gate {}\n", escaped(gate));
    }
    for view in &rule.observed {
        out += &observed(view);
    }
    out
}

fn observed(view: &ObservedView) -> String {
    let mut out = format!(
        "  {} would have {}\n",
        escaped(&view.target),
        escaped(&view.terms)
    );
    for write in &view.writes {
        out += &of_write(write, "      ");
    }
    if let Some(why) = &view.refused {
        out += &format!("      {BAD}refused{BAD:#}: {}\n", escaped(why));
    }
    out
}

fn of_write(write: &tidegate_api::KernelWriteView, indent: &str) -> String {
    let (path, to) = (escaped(&write.path), escaped(&write.to));
    match &write.from {
        Some(from) => format!("{indent}{path}: {} -> {to}\n", escaped(from)),
        None => format!("{indent}{path}: + {to}\n"),
    }
}

pub fn changes(view: &PolicyChangeView, tense: Tense) -> String {
    let mut out = String::new();
    for gate in &view.gates {
        let (sign, style) = match gate.change.as_str() {
            "made" => ("+", GOOD),
            "ended" => ("-", BAD),
            _ => ("~", BOLD),
        };
        let by = gate.rule.as_deref().map(|rule| format!(" [{rule}]"));
        out += &format!(
            "{style}{sign}{style:#} {}{}: {}\n",
            escaped(&gate.target),
            escaped(&by.unwrap_or_default()),
            escaped(&gate.terms)
        );
    }
    if !view.writes.is_empty() {
        out += "kernel files:\n";
    }
    for write in &view.writes {
        out += &of_write(write, "  ");
    }
    if !view.observed.is_empty() {
        out += "only observed:\n";
    }
    for view in &view.observed {
        out += &observed(view);
    }
    for note in &view.notes {
        out += &format!("note: {}\n", escaped(note));
    }
    let verb = match tense {
        Tense::Did => "changed",
        Tense::Would => "would change",
    };
    let gates = count(view.gates.len() as u64, "gate", "gates");
    match view.gates.is_empty() && view.writes.is_empty() {
        true => out += &format!("no gate {verb}\n"),
        false if tense == Tense::Would => {
            let writes = count(view.writes.len() as u64, "kernel file", "kernel files");
            out += &format!("{gates} and {writes} {verb}\n");
        }
        false => out += &format!("{gates} {verb}\n"),
    }
    out
}
