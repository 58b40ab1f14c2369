//! What a setting's value can be, and how each kind is written and read.
//!
//! | kind | written | read as well |
//! |---|---|---|
//! | size | `64MiB`, `100B` | `67108864`, `64mb` (1024-based, as Redis), `64m` (1000-based, as Redis) |
//! | duration | `250ms`, `1s`, `5m` | `0` |
//! | count | `10000` | |
//! | switch | `true` | `yes`, `no`, `on`, `off` |
//! | choice | one of its words | |
//!
//! Every kind survives being written and read again; a test holds each default to that.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use txn::id::{NODE_NAME_BYTES_MAX, NodeName};

use super::error::Expected;

/// A value of one setting, as text and back.
pub(super) trait Kind: Sized {
    /// Reads the text; the error says what was expected.
    fn read(text: &str) -> Result<Self, Expected>;
    /// Writes the text that `read` turns into the same value.
    fn write(&self) -> String;
    /// The number that bounds apply to, if there is one.
    fn measure(&self) -> Option<u128> {
        None
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// The number of bytes as a length in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl std::str::FromStr for Size {
    type Err = Expected;

    fn from_str(text: &str) -> Result<Self, Expected> {
        Self::read(text)
    }
}

impl Kind for Size {
    fn read(text: &str) -> Result<Self, Expected> {
        let expected = || Expected::from("a size such as 64MiB, 100mb or a number of bytes");
        let (number, unit) = number_and_unit(text).ok_or_else(expected)?;
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" => 1000,
            "m" => 1000 * 1000,
            "g" => 1000 * 1000 * 1000,
            "kib" | "kb" => 1 << 10,
            "mib" | "mb" => 1 << 20,
            "gib" | "gb" => 1 << 30,
            "tib" | "tb" => 1 << 40,
            _ => return Err(expected()),
        };
        Ok(Size(number.saturating_mul(factor)))
    }

    fn write(&self) -> String {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = units.iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        unit.map_or_else(|| self.0.to_string(), |(shift, name)| format!("{}{name}", self.0 >> shift))
    }

    fn measure(&self) -> Option<u128> {
        Some(u128::from(self.0))
    }
}

/// Reads a duration of a flag that is no setting, such as `250ms`, `1s` or `5m`.
///
/// # Errors
/// `text` is no duration, or it is 0.
pub fn positive_duration(text: &str) -> Result<Duration, Expected> {
    let duration = Duration::read(text)?;
    if duration.is_zero() { Err(Expected::from("a duration above 0")) } else { Ok(duration) }
}

impl Kind for Duration {
    fn read(text: &str) -> Result<Self, Expected> {
        let expected = || Expected::from("a duration such as 250ms, 1s or 5m");
        let (number, unit) = number_and_unit(text).ok_or_else(expected)?;
        let nanos_each: u64 = match unit {
            "" if number == 0 => 0,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(expected()),
        };
        Ok(Duration::from_nanos(number.saturating_mul(nanos_each)))
    }

    fn write(&self) -> String {
        let nanos = self.as_nanos();
        let units = [(86_400_000_000_000, "d"), (3_600_000_000_000, "h"), (60_000_000_000, "m")];
        let units = units.into_iter().chain([(1_000_000_000, "s"), (1_000_000, "ms")]);
        match units.into_iter().find(|(each, _)| nanos != 0 && nanos.is_multiple_of(*each)) {
            Some((each, name)) => format!("{}{name}", nanos / each),
            None if nanos == 0 => "0".to_owned(),
            None => format!("{}us", nanos / 1_000),
        }
    }

    fn measure(&self) -> Option<u128> {
        Some(self.as_nanos())
    }
}

/// The digits that `text` begins with, and its unit. A number that has no room in 64 bits is their largest: beyond any bound.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let (digits, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    (!digits.is_empty()).then(|| (digits.parse().unwrap_or(u64::MAX), unit.trim()))
}

macro_rules! count_kind {
    ($($number:ty),*) => {$(
        impl Kind for $number {
            fn read(text: &str) -> Result<Self, Expected> {
                text.parse().map_err(|_| "a whole number".into())
            }
            fn write(&self) -> String {
                self.to_string()
            }
            fn measure(&self) -> Option<u128> {
                u128::try_from(*self).ok()
            }
        }
    )*};
}
count_kind!(u16, u32, usize);

impl Kind for bool {
    fn read(text: &str) -> Result<Self, Expected> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err("true or false".into()),
        }
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Kind for PathBuf {
    fn read(text: &str) -> Result<Self, Expected> {
        if text.is_empty() { Err("a path".into()) } else { Ok(PathBuf::from(text)) }
    }

    fn write(&self) -> String {
        self.display().to_string()
    }
}

/// Something that is off unless it is set: the empty text is off.
impl Kind for Option<PathBuf> {
    fn read(text: &str) -> Result<Self, Expected> {
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    }

    fn write(&self) -> String {
        self.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

/// An address with its port; the empty text is off.
impl Kind for Option<SocketAddr> {
    fn read(text: &str) -> Result<Self, Expected> {
        let expected = |_| Expected::from("an address with a port, such as 127.0.0.1:9379 or [::1]:9379");
        if text.is_empty() {
            return Ok(None);
        }
        let address: SocketAddr = text.parse().map_err(expected)?;
        Ok(Some(SocketAddr::new(address.ip().to_canonical(), address.port())))
    }

    fn write(&self) -> String {
        self.map(|address| address.to_string()).unwrap_or_default()
    }
}

impl Kind for Vec<IpAddr> {
    fn read(text: &str) -> Result<Self, Expected> {
        let address = |word: &str| match word {
            "localhost" => Ok::<_, Expected>(IpAddr::from([127, 0, 0, 1])),
            "*" => Ok(IpAddr::from([0, 0, 0, 0])),
            // As IPv6 writes an address of IPv4: a socket of IPv6 alone, as ours are, does not take it.
            word => word
                .parse::<IpAddr>()
                .map(|address| address.to_canonical())
                .map_err(|_| format!("IP addresses such as 127.0.0.1, 0.0.0.0 or ::1, not '{word}'").into()),
        };
        let mut addresses = Vec::new();
        for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
            let address = address(word)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }

    fn write(&self) -> String {
        self.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// A password: printed on request, never in a log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The password; `None` when none is required.
    pub fn reveal(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(self.0.as_str())
    }
}

/// As in Redis. What a client may send before AUTH has room for it.
const PASSWORD_BYTES_MAX: usize = 512;

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

impl Kind for Secret {
    fn read(text: &str) -> Result<Self, Expected> {
        if text.len() > PASSWORD_BYTES_MAX {
            return Err(format!("{PASSWORD_BYTES_MAX} B at most").into());
        }
        Ok(Secret(text.to_owned()))
    }

    fn write(&self) -> String {
        self.0.clone()
    }
}

/// Name of a server among those that use the same databases; empty: one is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node(pub Option<NodeName>);

impl Kind for Node {
    fn read(text: &str) -> Result<Self, Expected> {
        let expected = |_| Expected::from(format!("1 to {NODE_NAME_BYTES_MAX} of a-z, 0-9 and -"));
        if text.is_empty() {
            Ok(Self(None))
        } else {
            NodeName::new(text).map(|node| Self(Some(node))).map_err(expected)
        }
    }

    fn write(&self) -> String {
        self.0.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

/// When an acknowledged write is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before it is acknowledged.
    Always,
    /// At most this long after it was acknowledged.
    Interval(Duration),
    /// When the operating system sees fit.
    Never,
}

impl Kind for Durability {
    fn read(text: &str) -> Result<Self, Expected> {
        match text {
            "always" => Ok(Durability::Always),
            "never" => Ok(Durability::Never),
            _ => match Duration::read(text) {
                Ok(interval) if !interval.is_zero() => Ok(Durability::Interval(interval)),
                _ => Err("always, never, or a duration such as 1s".into()),
            },
        }
    }

    fn write(&self) -> String {
        match self {
            Durability::Always => "always".to_owned(),
            Durability::Never => "never".to_owned(),
            Durability::Interval(interval) => interval.write(),
        }
    }

    fn measure(&self) -> Option<u128> {
        match self {
            Durability::Interval(interval) => interval.measure(),
            Durability::Always | Durability::Never => None,
        }
    }
}

/// From which time on something is noted, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Never.
    Off,
    /// What takes so long.
    From(Duration),
}

impl Kind for Threshold {
    fn read(text: &str) -> Result<Self, Expected> {
        match text {
            "off" => Ok(Threshold::Off),
            _ => Duration::read(text)
                .map(Threshold::From)
                .map_err(|_| "off, or a duration such as 10ms".into()),
        }
    }

    fn write(&self) -> String {
        match self {
            Threshold::Off => "off".to_owned(),
            Threshold::From(time) => time.write(),
        }
    }

    fn measure(&self) -> Option<u128> {
        match self {
            Threshold::Off => None,
            Threshold::From(time) => time.measure(),
        }
    }
}

/// How often something is done, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Never.
    Off,
    /// Whenever so long has passed.
    Time(Duration),
}

impl Kind for Every {
    fn read(text: &str) -> Result<Self, Expected> {
        // 0 or less is off: whoever wants that writes -1 as often as 0.
        let positive = text.strip_prefix('-').unwrap_or(text);
        let is_number = !positive.is_empty() && positive.bytes().all(|byte| byte.is_ascii_digit());
        if positive.len() < text.len() && is_number {
            return Ok(Every::Off);
        }
        match Duration::read(positive) {
            Ok(time) if positive.len() < text.len() || time.is_zero() => Ok(Every::Off),
            Ok(time) => Ok(Every::Time(time)),
            Err(expected) => Err(format!("{expected}; 0 or less is off").into()),
        }
    }

    fn write(&self) -> String {
        match self {
            Every::Off => "0".to_owned(),
            Every::Time(time) => time.write(),
        }
    }

    fn measure(&self) -> Option<u128> {
        match self {
            Every::Off => None,
            Every::Time(time) => time.measure(),
        }
    }
}

/// A user of the system: its name, or `uid:gid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(pub String);

impl Kind for Option<User> {
    fn read(text: &str) -> Result<Self, Expected> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:$".contains(&byte);
        if text.len() > USER_BYTES_MAX || !text.bytes().all(is_part) || text.starts_with('-') {
            return Err("the name of a user, or uid:gid".into());
        }
        Ok((!text.is_empty()).then(|| User(text.to_owned())))
    }

    fn write(&self) -> String {
        self.as_ref().map(|user| user.0.clone()).unwrap_or_default()
    }
}

/// Longer than names of users are.
const USER_BYTES_MAX: usize = 256;

/// Name of a machine, as a URL has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(pub String);

impl Kind for Vec<HostName> {
    fn read(text: &str) -> Result<Self, Expected> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let names: Vec<_> = text.split([' ', ',']).filter(|name| !name.is_empty()).collect();
        let is_name = |name: &&str| name.len() <= HOST_BYTES_MAX && name.bytes().all(is_part);
        if names.len() > HOSTS_MAX || !names.iter().all(is_name) {
            let expected = format!("up to {HOSTS_MAX} names of hosts such as evenkeel.example, without port");
            return Err(expected.into());
        }
        Ok(names.into_iter().map(|name| HostName(name.to_owned())).collect())
    }

    fn write(&self) -> String {
        self.iter().map(|name| name.0.as_str()).collect::<Vec<_>>().join(" ")
    }
}

/// Each request is compared with all of them.
const HOSTS_MAX: usize = 64;
/// As DNS has it.
const HOST_BYTES_MAX: usize = 253;

/// A share of all calls, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Kind for Vec<Percent> {
    fn read(text: &str) -> Result<Self, Expected> {
        let wrong = || format!("up to {PERCENTILES_MAX} numbers from 0 to 100, such as 50 99 99.9").into();
        let percent =
            |word: &str| word.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).map(Percent);
        let percents: Option<Vec<_>> = text.split_ascii_whitespace().map(percent).collect();
        percents.filter(|percents| percents.len() <= PERCENTILES_MAX).ok_or_else(wrong)
    }

    fn write(&self) -> String {
        self.iter().map(Percent::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// A line of INFO for each command has them all.
const PERCENTILES_MAX: usize = 16;

/// How much memory data may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Three quarters of what the machine, or the control group, grants.
    Auto,
    /// This many bytes; 0 means no limit.
    Bytes(u64),
}

impl Kind for MemoryLimit {
    fn read(text: &str) -> Result<Self, Expected> {
        match text {
            "auto" => Ok(MemoryLimit::Auto),
            _ => Size::read(text)
                .map(|size| MemoryLimit::Bytes(size.0))
                .map_err(|e| format!("auto, or {e}").into()),
        }
    }

    fn write(&self) -> String {
        match self {
            MemoryLimit::Auto => "auto".to_owned(),
            MemoryLimit::Bytes(bytes) => Size(*bytes).write(),
        }
    }

    fn measure(&self) -> Option<u128> {
        match self {
            MemoryLimit::Auto | MemoryLimit::Bytes(0) => None,
            MemoryLimit::Bytes(bytes) => Some(u128::from(*bytes)),
        }
    }
}

/// Declares an enum whose variants are the words of a choice.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl Kind for $name {
            fn read(text: &str) -> Result<Self, Expected> {
                match text {
                    $($word => Ok($name::$variant),)*
                    _ => Err(one_of(&[$($word),*])),
                }
            }

            fn write(&self) -> String {
                match self { $($name::$variant => $word.to_owned()),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $word),* })
            }
        }
    };
}

choice! {
    /// Where values live.
    Engine {
        /// On disk, in the log; recently used ones in memory as well.
        Log = "log",
        /// In memory only: everything is gone after a stop.
        Memory = "memory",
        /// Nowhere: accepts and forgets. Measures the network layer alone.
        Noop = "noop",
    }
}

choice! {
    /// What carries tuples between workers of a topology.
    WorkerTransport {
        /// TCP, with a secret that only they have.
        Tcp = "tcp",
        /// libzmq, in builds that have it.
        ZeroMq = "zeromq",
    }
}

choice! {
    /// Which keys are evicted when there is no room.
    Policy {
        /// None: what needs room is refused.
        NoEviction = "noeviction",
        /// Those that were not used for longest.
        AllKeysLru = "allkeys-lru",
        /// Those that are used least often.
        AllKeysLfu = "allkeys-lfu",
        /// Any.
        AllKeysRandom = "allkeys-random",
        /// As `allkeys-lru`, of those with an expiry.
        VolatileLru = "volatile-lru",
        /// As `allkeys-lfu`, of those with an expiry.
        VolatileLfu = "volatile-lfu",
        /// Any with an expiry.
        VolatileRandom = "volatile-random",
        /// Those that expire soonest.
        VolatileTtl = "volatile-ttl",
    }
}

choice! {
    /// How sockets meet threads.
    Connector {
        /// A few event loops that share all connections.
        Epoll = "epoll",
        /// The same, on an `io_uring` each.
        Uring = "uring",
        /// A blocking thread for each connection.
        Threads = "threads",
    }
}

choice! {
    /// Which loop a new connection goes to.
    Assignment {
        /// The one that has least to do, and of equals the one with the fewest connections.
        LeastLoaded = "least-loaded",
        /// One after the other.
        RoundRobin = "round-robin",
        /// The one that has the other connections from the same IP address.
        ByHost = "by-host",
    }
}

choice! {
    /// What the load of a connection is to the balancer.
    BalanceBy {
        /// Time that its loop spent on it.
        Time = "time",
        /// Bytes read and written.
        Bytes = "bytes",
        /// Reads and writes.
        Events = "events",
    }
}

choice! {
    /// How the journal writes and syncs.
    Backend {
        /// The best one that a probe of the folder at start finds.
        Auto = "auto",
        /// Writes through the page cache, then fdatasync.
        Buffered = "buffered",
        /// Writes past the page cache, synchronously.
        Direct = "direct",
        /// Writes and syncs through an io_uring.
        Uring = "uring",
    }
}

choice! {
    /// Where decisions of transactions are kept.
    TxnLog {
        /// All in a journal of their own.
        Journal = "journal",
        /// Each in a file.
        File = "file",
    }
}

choice! {
    /// The least important lines that are logged.
    LogLevel {
        /// Only what needs a person.
        Error = "error",
        /// What may need one.
        Warn = "warn",
        /// Starts, stops and decisions.
        Info = "info",
        /// Single connections and background rounds.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

fn one_of(words: &[&str]) -> Expected {
    format!("one of {}", words.join(", ")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_and_redis_write_them() {
        let cases = [
            ("0", 0),
            ("100B", 100),
            ("64MiB", 64 << 20),
            ("64mb", 64 << 20),
            ("1k", 1000),
            ("1 GiB", 1 << 30),
        ];
        for (text, bytes) in cases {
            assert_eq!(Size::read(text), Ok(Size(bytes)), "{text}");
        }
        assert_eq!(Size::read("99999999999999999999TiB"), Ok(Size(u64::MAX)), "beyond every bound");
        for text in ["", "MiB", "-1", "1.5GiB", "64Mi", "1 2"] {
            assert!(Size::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(Duration::read("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(Duration::read("0"), Ok(Duration::ZERO));
        for text in ["", "5", "1 hour", "s", "-1s"] {
            assert!(Duration::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn interval_of_nothing_or_less_is_off() {
        for text in ["0", "0s", "-1", "-20", "-5s", "-0"] {
            assert_eq!(Every::read(text), Ok(Every::Off), "{text}");
        }
        assert_eq!(Every::read("250ms"), Ok(Every::Time(Duration::from_millis(250))));
        assert_eq!(Every::read(&Every::Off.write()), Ok(Every::Off));
        for text in ["", "-", "5", "--1", "-x", "off"] {
            assert!(Every::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        for bytes in [0, 1, 1000, 1024, 1 << 20, (1 << 20) + 1, u64::MAX] {
            assert_eq!(Size::read(&Size(bytes).write()), Ok(Size(bytes)));
        }
        for micros in [0, 1, 1000, 1500, 1_000_000, 60_000_000, 86_400_000_000] {
            let duration = Duration::from_micros(micros);
            assert_eq!(Duration::read(&duration.write()), Ok(duration));
        }
        for durability in
            [Durability::Always, Durability::Never, Durability::Interval(Duration::from_secs(1))]
        {
            assert_eq!(Durability::read(&durability.write()), Ok(durability));
        }
    }

    #[test]
    fn a_password_is_not_printed_by_accident() {
        assert_eq!(format!("{:?}", Secret("hunter2".to_owned())), "***");
    }
}
