//! What each candidate would have come to.

use tidegate_lab::replay::tune::{TuneRow, TuneView};
use tidegate_lab::replay::view::FigureView;

use super::replay::interval;
use tidegate_api::cli::escaped;
use tidegate_api::cli::{BAD, BOLD, GOOD, fit, wrapped};

pub fn page(view: &TuneView, policy: Option<&str>) -> String {
    let mut out = format!(
        "{BOLD}{}{BOLD:#}; the aim: {}\n\n",
        escaped(&view.target),
        escaped(&view.aim)
    );
    out += &format!(
        "{BOLD}{:19} {:>6} {:>9} {:>5} {:>13} {:>16}{BOLD:#}\n",
        "terms", "idle %", "CPUs", "of %", "main waits us", "harm %"
    );
    for (at, row) in view.rows.iter().enumerate() {
        out += &line(row, view.chosen == Some(at));
    }
    out += &wrapped(
        "",
        "CPUs: what the work would have used, and per cent of that without terms. Main waits: the mean, and 99 of 100 are shorter than the second. Harm: how much longer main's requests take than without the work.",
    );
    if let Some(policy) = policy {
        out += &format!("\n{policy}");
    }
    out.push('\n');
    for assumption in &view.assumptions {
        out += &wrapped("- ", assumption);
    }
    out
}

/// Where main starves, how far is of no interest.
fn harm(figure: Option<FigureView>) -> String {
    match figure {
        Some(one) if one.to >= 1_000.0 => "over 1000".to_owned(),
        other => interval(other, 1),
    }
}

fn line(row: &TuneRow, is_chosen: bool) -> String {
    let figures = &row.arm.figures;
    let value = |figure: Option<FigureView>, decimals: usize| {
        figure.map_or("-".to_owned(), |one| format!("{:.decimals$}", one.value))
    };
    let waits = format!(
        "{} / {}",
        value(figures.main_wait_mean_us, 0),
        value(figures.main_wait_p99_us, 0)
    );
    let met = match row.is_met {
        Some(true) if is_chosen => format!(" {GOOD}best{GOOD:#}"),
        Some(true) => format!(" {GOOD}meets{GOOD:#}"),
        Some(false) => format!(" {BAD}misses{BAD:#}"),
        None => String::new(),
    };
    format!(
        "{:19} {:>6} {:>9} {:>5} {:>13} {:>16}{met}\n",
        fit(&row.terms, 19),
        value(figures.idle_kept_pct, 1),
        value(row.work_cpus, 2),
        row.work_pct
            .map_or("-".to_owned(), |pct| format!("{pct:.0}")),
        waits,
        harm(row.harm_pct),
    )
}
