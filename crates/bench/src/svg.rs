//! Plots as SVG text: one panel a figure, A's and B's runs as dots, their medians as bars.
//!
//! Written by hand: a bar chart is 80 lines, a plotting library is 20 crates. Colors hold on light and dark pages.

use std::fmt::Write;

use crate::figure::{Figure, Series, Target};

/// A chart with a panel for each figure, whose bars are scaled to the panel's greatest value.
#[must_use]
pub fn ratios(title: &str, figures: &[&Figure]) -> String {
    let height = TOP + figures.len() * PANEL;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, (8, 20), "font-size=\"15\" font-weight=\"bold\"", title);
    for (index, figure) in figures.iter().enumerate() {
        panel(&mut svg, TOP + index * PANEL, figure);
    }
    svg.push_str("</svg>\n");
    svg
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
}
