//! The report of simulated machines: caps by size, after a sleep, and in storms.

use super::sim_cells::{Cell, STORM_PPT};
use super::tables::{self, Rate, Series};
use crate::LabError;
use crate::beds::sim::{Stage, plain};
use crate::report::{Headline, Met, Report, Samples, Table, cell};

/// Builds the report.
pub fn report(stage: &Stage<'_>, samples: Samples<Cell>) -> Result<Report, LabError> {
    let example = plain(1, stage.options.seed);
    let bed = stage.bed(&[2, 8, 16], &example, "EEVDF with cpu.max");
    let mut report = Report::new("caps", bed);
    report.rows = samples.rows();
    report.add_always_measured(headline(&samples));
    let series = [series(&samples)];
    report.tables = vec![
        tables::accuracy("Hard caps, ‰ of one CPU", &series),
        other_table(&samples),
    ];
    report.plots.push(tables::plot(
        "How far use is from the cap in the worst window",
        &series,
    )?);
    report.notes.push(
        "Caps are in ‰ of one CPU; each is a quota on a group of the task's own. Accuracy: windows of 10 s of a task that \
         always wants to run, the worst window. After a sleep: the most above the rate over any time since the task began \
         to run after five idle seconds. Mechanism: cpu.max as the kernel does it. The model's: what a switch costs, and no \
         contention."
            .into(),
    );
    Ok(report)
}

fn headline(samples: &Samples<Cell>) -> Vec<Headline> {
    let worst = tables::worst(&series(samples).rates);
    let name = "hard caps 1–1000 ‰ against their use, worst 10 s: knobs";
    let used = samples.mean("used_ppt", |c| *c == Cell::Storm);
    let (least, most) = (f64::from(STORM_PPT) * 0.95, f64::from(STORM_PPT) * 1.01);
    let storm = format!("a fork storm under a group's cap of {STORM_PPT} ‰: knobs");
    // A storm that gets nothing is not capped but starved.
    let met = Met::of((least..=most).contains(&used));
    vec![
        Headline::new(name, worst, "‰").at_most(1.0),
        Headline::new(&storm, used, "‰").target(&format!("{least}–{most}"), met),
    ]
}

fn series(samples: &Samples<Cell>) -> Series {
    Series {
        label: "knobs",
        window: "10 s".into(),
        rates: samples
            .of(|c| *c == Cell::Continuous)
            .map(Rate::from)
            .collect(),
    }
}

fn other_table(samples: &Samples<Cell>) -> Table {
    let mut t = Table::new(
        "After a sleep, and in a fork storm",
        &["what", "cap, ‰", "figure", "unit"],
    );
    for s in &samples.0 {
        let f = |name, digits| cell(s.get(name), digits, "");
        match s.key {
            Cell::Continuous => continue,
            Cell::AfterSleep(ppt) => t.push([
                "above the rate after a sleep".into(),
                ppt.to_string(),
                f("above_ms", 2),
                "ms".into(),
            ]),
            Cell::Storm => t.push([
                format!("fork storm, {} children done", f("children_done", 0)),
                STORM_PPT.to_string(),
                f("used_ppt", 1),
                "‰ of a CPU in all".into(),
            ]),
        };
    }
    t
}
