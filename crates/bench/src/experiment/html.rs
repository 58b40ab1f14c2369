//! The report as one HTML file: tables and plots (SVG), nothing to load and nothing to run. Light and dark, from 420 pixels of width on.
//!
//! A server has one colour in all plots; where one server alone was measured, each of its lines has. What is not valid is drawn hollow:
//! dots without filling, so that nobody takes a survivors' figure for one.

use std::fmt::{Display, Write};

use super::measure::Spread;
use super::report::{Line, Report, ratios};
use crate::drive::Row;
use crate::plot::{COLOURS, Chart, Mark, Series, Style};
use crate::report;

/// Where figures come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// Day and time, in UTC.
    pub(super) date: String,
    pub(super) version: &'static str,
    pub(super) machine: String,
    /// What was typed.
    pub(super) command: String,
}

/// The page with all reports, the first one compared with the others.
pub(super) fn page(reports: &[Report], origin: &Origin) -> String {
    let title = reports
        .first()
        .map_or("evenkeel bench".to_owned(), |first| format!("evenkeel bench {}", first.experiment));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title>\n{}</head><body>\n<p \
         class=\"kind\">{title}</p>\n",
        style()
    );
    page += &headline(reports);
    page += &origin_table(origin);
    page += &comparisons(reports);
    page += "<div class=\"plots\">\n";
    charts(reports).iter().for_each(|chart| page += &plot(chart));
    page += "</div>\n";
    reports.iter().for_each(|report| page += &figures(report));
    reports.iter().for_each(|report| page += &settings(report));
    page + "</body></html>\n"
}

/// The result in one line.
fn headline(reports: &[Report]) -> String {
    let Some((first, others)) = reports.split_first() else {
        return "<h1>nothing was measured</h1>\n".to_owned();
    };
    let all = first.all();
    let server = escaped(&first.server);
    if !first.is_valid() {
        return format!("<h1 class=\"bad\">{server}: not valid, no figure</h1>\n");
    }
    let (rate, p99) = (grouped(all.per_second()), grouped(all.us(0.99)));
    let mut text = format!("<h1>{server}: {rate} operations a second, p99 {p99} µs</h1>\n");
    let times = others.iter().filter_map(|other| {
        let ratios = ratios(first, other);
        let (_, ratio) = ratios.iter().find(|(what, _)| *what == "operations a second")?;
        Some(format!("{ratio:.2} times {}", escaped(&other.server)))
    });
    let times: Vec<String> = times.collect();
    if !times.is_empty() {
        let _ = writeln!(text, "<p class=\"times\">{}</p>", times.join(", "));
    }
    text
}

fn origin_table(origin: &Origin) -> String {
    let rows = [
        ("date", origin.date.as_str()),
        ("version", origin.version),
        ("machine", origin.machine.as_str()),
        ("command", origin.command.as_str()),
    ];
    let rows: Vec<String> = rows
        .iter()
        .map(|(name, value)| format!("<tr><th>{name}</th><td>{}</td></tr>\n", escaped(value)))
        .collect();
    format!("<div class=\"wide\"><table class=\"origin\">\n{}</table></div>\n", rows.concat())
}

fn comparisons(reports: &[Report]) -> String {
    let Some((first, others)) = reports.split_first().filter(|(_, others)| !others.is_empty()) else {
        return String::new();
    };
    let mut text = "<h2>Ratios</h2>\n<div class=\"wide\"><table>\n".to_owned();
    for other in others {
        let names = format!("{} / {}", escaped(&first.server), escaped(&other.server));
        let ratios = ratios(first, other);
        if ratios.is_empty() {
            let _ = writeln!(text, "<tr><td>{names}</td><td>no ratio: not both are valid</td></tr>");
        }
        for (what, ratio) in ratios {
            let _ = writeln!(
                text,
                "<tr><td>{names}, {what}</td><td class=\"number\"><b>{ratio:.3}</b></td></tr>"
            );
        }
    }
    text + "</table></div>\n"
}

/// The table of a server.
fn figures(report: &Report) -> String {
    let mut text = format!("<h2>{}</h2>\n", escaped(&report.server));
    if let Some(command) = &report.command {
        let _ = writeln!(text, "<p><code>{}</code></p>", escaped(command));
    }
    text += "<div class=\"wide\"><table>\n<tr><th></th>";
    for head in ["a second", "least", "most", "spread", "p50 µs", "p99 µs", "p99.9 µs"] {
        let _ = write!(text, "<th class=\"number\">{head}</th>");
    }
    text += "</tr>\n";
    for line in &report.lines {
        let (all, spread) = (line.all(), line.spread());
        let of = |figure: fn(&Spread) -> f64| {
            spread.as_ref().map_or("–".to_owned(), |spread| grouped(figure(spread)))
        };
        let percent = spread.map_or("–".to_owned(), |spread| format!("{:.1} %", spread.percent()));
        let (least, most) = (of(|spread| spread.min), of(|spread| spread.max));
        let latencies = [0.5, 0.99, 0.999].map(|quantile| grouped(all.us(quantile)));
        let _ = write!(text, "<tr><td>{}</td>", escaped(&line.what));
        for cell in [grouped(all.per_second()), least, most, percent].iter().chain(&latencies) {
            let _ = write!(text, "<td class=\"number\">{cell}</td>");
        }
        text += "</tr>\n";
        for (class, words) in [("note", line.note.clone()), ("bad", line.why_not_valid().unwrap_or_default())]
        {
            if !words.is_empty() {
                let _ =
                    writeln!(text, "<tr><td class=\"{class}\" colspan=\"8\">{}</td></tr>", escaped(&words));
            }
        }
    }
    text + "</table></div>\n"
}

fn settings(report: &Report) -> String {
    let mut text = format!("<details><summary>settings of {}</summary>", escaped(&report.server));
    text += "<div class=\"wide\"><table>\n";
    for (name, value) in &report.settings {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(text, "<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(&value));
    }
    text + "</table></div></details>\n"
}

/// A plot under its title, with the names of its series.
fn plot(chart: &Chart) -> String {
    let title = escaped(&[chart.title, &chart.subject].join(" ").trim_end());
    let mut text = format!("<figure><figcaption><b>{title}</b>");
    if !chart.y.is_empty() {
        let _ = write!(text, " <span class=\"unit\">{}</span>", escaped(&chart.y));
    }
    text += "</figcaption>\n<ul class=\"legend\">";
    for series in &chart.series {
        let _ = write!(text, "<li><span class=\"key\">{}</span>{}</li>", series.key(), escaped(&series.name));
    }
    let label = escaped(&chart.title);
    text + &format!(
        "</ul>\n<div class=\"plot\" role=\"img\" aria-label=\"{label}\">{}</div></figure>\n",
        chart.svg()
    )
}

/// A line of a report, as plots know it.
struct Named<'a> {
    name: String,
    line: &'a Line,
    style: Style,
}

fn named(reports: &[Report]) -> Vec<Named<'_>> {
    let mut named = Vec::new();
    for (server, report) in reports.iter().enumerate() {
        for (index, line) in report.lines.iter().enumerate() {
            let style = if reports.len() == 1 {
                Style { colour: index, dash: 0 }
            } else {
                Style { colour: server, dash: index }
            };
            named.push(Named { name: format!("{}: {}", report.server, line.what), line, style });
        }
    }
    named
}

fn charts(reports: &[Report]) -> Vec<Chart> {
    let named = named(reports);
    let mut charts = vec![runs(&named), throughput(&named), latency(&named), percentiles(&named)];
    charts.extend(named.iter().filter(|named| !named.line.loops.is_empty()).map(loops));
    charts
}

/// Each run as a dot: what lies how far apart.
fn runs(named: &[Named<'_>]) -> Chart {
    let series = named.iter().enumerate().flat_map(|(index, Named { name, line, style })| {
        let of = |is_valid: bool| {
            let runs = line.runs.iter().filter(move |run| run.is_valid() == is_valid);
            runs.map(|run| (index as f64, run.per_second())).collect::<Vec<_>>()
        };
        let style = *style;
        let hollow = format!("{name} (not valid)");
        [
            Series { name: name.clone(), points: of(true), mark: Mark::Dots, style },
            Series { name: hollow, points: of(false), mark: Mark::Hollow, style },
        ]
    });
    Chart { title: "runs", y: "operations a second", x_names: Some(Vec::new()), ..Chart::of(series) }
}

fn throughput(named: &[Named<'_>]) -> Chart {
    let series = named.iter().map(|Named { name, line, style }| {
        let points = whole_rows(line).iter().map(|row| (row.at.as_secs_f64(), row.per_second())).collect();
        Series { name: name.clone(), points, mark: line_of(line), style: *style }
    });
    Chart { title: "throughput over time", x: "seconds", y: "operations a second", ..Chart::of(series) }
}

fn line_of(line: &Line) -> Mark {
    if line.is_valid() { Mark::Line } else { Mark::Hollow }
}

/// Without what is left of an interval at the end of a run, which is too short for a rate and for percentiles.
fn whole_rows(line: &Line) -> Vec<Row> {
    let mut rows = line.all().rows;
    let longest = rows.iter().map(|row| row.length).max().unwrap_or_default();
    rows.retain(|row| row.length * 2 >= longest);
    rows
}

fn latency(named: &[Named<'_>]) -> Chart {
    let series = named.iter().flat_map(|Named { name, line, style }| {
        let rows = whole_rows(line);
        [("p50", 0.5), ("p99", 0.99)].into_iter().enumerate().map(move |(dash, (label, quantile))| {
            let rows = rows.iter().filter(|row| row.answered > 0);
            let us = rows.map(|row| (row.at.as_secs_f64(), row.latencies.quantile(quantile) as f64 / 1e3));
            let style = Style { dash: style.dash + dash, ..*style };
            Series { name: format!("{name}, {label}"), points: us.collect(), mark: line_of(line), style }
        })
    });
    Chart { title: "latency over time", x: "seconds", y: "µs", is_log: true, ..Chart::of(series) }
}

fn percentiles(named: &[Named<'_>]) -> Chart {
    let series = named.iter().map(|Named { name, line, style }| {
        let latencies = line.all().latencies;
        let points = PERCENTILES.iter().enumerate();
        let points =
            points.map(|(index, (_, quantile))| (index as f64, latencies.quantile(*quantile) as f64 / 1e3));
        Series { name: name.clone(), points: points.collect(), mark: line_of(line), style: *style }
    });
    let names = PERCENTILES.map(|(name, _)| name);
    Chart {
        title: "latency by percentile",
        y: "µs",
        is_log: true,
        x_names: Some(names.to_vec()),
        ..Chart::of(series)
    }
}

/// Loops of one server have its colour.
fn loops(Named { name, line, style }: &Named<'_>) -> Chart {
    let count = line.loops.first().map_or(0, |sample| sample.loads.len());
    let series = (0..count).map(|index| {
        let share = |loads: &[f64]| 100.0 * loads[index] / loads.iter().sum::<f64>().max(1.0);
        let points = line.loops.iter().filter(|sample| sample.loads.len() == count);
        let points = points.map(|sample| (sample.at, share(&sample.loads))).collect();
        let style = Style { dash: index, ..*style };
        Series { name: format!("loop {index}"), points, mark: line_of(line), style }
    });
    let chart = Chart::of(series);
    Chart {
        title: "loops' shares over time",
        subject: name.clone(),
        x: "seconds",
        y: "percent of the load",
        ..chart
    }
}

/// Text for the inside of an element or an attribute.
fn escaped(text: &impl Display) -> String {
    let text = text.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// With thousands apart; a tenth below a hundred.
fn grouped(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { report::number(number) }
}

fn style() -> String {
    let colours = |of: fn(&(&'static str, &'static str)) -> &'static str| -> String {
        COLOURS.iter().enumerate().map(|(index, pair)| format!("--c{index}:{};", of(pair))).collect()
    };
    let (light, dark) = (colours(|pair| pair.0), colours(|pair| pair.1));
    format!(
        "<style>:root{{--page:#fff;--text:#1a1d21;--soft:#5a626d;--grid:#d9dde3;--bad:#b3261e;{light}}}\n\
         @media(prefers-color-scheme:dark){{:root{{--page:#14171b;--text:#e8eaed;--soft:#a3abb6;--grid:#363c45;--bad:#ff8a80;{dark}}}}}\n\
         {RULES}</style>\n"
    )
}

const RULES: &str = "body{background:var(--page);color:var(--text);font:15px/1.4 system-ui,sans-serif;max-width:1120px;margin:0 auto;padding:12px}\
    .kind,.unit,.note,summary,th{color:var(--soft)}.kind,.times{margin:0}h1{font-size:1.45em;margin:.2em 0}h2{font-size:1.1em;margin:1.4em 0 .4em}\
    .times{font-size:1.15em}.bad{color:var(--bad)}.wide{overflow-x:auto}code{overflow-wrap:anywhere}\n\
    table{border-collapse:collapse;margin:.6em 0}th,td{text-align:left;padding:3px 12px 3px 0;vertical-align:top;font-weight:normal}\
    td:first-child{min-width:7em}tr{border-bottom:1px solid var(--grid)}.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\
    .origin td{overflow-wrap:anywhere}\n\
    .plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,390px),1fr));gap:20px;margin-top:1em}figure{margin:0;min-width:0}\
    .legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:4px 0;padding:0;font-size:.87em}.key svg{width:24px;height:12px;margin-right:5px}\
    .plot svg{display:block;width:100%;height:auto}.plot text{font-family:system-ui,sans-serif}.plot polyline{stroke-linejoin:round}\n";
const PERCENTILES: [(&str, f64); 7] = [
    ("p0", 0.0),
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("max", 1.0),
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::measure::Measured;
    use super::super::report::LoopSample;
    use super::*;
    use crate::drive::Tally;

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
        let page = page(&[report(0), report(0)], &origin());
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<figure").count(), 6, "four plots of all, and the loops of each");
        assert!(
            page.contains("evenkeel &amp; co")
                && page.contains("write &lt;b&gt;")
                && !page.contains("write <b>")
        );
        for loaded in ["<script", "src=", "href=", "url("] {
            assert!(!page.contains(loaded), "{loaded}");
        }
    }

    #[test]
    fn run_that_is_not_valid_is_hollow_and_has_no_ratio() {
        let page = |reports: &[Report]| page(reports, &origin());
        let (valid, not_valid) = (page(&[report(0)]), page(&[report(0), report(1)]));
        let hollow = |page: &str| {
            let circles = page.split("<circle").skip(1);
            circles.filter(|circle| circle[..circle.find('>').expect("its end")].contains("\"none\"")).count()
        };
        assert!(hollow(&not_valid) > hollow(&valid));
        assert!(not_valid.contains("no ratio"));
    }

    fn origin() -> Origin {
        let (date, machine) = ("2026-11-25 10:00 UTC".to_owned(), "2 cores".to_owned());
        Origin {
            date,
            version: "0.9.9",
            machine,
            command: "evenkeel bench remote-test --clients '<9>'".to_owned(),
        }
    }

    /// Pages were passed on without a word where their figures came from.
    #[test]
    fn page_begins_with_the_result_and_where_it_comes_from() {
        let page = page(&[report(0), report(0)], &origin());
        let head = &page[..page.find("<figure").expect("plots")];
        assert!(head.contains("<h1>evenkeel &amp; co: 5.0 operations a second, p99"), "{head}");
        for part in [
            "1.00 times evenkeel &amp; co",
            "2026-11-25 10:00 UTC",
            "0.9.9",
            "2 cores",
            "--clients '&lt;9&gt;'",
        ] {
            assert!(head.contains(part), "{part} in {head}");
        }
        assert!(!page.contains("<pre>"));
        assert!(super::page(&[report(1)], &origin()).contains("not valid, no figure</h1>"));
    }

    /// A server had another colour in each plot.
    #[test]
    fn server_has_one_colour_in_all_plots() {
        let page = page(&[report(0), report(0)], &origin());
        for plot in page.split("<figure").skip(1).take(4) {
            assert!(
                plot.contains("var(--c0)") && plot.contains("var(--c1)") && !plot.contains("var(--c2)"),
                "{plot}"
            );
        }
        for (of_server, plot) in page.split("<figure").skip(5).enumerate() {
            let plot = &plot[..plot.find("</figure").expect("its end")];
            assert!(
                plot.contains(&format!("var(--c{of_server})"))
                    && !plot.contains(&format!("var(--c{})", 1 - of_server))
            );
        }
    }
}
