//! How the limit servers count requests in what they read: by dividing, or by parsing RESP.
//!
//! Dividing is the limit itself; parsing shows what reading the protocol alone costs. Neither looks at a value.

use std::sync::atomic::AtomicU64;

use resp::{Args, Limits, Parsed, RequestParser};

/// Requests answered and syncs called by all loops.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests answered.
    pub requests: AtomicU64,
    /// Calls of fdatasync.
    pub syncs: AtomicU64,
}

/// Counts the requests of one connection.
#[derive(Debug)]
pub enum Counter {
    /// Divides by the request size.
    Divide {
        /// Bytes of every request.
        request_bytes: usize,
        /// Bytes seen of the request that is not complete; none before the first read.
        rest_bytes: Option<usize>,
    },
    /// Parses, and keeps what is not complete.
    Parse {
        /// Where the parser stands.
        parser: RequestParser,
        /// Arguments of the request parsed last.
        args: Args,
        /// Bytes of the request that is not complete.
        rest: Vec<u8>,
    },
}

impl Counter {
    /// A counter for requests of `request_bytes`, or for any when it is to `parse`. With a `greeting`, a first read that is shorter
    /// than a request is none.
    #[must_use]
    pub fn new(request_bytes: usize, parse: bool, greeting: bool) -> Self {
        if parse {
            Self::Parse { parser: RequestParser::new(), args: Args::default(), rest: Vec::new() }
        } else {
            Self::Divide { request_bytes, rest_bytes: (!greeting).then_some(0) }
        }
    }

    /// Requests that `bytes` completes: none while one is incomplete, zero for a greeting that is no request.
    pub fn count(&mut self, bytes: &[u8]) -> Option<usize> {
        let count = match self {
            Self::Divide { request_bytes, rest_bytes: None } if bytes.len() < *request_bytes => {
                self.greeted();
                return Some(0);
            }
            Self::Divide { request_bytes, rest_bytes } => {
                let whole = rest_bytes.unwrap_or(0) + bytes.len();
                *rest_bytes = Some(whole % *request_bytes);
                whole / *request_bytes
            }
            Self::Parse { parser, args, rest } if rest.is_empty() => {
                let (count, consumed) = parse(parser, args, bytes);
                rest.extend_from_slice(&bytes[consumed..]);
                count
            }
            Self::Parse { parser, args, rest } => {
                rest.extend_from_slice(bytes);
                let (count, consumed) = parse(parser, args, rest);
                rest.drain(..consumed);
                count
            }
        };
        (count > 0).then_some(count)
    }

    fn greeted(&mut self) {
        if let Self::Divide { rest_bytes, .. } = self {
            *rest_bytes = Some(0);
        }
    }
}

/// Complete requests at the start of `input`, and their bytes; a protocol error ends the count.
fn parse(parser: &mut RequestParser, args: &mut Args, input: &[u8]) -> (usize, usize) {
    let (mut count, mut at) = (0, 0);
    while let Ok(Parsed::Complete { consumed }) = parser.parse(&input[at..], &Limits::REDIS, args) {
        at += consumed;
        count += usize::from(!args.is_empty());
    }
    (count, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dividing_counts_whole_requests_across_reads() {
        let mut counter = Counter::new(10, false, true);
        assert_eq!(counter.count(&[0; 10]), Some(1));
        assert_eq!(counter.count(&[0; 5]), None);
        assert_eq!(counter.count(&[0; 26]), Some(3));
        assert_eq!(counter.count(&[0; 9]), Some(1));
    }

    #[test]
    fn dividing_takes_a_short_first_read_for_a_greeting() {
        let mut counter = Counter::new(100, false, true);
        assert_eq!(counter.count(&[0; 77]), Some(0));
        assert_eq!(counter.count(&[0; 100]), Some(1));
    }

    #[test]
    fn parsing_counts_requests_split_at_any_byte() {
        let mut two = Vec::new();
        resp::encode_command(&mut two, &["SET", "key", "value"]);
        resp::encode_command(&mut two, &["GET", "key"]);
        for split in 1..two.len() {
            let mut counter = Counter::new(1, true, true);
            let first = counter.count(&two[..split]).unwrap_or(0);
            let second = counter.count(&two[split..]).unwrap_or(0);
            assert_eq!(first + second, 2, "split at {split}");
        }
    }
}
