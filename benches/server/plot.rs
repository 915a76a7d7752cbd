//! The pictures under `docs/bench/`.

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use std::path::Path;

/// The data of one line, or of one bar in each group of bars.
pub struct Series {
    pub name: String,
    /// The points x and y of a line. For bars, x is the index of the group.
    pub points: Vec<(f64, f64)>,
}

/// The labels of a picture.
#[derive(Default)]
pub struct Labels<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// The label of a dashed line at 1; `None` if that line is not drawn.
    pub at_one: Option<&'a str>,
    /// Whether every second series is drawn as a paler variant of the one before.
    pub is_paired: bool,
    /// Whether both axes are logarithmic. If not, only the x axis of a picture with lines is.
    pub is_log: bool,
}

impl Labels<'_> {
    fn colour(&self, index: usize) -> RGBAColor {
        let (index, strength) = match self.is_paired {
            true => (index / 2 + 1, if index.is_multiple_of(2) { 1.0 } else { 0.4 }),
            false => (index, 1.0),
        };
        COLOURS[index % COLOURS.len()].mix(strength)
    }
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

/// Draws lines over a logarithmic x axis.
pub fn lines<'a>(path: &'a Path, labels: &Labels<'_>, series: &[Series]) -> Drawn<'a> {
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let all = || series.iter().flat_map(|series| &series.points).map(of);
        (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max))
    };
    let (low, high) = ends(|point| point.0);
    let x = (low..high * 1.05).log_scale();
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut builder = builder_on(&root, labels);
    if labels.is_log {
        let (low, high) = ends(|point| point.1);
        let y = (low / 2.0..high * 8.0).log_scale();
        draw_lines(builder.build_cartesian_2d(x, y)?, labels, series)?;
    } else {
        draw_lines(builder.build_cartesian_2d(x, 0.0..top_of(series))?, labels, series)?;
    }
    root.present()?;
    Ok(())
}

fn draw_lines<'a, X, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    labels: &Labels<'_>,
    series: &[Series],
) -> Drawn<'a>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(labels.x)
        .y_desc(labels.y)
        .x_label_formatter(&|x| crate::report::thousands(*x))
        .y_label_formatter(&number)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    for (index, series) in series.iter().enumerate() {
        let colour = labels.colour(index);
        let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
        chart.draw_series(line.point_size(3))?.label(label(&series.name)).legend(mark(colour));
    }
    legend(&mut chart)
}

fn builder_on<'a, 'b>(
    root: &'b DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    labels: &Labels<'_>,
) -> ChartBuilder<'b, 'b, SVGBackend<'a>> {
    let mut builder = ChartBuilder::on(root);
    builder
        .caption(labels.title, ("sans-serif", 18))
        .margin(14)
        .margin_right(34)
        .x_label_area_size(46)
        .y_label_area_size(70);
    builder
}

/// Draws groups of bars: each group has one bar per series, and its name below.
pub fn bars<'a>(
    path: &'a Path,
    labels: &Labels<'_>,
    groups: &[String],
    series: &[Series],
) -> Drawn<'a> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let count = groups.len() as f64;
    let mut chart =
        builder_on(&root, labels).build_cartesian_2d(0.0..count, 0.0..top_of(series))?;
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
    for (index, series) in series.iter().enumerate() {
        let colour = labels.colour(index);
        let bars = series.points.iter().map(|(group, y)| {
            let left = group + 0.1 + width * index as f64;
            Rectangle::new([(left, 0.0), (left + width * 0.92, *y)], colour.filled())
        });
        chart.draw_series(bars)?.label(label(&series.name)).legend(mark(colour));
    }
    if let Some(name) = labels.at_one {
        let line = [(0.0, 1.0), (count, 1.0)];
        let dashes = DashedLineSeries::new(line, 6, 4, COLOURS[0].stroke_width(1));
        let dash = |(x, y)| PathElement::new([(x, y), (x + 12, y)], COLOURS[0]);
        chart.draw_series(dashes)?.label(name).legend(dash);
    }
    legend(&mut chart)?;
    root.present()?;
    Ok(())
}

fn top_of(series: &[Series]) -> f64 {
    let ys = series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    // Leave room for the legend, a line per series.
    ys.fold(0.0, f64::max) * (1.2 + 0.11 * series.len() as f64)
}

/// Pads a name, because the library cannot read the font and underestimates the width of capitals.
fn label(name: &str) -> String {
    let room = "\u{a0}".repeat(name.len() / 4);
    format!("{name}{room}")
}

fn number(y: &f64) -> String {
    if *y >= 100.0 { crate::report::thousands(*y) } else { format!("{y:.1}") }
}

fn mark(colour: RGBAColor) -> impl Fn((i32, i32)) -> Rectangle<(i32, i32)> {
    move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled())
}

fn legend<'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Drawn<'a>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}
