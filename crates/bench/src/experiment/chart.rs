//! A plot as SVG: axes that use their range, round ticks, colours by variables of the page, so that it follows light and dark.
//!
//! Text is as large as in the page when the plot is 400 pixels wide, which a phone shows. Written by hand: the library that drew it before had
//! fixed colours and an axis from zero, and was 20 crates.

use std::fmt::{Display, Write};

/// One line, or one cloud of dots.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Drawn hollow: no figure.
    pub(super) is_hollow: bool,
    pub(super) style: Style,
}

/// How a series looks, in all plots alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    /// One of [`COLOURS`]: whose it is.
    pub(super) colour: usize,
    /// One of [`DASHES`]: which of its.
    pub(super) dash: usize,
}

#[derive(Default)]
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// What it is about, when there are several of its kind.
    pub(super) subject: String,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) dots: bool,
    pub(super) is_log: bool,
    /// Names of the whole numbers on the x axis.
    pub(super) x_names: Vec<&'static str>,
    pub(super) series: Vec<Series>,
}

/// What an axis shows, and where it has ticks.
#[derive(Debug, PartialEq)]
struct Axis {
    least: f64,
    most: f64,
    ticks: Vec<f64>,
    is_log: bool,
}

impl Axis {
    /// From 0 if values come near it, else from the round number below them: differences are what a plot is looked at for.
    fn linear(values: impl Iterator<Item = f64> + Clone, ticks: u32) -> Self {
        let (low, high) = range(values);
        let low = if low < 0.4 * high { low.min(0.0) } else { low };
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        let step = round_step(span / f64::from(ticks));
        let least = (low / step + 1e-9).floor() * step;
        let most = ((high / step - 1e-9).ceil() * step).max(least + step);
        let count = ((most - least) / step).round() as usize;
        let ticks = (0..=count).map(|index| least + index as f64 * step).collect();
        Self { least, most, ticks, is_log: false }
    }

    /// Between powers of ten, or, of less than two of them, between their 1, 2 and 5.
    fn log(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (low, high) = range(values.map(|value| value.max(LOG_LEAST)));
        let all = (-1..=12).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
        let mut ticks: Vec<f64> = all.collect();
        if high / low.max(LOG_LEAST) > 100.0 {
            ticks.retain(|tick| tick.log10().fract().abs() < 1e-9);
        }
        let from = ticks.iter().rposition(|tick| *tick <= low * (1.0 + 1e-9)).unwrap_or(0);
        let to = ticks.iter().position(|tick| *tick >= high * (1.0 - 1e-9)).unwrap_or(ticks.len() - 1);
        let to = to.max(from + 1).min(ticks.len() - 1);
        let ticks = ticks[from.min(to - 1)..=to].to_vec();
        Self { least: ticks[0], most: ticks[ticks.len() - 1], ticks, is_log: true }
    }

    /// Where `value` lies, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.max(LOG_LEAST).ln() } else { value };
        let share = (scale(value) - scale(self.least)) / (scale(self.most) - scale(self.least));
        share.clamp(0.0, 1.0)
    }
}

impl Chart {
    pub(super) fn of(series: impl Iterator<Item = Series>) -> Self {
        Self { series: series.filter(|series| !series.points.is_empty()).collect(), ..Self::default() }
    }

    /// The plot under its title, with the names of its series.
    pub(super) fn figure(&self) -> String {
        let title = escaped(&[self.title, &self.subject].join(" ").trim_end());
        let mut text = format!("<figure><figcaption><b>{title}</b>");
        if !self.y.is_empty() {
            let _ = write!(text, " <span class=\"unit\">{}</span>", escaped(&self.y));
        }
        text += "</figcaption>\n<ul class=\"legend\">";
        for series in &self.series {
            let Style { colour, dash } = series.style;
            let mark = if self.dots || series.is_hollow {
                let fill = if series.is_hollow { "none".to_owned() } else { colour_of(colour) };
                format!(
                    "<circle cx=\"12\" cy=\"6\" r=\"4\" fill=\"{fill}\" stroke=\"{}\"/>",
                    colour_of(colour)
                )
            } else {
                let stroke = stroke(colour, dash);
                format!("<line x1=\"0\" y1=\"6\" x2=\"24\" y2=\"6\" {stroke}/>")
            };
            let name = escaped(&series.name);
            let _ = write!(text, "<li><svg class=\"key\" viewBox=\"0 0 24 12\">{mark}</svg>{name}</li>");
        }
        text + "</ul>\n" + &self.svg() + "</figure>\n"
    }

    fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let y = if self.is_log {
            Axis::log(points().map(|point| point.1))
        } else {
            Axis::linear(points().map(|point| point.1), Y_TICKS)
        };
        let x = self.x_axis(points().map(|point| point.0));
        let mut svg = format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            self.title
        );
        self.draw_axes(&mut svg, &x, &y);
        for series in &self.series {
            let at: Vec<(f64, f64)> =
                series.points.iter().map(|(px, py)| (across(&x, *px), down(&y, *py))).collect();
            draw(&mut svg, series, &at, self.dots);
        }
        svg + "</svg>"
    }

    fn x_axis(&self, values: impl Iterator<Item = f64> + Clone) -> Axis {
        if self.dots || !self.x_names.is_empty() {
            let most = if self.dots { range(values).1 } else { self.x_names.len() as f64 - 1.0 };
            let ticks = (0..self.x_names.len()).map(|index| index as f64).collect();
            return Axis { least: -0.5, most: most + 0.5, ticks, is_log: false };
        }
        // To the last point: what lies behind it is no part of what was measured.
        let most = range(values.clone()).1;
        let mut axis = Axis::linear(values.chain([0.0]), X_TICKS);
        axis.most = most.max(axis.least + 1e-3);
        axis.ticks.retain(|tick| *tick <= axis.most * (1.0 + 1e-9));
        axis
    }

    fn draw_axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        for tick in &y.ticks {
            let at = down(y, *tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\"/>",
                WIDTH - RIGHT
            );
            let (left, below) = (LEFT - 6.0, at + 4.0);
            let _ = writeln!(
                svg,
                "<text x=\"{left}\" y=\"{below:.1}\" text-anchor=\"end\">{}</text>",
                label(*tick)
            );
        }
        let bottom = HEIGHT - BOTTOM;
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{}\" y2=\"{bottom}\"/>",
            WIDTH - RIGHT
        );
        for (index, tick) in x.ticks.iter().enumerate() {
            let name = self.x_names.get(index).map_or_else(|| label(*tick), |name| (*name).to_owned());
            let at = across(x, *tick);
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                bottom + 16.0
            );
        }
        if !self.x.is_empty() {
            let middle = (LEFT + WIDTH - RIGHT) / 2.0;
            let _ = writeln!(
                svg,
                "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - 4.0,
                self.x
            );
        }
    }
}

fn draw(svg: &mut String, series: &Series, at: &[(f64, f64)], dots: bool) {
    let Style { colour, dash } = series.style;
    if dots || series.is_hollow {
        let fill = if series.is_hollow { "none".to_owned() } else { colour_of(colour) };
        for (x, y) in at {
            let stroke = colour_of(colour);
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
            );
        }
        return;
    }
    if let [(x, y)] = at {
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>", colour_of(colour));
        return;
    }
    let points: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ =
        writeln!(svg, "<polyline class=\"line\" points=\"{}\" {}/>", points.join(" "), stroke(colour, dash));
}

fn colour_of(colour: usize) -> String {
    format!("var(--c{})", colour % COLOURS.len())
}

fn stroke(colour: usize, dash: usize) -> String {
    // Colours that come again are told apart by their dashes.
    let dash = DASHES[(dash + colour / COLOURS.len()) % DASHES.len()];
    let dashes = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!("stroke=\"{}\" stroke-width=\"2\"{dashes}", colour_of(colour))
}

fn across(axis: &Axis, value: f64) -> f64 {
    LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)
}

fn down(axis: &Axis, value: f64) -> f64 {
    HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - BOTTOM - TOP)
}

/// The least and the most of `values`; 0 and 1 of none.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) =
        (finite.clone().fold(f64::INFINITY, f64::min), finite.fold(f64::NEG_INFINITY, f64::max));
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// 1, 2 or 5 of some power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0].into_iter();
    digits.map(|digit| digit * power).find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
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

/// Text for the inside of an element or an attribute.
pub(super) fn escaped(text: &impl Display) -> String {
    let text = text.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// Each on white and on black, with a contrast of at least 3 to its ground.
pub(super) const COLOURS: [(&str, &str); 6] = [
    ("#0b62a8", "#6cb6ff"),
    ("#c2410c", "#ff9a52"),
    ("#15803d", "#5fd38a"),
    ("#7e22ce", "#c99bff"),
    ("#be185d", "#ff8fb8"),
    ("#4b5563", "#b6bec9"),
];
/// How several series of one colour are told apart.
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 38.0;
const Y_TICKS: u32 = 5;
const X_TICKS: u32 = 6;
/// The least that a logarithmic axis shows.
const LOG_LEAST: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures that lie close together were a flat line at the top of an axis from zero, between ticks such as 83,141.
    #[test]
    fn axis_uses_its_range_and_has_round_ticks() {
        let axis = Axis::linear([151_200.0, 158_900.0].into_iter(), 5);
        assert_eq!((axis.least, axis.most), (150_000.0, 160_000.0));
        assert_eq!(axis.ticks.len(), 6);
        let axis = Axis::linear([3.0, 97.0].into_iter(), 5);
        assert_eq!(axis.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        for odd in [vec![], vec![0.0], vec![7.0], vec![f64::NAN]] {
            let axis = Axis::linear(odd.into_iter(), 5);
            assert!(axis.most > axis.least && axis.ticks.len() >= 2, "{axis:?}");
        }
    }

    #[test]
    fn logarithmic_axis_lies_between_powers_of_ten_or_parts_of_them() {
        assert_eq!(Axis::log([35.0, 4_200.0].into_iter()).ticks, [10.0, 100.0, 1_000.0, 10_000.0]);
        assert_eq!(Axis::log([35.0, 190.0].into_iter()).ticks, [20.0, 50.0, 100.0, 200.0]);
        for odd in [vec![], vec![0.0], vec![100.0], vec![1e15]] {
            let axis = Axis::log(odd.into_iter());
            assert!(axis.most > axis.least, "{axis:?}");
        }
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(
            [0.0, 0.2, 5_000.0, 150_000.0, 2_500_000.0].map(label),
            ["0", "0.2", "5000", "150k", "2.5M"]
        );
    }
}
