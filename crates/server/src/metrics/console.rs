//! The page for a browser, and what it asks for beside topologies (`storm`): the loops.
//!
//! The page is one file without a build step. Its script asks this server alone, and shows text as text: ids come from definitions.

use serde_json::json;

use super::snapshot;
use super::{ActiveFigures, LoopFigures};
use crate::peers::Peers;

/// The page, in HTML.
pub const CONSOLE_PAGE: &str = include_str!("console.html");

/// The loops, as JSON. Counters are those since the start.
pub(crate) fn loops(peers: Option<&dyn Peers>) -> String {
    of_loops(&snapshot::loops(peers), peers.map(snapshot::active).as_ref())
}

fn of_loops(loops: &[LoopFigures], active: Option<&ActiveFigures>) -> String {
    let active = active.map_or(loops.len() as u64, |active| active.count);
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let each = (0..).zip(loops).map(|(number, it): (u64, &LoopFigures)| {
        let p99 = (!it.lag_us.is_empty()).then(|| it.lag_us.value_at_quantile(0.99));
        json!({
            "active": number < active, "connections": it.connections, "held": it.held, "commands": it.commands, "bytesIn": it.bytes_in,
            "bytesOut": it.bytes_out, "busyUs": micros(it.busy), "tickP99Us": p99, "movesIn": it.moves_in, "movesOut": it.moves_out,
        })
    });
    json!({ "loops": each.collect::<Vec<_>>() }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::example::example;

    #[test]
    fn loops_have_what_the_page_shows() {
        let snapshot = example();
        let answer = of_loops(&snapshot.loops, snapshot.active.as_ref());
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        let first = answer["loops"][0].as_object().expect("a loop");
        for name in first.keys().filter(|name| *name != "active") {
            assert!(CONSOLE_PAGE.contains(&format!("it.{name}")), "{name} is not shown");
        }
        assert_eq!(answer["loops"].as_array().map(Vec::len), Some(snapshot.loops.len()));
        assert_eq!(of_loops(&[], None), r#"{"loops":[]}"#);
    }

    #[test]
    fn page_asks_no_other_host_and_makes_no_html_of_what_it_is_told() {
        // the name of the vocabulary of drawings is no address that is asked
        let page = CONSOLE_PAGE.replace("http://www.w3.org/2000/svg", "");
        for forbidden in
            ["http:", "https:", "//cdn", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "import"]
        {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}
