//! The report: a row for each figure of each load, with its ratio to the kernel's own scheduler.

use super::Contender;
use super::loads::LOADS;
use crate::LabError;
use crate::beds::host::Setup;
use crate::report::{Headline, Report, Samples, Table, cell};
use crate::stats;

/// What counts as no worse.
const MARGIN: f64 = 1.05;

/// A figure of a load.
struct Row {
    work: &'static str,
    figure: &'static str,
    /// Medians over the rounds, by arm; NaN where there is none.
    medians: Vec<f64>,
}

impl Row {
    fn of(&self, arms: &[Contender], arm: Contender) -> f64 {
        let at = arms.iter().position(|a| *a == arm);
        at.map_or(f64::NAN, |at| self.medians[at])
    }

    fn over_eevdf(&self, arms: &[Contender], arm: Contender) -> f64 {
        self.of(arms, arm) / self.of(arms, Contender::Eevdf)
    }

    /// Those that are ahead of Tidegate by more than the margin.
    fn ahead(&self, arms: &[Contender]) -> Vec<&'static str> {
        let limit = self.of(arms, Contender::Ext) / MARGIN;
        let peers = arms.iter().filter(|arm| matches!(arm, Contender::Peer(_)));
        peers
            .filter(|arm| self.of(arms, **arm) < limit)
            .map(|arm| arm.name())
            .collect()
    }
}

/// Builds the report.
pub fn report(
    setup: Setup,
    arms: &[Contender],
    samples: &Samples<(Contender, &'static str)>,
    missing: Vec<String>,
) -> Result<Report, LabError> {
    let rows = rows(arms, samples);
    if rows.is_empty() {
        return Err(LabError::process("peers", missing.join(" ")));
    }
    let cpus = setup.machine.cpus;
    let mut report = Report::new("peers", setup.machine);
    report.rows = samples.rows();
    report.headline = headline(arms, &rows);
    report.tables = vec![table(arms, &rows, cpus)];
    report.notes.push(
        "Each figure is a time (an operation's, a request's, a wakeup's), so less is better; medians over the rounds. `tidegate` is \
         the agent with the engine ext, without a gate; each other scheduler has its own defaults (scx_layered: the layers of \
         --run-example). All of a round are in one boot, one after another."
            .into(),
    );
    report.notes.extend(missing);
    Ok(report)
}

fn rows(arms: &[Contender], samples: &Samples<(Contender, &'static str)>) -> Vec<Row> {
    let figures = LOADS
        .iter()
        .flat_map(|load| load.figures.iter().map(|figure| (load.name, *figure)));
    let row = |(work, figure)| Row {
        work,
        figure,
        medians: arms
            .iter()
            .map(|arm| {
                let all = samples.all(figure, |key| *key == (*arm, work));
                stats::median(&all).unwrap_or(f64::NAN)
            })
            .collect(),
    };
    let measured = |row: &Row| row.medians.iter().any(|median| !median.is_nan());
    figures.map(row).filter(measured).collect()
}

fn headline(arms: &[Contender], rows: &[Row]) -> Vec<Headline> {
    let over = |row: &Row| row.over_eevdf(arms, Contender::Ext);
    let measured = rows.iter().filter(|row| !over(row).is_nan());
    let worst = measured.max_by(|a, b| over(a).total_cmp(&over(b)));
    let mut lines = Vec::new();
    if let Some(row) = worst {
        let name = format!("Tidegate over EEVDF, worst: {}, {}", row.work, row.figure);
        lines.push(Headline::new(&name, over(row), "×").at_most(MARGIN));
    }
    let behind = rows.iter().filter(|row| over(row) > MARGIN).count();
    let name = format!("figures above {MARGIN} × EEVDF, of {}", rows.len());
    lines.push(Headline::new(&name, behind as f64, "").at_most(0.0));
    if !arms.iter().any(|arm| matches!(arm, Contender::Peer(_))) {
        return lines;
    }
    let ahead = rows.iter().filter(|r| !r.ahead(arms).is_empty()).count();
    let name = format!(
        "figures in which another is ahead by more than 5 %, of {}",
        rows.len()
    );
    lines.push(Headline::new(&name, ahead as f64, "").at_most(0.0));
    lines
}

fn table(arms: &[Contender], rows: &[Row], cpus: usize) -> Table {
    let mut heads = vec!["work", "figure", "eevdf"];
    let others = || arms.iter().copied().filter(|arm| *arm != Contender::Eevdf);
    heads.extend(others().map(Contender::name));
    heads.push("ahead of tidegate");
    let title = format!("Over EEVDF, {cpus} CPU{}", if cpus == 1 { "" } else { "s" });
    let mut table = Table::new(&title, &heads);
    for row in rows {
        let mut cells = vec![row.work.to_string(), row.figure.to_string()];
        cells.push(cell(row.of(arms, Contender::Eevdf), 1, ""));
        cells.extend(others().map(|arm| cell(row.over_eevdf(arms, arm), 2, "")));
        cells.push(row.ahead(arms).join(", "));
        table.push(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::PEERS;
    use super::*;
    use crate::report::Sample;

    #[test]
    fn a_row_tells_who_is_ahead_and_what_is_missing() {
        let arms = [
            Contender::Eevdf,
            Contender::Ext,
            Contender::Peer(&PEERS[0]),
            Contender::Peer(&PEERS[1]),
        ];
        let of = |arm, ms: f64| Sample::new((arm, "shell")).with("time_ms", ms);
        let samples = Samples(vec![
            of(arms[0], 100.0),
            of(arms[1], 104.0),
            of(arms[1], 106.0),
            of(arms[2], 99.0),
        ]);
        let rows = rows(&arms, &samples);
        assert_eq!(rows.len(), 1);
        let table = table(&arms, &rows, 1);
        let cells = [["shell", "time_ms", "100.0", "1.05", "0.99", "-", "lavd"]];
        assert_eq!(table.rows, cells);
        let lines = headline(&arms, &rows);
        assert_eq!(
            lines.iter().map(|h| h.value).collect::<Vec<_>>(),
            [1.05, 0.0, 1.0]
        );
    }
}
