//! Draws what a run of `make kube-node` wrote down: what ran on the node, what it published, and what happened when.
//!
//! `cargo run -p tidegate-lab --example kube-run-plot -- target/kube-node/run.csv docs/kubernetes-run.svg`

use std::process::ExitCode;

use plotters::prelude::*;

/// The machine's CPUs, in thousandths.
const CPUS_MILLI: f64 = 2_000.0;
const SHARES: [(&str, RGBColor); 3] = [
    ("idle", RGBColor(120, 150, 120)),
    ("side pods", RGBColor(210, 110, 40)),
    ("main pod", RGBColor(40, 90, 180)),
];

#[derive(Default)]
struct Run {
    /// Percent of the machine: idle, side, main.
    shares: [Vec<(f64, f64)>; 3],
    /// Percent of the machine; nothing is 0.
    published: Vec<(f64, f64)>,
    events: Vec<(f64, String)>,
}

fn read(text: &str) -> Option<Run> {
    let mut run = Run::default();
    for line in text.lines() {
        let (at_s, what) = line.split_once(',')?;
        let at_s: f64 = at_s.parse().ok()?;
        let (kind, value) = what.split_once(',')?;
        match kind {
            "event" => run.events.push((at_s, value.to_owned())),
            "published" => {
                let milli = match value.strip_suffix('k') {
                    Some(thousands) => thousands.parse::<f64>().ok()? * 1_000.0,
                    None if value == "none" => 0.0,
                    None => value.parse().ok()?,
                };
                let before = run.published.last().map_or(0.0, |last| last.1);
                run.published.push((at_s, before));
                run.published.push((at_s, 100.0 * milli / CPUS_MILLI));
            }
            _ => {
                for (series, share) in run.shares.iter_mut().zip(value.split(',')) {
                    series.push((at_s, share.parse().ok()?));
                }
            }
        }
    }
    let last = *run.published.last()?;
    run.published.push((run.shares[0].last()?.0, last.1));
    Some(run)
}

fn draw(path: &str, run: &Run) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (1000, 460)).into_drawing_area();
    area.fill(&WHITE)?;
    let end_s = run.shares[0].last().map_or(1.0, |last| last.0);
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(70)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..end_s, 0.0..155.0)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_desc("% of the node's two CPUs")
        .light_line_style(TRANSPARENT)
        .y_label_formatter(&|y| {
            if *y > 100.0 {
                String::new()
            } else {
                format!("{y:.0}")
            }
        })
        .draw()?;
    for ((name, colour), points) in SHARES.into_iter().zip(&run.shares) {
        chart
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart
        .draw_series(LineSeries::new(run.published.clone(), BLACK.mix(0.6)))?
        .label("side CPU published")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], BLACK.mix(0.6)));
    for (i, (at_s, event)) in run.events.iter().enumerate() {
        let line = [(*at_s, 0.0), (*at_s, 104.0)];
        chart.draw_series([PathElement::new(line, BLACK.mix(0.25))])?;
        let place = (*at_s, 108.0 + 6.0 * (i % 8) as f64);
        chart.draw_series([Text::new(event.clone(), place, ("sans-serif", 12))])?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .position(SeriesLabelPosition::MiddleRight)
        .draw()?;
    area.present()?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [csv, svg] = arguments.as_slice() else {
        eprintln!("tidegate: kube: give the run and the picture: FILE.csv FILE.svg");
        return ExitCode::from(2);
    };
    let drawn = std::fs::read_to_string(csv)
        .map_err(|error| format!("{csv}: {error}"))
        .and_then(|text| {
            read(&text).ok_or(format!("{csv}: not a run; make one with `make kube-node`"))
        })
        .and_then(|run| draw(svg, &run).map_err(|error| format!("{svg}: {error}")));
    match drawn {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tidegate: kube: {why}");
            ExitCode::FAILURE
        }
    }
}
