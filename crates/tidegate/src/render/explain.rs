//! `tidegate explain`: one screen.

use tidegate_api::{ExplainView, UserView, WriteView};

use super::{BOLD, cpus, cpus_or_unknown, fit, gates, label, span, status, styled, wrapped};

/// Lists longer than this are cut, so that the page stays on one screen; `--json` has all.
const USERS_MAX: usize = 6;
const WRITES_MAX: usize = 6;

pub fn page(view: &ExplainView) -> String {
    let mut text = format!("{}\n", styled(BOLD, &gates::heading(&view.gate)));
    text.push_str(&wrapped("            ", &view.summary));
    let limit = view.gate.held.limit;
    let binds = format!("{limit}: {}", limit.meaning());
    text.push_str(&wrapped("     Binds: ", &binds));
    let sched_ext_off = view
        .status
        .sched_ext
        .as_ref()
        .and_then(|sched_ext| sched_ext.off.clone());
    let engine = sched_ext_off.map_or_else(
        || view.status.engine.clone(),
        |off| format!("{} ({off})", view.status.engine),
    );
    if !engine.is_empty() {
        text.push_str(&wrapped("    Engine: ", &engine));
    }
    for (index, line) in view.arithmetic.iter().enumerate() {
        text.push_str(&aligned(&label("Arithmetic", index), line));
    }
    if let Some(cap) = &view.gate.cap {
        text.push_str(&wrapped("  Soft cap: ", &gates::cap_line(cap)));
    }
    if let Some(cap) = gates::by_scheduler(&view.gate) {
        text.push_str(&wrapped("       Cap: ", &gates::held_line(cap)));
    }
    text.push_str(&users(view));
    if let Some(counts) = view
        .gate
        .sched_ext
        .as_ref()
        .filter(|counts| counts.wakeups > 0)
    {
        text.push_str(&wrapped("     Waits: ", &gates::waits(counts)));
    }
    if let Some(waits) = view
        .status
        .behind_side
        .as_ref()
        .filter(|_| view.gate.class == "main")
    {
        text.push_str(&wrapped(
            "     Waits: ",
            &format!("other work, {}", status::behind_side(waits)),
        ));
    }
    if let Some(latency) = &view.gate.latency {
        text.push_str(&wrapped("   Urgency: ", &gates::urgency(latency)));
    }
    text.push_str(&gates::terms(&view.gate.terms));
    text.push_str(&writes(&view.writes));
    let notes = view.gate.notes.iter().chain(&view.status.alerts);
    for note in notes {
        text.push_str(&wrapped("      Note: ", note));
    }
    text
}

/// A line of columns, which the agent has aligned: only what does not fit of the last column goes
/// below it.
fn aligned(label: &str, line: &str) -> String {
    match line.rfind("  ").map(|gap| line.split_at(gap + 2)) {
        Some((columns, last)) if !last.is_empty() => wrapped(&format!("{label}{columns}"), last),
        _ => wrapped(label, line),
    }
}

fn users(view: &ExplainView) -> String {
    let rank = |user: &&UserView| user.usage_cpus.unwrap_or(-1.0);
    let mut sorted: Vec<_> = view.users.iter().collect();
    sorted.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    let mut text = String::new();
    for (index, user) in sorted.iter().take(USERS_MAX).enumerate() {
        let label = label("CPU users", index);
        let class = if user.class.is_empty() {
            String::new()
        } else {
            format!(" ({})", user.class)
        };
        text.push_str(&format!(
            "{label}{:>7} {}\n",
            cpus_or_unknown(user.usage_cpus),
            fit(&format!("{}{class}", user.who), 60)
        ));
    }
    let rest = sorted
        .iter()
        .skip(USERS_MAX)
        .filter_map(|user| user.usage_cpus)
        .sum::<f64>();
    if sorted.len() > USERS_MAX {
        text.push_str(&format!(
            "            {:>7} {} more\n",
            cpus(rest),
            sorted.len() - USERS_MAX
        ));
    }
    text
}

fn writes(writes: &[WriteView]) -> String {
    let mut text = String::new();
    for (index, write) in writes.iter().take(WRITES_MAX).enumerate() {
        let was = write
            .was
            .as_ref()
            .map_or_else(String::new, |was| format!(" (was {was})"));
        let line = format!(
            "{} ago: {} = {}{was}: {}",
            span(write.ago_seconds),
            write.path,
            write.value,
            write.reason
        );
        text.push_str(&wrapped(&label("Writes", index), &line));
    }
    text
}
