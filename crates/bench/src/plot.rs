//! Plots as SVG, drawn by plotters: [`Chart`] has lines and dots over two axes, [`Bars`] has groups of horizontal bars.
//!
//! The ground is transparent, so that a plot looks right on light and dark pages. `Bars` are files of their own: their colours are ones that
//! both pages show. A `Chart` is part of a page, whose variables are its colours: `--c0` and on for series, `--soft`, `--grid`.
//!
//! Out of scope: titles and legends of a `Chart`, which the page has (`experiment::html`).

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

/// Lines and dots.
#[derive(Default)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    /// What it is about, when there are several of its kind.
    pub(crate) subject: String,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) is_log: bool,
    /// What the whole numbers on the x axis stand for; without them it shows numbers, from 0 on.
    pub(crate) x_names: Option<Vec<&'static str>>,
    pub(crate) series: Vec<Series>,
}

/// One line, or one cloud of dots.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) mark: Mark,
    pub(crate) style: Style,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Line,
    Dots,
    /// Dots that are not filled: no figure.
    Hollow,
}

/// How a series looks, in all plots alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// One of [`COLOURS`]: whose it is.
    pub(crate) colour: usize,
    /// One of [`DASHES`]: which of its.
    pub(crate) dash: usize,
}

impl Chart {
    pub(crate) fn of(series: impl Iterator<Item = Series>) -> Self {
        Self { series: series.filter(|series| !series.points.is_empty()).collect(), ..Self::default() }
    }

    pub(crate) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (least, most) = range(points().map(|point| point.1));
        let y = if self.is_log { Axis::log(least, most) } else { Axis::linear(least, most) };
        let x = range(points().map(|point| point.0)).1;
        let x = match &self.x_names {
            Some(names) => Axis::named(names.len(), x),
            // To the last point: what lies behind it is no part of what was measured.
            None => Axis::of(0.0..x.max(1e-3)),
        };
        let x_label =
            |x: &f64| self.x_names.as_ref().map_or_else(|| label(*x), |names| names[*x as usize].to_owned());
        let svg = on_page(CHART_PIXELS, |area| {
            let mut chart = ChartBuilder::on(area)
                .margin_top(20)
                .margin_right(40)
                .set_label_area_size(LabelAreaPosition::Left, 96)
                .set_label_area_size(LabelAreaPosition::Bottom, if self.x.is_empty() { 48 } else { 80 })
                .build_cartesian_2d(x, y)?;
            let (mut mesh, text) = (chart.configure_mesh(), text_style(24.0, &SOFT));
            mesh.disable_x_mesh().light_line_style(TRANSPARENT).x_desc(self.x);
            mesh.bold_line_style(GRID.stroke_width(2)).axis_style(SOFT.stroke_width(2)).label_style(text);
            mesh.x_label_formatter(&x_label).y_label_formatter(&|y: &f64| label(*y)).draw()?;
            for series in &self.series {
                let marks = series.marks(series.points.clone());
                marks.iter().try_for_each(|mark| chart.plotting_area().draw(mark))?;
            }
            Ok(())
        });
        by_variables(svg)
    }
}

/// What an axis shows, and where it has ticks.
#[derive(Debug)]
struct Axis {
    shown: Range<f64>,
    ticks: Vec<f64>,
    is_log: bool,
}

impl Axis {
    fn of(shown: Range<f64>) -> Self {
        let ticks = RangedCoordf64::from(shown.clone()).key_points(TICKS);
        Self { shown, ticks, is_log: false }
    }

    /// The whole numbers below `count`, which have names, and whatever comes up to `most`.
    fn named(count: usize, most: f64) -> Self {
        let ticks = (0..count).map(|index| index as f64).collect();
        Self { shown: -0.5..most.max(count as f64 - 1.0) + 0.5, ticks, is_log: false }
    }

    /// From 0 if values come near it, else from a little below them: differences are what a plot is looked at for.
    fn linear(low: f64, high: f64) -> Self {
        let margin = if high > low { (high - low) * 0.05 } else { high.abs().max(1.0) * 0.5 };
        let low = if low >= 0.0 && low < 0.4 * high { 0.0 } else { low - margin };
        Self::of(low..high + margin)
    }

    /// Between powers of ten, or, of less than two of them, between their 1, 2 and 5.
    fn log(low: f64, high: f64) -> Self {
        let (low, high) = (low.max(LOG_LEAST), high.max(LOG_LEAST));
        let digits: &[f64] = if high / low > 100.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = (-1..=19).map(|power| 10f64.powi(power));
        let all: Vec<f64> = powers.flat_map(|power| digits.iter().map(move |digit| digit * power)).collect();
        let from = all.iter().rposition(|tick| *tick <= low * (1.0 + 1e-9)).unwrap_or(0).min(all.len() - 2);
        let to = all.iter().position(|tick| *tick >= high * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
        let ticks = all[from..=to.max(from + 1)].to_vec();
        Self { shown: ticks[0]..ticks[ticks.len() - 1], ticks, is_log: true }
    }
}

/// The library has no linear axis with ticks of one's own.
impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        if !self.is_log {
            return RangedCoordf64::from(self.shown.clone()).map(value, limit);
        }
        let shown = self.shown.start.ln()..self.shown.end.ln();
        RangedCoordf64::from(shown).map(&value.max(LOG_LEAST).ln(), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.shown.clone()
    }
}

impl Series {
    /// How the series looks, as a picture for a legend.
    pub(crate) fn key(&self) -> String {
        let points = if self.mark == Mark::Line { vec![(0, 12), (48, 12)] } else { vec![(24, 12)] };
        by_variables(on_page((48, 24), |area| self.marks(points).iter().try_for_each(|mark| area.draw(mark))))
    }

    fn marks<'a, At: Clone + 'a>(&self, points: Vec<At>) -> Vec<DynElement<'a, SVGBackend<'a>, At>> {
        let Style { colour, dash } = self.style;
        let ink = variable(colour % COLOURS.len());
        if self.mark != Mark::Line || points.len() == 1 {
            let style = if self.mark == Mark::Hollow { ink.stroke_width(2) } else { ink.filled() };
            return points.into_iter().map(|at| Circle::new(at, 7, style).into_dyn()).collect();
        }
        // Colours that come again are told apart by their dashes.
        match DASHES[(dash + colour / COLOURS.len()) % DASHES.len()] {
            None => vec![PathElement::new(points, ink.stroke_width(4)).into_dyn()],
            Some((size, spacing)) => {
                let dashed = DashedPathElement::new(points, size, spacing, ink.stroke_width(4));
                vec![dashed.into_dyn()]
            }
        }
    }
}

/// Groups of horizontal bars, one below the other.
pub(crate) struct Bars {
    pub(crate) title: String,
    /// Bars of all groups have one scale, with a line at this value; none: each group has its own scale, which is not shown.
    pub(crate) line_at: Option<f64>,
    pub(crate) groups: Vec<BarGroup>,
}

pub(crate) struct BarGroup {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

pub(crate) struct Bar {
    pub(crate) label: String,
    /// One of [`BAR_COLOURS`].
    pub(crate) colour: usize,
    pub(crate) length: f64,
    /// Its length in words.
    pub(crate) words: String,
    /// A dot each: what the length is the median of.
    pub(crate) dots: Vec<f64>,
}

impl Bars {
    pub(crate) fn svg(&self) -> String {
        let rows: f64 = self.groups.iter().map(BarGroup::rows).sum();
        let foot = if self.line_at.is_some() { 24 } else { 4 };
        let height = BARS_TOP + (rows * ROW).ceil() as u32 + foot;
        on_page((BARS_WIDTH, height), |area| {
            let bold = (FontFamily::SansSerif, 16.0 * FONT_SIZE, FontStyle::Bold).into_font().color(&NEUTRAL);
            area.draw_text(&self.title, &bold, (8, 8))?;
            let mut builder = ChartBuilder::on(area);
            builder.margin_top(BARS_TOP).margin_left(BARS_LEFT).margin_right(BARS_RIGHT);
            builder.set_label_area_size(LabelAreaPosition::Bottom, foot);
            let mut chart = builder.build_cartesian_2d(0.0..self.longest(), rows..0.0)?;
            if self.line_at.is_some() {
                let (mut mesh, pale) = (chart.configure_mesh(), NEUTRAL.mix(0.3));
                mesh.disable_y_mesh().disable_y_axis().max_light_lines(0).x_labels(6);
                mesh.bold_line_style(pale).axis_style(pale).label_style(text_style(12.0, &NEUTRAL));
                mesh.x_label_formatter(&|x: &f64| label(*x)).draw()?;
            }
            let mut top = 0.0;
            for group in &self.groups {
                let scale = if self.line_at.is_some() { 1.0 } else { group.longest() };
                group.draw(area, &mut chart, top, scale)?;
                top += group.rows();
            }
            if let Some(at) = self.line_at {
                let ends = vec![(at, 0.0), (at, rows)];
                chart.draw_series([PathElement::new(ends, LINE_COLOUR.stroke_width(2))])?;
            }
            Ok(())
        })
    }

    /// Where the scale ends.
    fn longest(&self) -> f64 {
        let longest = |at| self.groups.iter().map(BarGroup::longest).fold(at, f64::max);
        self.line_at.map_or(1.0, longest)
    }
}

impl BarGroup {
    /// One for its title, one for each bar, and half of one below.
    fn rows(&self) -> f64 {
        self.bars.len() as f64 + 1.5
    }

    /// The greatest of its lengths and dots; never zero.
    fn longest(&self) -> f64 {
        let all = self.bars.iter().flat_map(|bar| bar.dots.iter().copied().chain([bar.length]));
        all.filter(|length| length.is_finite()).fold(f64::MIN_POSITIVE, f64::max)
    }

    fn draw(
        &self,
        area: &Area<'_>,
        chart: &mut BarsChart<'_>,
        top: f64,
        scale: f64,
    ) -> Result<(), DrawError> {
        let words = |text: &str, column: u32, row: f64| {
            let at = (column as i32, BARS_TOP as i32 + (row * ROW) as i32 + 4);
            area.draw_text(text, &text_style(12.0, &NEUTRAL), at)
        };
        words(&self.title, 8, top)?;
        for (index, bar) in self.bars.iter().enumerate() {
            let row = top + 1.0 + index as f64;
            words(&bar.label, 24, row)?;
            words(&bar.words, BARS_WIDTH - BARS_RIGHT + 8, row)?;
            let length = if bar.length.is_finite() { bar.length / scale } else { 0.0 };
            let (corners, colour) = ([(0.0, row + 0.1), (length, row + 0.9)], BAR_COLOURS[bar.colour % 3]);
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            // Of dots at one place one is enough; there may be thousands.
            let mut dots: Vec<f64> =
                bar.dots.iter().map(|dot| (dot / scale * 500.0).round() / 500.0).collect();
            dots.retain(|dot| dot.is_finite());
            dots.sort_by(f64::total_cmp);
            dots.dedup();
            // Black within white is seen on any ground.
            for (radius, ink) in [(4, WHITE), (3, BLACK)] {
                let at = dots.iter().map(|dot| (*dot, row + 0.5));
                chart.draw_series(at.map(|at| Circle::new(at, radius, ink.filled())))?;
            }
        }
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type BarsChart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// The SVG that `draw` makes, of so many pixels across and down.
fn on_page(pixels: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), DrawError>) -> String {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, pixels).into_drawing_area();
    draw(&area).and_then(|()| area.present()).expect("a text takes all that is written");
    drop(area);
    svg
}

fn text_style(pixels: f64, colour: &RGBColor) -> TextStyle<'static> {
    (FontFamily::SansSerif, pixels * FONT_SIZE).into_font().color(colour)
}

/// A colour that stands for a variable of the page until the plot is drawn: the library has fixed colours.
const fn variable(index: usize) -> RGBColor {
    RGBColor(1, 2, index as u8)
}

/// Puts the page's variables in the places of the colours that stand for them.
fn by_variables(mut svg: String) -> String {
    let series = (0..COLOURS.len()).map(|index| (variable(index), format!("c{index}")));
    let fixed = [(SOFT, "soft".to_owned()), (GRID, "grid".to_owned())];
    for (RGBColor(red, green, blue), name) in series.chain(fixed) {
        svg = svg.replace(&format!("#{red:02X}{green:02X}{blue:02X}"), &format!("var(--{name})"));
    }
    svg
}

/// The least and the most of `values`; 0 and 1 of none.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(one), high.max(one)));
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// A number of a tick: short, and exact for round ones.
fn label(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    format!("{text}{unit}")
}

/// Each on white and on black, with a contrast of at least 3 to its ground.
pub(crate) const COLOURS: [(&str, &str); 6] = [
    ("#0b62a8", "#6cb6ff"),
    ("#c2410c", "#ff9a52"),
    ("#15803d", "#5fd38a"),
    ("#7e22ce", "#c99bff"),
    ("#be185d", "#ff8fb8"),
    ("#4b5563", "#b6bec9"),
];
/// How several series of one colour are told apart: pixels of a dash and of the gap behind it.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((14, 8)), Some((4, 6)), Some((28, 8))];
const SOFT: RGBColor = RGBColor(1, 3, 0);
const GRID: RGBColor = RGBColor(1, 3, 1);
/// Text is as large as in the page when the plot is 400 pixels wide there, which a phone shows. The library rounds places to pixels: twice as
/// many make lines even.
const CHART_PIXELS: (u32, u32) = (800, 480);
/// About so many.
const TICKS: usize = 6;
/// What the library calls the size of a font, of what SVG calls so.
const FONT_SIZE: f64 = 1.24;
/// The least that a logarithmic axis shows.
const LOG_LEAST: f64 = 0.1;
/// Has a contrast of at least 3 to white and to black, as all below.
const NEUTRAL: RGBColor = RGBColor(0x80, 0x80, 0x80);
/// Ours, the first peer's, the second's.
const BAR_COLOURS: [RGBColor; 3] =
    [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0x8c, 0x6b, 0xb1), RGBColor(0x90, 0x90, 0x90)];
const LINE_COLOUR: RGBColor = RGBColor(0xd0, 0x50, 0x20);
const BARS_WIDTH: u32 = 760;
const BARS_TOP: u32 = 32;
const BARS_LEFT: u32 = 190;
const BARS_RIGHT: u32 = 150;
const ROW: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures that lie close together were a flat line at the top of an axis from zero.
    #[test]
    fn axis_uses_its_range_and_begins_at_zero_only_near_it() {
        let close = Axis::linear(151_200.0, 158_900.0).shown;
        assert!(close.start > 150_000.0 && close.start < 151_200.0 && close.end > 158_900.0, "{close:?}");
        assert_eq!(Axis::linear(3.0, 97.0).shown.start, 0.0);
        for odd in [vec![], vec![0.0], vec![7.0], vec![f64::NAN], vec![-3.0, -1.0]] {
            let (least, most) = range(odd.iter().copied());
            let axis = Axis::linear(least, most);
            assert!(odd.iter().all(|it| it.is_nan() || axis.shown.contains(it)), "{axis:?}");
            assert!(axis.ticks.len() >= 2, "{axis:?}");
        }
    }

    #[test]
    fn logarithmic_axis_lies_between_powers_of_ten_or_parts_of_them() {
        assert_eq!(Axis::log(35.0, 4_200.0).ticks, [10.0, 100.0, 1_000.0, 10_000.0]);
        assert_eq!(Axis::log(35.0, 190.0).ticks, [20.0, 50.0, 100.0, 200.0]);
        for (least, most) in [(0.0, 0.0), (100.0, 100.0), (1e15, 1e15), (0.0, 1e30)] {
            assert!(Axis::log(least, most).ticks.len() >= 2, "{least} {most}");
        }
    }

    #[test]
    fn labels_are_short() {
        let labels = [0.0, 0.2, 5_000.0, 150_000.0, 2_500_000.0].map(label);
        assert_eq!(labels, ["0", "0.2", "5000", "150k", "2.5M"]);
    }

    #[test]
    fn chart_has_lines_dashes_dots_and_the_variables_of_the_page() {
        let series = |mark, colour, dash, points: &[(f64, f64)]| Series {
            name: String::new(),
            points: points.to_vec(),
            mark,
            style: Style { colour, dash },
        };
        let two = [(1.0, 10.0), (2.0, 5_000.0)];
        let all = [
            series(Mark::Line, 0, 0, &two),
            series(Mark::Line, 1, 1, &two),
            series(Mark::Line, 2, 0, &two[..1]),
            series(Mark::Dots, 3, 0, &two),
            series(Mark::Hollow, 4, 0, &two),
        ];
        let x_names = Some(vec!["p50", "p99", "a < b"]);
        let svg = Chart { is_log: true, x_names, ..Chart::of(all.into_iter()) }.svg();
        let count = |tag: &str, colour: &str| {
            svg.split('<').filter(|it| it.starts_with(tag) && it.contains(colour)).count()
        };
        assert_eq!(count("polyline", "var(--c0)"), 1, "{svg}");
        assert!(count("polyline", "var(--c1)") > 10, "{svg}");
        assert_eq!((count("circle", "var(--c2)"), count("circle", "fill=\"var(--c3)\"")), (1, 2), "{svg}");
        assert_eq!(count("circle", "fill=\"none\""), 2, "{svg}");
        for text in ["p50", "a &lt; b", "1000", "10k", "var(--soft)", "var(--grid)"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains('#'), "{svg}");
        assert!(Chart::of(std::iter::empty()).svg().ends_with("</svg>\n"));
    }

    fn bar(length: f64) -> Bar {
        Bar {
            label: "a < b".to_owned(),
            colour: 0,
            length,
            words: "1".to_owned(),
            dots: vec![length, length, 0.25],
        }
    }

    #[test]
    fn groups_have_scales_of_their_own_or_one_with_a_line() {
        let group = |lengths: &[f64]| BarGroup {
            title: "c & d".to_owned(),
            bars: lengths.iter().copied().map(bar).collect(),
        };
        let widths = |line_at| {
            let groups = vec![group(&[4.0, 1.0]), group(&[0.5, f64::NAN])];
            let svg = Bars { title: "e".to_owned(), line_at, groups }.svg();
            assert!(svg.contains("a &lt; b") && svg.contains("c &amp; d"), "{svg}");
            assert_eq!(svg.matches("<circle").count(), 2 * 7, "{svg}");
            let width = |it: &str| it.split("width=\"").nth(1)?.split('"').next()?.parse::<u32>().ok();
            svg.split("<rect").skip(1).filter_map(width).collect::<Vec<u32>>()
        };
        assert_eq!(widths(None), [419, 104, 419, 0]);
        assert_eq!(widths(Some(1.0)), [419, 104, 52, 0]);
    }
}
