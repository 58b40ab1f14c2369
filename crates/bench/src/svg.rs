//! Plots as SVG text. [`ratios`] has one panel a figure, A's and B's runs as dots, their medians as bars. [`grouped`] has one bar a figure, its
//! ratio; figures that differ in B alone are a group.
//!
//! Written by hand: a bar chart is 80 lines, a plotting library is 20 crates. Colors hold on light and dark pages.

use std::fmt::Write;

use crate::figure::{Figure, Series, Target};

/// A chart with a panel for each figure, whose bars are scaled to the panel's greatest value.
#[must_use]
pub fn ratios(title: &str, figures: &[&Figure]) -> String {
    let height = TOP + figures.len() * PANEL;
    let mut svg = start(height);
    text(&mut svg, (8, 20), "font-size=\"15\" font-weight=\"bold\"", title);
    for (index, figure) in figures.iter().enumerate() {
        panel(&mut svg, TOP + index * PANEL, figure);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The title of a figure that compares with `peer` what other figures compare with others: [`grouped`] puts them together.
#[must_use]
pub fn beside(title: &str, peer: &str) -> String {
    format!("{title}, beside {peer}")
}

/// A chart with a bar for the ratio of each figure, dots for the ratios of its runs, and a line at 1.
#[must_use]
pub fn grouped(title: &str, figures: &[&Figure]) -> String {
    let mut groups: Vec<&str> = Vec::new();
    let mut peers: Vec<&str> = Vec::new();
    for figure in figures {
        let (group, peer) = group_and_peer(figure);
        for (names, name) in [(&mut groups, group), (&mut peers, peer)] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let outcomes = figures.iter().flat_map(|figure| figure.outcomes());
    let greatest = outcomes.filter(|outcome| outcome.is_finite()).fold(1.0, f64::max);
    let step =
        [0.5, 1.0, 2.0, 5.0, 10.0].into_iter().find(|step| greatest / step <= 6.0).unwrap_or(greatest / 5.0);
    let most = (greatest / step).ceil() * step;
    let x = |ratio: f64| GROUPS_LEFT as f64 + GROUPS_WIDTH as f64 * (ratio / most).clamp(0.0, 1.0);

    let group_height = peers.len() * THIN + GAP;
    let bottom = TOP + ROW + groups.len() * group_height;
    let mut svg = start(bottom + 2 * ROW);
    text(&mut svg, (8, 20), "font-size=\"15\" font-weight=\"bold\"", title);
    for (index, peer) in peers.iter().enumerate() {
        let left = GROUPS_LEFT + index * KEY_WIDTH;
        writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{TOP}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
            colour(index)
        )
        .ok();
        text(&mut svg, (left + 18, TOP + 11), "", &format!("Evenkeel / {peer}"));
    }
    for tick in (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= most + step / 2.0) {
        let at = x(tick);
        line(&mut svg, at, (TOP + ROW, bottom), "stroke=\"#dddddd\"");
        text(
            &mut svg,
            (at as usize, bottom + 16),
            "text-anchor=\"middle\" fill=\"#444444\"",
            &format!("{tick}"),
        );
    }
    for (row, group) in groups.iter().enumerate() {
        let top = TOP + ROW + GAP / 2 + row * group_height;
        let middle = top + peers.len() * THIN / 2 + 4;
        text(&mut svg, (GROUPS_LEFT - 8, middle), "text-anchor=\"end\"", group);
        for figure in figures.iter().filter(|figure| group_and_peer(figure).0 == *group) {
            let place = peers.iter().position(|peer| *peer == group_and_peer(figure).1).unwrap_or(0);
            let (top, ratio) = (top + place * THIN, figure.measured());
            let width = x(ratio) - GROUPS_LEFT as f64;
            let (height, colour) = (THIN - 2, colour(place));
            writeln!(svg, "<rect x=\"{GROUPS_LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{colour}\"/>").ok();
            for outcome in figure.outcomes() {
                let (at, middle) = (x(outcome), top + THIN / 2 - 1);
                writeln!(svg, "<circle cx=\"{at:.1}\" cy=\"{middle}\" r=\"2\" fill=\"#222222\"/>").ok();
            }
            text(&mut svg, (GROUPS_LEFT + GROUPS_WIDTH + 10, top + 11), "", &format!("{ratio:.2}"));
        }
    }
    line(&mut svg, x(1.0), (TOP + ROW, bottom), "stroke=\"#c2410c\" stroke-width=\"2\"");
    svg.push_str("</svg>\n");
    svg
}

/// What figures of a group have in common, and with what this one compares.
fn group_and_peer(figure: &Figure) -> (&str, &str) {
    let peer = figure.b.as_ref().map_or("", |peer| peer.label.as_str());
    let group = figure.title.strip_suffix(peer).and_then(|title| title.strip_suffix(", beside "));
    (group.unwrap_or(&figure.title), peer)
}

fn colour(index: usize) -> &'static str {
    ["#1f77b4", "#8c6bb1", "#b0b0b0"][index % 3]
}

fn line(svg: &mut String, x: f64, (from, to): (usize, usize), attributes: &str) {
    writeln!(svg, "<line x1=\"{x:.1}\" y1=\"{from}\" x2=\"{x:.1}\" y2=\"{to}\" {attributes}/>").ok();
}

/// The head of a chart of this height.
fn start(height: usize) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    )
}

fn panel(svg: &mut String, top: usize, figure: &Figure) {
    let Some(b) = &figure.b else { return };
    let target = match figure.target {
        Some(Target::AtLeast(least)) => format!(", wanted at least {least}"),
        Some(Target::AtMost(most)) => format!(", wanted at most {most}"),
        None => String::new(),
    };
    let title = format!("{}: {:.2}{target}", figure.title, figure.measured());
    text(svg, (8, top + 14), "", &title);
    let values = figure.a.values.iter().chain(&b.values);
    let greatest = values.copied().filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max);
    for (row, (series, color)) in [(&figure.a, "#1f77b4"), (b, "#b0b0b0")].into_iter().enumerate() {
        bar(svg, top + 20 + row * ROW, series, color, greatest, &figure.unit);
    }
}

fn bar(svg: &mut String, top: usize, series: &Series, color: &str, greatest: f64, unit: &str) {
    let x = |value: f64| BARS_LEFT as f64 + BARS_WIDTH as f64 * (value / greatest).clamp(0.0, 1.0);
    let median = series.median();
    text(svg, (8, top + 13), "fill=\"#444444\"", &series.label);
    let width = x(median) - BARS_LEFT as f64;
    writeln!(
        svg,
        "<rect x=\"{BARS_LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\" fill=\"{color}\"/>",
        ROW - 4
    )
    .ok();
    for value in &series.values {
        let (at, middle) = (x(*value), top + ROW / 2 - 2);
        writeln!(svg, "<circle cx=\"{at:.1}\" cy=\"{middle}\" r=\"2.5\" fill=\"#222222\"/>").ok();
    }
    let label = if median < 100.0 { format!("{median:.2} {unit}") } else { format!("{median:.0} {unit}") };
    text(svg, (BARS_LEFT + BARS_WIDTH + 8, top + 13), "", &label);
}

fn text(svg: &mut String, at: (usize, usize), attributes: &str, content: &str) {
    let escaped = content.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, "<text x=\"{}\" y=\"{}\" {attributes}>{escaped}</text>", at.0, at.1).ok();
}

const WIDTH: usize = 760;
const TOP: usize = 32;
const PANEL: usize = 70;
const ROW: usize = 20;
const BARS_LEFT: usize = 170;
const BARS_WIDTH: usize = 430;
const GROUPS_LEFT: usize = 270;
const GROUPS_WIDTH: usize = 420;
const KEY_WIDTH: usize = 190;
/// Height of a bar of a group, and room between groups.
const THIN: usize = 14;
const GAP: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_has_a_bar_and_a_dot_for_each_run_and_escapes_text() {
        let series = |label| Series::new(label, vec![1.0, 2.0, 3.0]);
        let figure = Figure::new("x", "a < b & c", None, "us", series("a"), Some(series("b")));
        let svg = ratios("title", &[&figure]);
        assert_eq!(svg.matches("<circle").count(), 6);
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("a &lt; b &amp; c: 1.00"));
    }

    #[test]
    fn group_has_a_bar_for_each_peer_and_the_line_stands_where_both_are_equal() {
        let figure = |title: &str, peer: &str, ours: f64| {
            let series = |label: &str, value: f64| Series::new(label, vec![value; 3]);
            Figure::new("x", &beside(title, peer), None, "", series("ours", ours), Some(series(peer, 2.0)))
        };
        let figures =
            [figure("SET", "Redis", 4.0), figure("SET", "Valkey", 3.0), figure("GET", "Valkey", 1.0)];
        let svg = grouped("strings", &figures.iter().collect::<Vec<_>>());
        assert_eq!(svg.matches(">SET<").count(), 1, "{svg}");
        assert_eq!(svg.matches(">GET<").count(), 1, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 9, "{svg}");
        // The ground, two in the key, and the bars: of the range of 0 to 2 all, three quarters and a quarter.
        assert_eq!(svg.matches("<rect").count(), 1 + 2 + 3, "{svg}");
        for width in ["420.0", "315.0", "105.0"] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{width}: {svg}");
        }
        assert!(svg.contains("x1=\"480.0\" y1=\"52\" x2=\"480.0\""), "{svg}");
    }
}
