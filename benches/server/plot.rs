//! The pictures under `docs/bench/`.

use plotters::prelude::*;
use std::path::Path;

/// One line or one bar of each group.
pub struct Series {
    pub name: String,
    /// x and y of a line; of bars, x is the number of the group.
    pub points: Vec<(f64, f64)>,
}

/// What stands around a picture.
pub struct Labels<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
}

const SIZE: (u32, u32) = (800, 420);
const COLOURS: [RGBColor; 8] = [
    RGBColor(120, 120, 120),
    RGBColor(31, 90, 166),
    RGBColor(46, 139, 110),
    RGBColor(196, 120, 30),
    RGBColor(128, 80, 160),
    RGBColor(190, 60, 60),
    RGBColor(80, 160, 190),
    RGBColor(160, 140, 40),
];

type Drawn<'a> = Result<(), Box<dyn std::error::Error + 'a>>;

/// Lines over a logarithmic x axis.
pub fn lines<'a>(path: &'a Path, labels: &Labels<'_>, series: &[Series]) -> Drawn<'a> {
    let xs = || series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
    let (low, high) = (xs().fold(f64::MAX, f64::min), xs().fold(0.0, f64::max));
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(labels.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d((low..high * 1.05).log_scale(), 0.0..top_of(series))?;
    chart
        .configure_mesh()
        .x_desc(labels.x)
        .y_desc(labels.y)
        .x_label_formatter(&|x| crate::report::thousands(*x))
        .y_label_formatter(&number)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
        chart.draw_series(line.point_size(3))?.label(&series.name).legend(mark(*colour));
    }
    legend(&mut chart)?;
    root.present()?;
    Ok(())
}

/// Bars in groups, one of each series, with the groups' names below.
pub fn bars<'a>(
    path: &'a Path,
    labels: &Labels<'_>,
    groups: &[String],
    series: &[Series],
) -> Drawn<'a> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let count = groups.len() as f64;
    let mut chart = ChartBuilder::on(&root)
        .caption(labels.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..count, 0.0..top_of(series))?;
    let group_name = |x: &f64| {
        let is_middle = (x.fract() - 0.5).abs() < 1e-6;
        if is_middle { groups[*x as usize].clone() } else { String::new() }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc(labels.x)
        .y_desc(labels.y)
        .x_labels(groups.len() * 2 + 1)
        .x_label_formatter(&group_name)
        .y_label_formatter(&number)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    let width = 0.8 / series.len() as f64;
    for (index, (series, colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let bars = series.points.iter().map(|(group, y)| {
            let left = group + 0.1 + width * index as f64;
            Rectangle::new([(left, 0.0), (left + width * 0.92, *y)], colour.filled())
        });
        chart.draw_series(bars)?.label(&series.name).legend(mark(*colour));
    }
    legend(&mut chart)?;
    root.present()?;
    Ok(())
}

fn top_of(series: &[Series]) -> f64 {
    let ys = series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    // Room for the legend.
    ys.fold(0.0, f64::max) * 1.45
}

fn number(y: &f64) -> String {
    if *y >= 100.0 { crate::report::thousands(*y) } else { format!("{y:.1}") }
}

fn mark(colour: RGBColor) -> impl Fn((i32, i32)) -> Rectangle<(i32, i32)> {
    move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled())
}

fn legend<'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Drawn<'a>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}
