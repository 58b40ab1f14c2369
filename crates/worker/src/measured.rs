//! Latencies of a component, over all its tuples and by the streams that it reads.

use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;
use topology::ids::StreamId;
use topology::statistics::{Latencies, Times};

use crate::sync::lock;

/// Latencies of a component.
#[derive(Debug)]
pub(crate) struct Measurements {
    pub(crate) execute: Measured,
    pub(crate) process: Measured,
    pub(crate) queue: Measured,
    complete: Measured,
    /// The same as `complete` with two significant digits, for quantiles; 37 KiB.
    complete_histogram: Mutex<Histogram<u64>>,
}

/// How long something took.
#[derive(Debug)]
pub(crate) struct Measured(Mutex<All>);

#[derive(Debug)]
struct All {
    all: Times,
    /// In the order of the streams that the component reads.
    by_stream: Vec<(StreamId, Times)>,
}

impl Measurements {
    /// Those of a component that reads these streams, which are in order.
    pub(crate) fn new(streams: &[StreamId]) -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 2);
        Self {
            execute: Measured::new(streams),
            process: Measured::new(streams),
            queue: Measured::new(streams),
            complete: Measured::new(&[]),
            complete_histogram: Mutex::new(histogram.expect("the bounds are constants that fit")),
        }
    }

    /// `count` tuples of a spout were acknowledged `latency` after they were emitted.
    pub(crate) fn on_complete(&self, latency: Duration, count: u64) {
        self.complete.record(latency, count);
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NS);
        lock(&self.complete_histogram).saturating_record_n(nanos, count);
    }

    /// What was measured over all tuples.
    pub(crate) fn latencies(&self) -> Latencies {
        let all = |measured: &Measured| lock(&measured.0).all.clone();
        Latencies {
            execute: all(&self.execute),
            process: all(&self.process),
            queue: all(&self.queue),
            complete: all(&self.complete),
        }
    }

    /// Within this time the part `quantile` of a spout's tuples were acknowledged; 0 if none was.
    pub(crate) fn complete_within(&self, quantile: f64) -> Duration {
        Duration::from_nanos(lock(&self.complete_histogram).value_at_quantile(quantile))
    }
}

impl Measured {
    fn new(streams: &[StreamId]) -> Self {
        let by_stream = streams.iter().map(|stream| (*stream, Times::default())).collect();
        Self(Mutex::new(All { all: Times::default(), by_stream }))
    }

    /// Adds a latency `count` times.
    pub(crate) fn record(&self, latency: Duration, count: u64) {
        lock(&self.0).all.record(latency, count);
    }

    /// Adds the latency of a tuple of `stream`.
    pub(crate) fn record_of(&self, stream: StreamId, latency: Duration) {
        let mut measured = lock(&self.0);
        measured.all.record(latency, 1);
        let found = measured.by_stream.binary_search_by_key(&stream, |(stream, _)| *stream);
        if let Ok(at) = found {
            measured.by_stream[at].1.record(latency, 1);
        }
    }

    /// Of the stream at `place` of those that the component reads.
    pub(crate) fn of_stream(&self, place: usize) -> Times {
        lock(&self.0).by_stream[place].1.clone()
    }
}

/// Latencies beyond count as this one in a histogram: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_counts_for_the_component_and_for_its_stream_alone() {
        let measured = Measured::new(&[StreamId(3), StreamId(7)]);
        measured.record_of(StreamId(7), Duration::from_micros(2));
        measured.record_of(StreamId(7), Duration::from_secs(1_000));
        measured.record_of(StreamId(5), Duration::from_micros(1));
        let (other, it) = (measured.of_stream(0), measured.of_stream(1));
        assert_eq!((lock(&measured.0).all.count, other, it.count), (3, Times::default(), 2));
        assert_eq!((it.buckets[1], it.buckets[Times::BOUNDS_US.len()]), (1, 1));
        assert_eq!(it.sum_ns, 1_000_000_002_000);
    }
}
