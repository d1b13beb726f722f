//! Plots with a slot for each category: stacked shares, and strips of dots.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::plots::{GRID, INK, LEVEL, Plot, SIZE, failed, marker, text_style, tick};
use crate::LabError;

/// Colour and name of each part of a bar.
const SHARES: [(usize, &str); 4] = [(0, "main"), (1, "side"), (3, "other"), (7, "idle")];

/// Bars of main, side, other and idle that add up to the machine, with a level at `level`.
pub fn shares(
    title: &str,
    see: &str,
    bars: &[(String, [f64; 4])],
    level: f64,
) -> Result<Plot, LabError> {
    let fail = || failed(title);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let count = bars.len() as f64;
        let mut chart = categories(
            &root,
            title,
            count,
            0.0..100.0,
            bars,
            "main asks for, % of the machine",
            "percent of the machine",
        )?;
        for (i, (_, parts)) in bars.iter().enumerate() {
            let (left, right) = (i as f64 + 0.2, i as f64 + 0.8);
            let mut low = 0.0;
            for (series, part) in SHARES.iter().map(|(s, _)| *s).zip(parts) {
                let high = (low + part).min(100.0);
                let corners = [(left, low), (right, high)];
                chart
                    .draw_series([Rectangle::new(corners, marker(series).filled())])
                    .map_err(fail())?;
                low = high;
            }
        }
        let line =
            DashedLineSeries::new([(0.0, level), (count, level)], 5, 4, LEVEL.stroke_width(2));
        chart.draw_series(line).map_err(fail())?;
        root.present().map_err(fail())?;
    }
    let legend = SHARES
        .iter()
        .map(|(series, name)| (*series, (*name).to_string()))
        .collect();
    Ok(Plot {
        title: title.into(),
        see: see.into(),
        svg,
        legend,
    })
}

/// Dots of each category over a logarithmic axis, with the median as a bar.
pub fn strips(
    title: &str,
    see: &str,
    y: &str,
    strips: &[(String, Vec<f64>)],
    levels: &[f64],
) -> Result<Plot, LabError> {
    let fail = || failed(title);
    let logs: Vec<(String, Vec<f64>)> = strips
        .iter()
        .map(|(n, v)| {
            let finite = v.iter().filter(|v| v.is_finite());
            (n.clone(), finite.map(|v| v.max(0.5).log10()).collect())
        })
        .collect();
    let all = logs.iter().flat_map(|(_, v)| v.iter().copied());
    let levels: Vec<f64> = levels.iter().map(|l| l.log10()).collect();
    let (low, high) = all
        .chain(levels.iter().copied())
        .fold((0.0f64, 1.0f64), |(a, b), v| (a.min(v), b.max(v)));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let names: Vec<(String, [f64; 4])> =
            logs.iter().map(|(n, _)| (n.clone(), [0.0; 4])).collect();
        let count = logs.len() as f64;
        let mut chart = categories(&root, title, count, low - 0.1..high + 0.1, &names, "", y)?;
        for level in levels {
            let line =
                DashedLineSeries::new([(0.0, level), (count, level)], 5, 4, LEVEL.stroke_width(1));
            chart.draw_series(line).map_err(fail())?;
        }
        for (i, (_, values)) in logs.iter().enumerate() {
            let n = values.len().max(1) as f64;
            let dot = |(k, v): (usize, &f64)| {
                let x = i as f64 + 0.3 + 0.4 * (k as f64 + 0.5) / n;
                Circle::new((x, *v), 3, marker(i).filled())
            };
            chart
                .draw_series(values.iter().enumerate().map(dot))
                .map_err(fail())?;
            if let Some(median) = crate::stats::median(values) {
                let bar = [(i as f64 + 0.2, median), (i as f64 + 0.8, median)];
                chart
                    .draw_series(LineSeries::new(bar, marker(i).stroke_width(3)))
                    .map_err(fail())?;
            }
        }
        root.present().map_err(fail())?;
    }
    Ok(Plot {
        title: title.into(),
        see: see.into(),
        svg,
        legend: Vec::new(),
    })
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Axes with one named slot a category. A range that ends at 100 is linear in percent; any other is
/// logarithmic and is labelled with the values themselves.
fn categories<'a, 'b>(
    root: &'a DrawingArea<SVGBackend<'b>, Shift>,
    title: &str,
    count: f64,
    range: Range<f64>,
    names: &[(String, [f64; 4])],
    x: &str,
    y: &str,
) -> Result<Chart<'a, 'b>, LabError> {
    let linear = range.end == 100.0;
    let low = range.start;
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..count, range)
        .map_err(failed(title))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc(y)
        .x_desc(x)
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style(text_style(13))
        .axis_desc_style(text_style(14))
        .y_label_formatter(&|v| tick(if linear { *v } else { 10f64.powf(*v) }))
        .draw()
        .map_err(failed(title))?;
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let style = text_style(13).pos(Pos::new(HPos::Center, VPos::Top));
    for (i, (name, _)) in names.iter().enumerate() {
        let at = chart.backend_coord(&(i as f64 + 0.5, low));
        root.draw_text(name, &style, (at.0, at.1 + 6))
            .map_err(failed(title))?;
    }
    Ok(chart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_survive_what_was_never_seen() {
        let arms = [
            ("a".to_string(), vec![12.0, 15.0, f64::INFINITY]),
            ("b".to_string(), vec![]),
        ];
        let plot = strips("t", "s", "ms", &arms, &[20.0]).expect("drawn");
        assert!(plot.svg.contains("<circle"));
    }
}
