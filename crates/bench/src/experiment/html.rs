//! The report as one HTML file: tables and plots (SVG), nothing to load and nothing to run.
//!
//! What is not valid is drawn hollow: dots without filling, so that nobody takes a survivors' figure for one.

use std::fmt::{Display, Write};

use plotters::prelude::*;

use super::report::{Line, Report, ratios};

/// The page with all reports, the first one compared with the others.
pub(super) fn page(reports: &[Report]) -> String {
    let title = reports
        .first()
        .map_or("evenkeel bench".to_owned(), |first| format!("evenkeel bench {}", first.experiment));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n{STYLE}</head><body>\n<h1>{title}</h1>\n"
    );
    for report in reports {
        let _ = writeln!(page, "<pre>{}</pre>", escaped(&report.text()));
    }
    if let Some((first, others)) = reports.split_first() {
        for other in others {
            let names = format!("{} / {}", escaped(&first.server), escaped(&other.server));
            let ratios = ratios(first, other);
            if ratios.is_empty() {
                let _ = writeln!(page, "<p>{names}: no ratio: not both are valid</p>");
            }
            for (what, ratio) in ratios {
                let _ = writeln!(page, "<p>{names}, {what}: <b>{ratio:.3}</b></p>");
            }
        }
    }
    for chart in charts(reports) {
        // A plot that cannot be drawn is said so in its place; the tables have its figures.
        let _ = writeln!(
            page,
            "{}",
            chart.svg().unwrap_or_else(|error| format!("<p>{}: {error}</p>", chart.title))
        );
    }
    for report in reports {
        let settings = serde_json::to_string_pretty(&report.settings).unwrap_or_default();
        let name = escaped(&report.server);
        let _ = writeln!(
            page,
            "<details><summary>settings of {name}</summary><pre>{}</pre></details>",
            escaped(&settings)
        );
    }
    page + "</body></html>\n"
}

fn charts(reports: &[Report]) -> Vec<Chart> {
    let named: Vec<(String, &Line)> = reports
        .iter()
        .flat_map(|report| {
            report.lines.iter().map(move |line| (format!("{}: {}", report.server, line.what), line))
        })
        .collect();
    let mut charts = vec![runs(&named), throughput(&named), latency(&named), percentiles(&named)];
    let balance = named.iter().filter(|(_, line)| !line.loops.is_empty());
    charts.extend(balance.map(|(name, line)| loops(name, line)));
    charts
}

/// Each run as a dot: what lies how far apart.
fn runs(named: &[(String, &Line)]) -> Chart {
    let series = named.iter().enumerate().flat_map(|(index, (name, line))| {
        let of = |is_valid: bool| {
            let runs = line.runs.iter().filter(move |run| run.is_valid() == is_valid);
            runs.map(|run| (index as f64, run.per_second())).collect::<Vec<_>>()
        };
        let hollow = Series { name: format!("{name} (not valid)"), points: of(false), is_hollow: true };
        [Series { name: name.clone(), points: of(true), is_hollow: false }, hollow]
    });
    Chart { title: "runs", x: "", y: "operations a second", dots: true, ..Chart::of(series) }
}

fn throughput(named: &[(String, &Line)]) -> Chart {
    let series = named.iter().map(|(name, line)| {
        let rows = line.all().rows;
        // What is left of an interval at the end of a run is too short for a rate.
        let longest = rows.iter().map(|row| row.length).max().unwrap_or_default();
        let whole = rows.iter().filter(|row| row.length * 2 >= longest);
        let points = whole.map(|row| (row.at.as_secs_f64(), row.per_second())).collect();
        Series { name: name.clone(), points, is_hollow: !line.is_valid() }
    });
    Chart { title: "throughput over time", x: "seconds", y: "operations a second", ..Chart::of(series) }
}

fn latency(named: &[(String, &Line)]) -> Chart {
    let series = named.iter().flat_map(|(name, line)| {
        let rows = line.all().rows;
        [("p50", 0.5), ("p99", 0.99)].map(|(label, quantile)| {
            let rows = rows.iter().filter(|row| row.answered > 0);
            let us = rows.map(|row| (row.at.as_secs_f64(), row.latencies.quantile(quantile) as f64 / 1e3));
            Series { name: format!("{name}, {label}"), points: us.collect(), is_hollow: !line.is_valid() }
        })
    });
    Chart { title: "latency over time", x: "seconds", y: "us", is_log: true, ..Chart::of(series) }
}

fn percentiles(named: &[(String, &Line)]) -> Chart {
    let series = named.iter().map(|(name, line)| {
        let latencies = line.all().latencies;
        let points = PERCENTILES.iter().enumerate();
        let points =
            points.map(|(index, (_, quantile))| (index as f64, latencies.quantile(*quantile) as f64 / 1e3));
        Series { name: name.clone(), points: points.collect(), is_hollow: !line.is_valid() }
    });
    let names = PERCENTILES.map(|(name, _)| name);
    Chart {
        title: "latency by percentile",
        y: "us",
        is_log: true,
        x_names: names.to_vec(),
        ..Chart::of(series)
    }
}

fn loops(name: &str, line: &Line) -> Chart {
    let count = line.loops.first().map_or(0, |sample| sample.loads.len());
    let series = (0..count).map(|index| {
        let share = |loads: &[f64]| 100.0 * loads[index] / loads.iter().sum::<f64>().max(1.0);
        let points = line.loops.iter().filter(|sample| sample.loads.len() == count);
        let points = points.map(|sample| (sample.at, share(&sample.loads))).collect();
        Series { name: format!("loop {index}"), points, is_hollow: !line.is_valid() }
    });
    let chart = Chart::of(series);
    Chart {
        title: "loops' shares over time",
        subject: name.to_owned(),
        x: "seconds",
        y: "percent of the load",
        ..chart
    }
}

/// One line, or one cloud of dots.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    is_hollow: bool,
}

#[derive(Default)]
struct Chart {
    title: &'static str,
    /// What it is about, when there are several of its kind.
    subject: String,
    x: &'static str,
    y: &'static str,
    dots: bool,
    is_log: bool,
    /// Names of the whole numbers on the x axis.
    x_names: Vec<&'static str>,
    series: Vec<Series>,
}

impl Chart {
    fn of(series: impl Iterator<Item = Series>) -> Self {
        Self { series: series.filter(|series| !series.points.is_empty()).collect(), ..Self::default() }
    }

    fn svg(&self) -> Result<String, Box<dyn std::error::Error>> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE)?;
            let (least, most) = self.bounds();
            let mut chart = ChartBuilder::on(&area)
                .caption([self.title, &self.subject].join(" ").trim_end(), ("sans-serif", 16))
                .margin(8)
                .x_label_area_size(36)
                .y_label_area_size(80)
                .build_cartesian_2d(least.0..most.0, least.1..most.1)?;
            chart
                .configure_mesh()
                .x_desc(self.x)
                .y_desc(self.y)
                .x_label_formatter(&|x| self.x_label(*x))
                .y_label_formatter(&|y| self.y_label(*y))
                .light_line_style(BLACK.mix(0.04))
                .draw()?;
            for (index, series) in self.series.iter().enumerate() {
                let color = Palette99::pick(index).to_rgba();
                let points: Vec<(f64, f64)> =
                    series.points.iter().map(|(x, y)| (*x, self.scaled(*y))).collect();
                let dot = if series.is_hollow { color.stroke_width(1) } else { color.filled() };
                if self.dots || series.is_hollow {
                    chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, dot)))?
                } else {
                    chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?
                }
                .label(series.name.clone())
                .legend(move |(x, y)| Circle::new((x + 8, y), 4, dot));
            }
            chart
                .configure_series_labels()
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.2))
                .draw()?;
            area.present()?;
        }
        Ok(svg)
    }

    /// The corners of what is drawn.
    fn bounds(&self) -> ((f64, f64), (f64, f64)) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x_most = points().map(|point| point.0).fold(0.0, f64::max);
        let y_most = points().map(|point| self.scaled(point.1)).fold(0.0, f64::max);
        let margin = if self.dots || !self.x_names.is_empty() { 0.5 } else { 0.0 };
        ((-margin, 0.0), ((x_most + margin).max(1e-3) / self.share_of_the_plot(), y_most.max(1e-3) * 1.1))
    }

    /// What the names of the series, at the right, leave of the width.
    fn share_of_the_plot(&self) -> f64 {
        let longest = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        let names_px = LEGEND_PX + longest as f64 * CHARACTER_PX;
        (1.0 - names_px / f64::from(SIZE.0 - SIDES_PX)).max(0.3)
    }

    fn scaled(&self, y: f64) -> f64 {
        if self.is_log { y.max(1.0).log10() } else { y }
    }

    fn x_label(&self, x: f64) -> String {
        if self.dots {
            return String::new();
        }
        if self.x_names.is_empty() {
            return format!("{x:.1}");
        }
        let name = (x.fract().abs() < 1e-6 && x >= 0.0).then(|| self.x_names.get(x as usize)).flatten();
        name.map_or(String::new(), |name| (*name).to_owned())
    }

    fn y_label(&self, y: f64) -> String {
        let value = if self.is_log { 10f64.powf(y) } else { y };
        format!("{value:.0}")
    }
}

fn escaped(text: &impl Display) -> String {
    text.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const SIZE: (u32, u32) = (960, 360);
/// What a legend is wide beside its text, a character of it, and what stands left and right of a plot.
const LEGEND_PX: f64 = 60.0;
const CHARACTER_PX: f64 = 6.5;
const SIDES_PX: u32 = 100;
const PERCENTILES: [(&str, f64); 7] = [
    ("p0", 0.0),
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("max", 1.0),
];
const STYLE: &str = "<style>body{font:14px sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}pre{overflow-x:auto}svg{max-width:100%;height:auto}</style>\n";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::measure::Measured;
    use super::super::report::LoopSample;
    use super::*;
    use crate::drive::{Row, Tally};

    fn report(lost: u64) -> Report {
        let length = Duration::from_secs(1);
        let row = Row { at: length, length, answered: 5, ..Row::default() };
        let tally = Tally { answered: 5, ..Tally::default() };
        let run = Measured { rows: vec![row], tally, took: length, lost, ..Measured::default() };
        let line = Line {
            what: "write <b>".to_owned(),
            command: "SET".to_owned(),
            runs: vec![run],
            note: String::new(),
            loops: vec![LoopSample { at: 1.0, loads: vec![1.0, 3.0] }],
        };
        Report {
            experiment: "remote-test",
            server: "evenkeel & co".to_owned(),
            command: None,
            settings: serde_json::Map::new(),
            fields: serde_json::Map::new(),
            lines: vec![line],
        }
    }

    #[test]
    fn page_is_whole_and_needs_nothing_from_elsewhere() {
        let page = page(&[report(0), report(0)]);
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg").count(), 6, "four plots of all, and the loops of each");
        assert!(
            page.contains("evenkeel &amp; co") && page.contains("write &lt;b&gt;") && !page.contains("<b>:")
        );
        for loaded in ["<script", "src=", "href=", "url("] {
            assert!(!page.contains(loaded), "{loaded}");
        }
    }

    #[test]
    fn run_that_is_not_valid_is_hollow_and_has_no_ratio() {
        let (valid, not_valid) = (page(&[report(0)]), page(&[report(0), report(1)]));
        let hollow = |page: &str| page.matches("fill=\"none\"").count();
        assert!(hollow(&not_valid) > hollow(&valid));
        assert!(not_valid.contains("no ratio"));
    }
}
