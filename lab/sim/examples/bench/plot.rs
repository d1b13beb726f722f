//! Both curves as one picture.

use std::path::Path;

use plotters::prelude::*;

use crate::Point;

/// Writes the picture: cost per event against size, the size on a logarithmic axis.
pub fn draw(path: &Path, cpus: &[Point], runnable: &[Point]) -> Result<(), String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let area = SVGBackend::new(path, (900, 420)).into_drawing_area();
    area.fill(&WHITE).map_err(|why| failed(why.to_string()))?;
    let halves = area.split_evenly((1, 2));
    for (half, title, points) in [
        (&halves[0], "ns per event by CPUs", cpus),
        (&halves[1], "ns per event by runnable tasks", runnable),
    ] {
        curve(half, title, points).map_err(failed)?;
    }
    area.present().map_err(|why| failed(why.to_string()))
}

fn curve(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    points: &[Point],
) -> Result<(), String> {
    let high = points.iter().map(Point::cost_ns).fold(1.0, f64::max) * 1.2;
    let (low_size, high_size) = (
        f64::from(points[0].size),
        f64::from(points[points.len() - 1].size),
    );
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(48)
        .build_cartesian_2d((low_size..high_size).log_scale().base(2.0), 0.0..high)
        .map_err(|why| why.to_string())?;
    chart
        .configure_mesh()
        .x_label_formatter(&|size| format!("{size:.0}"))
        .draw()
        .map_err(|why| why.to_string())?;
    let measured = points
        .iter()
        .map(|point| (f64::from(point.size), point.cost_ns()));
    chart
        .draw_series(LineSeries::new(measured.clone(), &BLUE))
        .map_err(|why| why.to_string())?;
    chart
        .draw_series(measured.map(|at| Circle::new(at, 3, BLUE.filled())))
        .map_err(|why| why.to_string())?;
    // What growth with the logarithm from the first point would be: the bound that the benchmark judges by.
    let first = points[0].cost_ns() / low_size.log2();
    let bound = points
        .iter()
        .map(|point| f64::from(point.size))
        .map(|size| (size, first * size.log2()))
        .filter(|at| at.1 <= high);
    chart
        .draw_series(LineSeries::new(bound, &BLACK.mix(0.4)))
        .map_err(|why| why.to_string())?;
    Ok(())
}
