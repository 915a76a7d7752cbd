//! A picture with one row per algorithm. Time runs from left to right, and each bar shows the calls
//! of one time span. Positions are whole pixels, so every machine draws the same bytes.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::traffic::{Bar, END_MS, FIRST_EDGE_MS, Passage, RULES, Rule, Traffic, WINDOW_MS};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// The horizontal positions of the three columns: names, bars, numbers.
const MARGIN: i32 = 16;
const LEFT: i32 = 214;
const PER_SECOND: i32 = 15;
const RIGHT: i32 = LEFT + PER_SECOND * (END_MS / 1_000) as i32;
const ALLOWED_AT: i32 = RIGHT + 44;
const DENSEST_AT: i32 = RIGHT + 112;
const WIDTH: i32 = RIGHT + 150;

/// The top of the first row, and the distance to the next one.
const TOP: i32 = 96;
const ROW: i32 = 62;
const BOTTOM: i32 = TOP + ROW * RULES.len() as i32;
const HEIGHT: i32 = BOTTOM + 44;

/// The maximum height of a bar, and of one call in a bar.
const BAR: i32 = 48;
const CALL: i32 = 20;

/// The colours also differ in brightness.
const ACTING: RGBColor = RGBColor(0, 92, 160);
const WAITING: RGBColor = RGBColor(134, 190, 230);
const DENIED: RGBColor = RGBColor(222, 222, 222);
const EDGE: RGBColor = RGBColor(200, 90, 0);
const LINE: RGBColor = RGBColor(190, 190, 190);

/// The style of a text, and its alignment at its position.
struct Lettering {
    size: i32,
    colour: RGBColor,
    weight: FontStyle,
    side: HPos,
}

const TITLE: Lettering = Lettering::new(21, HPos::Left);
const NAME: Lettering = Lettering::new(16, HPos::Left).bold();
const REMARK: Lettering = Lettering::new(14, HPos::Left).faint();
const LEGEND: Lettering = Lettering::new(15, HPos::Left);
const AXIS: Lettering = Lettering::new(14, HPos::Center).faint();
const ALLOWED: Lettering = Lettering::new(15, HPos::Center);
const DENSEST: Lettering = Lettering::new(20, HPos::Center).bold();
const COUNT: Lettering = Lettering { colour: WHITE, ..Lettering::new(13, HPos::Center) };

impl Lettering {
    const fn new(size: i32, side: HPos) -> Self {
        Self { size, colour: RGBColor(40, 40, 40), weight: FontStyle::Normal, side }
    }

    const fn faint(self) -> Self {
        Self { colour: RGBColor(105, 105, 105), ..self }
    }

    const fn bold(self) -> Self {
        Self { weight: FontStyle::Bold, ..self }
    }

    fn write<'a>(&self, area: &Area<'a>, text: &str, at: (i32, i32)) -> Drawn<'a> {
        let font = ("sans-serif", self.size).into_font().style(self.weight);
        let style = font.color(&self.colour).pos(Pos::new(self.side, VPos::Center));
        area.draw(&Text::new(text, at, style))
    }
}

/// Returns the picture as SVG.
pub fn draw(traffic: &Traffic, passages: &[Passage]) -> String {
    let mut svg = String::new();
    {
        let size = (WIDTH.unsigned_abs(), HEIGHT.unsigned_abs());
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw_on(&area, traffic, passages).expect("a text has room for everything");
    }
    svg
}

fn draw_on<'a>(area: &Area<'a>, traffic: &Traffic, passages: &[Passage]) -> Drawn<'a> {
    // The background is white, because a dark page would make the dark texts unreadable.
    area.fill(&WHITE)?;
    TITLE.write(area, traffic.title, (MARGIN, 24))?;
    legend(area)?;
    let all: Vec<_> = passages.iter().map(|passage| passage.bars(traffic.bar_ms)).collect();
    let calls = |bar: &Bar| bar.allowed + bar.denied;
    let highest = all.iter().flatten().map(calls).max().expect("there are calls");
    let call = (BAR / highest).min(CALL);
    for (at, (rule, passage)) in RULES.iter().zip(passages).enumerate() {
        let base = TOP + ROW * (at as i32 + 1) - 6;
        names(area, rule, base)?;
        if rule.has_edges {
            edges(area, base)?;
        }
        for (at, bar) in all[at].iter().enumerate() {
            let [from_ms, to_ms] = [at, at + 1].map(|at| at as i64 * traffic.bar_ms);
            stack(area, bar, (x(from_ms), x(to_ms) - 2), base, call)?;
        }
        area.draw(&PathElement::new([(LEFT, base), (RIGHT, base)], LINE))?;
        numbers(area, passage, base)?;
    }
    axis(area)?;
    area.present()
}

fn x(at_ms: i64) -> i32 {
    LEFT + (at_ms * i64::from(PER_SECOND) / 1_000) as i32
}

fn names<'a>(area: &Area<'a>, rule: &Rule, base: i32) -> Drawn<'a> {
    NAME.write(area, rule.algorithm, (MARGIN, base - 36))?;
    REMARK.write(area, rule.arguments, (MARGIN, base - 20))?;
    REMARK.write(area, rule.remark, (MARGIN, base - 5))
}

fn numbers<'a>(area: &Area<'a>, passage: &Passage, base: i32) -> Drawn<'a> {
    let allowed = format!("{} of {}", passage.allowed(), passage.calls());
    ALLOWED.write(area, &allowed, (ALLOWED_AT, base - 20))?;
    DENSEST.write(area, &passage.densest().to_string(), (DENSEST_AT, base - 20))
}

/// Draws a bar: the denied calls on top of the allowed ones, and in front of both the calls that
/// act in this span. If all allowed calls act at once, the front part hides the allowed ones.
fn stack<'a>(
    area: &Area<'a>,
    bar: &Bar,
    (from, to): (i32, i32),
    base: i32,
    call: i32,
) -> Drawn<'a> {
    let Bar { allowed, denied, acting } = *bar;
    let layers = [
        (acting.max(allowed), allowed + denied, DENIED),
        (acting, allowed, WAITING),
        (0, acting, ACTING),
    ];
    for (hidden, count, colour) in layers.into_iter().filter(|(hidden, count, _)| hidden < count) {
        let corners = [(from, base - count * call), (to, base - hidden * call)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
    }
    let has_room = acting * call >= 12;
    if acting > 1 && has_room {
        let middle = ((from + to) / 2, base - acting * call / 2);
        COUNT.write(area, &acting.to_string(), middle)?;
    }
    Ok(())
}

fn edges<'a>(area: &Area<'a>, base: i32) -> Drawn<'a> {
    for at_ms in (FIRST_EDGE_MS..END_MS).step_by(WINDOW_MS as usize) {
        // The edge is drawn in the gap between two bars.
        let at = x(at_ms) - 1;
        area.draw(&PathElement::new([(at, base - BAR - 6), (at, base)], EDGE.stroke_width(2)))?;
    }
    Ok(())
}

fn axis<'a>(area: &Area<'a>) -> Drawn<'a> {
    for at_ms in (0..=END_MS).step_by(5_000) {
        let at = x(at_ms);
        area.draw(&PathElement::new([(at, BOTTOM - 6), (at, BOTTOM)], LINE))?;
        AXIS.write(area, &format!("{} s", at_ms / 1_000), (at, BOTTOM + 10))?;
    }
    AXIS.write(area, "time since the first call", ((LEFT + RIGHT) / 2, BOTTOM + 29))
}

fn legend<'a>(area: &Area<'a>) -> Drawn<'a> {
    let y = 54;
    let entries = [
        (MARGIN, ACTING, "allowed, acts now"),
        (168, WAITING, "allowed, waits for its turn"),
        (420, DENIED, "denied"),
    ];
    for (at, colour, name) in entries {
        area.draw(&Rectangle::new([(at, y - 6), (at + 12, y + 6)], colour.filled()))?;
        LEGEND.write(area, name, (at + 18, y))?;
    }
    area.draw(&PathElement::new([(508, y - 8), (508, y + 8)], EDGE.stroke_width(2)))?;
    LEGEND.write(area, "a window ends", (516, y))?;
    AXIS.write(area, "allowed", (ALLOWED_AT, 80))?;
    AXIS.write(area, "most in", (DENSEST_AT, 65))?;
    AXIS.write(area, "any 10 s", (DENSEST_AT, 80))
}
