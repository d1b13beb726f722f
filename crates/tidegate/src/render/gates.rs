//! Gates as a list and one by one.

use tidegate_api::{CapCounts, CapView, GateCounts, GateView, LatencyView, TermView};

use super::{BOLD, count, cpus, cpus_or_unknown, fit, label, span, styled, wrapped};

pub fn list(gates: &[GateView]) -> String {
    if gates.is_empty() {
        return "no gates\n".to_owned();
    }
    let header = format!(
        "{:<20} {:<7} {:>7} {:>7} {:>5}  {}",
        "GATE", "CLASS", "CPUS", "ALLOWED", "PROCS", "WHAT"
    );
    let mut text = format!("{}\n", styled(BOLD, &header));
    for gate in gates {
        let allowed = gate.allowance_cpus.map_or_else(|| "-".to_owned(), cpus);
        let line = format!(
            "{:<20} {:<7} {:>7} {:>7} {:>5}  {}",
            fit(&gate.name, 20),
            fit(&gate.class, 7),
            cpus_or_unknown(gate.usage_cpus),
            allowed,
            gate.processes,
            fit(gate.command.as_deref().unwrap_or(&gate.target), 28),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub fn one(gate: &GateView) -> String {
    let mut text = format!("{}\n", styled(BOLD, &heading(gate)));
    if let Some(command) = &gate.command {
        text.push_str(&wrapped("   Command: ", &fit(command, 3 * 68)));
    }
    text.push_str(&wrapped("     Group: ", &gate.cgroup));
    let parent = gate
        .parent
        .as_ref()
        .map_or_else(String::new, |parent| format!(", inside {parent}"));
    let life = format!(
        "{}{parent}, made {} ago by user {}",
        count(gate.processes, "process", "processes"),
        span(gate.age_seconds),
        gate.uid
    );
    text.push_str(&wrapped("      Life: ", &life));
    text.push_str(&wrapped("       CPU: ", &cpu_line(gate)));
    text.push_str(&wrapped("    Engine: ", &gate.engine));
    if let Some(counts) = gate.sched_ext.as_ref().filter(|counts| counts.wakeups > 0) {
        text.push_str(&wrapped("     Waits: ", &waits(counts)));
    }
    if let Some(latency) = &gate.latency {
        text.push_str(&wrapped("   Urgency: ", &urgency(latency)));
    }
    if let Some(cap) = &gate.cap {
        text.push_str(&wrapped("  Soft cap: ", &cap_line(cap)));
    }
    if let Some(cap) = by_scheduler(gate) {
        text.push_str(&wrapped("       Cap: ", &held_line(cap)));
    }
    text.push_str(&terms(&gate.terms));
    for note in &gate.notes {
        text.push_str(&wrapped("      Note: ", note));
    }
    text
}

pub fn heading(gate: &GateView) -> String {
    fit(
        &format!("{} ({}, {})", gate.name, gate.class, gate.target),
        super::WIDTH,
    )
}

fn cpu_line(gate: &GateView) -> String {
    let allowed = gate
        .allowance_cpus
        .map_or_else(String::new, |cpus| format!(" of {cpus:.2} allowed"));
    let own = gate.own_limit.as_ref().map_or_else(String::new, |own| {
        format!(", at most {:.2} by its {}", own.cpus, own.by)
    });
    let bursts = match gate.nr_bursts {
        0 => String::new(),
        times => format!("; used saved quota {}", count(times, "time", "times")),
    };
    // Without a limit of its own, the counts are those of the quota that side work shares.
    let label = match gate.class.as_str() {
        "side" if gate.own_limit.is_none() => "side work throttled",
        _ => "throttled",
    };
    let throttled = match gate.nr_throttled {
        0 => String::new(),
        times => format!(
            "; {label} {}, {:.1} s in all",
            count(times, "time", "times"),
            gate.throttled_seconds
        ),
    };
    format!(
        "{} CPUs{allowed}{own}{throttled}{bursts}",
        cpus_or_unknown(gate.usage_cpus)
    )
}

pub fn short(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000..10_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.0} s", ns as f64 / 1e9),
    }
}

/// How long its tasks wait to run under the sched_ext engine.
pub fn waits(counts: &GateCounts) -> String {
    let us = |us: f64| short((us * 1e3) as u64);
    format!(
        "to run after one of {}: {} at the median, {} at 99 %, {} at most",
        count(counts.wakeups, "wakeup", "wakeups"),
        us(counts.delay_p50_us),
        us(counts.delay_p99_us),
        us(counts.delay_longest_us),
    )
}

pub fn urgency(latency: &LatencyView) -> String {
    let left = match latency.left_alone.is_empty() {
        true => String::new(),
        false => format!("; left alone: {}", latency.left_alone.join(", ")),
    };
    format!(
        "latency {}: {}; on {}{left}",
        latency.hint,
        latency.how,
        count(latency.tasks, "task", "tasks")
    )
}

pub fn cap_line(cap: &CapView) -> String {
    let now = match (cap.in_background_seconds, cap.level_us) {
        (Some(seconds), _) => format!("in the background for {}", span(seconds)),
        (None, Some(us)) => format!("not in the background, {:.1} ms left", us / 1e3),
        (None, None) => "rests: the gate's CPU use is unknown".to_owned(),
    };
    if cap.soft_cpus == 0.0 {
        return format!("{now}, for good");
    }
    let times = count(cap.turns, "time", "times");
    format!(
        "{now}; {times} so far, {:.0} % of its time; {:.1} s of CPU that no other task wanted, {:.1} s within {} CPUs",
        100.0 * cap.background_ratio,
        cap.used_background_seconds,
        cap.used_foreground_seconds,
        cap.soft_cpus
    )
}

pub fn by_scheduler(gate: &GateView) -> Option<&CapCounts> {
    gate.sched_ext.as_ref()?.cap.as_ref()
}

/// A cap under the sched_ext engine: what it held back, and what went to the background.
pub fn held_line(cap: &CapCounts) -> String {
    let is_one = cap.scope == "group";
    let each = match is_one {
        true => String::new(),
        false => format!(" for each {} (of {})", cap.scope, cap.buckets),
    };
    let held = cap.hard_cpus.map(|cpus| {
        let left = match cap.level_us {
            Some(us) if us < 0.0 => format!(", owes {:.1} ms", -us / 1e3),
            Some(us) => format!(", {:.1} ms left", us / 1e3),
            None => String::new(),
        };
        format!(
            "at most {cpus} CPUs{each}: held back {}, {:.1} s in all{left}",
            count(cap.throttles, "time", "times"),
            cap.throttled_seconds
        )
    });
    let soft = cap.soft_cpus.map(|cpus| {
        format!(
            "above {cpus} CPUs{each} only what no other task wants: {:.2} CPUs of that now, {:.1} s so far, and {:.1} s within it",
            cap.background_cpus,
            cap.background_seconds,
            cap.used_seconds - cap.background_seconds
        )
    });
    let min_runs = (cap.min_runs > 0).then(|| {
        let times = count(cap.min_runs, "time", "times");
        format!("exceeded {times} for the kernel's watchdog")
    });
    let parts: Vec<String> = [held, soft, min_runs].into_iter().flatten().collect();
    parts.join("; ")
}

pub fn terms(terms: &[TermView]) -> String {
    let mut text = String::new();
    for (index, term) in terms.iter().enumerate() {
        let mut line = format!("{} = {} ({})", term.name, term.value, term.source);
        if !term.overrode.is_empty() {
            line.push_str(&format!(", over {}", term.overrode.join(", ")));
        }
        text.push_str(&wrapped(&label("Terms", index), &line));
    }
    text
}
