//! `tidegate status`, in the manner of `systemctl status`.

use tidegate_api::{BehindSideView, Limit, ObjectiveView, RecordingView, SchedExtView, StatusView};

use super::{BAD, BOLD, GOOD, cpus, gates, span, styled, wrapped};

pub fn page(view: &StatusView) -> String {
    let (dot, style) = if view.alerts.is_empty() {
        ("●", GOOD)
    } else {
        ("▲", BAD)
    };
    let mut text = format!(
        "{} {}, agent {} ({}), up {}\n",
        styled(style, dot),
        styled(BOLD, &format!("tidegate {}", view.version)),
        view.pid,
        view.mode,
        span(view.uptime_seconds)
    );
    if let Some(off) = view
        .sched_ext
        .as_ref()
        .and_then(|sched_ext| sched_ext.off.as_ref())
    {
        text.push_str(&styled(BAD, &wrapped("    Engine: ", off)).to_string());
    }
    for (label, line) in lines(view) {
        text.push_str(&wrapped(&format!("{label:>10}: "), &line));
    }
    for alert in &view.alerts {
        text.push_str(&wrapped("     Alert: ", alert));
    }
    text.push('\n');
    text.push_str(&gates::list(&view.gates));
    text
}

fn lines(view: &StatusView) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("Machine", machine(view)),
        ("Headroom", headroom(view)),
        ("CPUs", use_line(view)),
        ("Limit", limit(view)),
        ("Decision", view.decision.sentence.clone()),
        ("Reclaim", reclaim(view)),
        ("Sensing", sensing(view)),
        ("Loop", control(view)),
        ("Guardian", guardian(view)),
    ];
    if let Some(recording) = &view.recording {
        lines.push(("Recording", recorded(recording)));
    }
    if view.headroom_ratio > 0.0 {
        lines.insert(4, ("Cpuset", view.cpuset.clone()));
    }
    if let Some(sched_ext) = &view.sched_ext {
        lines.insert(1, ("Scheduler", scheduler(sched_ext)));
    }
    if let Some(waits) = &view.behind_side {
        let at = lines.len() - 3;
        lines.insert(at, ("Waits", behind_side(waits)));
    }
    let after_headroom = 2 + usize::from(view.sched_ext.is_some());
    if let Some(found) = &view.objective {
        lines.insert(after_headroom, ("Objective", objective(view, found)));
    }
    if let Some(measuring) = &view.measuring {
        lines.insert(after_headroom, ("Measuring", measuring.sentence.clone()));
    }
    lines
}

fn recorded(view: &RecordingView) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let lost = match view.lost {
        0 => String::new(),
        lost => format!("; {lost} entries could not be written"),
    };
    format!(
        "{}, {:.1} of {:.0} MiB{lost}",
        view.directory,
        mib(view.bytes),
        mib(view.bytes_max)
    )
}

fn scheduler(sched_ext: &SchedExtView) -> String {
    let now = match sched_ext.on_seconds {
        Some(seconds) => format!(
            "in force for {}, loaded {}",
            span(seconds),
            times(sched_ext.loads)
        ),
        None => format!("not in force, loaded {}", times(sched_ext.loads)),
    };
    let ended = match (&sched_ext.last_reason, sched_ext.last_ago_seconds) {
        (Some(reason), Some(ago)) => {
            let message = sched_ext
                .last_message
                .as_deref()
                .filter(|text| !text.is_empty());
            let in_particular = message.map_or_else(String::new, |text| format!(", {text}"));
            format!(
                "; ended {}, {} ago by {reason}{in_particular}",
                times(sched_ext.ends),
                span(ago)
            )
        }
        _ => String::new(),
    };
    let untold = sched_ext.update_error.as_ref();
    let untold = untold.map_or_else(String::new, |why| {
        format!("; not told of everything: {why}")
    });
    format!("{now}{ended}{untold}")
}

fn times(count: u64) -> String {
    super::count(count, "time", "times")
}

fn objective(view: &StatusView, found: &ObjectiveView) -> String {
    let extra = of_machine(view, found.extra_ratio);
    let is_reported = found.figure == "reported";
    let unused = match found.unused.as_slice() {
        [] => String::new(),
        unused => format!("; not used: {}", unused.join(", ")),
    };
    if !found.measured {
        let why = match is_reported {
            true => "no latency was reported in the last minute (`tidegate report`)",
            false => "run delay needs BPF sensing",
        };
        return format!(
            "{} cannot be followed: {why}; {extra} are kept on top{unused}",
            found.from
        );
    }
    let state = match found.state.as_str() {
        "raised" => "raised a short while ago",
        "release" => "giving back slowly",
        "bound" => "at the bound",
        "missed" => "side work is not the cause: it uses little above its tolerance",
        "rest" => "given back: it did not help, so side work is not the cause",
        _ => "nothing to add",
    };
    let seen = match is_reported {
        true => format!(
            "{:.0} % of {} were above it (the last was {:.1} ms)",
            100.0 * found.late_ratio,
            super::count(found.runs, "report", "reports"),
            found.percentile_us / 1e3
        ),
        false => format!(
            "{:.2} % of {} runs were late (mean wait {:.0} us)",
            100.0 * found.late_ratio,
            found.runs,
            found.mean_wait_us
        ),
    };
    format!(
        "{}: {seen}, {extra} of headroom found for it ({state}){unused}",
        found.from
    )
}

/// Before the control loop's first window, and after a change of the side groups.
fn is_unmeasured(view: &StatusView) -> bool {
    view.capacity_cpus <= 0.0
}

fn machine(view: &StatusView) -> String {
    let cpus = super::count(u64::from(view.cpus), "CPU", "CPUs");
    if is_unmeasured(view) {
        return format!("{cpus}, engine {}", view.engine);
    }
    format!(
        "{cpus}, {:.2} available (steal {:.1} %, {:.2} CPUs), engine {}",
        view.capacity_cpus,
        100.0 * view.steal_ratio,
        view.steal_ratio * f64::from(view.cpus),
        view.engine
    )
}

fn of_machine(view: &StatusView, ratio: f64) -> String {
    let all = match view.capacity_cpus > 0.0 {
        true => view.capacity_cpus,
        false => f64::from(view.cpus),
    };
    format!("{:.1} % ({:.2} CPUs)", 100.0 * ratio, ratio * all)
}

fn headroom(view: &StatusView) -> String {
    let asked = of_machine(view, view.headroom_ratio);
    if is_unmeasured(view) {
        return format!("{asked} asked ({})", view.headroom_from);
    }
    format!(
        "{asked} asked ({}), {} idle kept over the last second",
        view.headroom_from,
        of_machine(view, view.idle_kept_ratio)
    )
}

fn use_line(view: &StatusView) -> String {
    if is_unmeasured(view) {
        return "not measured yet".to_owned();
    }
    let allowed = match view.decision.limit {
        Limit::IdleClass => String::new(),
        _ => format!(" of {} allowed", cpus(view.decision.allowance_cpus)),
    };
    format!(
        "main and the rest {}, side {}{allowed}, idle {}",
        cpus(view.main_cpus),
        cpus(view.side_cpus),
        cpus(view.idle_cpus)
    )
}

fn limit(view: &StatusView) -> String {
    let quota = view
        .decision
        .groups
        .iter()
        .find_map(|group| group.quota_us.zip(group.period_us));
    let standing = match quota {
        Some((quota, period)) => {
            format!(
                "{:.1} ms in each {:.1} ms for all side work",
                quota as f64 / 1e3,
                period as f64 / 1e3
            )
        }
        _ => "no quota on side work".to_owned(),
    };
    let standing = match view.engine.as_str() {
        "sched_ext" => format!("by the scheduler; for the time without it, {standing}"),
        _ => standing,
    };
    format!(
        "{standing}; {:.1} quota writes a second, {} writes in all",
        view.quota_writes_per_second, view.writes_total
    )
}

fn reclaim(view: &StatusView) -> String {
    let share = match view.reclaim_ratio {
        Some(ratio) => format!("{:.1} % of what main left (last minute)", 100.0 * ratio),
        None => "no side work".to_owned(),
    };
    format!(
        "{share}; {} at the tolerance of {}",
        span(view.at_tolerance_seconds),
        of_machine(view, view.tolerance_ratio)
    )
}

pub fn behind_side(waits: &BehindSideView) -> String {
    format!(
        "{:.2} ms a second behind side work (last minute); {} of its turns interrupted",
        waits.seconds_per_second * 1e3,
        waits.interrupted
    )
}

fn sensing(view: &StatusView) -> String {
    match &view.sensing_note {
        Some(note) => format!("{} ({note})", view.sensing),
        None => view.sensing.clone(),
    }
}

fn control(view: &StatusView) -> String {
    let health = &view.control;
    format!(
        "every {:.0} ms, {} steps ({} samples unusable); late {:.0} us (p99 {:.0}, max {:.0}); {:.0} us a step; agent {:.4} CPUs over {}",
        health.period_us / 1e3,
        health.steps,
        health.unusable_samples,
        health.late_p50_us,
        health.late_p99_us,
        health.late_max_us,
        health.step_cost_us,
        health.agent_cpus,
        span(health.agent_window_seconds)
    )
}

fn guardian(view: &StatusView) -> String {
    match view.guardian_pid {
        Some(pid) => format!(
            "{pid}, acts after {:.1} s without a sign of the agent",
            view.lease_seconds
        ),
        None => "not running: if the agent died, side work would keep its last limit".to_owned(),
    }
}
