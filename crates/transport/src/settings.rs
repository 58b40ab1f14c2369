//! What a transport is started with: names, units, defaults and bounds, in one table.
//!
//! | field | unit | default | least | most | why |
//! |---|---|---|---|---|---|
//! | `threads` | threads | 1 | 1 | 1,024 | loops (`zeromq`: I/O threads of libzmq): one moves what one core can; more only for more nodes than that |
//! | `buffer_size_bytes` | bytes | 64 KiB | 1 KiB | 16 MiB | payload of a chunk: one write, one checksum |
//! | `message_size_bytes_max` | bytes | 1 MiB | 1 KiB | 256 MiB | larger ones are refused; split over chunks up to here |
//! | `channel_window_bytes` | bytes | 2 MiB | message | 1 GiB | what a receiver holds of a channel that it does not consume |
//! | `link_window_bytes` | bytes | 32 MiB | channel | 16 GiB | the same of all channels of a link |
//! | `unacked_bytes_max` | bytes | 8 MiB | 2 messages + 4 chunks | 16 GiB | what a sender keeps to send it again |
//! | `lossy_bytes_max` | bytes | 1 MiB | chunk | 1 GiB | lossy messages that wait |
//! | `channels_max` | channels | 1,024 | 1 | 65,535 | tables by channel grow up to here |
//! | `retries_max` | attempts | 29 | 0 | 2^32 - 1 | attempts in a row after which the peer is told of as unreachable; they go on |
//! | `wait_min`, `wait_max` | time | 100 ms, 1 s | 1 ms | 1 h | between two attempts to connect; doubles, with jitter |
//! | `connect_timeout` | time | 1 s | 1 ms | 1 min | of one attempt |
//! | `handshake_timeout` | time | 5 s | 1 ms | 1 min | until a connection has said who it is |
//! | `heartbeat` | time | 1 s | 1 ms | 1 h | a link that has nothing to say says so |
//! | `silence_max` | time | 5 s | 2 heartbeats | 1 day | a peer that is not heard for so long is dead |
//! | `ack_delay` | time | 5 ms | 0 | 1 s | rest after which a receiver returns what little it owes |
//!
//! Memory of a link is at most 3/2 `unacked_bytes_max` + `lossy_bytes_max` + 2 chunks to send (an idle one gives it up), and one message + 2 chunks to receive. What a
//! handler keeps of messages ([`crate::Message::keep`]) is at most `link_window_bytes` of each run of a peer.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes that a message counts beside its own, in windows: what a receiver that keeps it needs for it.
pub const MESSAGE_COST_BYTES: u64 = 16;

/// See the table of this module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Loops that own the links' connections.
    pub threads: usize,
    /// Messages of a chunk, in bytes.
    pub buffer_size_bytes: u32,
    /// Largest message.
    pub message_size_bytes_max: u32,
    /// What a receiver takes of a channel ahead of its being consumed.
    pub channel_window_bytes: u64,
    /// The same of all channels of a link together.
    pub link_window_bytes: u64,
    /// What a sender keeps of a link until it is acknowledged.
    pub unacked_bytes_max: u64,
    /// Lossy messages of a link that wait.
    pub lossy_bytes_max: u64,
    /// Channels of each class.
    pub channels_max: u16,
    /// Attempts to connect, after the first, before a peer is reported as unreachable.
    pub retries_max: u32,
    /// Shortest wait between two attempts to connect.
    pub wait_min: Duration,
    /// Longest wait between two attempts to connect.
    pub wait_max: Duration,
    /// Longest time that one attempt takes.
    pub connect_timeout: Duration,
    /// Longest time until a connection has said who it is.
    pub handshake_timeout: Duration,
    /// A link that has sent nothing for so long sends a sign of life.
    pub heartbeat: Duration,
    /// A peer of which nothing came for so long is dead: its connection is closed.
    pub silence_max: Duration,
    /// When a receiver returns acknowledgements and credits that are not worth a chunk of their own.
    pub ack_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threads: 1,
            buffer_size_bytes: 64 << 10,
            message_size_bytes_max: 1 << 20,
            channel_window_bytes: 2 << 20,
            link_window_bytes: 32 << 20,
            unacked_bytes_max: 8 << 20,
            lossy_bytes_max: 1 << 20,
            channels_max: 1_024,
            retries_max: 29,
            wait_min: Duration::from_millis(100),
            wait_max: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            handshake_timeout: Duration::from_secs(5),
            heartbeat: Duration::from_secs(1),
            silence_max: Duration::from_secs(5),
            ack_delay: Duration::from_millis(5),
        }
    }
}

/// A setting is out of its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transport.{name} is {value}, and must be from {least} to {most} ({unit})")]
pub struct SettingError {
    /// Which one.
    pub name: &'static str,
    /// What it is.
    pub value: u64,
    /// The least that it may be.
    pub least: u64,
    /// The most that it may be.
    pub most: u64,
    /// What it counts.
    pub unit: &'static str,
}

impl Settings {
    /// # Errors
    /// The first setting that is out of its bounds.
    pub fn check(&self) -> Result<(), SettingError> {
        let message = u64::from(self.message_size_bytes_max);
        let chunk = u64::from(self.buffer_size_bytes);
        let counts = [
            ("threads", self.threads as u64, 1..=1_024, "threads"),
            ("buffer_size", chunk, 1 << 10..=16 << 20, BYTES),
            ("message_size_max", message, 1 << 10..=256 << 20, BYTES),
            ("channel_window", self.channel_window_bytes, message + MESSAGE_COST_BYTES..=1 << 30, BYTES),
            ("link_window", self.link_window_bytes, self.channel_window_bytes..=16 << 30, BYTES),
            ("unacked_max", self.unacked_bytes_max, 2 * message + 4 * chunk..=16 << 30, BYTES),
            ("lossy_max", self.lossy_bytes_max, chunk..=1 << 30, BYTES),
            ("channels_max", u64::from(self.channels_max), 1..=65_535, "channels"),
        ];
        counts.into_iter().try_for_each(|(name, value, range, unit)| check_one(name, value, &range, unit))?;
        let (minute, hour) = (60 * SECOND_US, 3_600 * SECOND_US);
        let times = [
            ("wait_min", self.wait_min, MS_US..=hour),
            ("wait_max", self.wait_max, micros(self.wait_min)..=hour),
            ("connect_timeout", self.connect_timeout, MS_US..=minute),
            ("handshake_timeout", self.handshake_timeout, MS_US..=minute),
            ("heartbeat", self.heartbeat, MS_US..=hour),
            ("silence_max", self.silence_max, 2 * micros(self.heartbeat)..=24 * hour),
            ("ack_delay", self.ack_delay, 0..=SECOND_US),
        ];
        times.into_iter().try_for_each(|(name, time, range)| check_one(name, micros(time), &range, "us"))
    }

    /// Largest payload of a chunk: a message of the buffer's size fits into one.
    pub(crate) fn payload_bytes_max(&self) -> u32 {
        self.buffer_size_bytes + FRAME_ROOM_BYTES
    }
}

/// Room for the header of a frame.
pub(crate) const FRAME_ROOM_BYTES: u32 = 64;
const BYTES: &str = "bytes";
const MS_US: u64 = 1_000;
const SECOND_US: u64 = 1_000_000;

const _: () = assert!(FRAME_ROOM_BYTES as usize >= crate::wire::FRAME_HEADER_BYTES_MAX);

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn check_one(
    name: &'static str,
    value: u64,
    range: &RangeInclusive<u64>,
    unit: &'static str,
) -> Result<(), SettingError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(SettingError { name, value, least: *range.start(), most: *range.end(), unit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_bounds() {
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn setting_out_of_its_bounds_is_named_with_them() {
        let settings = Settings { channel_window_bytes: 1 << 10, ..Settings::default() };
        let text = settings.check().unwrap_err().to_string();
        assert_eq!(text, "transport.channel_window is 1024, and must be from 1048592 to 1073741824 (bytes)");
        let settings = Settings { silence_max: Duration::from_secs(1), ..Settings::default() };
        assert_eq!(settings.check().unwrap_err().name, "silence_max");
        let settings = Settings { threads: 0, ..Settings::default() };
        assert_eq!(settings.check().unwrap_err().name, "threads");
    }
}
