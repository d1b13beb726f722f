//! The list of gates.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row as TableRow, Table, TableState};
use tidegate_api::GateView;

use crate::render::gates::short;
use crate::render::{cpus_or_unknown, fit};
use crate::top::rows::{Column, Row, Sort, allowed_cpus, delay_us};
use crate::top::screen::Screen;
use crate::top::style::{Look, Tone};
use tidegate_api::cli::escaped;

const NAME_MAX: usize = 32;

pub fn gates(frame: &mut Frame, area: Rect, screen: &Screen, look: &Look) {
    let rows = screen.rows();
    if rows.is_empty() {
        let why = match (&screen.machine, screen.filter.is_empty()) {
            (None, _) => String::new(),
            (_, true) => "no gates; start side work with: tidegate run --side -- CMD".to_owned(),
            (_, false) => format!("no gate contains \"{}\"; Esc lists all", screen.filter),
        };
        frame.render_widget(Line::raw(escaped(&why)), area);
        return;
    }
    let names = rows
        .iter()
        .map(|row| row.gate.name.chars().count() + 2 * row.depth);
    // A name is at least as wide as its heading; at most 32.
    let name = names.max().unwrap_or(0).clamp(8, NAME_MAX) as u16;
    let widths = [
        Constraint::Length(name),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Min(0),
    ];
    let table = Table::new(rows.iter().map(line), widths)
        .header(header(screen.sort, look))
        .row_highlight_style(look.selected());
    let mut state = TableState::new().with_selected(screen.position(&rows));
    frame.render_stateful_widget(table, area, &mut state);
}

fn header<'a>(sort: Sort, look: &Look) -> TableRow<'a> {
    let mut cells: Vec<Cell> = Column::ALL
        .into_iter()
        .map(|column| {
            let mut text = column.heading().to_owned();
            if column == sort.column {
                text = format!("{text}{}", if sort.is_reversed { "<" } else { ">" });
            }
            aligned(column, text)
        })
        .collect();
    cells.push(Cell::new("WHAT"));
    TableRow::new(cells).style(look.style(Tone::Strong))
}

fn line<'a>(row: &Row) -> TableRow<'a> {
    let gate = row.gate;
    let name = format!("{}{}", "  ".repeat(row.depth), gate.name);
    let number =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |cpus| format!("{cpus:.2}"));
    let texts = [
        fit(&name, NAME_MAX),
        fit(&gate.class, 7),
        cpus_or_unknown(gate.usage_cpus),
        number(allowed_cpus(gate)),
        gate.held.limit.to_string(),
        delay_us(gate).map_or_else(|| "-".to_owned(), |us| short((us * 1e3) as u64)),
        throttled(gate),
    ];
    let mut cells: Vec<Cell> = Column::ALL
        .into_iter()
        .zip(texts)
        .map(|(column, text)| aligned(column, text))
        .collect();
    let what = gate.command.as_deref().unwrap_or(&gate.target);
    cells.push(Cell::new(escaped(what)));
    TableRow::new(cells)
}

fn aligned<'a>(column: Column, text: String) -> Cell<'a> {
    let alignment = match column {
        Column::Gate | Column::Class | Column::Binds => Alignment::Left,
        _ => Alignment::Right,
    };
    Cell::new(Text::raw(text).alignment(alignment))
}

fn throttled(gate: &GateView) -> String {
    match gate.nr_throttled {
        0 => "-".to_owned(),
        _ => format!("{:.1} s", gate.throttled_seconds),
    }
}
