//! Latencies of a component, over all its tuples and by the streams that it reads.
//!
//! Over all tuples they are histograms with two significant digits, of 37 KiB each. There may be thousands of streams: of each one there are
//! buckets alone.

use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;
use topology::ids::StreamId;

use crate::stats::{BOUNDS, LONGEST_NS, Latency};
use crate::sync::lock;

/// Latencies of the tuples of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeLatency {
    /// How many were measured.
    pub samples: u64,
    /// All together.
    pub sum: Duration,
    /// As those of [`Latency`].
    pub buckets: [u64; BOUNDS.len() + 1],
}

/// Latencies of a component.
#[derive(Debug)]
pub(crate) struct Latencies {
    pub(crate) execute: Measured,
    pub(crate) process: Measured,
    pub(crate) queue: Measured,
    pub(crate) complete: Measured,
}

/// How long something took.
#[derive(Debug)]
pub(crate) struct Measured(Mutex<All>);

#[derive(Debug)]
struct All {
    all: Histogram<u64>,
    /// In the order of the streams that the component reads.
    by_stream: Vec<(StreamId, EdgeLatency)>,
}

impl Latencies {
    /// Those of a component that reads these streams, which are in order.
    pub(crate) fn new(streams: &[StreamId]) -> Self {
        Self {
            execute: Measured::new(streams),
            process: Measured::new(streams),
            queue: Measured::new(streams),
            complete: Measured::new(&[]),
        }
    }
}

impl Measured {
    fn new(streams: &[StreamId]) -> Self {
        let all = Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("the bounds are constants that fit");
        let by_stream = streams.iter().map(|stream| (*stream, EdgeLatency::default())).collect();
        Self(Mutex::new(All { all, by_stream }))
    }

    /// Adds a latency `count` times.
    pub(crate) fn record(&self, latency: Duration, count: u64) {
        lock(&self.0).all.saturating_record_n(nanos(latency), count);
    }

    /// Adds the latency of a tuple of `stream`.
    pub(crate) fn record_of(&self, stream: StreamId, latency: Duration) {
        let mut measured = lock(&self.0);
        measured.all.saturating_record(nanos(latency));
        let found = measured.by_stream.binary_search_by_key(&stream, |(stream, _)| *stream);
        if let Ok(at) = found {
            measured.by_stream[at].1.add(latency);
        }
    }

    pub(crate) fn latency(&self) -> Latency {
        Latency::of(&lock(&self.0).all)
    }

    /// Of the stream at `place` of those that the component reads.
    pub(crate) fn of_stream(&self, place: usize) -> EdgeLatency {
        lock(&self.0).by_stream[place].1
    }
}

impl EdgeLatency {
    fn add(&mut self, latency: Duration) {
        self.samples += 1;
        self.sum = self.sum.saturating_add(latency);
        self.buckets[BOUNDS.partition_point(|bound| *bound < latency)] += 1;
    }
}

fn nanos(latency: Duration) -> u64 {
    u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NS)
}

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
        assert_eq!((measured.latency().samples, other, it.samples), (3, EdgeLatency::default(), 2));
        assert_eq!((it.buckets[1], it.buckets[BOUNDS.len()]), (1, 1));
        assert_eq!(it.sum, Duration::from_micros(1_000_000_002));
    }
}
