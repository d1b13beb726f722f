//! SVG plots. They are drawn in marker colours that the page's style sheet maps to real ones, so
//! that one drawing serves by day and by night.

use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::LabError;

const SIZE: (u32, u32) = (860, 360);
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
const LEVEL: RGBColor = RGBColor(3, 3, 3);

/// Colours that there are for series; the last is a quiet one, for what is left over.
pub const SERIES: usize = 8;

/// A drawing with its words.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// What to see in it, in one sentence.
    pub see: String,
    /// The drawing.
    pub svg: String,
    /// Series number and name.
    pub legend: Vec<(usize, String)>,
}

fn marker(series: usize) -> RGBColor {
    RGBColor(10, 0, (series % SERIES) as u8 + 1)
}

/// How the drawing writes series `i`'s marker colour.
pub fn marker_hex(i: usize) -> String {
    let RGBColor(r, g, b) = marker(i);
    format!("#{r:02X}{g:02X}{b:02X}")
}

fn failed<'a, E: std::fmt::Display>(title: &'a str) -> impl Fn(E) -> LabError + 'a {
    move |e| LabError::Plot {
        title: title.to_string(),
        why: e.to_string(),
    }
}

/// Name, colour and points of a line.
type Series = (String, usize, Vec<(f64, f64)>);

/// Lines over a common axis.
pub struct Lines {
    title: String,
    see: String,
    x: String,
    y: String,
    range: (Range<f64>, Range<f64>),
    log_y: bool,
    series: Vec<Series>,
    levels: Vec<(String, f64)>,
    dots: bool,
}

impl Lines {
    /// An empty plot; axis titles carry their units.
    pub fn new(title: &str, x: &str, y: &str) -> Self {
        Lines {
            title: title.into(),
            see: String::new(),
            x: x.into(),
            y: y.into(),
            range: (0.0..1.0, 0.0..1.0),
            log_y: false,
            series: Vec::new(),
            levels: Vec::new(),
            dots: false,
        }
    }

    /// What to see.
    pub fn see(mut self, text: &str) -> Self {
        self.see = text.into();
        self
    }

    /// The axes' ranges.
    pub fn range(mut self, x: Range<f64>, y: Range<f64>) -> Self {
        self.range = (x, y);
        self
    }

    /// A logarithmic axis; its range comes from the data.
    pub fn log_y(mut self) -> Self {
        self.log_y = true;
        self
    }

    /// Marks every point.
    pub fn dots(mut self) -> Self {
        self.dots = true;
        self
    }

    /// Adds a line.
    pub fn series(mut self, label: &str, colour: usize, points: Vec<(f64, f64)>) -> Self {
        self.series.push((label.into(), colour, points));
        self
    }

    /// Adds a level across the plot.
    pub fn level(mut self, label: &str, y: f64) -> Self {
        self.levels.push((label.into(), y));
        self
    }

    /// Draws it.
    pub fn draw(self) -> Result<Plot, LabError> {
        let title = self.title.clone();
        let fail = || failed(&title);
        let height = |y: f64| if self.log_y { y.max(1e-9).log10() } else { y };
        let y_range = if self.log_y {
            let ys = self
                .series
                .iter()
                .flat_map(|s| s.2.iter().map(|p| height(p.1)));
            let (low, high) = ys.fold((f64::MAX, f64::MIN), |(a, b), y| (a.min(y), b.max(y)));
            if low > high {
                0.0..1.0
            } else {
                low - 0.1..high + 0.1
            }
        } else {
            self.range.1.clone()
        };
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut chart = ChartBuilder::on(&root)
                .margin(10)
                .margin_right(24)
                .x_label_area_size(46)
                .y_label_area_size(64)
                .build_cartesian_2d(self.range.0.clone(), y_range)
                .map_err(fail())?;
            let label = |y: &f64| tick(if self.log_y { 10f64.powf(*y) } else { *y });
            chart
                .configure_mesh()
                .x_desc(self.x.as_str())
                .y_desc(self.y.as_str())
                .axis_style(INK)
                .bold_line_style(GRID)
                .light_line_style(TRANSPARENT)
                .label_style(text_style(13))
                .axis_desc_style(text_style(14))
                .x_label_formatter(&|x| tick(*x))
                .y_label_formatter(&label)
                .draw()
                .map_err(fail())?;
            for (name, y) in &self.levels {
                let (a, b) = (self.range.0.start, self.range.0.end);
                let points = [(a, height(*y)), (b, height(*y))];
                let line = DashedLineSeries::new(points, 5, 4, LEVEL.stroke_width(1));
                chart.draw_series(line).map_err(fail())?;
                let word = Text::new(
                    name.clone(),
                    (a + (b - a) * 0.01, height(*y)),
                    text_style(12),
                );
                chart.draw_series([word]).map_err(fail())?;
            }
            for (_, colour, points) in &self.series {
                let colour = marker(*colour);
                let points: Vec<(f64, f64)> = points.iter().map(|p| (p.0, height(p.1))).collect();
                if self.dots {
                    let dots = points.iter().map(|p| Circle::new(*p, 3, colour.filled()));
                    chart.draw_series(dots).map_err(fail())?;
                }
                chart
                    .draw_series(LineSeries::new(points, colour.stroke_width(2)))
                    .map_err(fail())?;
            }
            root.present().map_err(fail())?;
        }
        let legend = self
            .series
            .into_iter()
            .map(|(label, colour, _)| (colour, label))
            .collect();
        Ok(Plot {
            title: self.title,
            see: self.see,
            svg,
            legend,
        })
    }
}

/// Dots of each category over a logarithmic axis, with the median as a bar.
pub fn strips(title: &str, y: &str, strips: &[(String, Vec<f64>)]) -> Result<Plot, LabError> {
    let fail = || failed(title);
    let logs: Vec<(String, Vec<f64>)> = strips
        .iter()
        .map(|(n, v)| {
            let finite = v.iter().filter(|v| v.is_finite());
            (n.clone(), finite.map(|v| v.max(1e-3).log10()).collect())
        })
        .collect();
    let all = logs.iter().flat_map(|(_, v)| v.iter().copied());
    let (low, high) = all.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
    let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let count = logs.len() as f64;
        let low = low - 0.1;
        let mut chart = ChartBuilder::on(&root)
            .margin(10)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..count, low..high + 0.1)
            .map_err(fail())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_desc(y)
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(text_style(13))
            .axis_desc_style(text_style(14))
            .y_label_formatter(&|v| tick(10f64.powf(*v)))
            .draw()
            .map_err(fail())?;
        let style = text_style(if logs.len() > 6 { 10 } else { 13 });
        let style = style.pos(Pos::new(HPos::Center, VPos::Top));
        for (i, (name, _)) in logs.iter().enumerate() {
            let at = chart.backend_coord(&(i as f64 + 0.5, low));
            root.draw_text(name, &style, (at.0, at.1 + 6 + 12 * (i as i32 % 2)))
                .map_err(fail())?;
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
        see: "Each dot is a run, the bar is the median.".into(),
        svg,
        legend: Vec::new(),
    })
}

fn text_style(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// A tick's label without noise digits.
fn tick(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_svg_in_marker_colours() {
        let plot = Lines::new("t", "time, s", "share, %")
            .range(0.0..2.0, 0.0..100.0)
            .series("main", 0, vec![(0.0, 10.0), (2.0, 80.0)])
            .level("asked", 30.0)
            .draw()
            .expect("drawn");
        assert!(plot.svg.starts_with("<svg") && plot.svg.contains("time, s"));
        assert!(plot.svg.contains(&marker_hex(0)), "{}", plot.svg);
        assert_eq!(plot.legend, vec![(0, "main".to_string())]);
    }

    #[test]
    fn strips_survive_what_was_never_seen() {
        let arms = [
            ("a".to_string(), vec![12.0, 15.0, f64::INFINITY]),
            ("b".to_string(), vec![]),
        ];
        let plot = strips("t", "ms", &arms).expect("drawn");
        assert!(plot.svg.contains("<circle"));
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(
            (tick(30.0), tick(0.5), tick(1234.6), tick(0.0)),
            ("30".into(), "0.5".into(), "1235".into(), "0".into())
        );
    }
}
