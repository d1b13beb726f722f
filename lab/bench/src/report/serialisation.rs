//! A report as it travels from a guest to its host: everything, tables and drawings too, so that the host can write all
//! its forms under the guest's name. Numbers travel as text, which JSON's lack of infinity does not spoil.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::plots::Plot;
use super::{Headline, Met, Report, Table};
use crate::beds::Guest;
use crate::beds::host::machine::Machine;
use crate::{Experiment, LabError};

#[derive(Serialize, Deserialize)]
struct Figure {
    name: String,
    value: String,
    unit: String,
    published: Option<f64>,
    target: Option<String>,
    met: Option<bool>,
    interval95: Option<(f64, f64)>,
}

#[derive(Serialize, Deserialize)]
struct Serialised {
    experiment: String,
    machine: Machine,
    rows: Vec<Map<String, Value>>,
    headline: Vec<Figure>,
    notes: Vec<String>,
    tables: Vec<Table>,
    plots: Vec<Plot>,
}

impl From<&Headline> for Figure {
    fn from(h: &Headline) -> Self {
        Figure {
            name: h.name.clone(),
            value: h.value.to_string(),
            unit: h.unit.clone(),
            published: h.published,
            target: h.target.clone(),
            met: match h.met {
                Met::Yes => Some(true),
                Met::No => Some(false),
                Met::Unknown => None,
            },
            interval95: h.interval95,
        }
    }
}

impl From<Figure> for Headline {
    fn from(f: Figure) -> Self {
        Headline {
            name: f.name,
            value: f.value.parse().unwrap_or(f64::NAN),
            unit: f.unit,
            published: f.published,
            target: f.target,
            met: f.met.map_or(Met::Unknown, Met::of),
            interval95: f.interval95,
        }
    }
}

/// The report of this machine, as text.
pub fn to_text(report: &Report, machine: &Machine) -> String {
    let serialised = Serialised {
        experiment: report.experiment.into(),
        machine: machine.clone(),
        rows: report.rows.clone(),
        headline: report.headline.iter().map(Figure::from).collect(),
        notes: report.notes.clone(),
        tables: report.tables.clone(),
        plots: report.plots.clone(),
    };
    // Text keys, text and finite numbers: nothing that JSON refuses.
    serde_json::to_string(&serialised).unwrap_or_default()
}

/// The report of a guest.
pub fn from_text(text: &str, guest: impl FnOnce(Machine) -> Guest) -> Result<Report, LabError> {
    let bad = |why: String| LabError::process("the guest's report", why);
    let serialised: Serialised = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
    let experiment: Experiment = serialised.experiment.parse().map_err(bad)?;
    let mut report = Report::new(experiment.name(), guest(serialised.machine));
    report.rows = serialised.rows;
    report.headline = serialised
        .headline
        .into_iter()
        .map(Headline::from)
        .collect();
    report.notes = serialised.notes;
    report.tables = serialised.tables;
    report.plots = serialised.plots;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_arrives_as_it_left() {
        let machine = Machine {
            kernel: "6.18.0".into(),
            cpus: 1,
            ..Machine::default()
        };
        let mut report = Report::new("burst", machine.clone());
        report.headline = vec![
            Headline::new("never", f64::INFINITY, "×").target("≥ 10", Met::Yes),
            Headline::new("not measured", f64::NAN, "ms").published(Some(1.5)),
        ];
        let mut table = Table::new("A table", &["a"]);
        table.push(["<b>".to_string()]);
        report.tables.push(table);
        let text = to_text(&report, &machine);
        let back = from_text(&text, |machine| Guest {
            machine,
            package: "linux-image 6.18".into(),
            series: "6.18".into(),
        })
        .expect("a report");
        assert_eq!(back.on, "vm");
        assert_eq!(back.tables[0].rows, report.tables[0].rows);
        assert!(back.headline[0].value.is_infinite() && back.headline[1].value.is_nan());
        assert_eq!(
            (back.headline[0].met, back.headline[1].published),
            (Met::Yes, Some(1.5))
        );
        assert!(from_text("{}", |_| unreachable!()).is_err());
    }
}
