//! The machine: a line about the agent, bars, and the last minute.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};
use tidegate_api::{HistoryPointView, Limit, StatusView};

use crate::render::span;
use crate::top::screen::{PLOT_S, Screen};
use crate::top::style::{Look, Tone};
use tidegate_api::cli::escaped;

const NAME: usize = 6;
const WORDS: usize = 50;

pub fn head(frame: &mut Frame, area: Rect, screen: &Screen, look: &Look) {
    let width = usize::from(area.width);
    let Some(machine) = &screen.machine else {
        let why = screen.lost.as_deref().unwrap_or("waiting for the agent");
        frame.render_widget(Line::raw(escaped(why)), area);
        return;
    };
    let mut lines = vec![agent(screen, machine, look)];
    if machine.capacity_cpus <= 0.0 {
        let why = "nothing is limited: no side work, no quota, no cap; the machine is not measured meanwhile";
        lines.push(Line::styled(why, look.style(Tone::Faint)));
    } else {
        lines.extend(bars(machine, look, width));
    }
    frame.render_widget(Text::from(lines), area);
}

fn agent<'a>(screen: &Screen, machine: &StatusView, look: &Look) -> Line<'a> {
    let mut spans = vec![Span::styled(
        format!("tidegate {}", machine.version),
        look.style(Tone::Strong),
    )];
    if let Some(why) = &screen.lost {
        let text = format!("  agent gone: {why}; looking for the next");
        spans.push(Span::styled(escaped(&text), look.style(Tone::Alert)));
        return Line::from(spans);
    }
    if screen.is_recording {
        spans.push(Span::raw(escaped(&format!("  {}", machine.mode))));
        return Line::from(spans);
    }
    let period = match screen.period_s {
        1 => String::new(),
        period_s => format!(", every {period_s} s"),
    };
    spans.push(Span::raw(format!(
        "  agent {} ({}), up {}{period}",
        machine.pid,
        machine.mode,
        span(machine.uptime_seconds)
    )));
    let off = machine
        .sched_ext
        .as_ref()
        .and_then(|sched_ext| sched_ext.off.as_ref());
    let (engine, tone) = match off {
        Some(off) => (off.clone(), Tone::Alert),
        None => (format!("engine {}", machine.engine), Tone::Faint),
    };
    spans.push(Span::styled(
        escaped(&format!("  {engine}")),
        look.style(tone),
    ));
    if machine.guardian_pid.is_none() {
        spans.push(Span::styled("  no guardian", look.style(Tone::Alert)));
    }
    if screen.is_frozen {
        spans.push(Span::styled("  list frozen", look.style(Tone::Strong)));
    }
    Line::from(spans)
}

fn bars<'a>(machine: &StatusView, look: &Look, width: usize) -> Vec<Line<'a>> {
    let headroom = format!(
        "of {:.2} asked ({:.1} of {:.1} %, {})",
        machine.headroom_ratio * machine.capacity_cpus,
        100.0 * machine.idle_kept_ratio,
        100.0 * machine.headroom_ratio,
        machine.headroom_from
    );
    let allowed = match machine.decision.limit {
        Limit::IdleClass => "without a quota".to_owned(),
        _ => format!("of {:.2} allowed", machine.decision.allowance_cpus),
    };
    let mut capacity = format!("of {:.2} CPUs", machine.capacity_cpus);
    if let Some(waits) = &machine.behind_side {
        let waits_ms = waits.seconds_per_second * 1e3;
        capacity.push_str(&format!(", {waits_ms:.2} ms/s behind side"));
    }
    [
        ("main", machine.main_cpus, Tone::Main, capacity),
        ("side", machine.side_cpus, Tone::Side, allowed),
        ("idle", machine.idle_cpus, Tone::Idle, headroom),
    ]
    .into_iter()
    .map(|(name, cpus, tone, words)| {
        let room = width.saturating_sub(NAME + WORDS).max(10);
        let part = (cpus / machine.capacity_cpus).clamp(0.0, 1.0);
        // At most `room`.
        let full = (part * room as f64).round() as usize;
        let (mark, gap) = look.bar();
        let bar = |c: char, count| c.to_string().repeat(count);
        Line::from(vec![
            Span::raw(format!("{name:<NAME$}")),
            Span::styled(bar(mark, full), look.style(tone)),
            Span::styled(bar(gap, room - full), look.style(Tone::Faint)),
            Span::styled(format!(" {cpus:>7.2} "), look.style(Tone::Strong)),
            Span::raw(escaped(&words)),
        ])
    })
    .collect()
}

/// Main, side work and its allowance over the last minute, with its cuts.
pub fn plot(frame: &mut Frame, area: Rect, screen: &Screen, look: &Look) {
    let Some(now) = screen.points.back().map(|point| point.time_unix_seconds) else {
        return;
    };
    let most = screen
        .points
        .iter()
        .map(|point| point.capacity_cpus)
        .fold(0.0, f64::max);
    if area.is_empty() || most <= 0.0 {
        return;
    }
    let at = |time_unix_s: u64| time_unix_s as f64 - now as f64;
    let line = |value: fn(&HistoryPointView) -> f64| -> Vec<(f64, f64)> {
        let points = screen
            .points
            .iter()
            .filter(|point| point.capacity_cpus > 0.0);
        points
            .map(|point| (at(point.time_unix_seconds), value(point).clamp(0.0, most)))
            .collect()
    };
    let lines = [
        (
            "allowed",
            Tone::Allowance,
            line(|point| point.allowance_cpus),
        ),
        ("side", Tone::Side, line(|point| point.side_cpus)),
        ("main", Tone::Main, line(|point| point.main_cpus)),
    ];
    let cuts: Vec<(f64, f64)> = screen.cuts().map(|time| (at(time), most)).collect();
    let mut shown: Vec<Dataset> = lines
        .iter()
        .map(|(name, tone, data)| {
            Dataset::default()
                .name(*name)
                .marker(look.marker(*tone))
                .graph_type(GraphType::Line)
                .style(look.style(*tone))
                .data(data)
        })
        .collect();
    if !cuts.is_empty() {
        shown.push(
            Dataset::default()
                .name("cut")
                .marker(Marker::Custom(look.cut()))
                .graph_type(GraphType::Scatter)
                .style(look.style(Tone::Alert))
                .data(&cuts),
        );
    }
    let faint = look.style(Tone::Faint);
    let cpus = format!("{most:.1}");
    let since = format!("-{PLOT_S} s");
    let chart = Chart::new(shown)
        .x_axis(
            Axis::default()
                .style(faint)
                .bounds([-(PLOT_S as f64), 0.0])
                .labels([since.as_str(), "now"]),
        )
        .y_axis(
            Axis::default()
                .style(faint)
                .bounds([0.0, most])
                .labels(["0", cpus.as_str()]),
        )
        .legend_position(None);
    frame.render_widget(chart, area);
    // Between the two labels.
    let last = Rect {
        y: area.bottom() - 1,
        height: 1,
        ..area
    };
    frame.render_widget(names(look).centered(), last);
}

fn names<'a>(look: &Look) -> Line<'a> {
    let lines = [
        ("main", Tone::Main),
        ("side", Tone::Side),
        ("allowed", Tone::Allowance),
    ];
    let mut spans: Vec<Span> = lines
        .into_iter()
        .map(|(name, tone)| {
            let mark = match look.marker(tone) {
                Marker::Custom(mark) => mark,
                _ => '━',
            };
            Span::styled(format!("{mark} {name}   "), look.style(tone))
        })
        .collect();
    spans.push(Span::styled(
        format!("{} cut", look.cut()),
        look.style(Tone::Alert),
    ));
    Line::from(spans)
}
