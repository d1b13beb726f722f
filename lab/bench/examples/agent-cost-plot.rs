//! Draws what `scripts/agent-cost.sh` measured: the agent's CPU and memory by the number of groups on the machine and of gates.
//!
//! `cargo run --release -p tidegate-lab --example agent-cost-plot -- docs/agent-cost.csv docs/agent-cost.svg`
//! (`make cost` does it.)

use std::path::Path;
use std::process::ExitCode;

use plotters::coord::Shift;
use plotters::prelude::*;

/// One measurement.
struct Row {
    what: String,
    count: f64,
    cpu_pct: f64,
    memory_mb: f64,
}

const SERIES: [(&str, &str, RGBColor); 2] = [
    ("groups", "other groups, one gate", BLUE),
    ("gates", "side gates", RED),
];

fn read(path: &Path) -> Result<Vec<Row>, String> {
    let wrong = |why: String| format!("{}: {why}; measure again with `make cost`", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let row = |line: &str| {
        let mut fields = line.split(',');
        let what = fields.next()?.to_owned();
        let mut number = || fields.next()?.parse::<f64>().ok();
        Some(Row {
            what,
            count: number()?,
            cpu_pct: number()?,
            memory_mb: number()?,
        })
    };
    let rows: Option<Vec<Row>> = text.lines().skip(1).map(row).collect();
    rows.filter(|rows| rows.len() > 1)
        .ok_or_else(|| wrong("not rows of what,count,cpu_pct,memory_mb".to_owned()))
}

/// One figure of all rows, with its target as a line.
fn half(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    rows: &[Row],
    figure: fn(&Row) -> f64,
    target: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let most = rows.iter().map(|row| row.count).fold(2.0, f64::max);
    let high = rows.iter().map(figure).fold(target, f64::max) * 1.15;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d((1.0..most * 1.2).log_scale(), 0.0..high)?;
    chart
        .configure_mesh()
        .x_desc("how many")
        .x_label_formatter(&|count| format!("{count:.0}"))
        .draw()?;
    chart.draw_series(LineSeries::new(
        [(1.0, target), (500.0_f64.min(most), target)],
        &BLACK.mix(0.4),
    ))?;
    for (what, name, colour) in SERIES {
        let points: Vec<(f64, f64)> = rows
            .iter()
            .filter(|row| row.what == what)
            .map(|row| (row.count, figure(row)))
            .collect();
        chart
            .draw_series(LineSeries::new(points.clone(), colour))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        chart.draw_series(
            points
                .into_iter()
                .map(|at| Circle::new(at, 3, colour.filled())),
        )?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .draw()?;
    Ok(())
}

fn draw(path: &Path, rows: &[Row]) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (900, 380)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(450);
    half(
        &left,
        "agent: % of one CPU (grey: the target)",
        rows,
        |row| row.cpu_pct,
        0.5,
    )?;
    half(
        &right,
        "agent: MB (grey: the target)",
        rows,
        |row| row.memory_mb,
        20.0,
    )?;
    area.present()?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [csv, svg] = arguments.as_slice() else {
        eprintln!("tidegate: cost: give the figures and the picture: FILE.csv FILE.svg");
        return ExitCode::from(2);
    };
    let drawn = read(Path::new(csv))
        .and_then(|rows| draw(Path::new(svg), &rows).map_err(|why| format!("{svg}: {why}")));
    match drawn {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tidegate: cost: {why}");
            ExitCode::FAILURE
        }
    }
}
