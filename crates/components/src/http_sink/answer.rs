//! What an answer means for its tuple.

use std::time::{Duration, UNIX_EPOCH};

use topology::component::Fault;

/// What is known of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The header of this name.
    pub(super) retry_after: Option<String>,
    /// How the body begins.
    pub(super) begin: String,
}

impl Answer {
    /// What becomes of the tuple; `unix_s` is the time of day.
    pub(super) fn verdict(&self, unix_s: u64) -> Result<(), Fault> {
        let Self { status, begin, .. } = self;
        let error = format!("the server answered {status}: `{begin}`");
        match (status, self.pause(unix_s)) {
            (200..=299, _) => Ok(()),
            (429 | 503, Some(pause)) => Err(Fault::silent(error).after(pause)),
            (429, None) => Err(Fault::silent(error).after(PAUSE)),
            (408 | 425 | 500..=599, _) => Err(Fault::new(error)),
            (300..=399, _) => Err(Fault::fatal(format!("{error}: redirects are not followed"))),
            _ => Err(Fault::fatal(error)),
        }
    }

    /// What `Retry-After` asks for: seconds, or a time of day.
    fn pause(&self, unix_s: u64) -> Option<Duration> {
        let text = self.retry_after.as_deref()?.trim();
        let seconds = text.parse::<u64>().ok().or_else(|| {
            let until = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(until.as_secs().saturating_sub(unix_s))
        });
        seconds.map(|seconds| Duration::from_secs(seconds).clamp(PAUSE, PAUSE_MAX))
    }
}

/// Without a time of the server's, and at least.
const PAUSE: Duration = Duration::from_secs(1);
/// No server has a tuple wait for longer.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(status: u16, retry_after: Option<&str>) -> Fault {
        let answer = Answer { status, retry_after: retry_after.map(str::to_owned), begin: "no".to_owned() };
        answer.verdict(1_000_000_000).expect_err("a fault")
    }

    #[test]
    fn answers_are_told_apart() {
        for status in [200, 201, 204, 299] {
            assert_eq!(Answer { status, ..Answer::default() }.verdict(0), Ok(()));
        }
        let text = |status| format!("the server answered {status}: `no`");
        for status in [408, 425, 500, 502, 503, 504] {
            assert_eq!(fault(status, None), Fault::new(text(status)));
        }
        for status in [100, 400, 401, 404, 409, 422, 999] {
            assert_eq!(fault(status, Some("9")), Fault::fatal(text(status)));
        }
        assert!(fault(302, None).error().ends_with("redirects are not followed"));
    }

    #[test]
    fn time_to_wait_is_the_servers_within_bounds() {
        let pause =
            |status, retry_after| fault(status, retry_after).nack().delay.map(|delay| delay.as_secs());
        assert_eq!(pause(429, Some("17")), Some(17));
        assert_eq!(pause(503, Some(" 5 ")), Some(5));
        assert_eq!(pause(429, None), Some(1));
        assert_eq!(pause(429, Some("0")), Some(1));
        assert_eq!(pause(429, Some("999999999")), Some(3_600));
        assert_eq!(pause(429, Some("soon")), Some(1));
        // 20 s after the time of day
        assert_eq!(pause(429, Some("Sun, 09 Sep 2001 01:47:00 GMT")), Some(20));
        assert_eq!(pause(429, Some("Sun, 09 Sep 1999 01:47:00 GMT")), Some(1), "it has passed");
        assert_eq!(fault(429, None), Fault::silent("the server answered 429: `no`").after(PAUSE));
    }
}
