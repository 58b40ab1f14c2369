//! redis-benchmark from Debian, one test a run, its CSV read.

use std::process::Command;

use crate::Failure;
use crate::process::cpu_seconds;
use crate::servers::Server;

/// One run's shape.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Connections.
    pub clients: usize,
    /// Requests that a connection has under way.
    pub pipeline: usize,
    /// Requests in all.
    pub requests: u64,
    /// Keys, drawn evenly.
    pub keys: u64,
}

/// What one run showed.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Requests a second.
    pub per_second: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of latency.
    pub p99_us: f64,
    /// The server's processor time for each request.
    pub cpu_us: f64,
}

impl Shape {
    /// The command line, for the table.
    #[must_use]
    pub fn command(&self) -> String {
        format!("redis-benchmark -p PORT {}", self.arguments().join(" "))
    }

    /// Drives `server` with SETs of 100 bytes.
    ///
    /// # Errors
    /// redis-benchmark failed, or the server answered with an error: then the run is invalid.
    pub fn run(&self, server: &Server) -> Result<Outcome, Failure> {
        let before = cpu_seconds(server.id())?;
        let output = Command::new("redis-benchmark")
            .args(["-p", &server.port().to_string()])
            .args(self.arguments())
            .output()
            .map_err(|error| format!("redis-benchmark: {error}"))?;
        let cpu = cpu_seconds(server.id())? - before;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || text.contains("Error from server") {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "redis-benchmark against {}: {}{}",
                server.label(),
                text.trim(),
                said.trim()
            ));
        }
        let [per_second, p50_ms, p99_ms] = parse(&text).ok_or_else(|| format!("not CSV: {text}"))?;
        let cpu_us = cpu * 1e6 / self.requests as f64;
        Ok(Outcome { per_second, p50_us: p50_ms * 1e3, p99_us: p99_ms * 1e3, cpu_us })
    }

    fn arguments(&self) -> Vec<String> {
        let Self { clients, pipeline, requests, keys } = self;
        let text = format!("-t set -d 100 -r {keys} -c {clients} -P {pipeline} -n {requests} --csv");
        text.split(' ').map(str::to_owned).collect()
    }
}

/// Requests a second, p50 and p99 in ms from the last line: "test","rps","avg","min","p50","p95","p99","max".
fn parse(text: &str) -> Option<[f64; 3]> {
    let line = text.lines().rev().find(|line| line.starts_with("\"SET\""))?;
    let fields: Vec<f64> = line.split(',').filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    (fields.len() == 7).then(|| [fields[0], fields[3], fields[5]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_line_gives_rate_and_percentiles() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"101351.35\",\"0.264\",\"0.024\",\"0.239\",\"0.415\",\"0.551\",\"8.247\"\n";
        assert_eq!(parse(text), Some([101_351.35, 0.239, 0.551]));
        assert_eq!(parse("\"SET\",\"1\"\n"), None);
    }
}
