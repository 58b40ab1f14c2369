//! Settings that are read for each command, as atomics: they are copied when the settings have changed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clock::Nanos;
use commands::call::{SizeLimits, Small};
use resp::Limits;

use crate::settings::{Config, Settings, Threshold};

/// Settings that are read for each command.
#[derive(Debug, Default)]
pub(crate) struct Tuned {
    generation: AtomicU64,
    /// Whether commands are timed.
    pub(crate) timed: AtomicBool,
    pub(crate) slow_ns: AtomicU64,
    pub(crate) latency_ns: AtomicU64,
    /// What a command on data asks.
    pub(crate) sizes: SizeLimits,
    pub(crate) transaction_bytes_max: AtomicU64,
    pub(crate) input_bytes_max: AtomicU64,
    pub(crate) idle_timeout_ns: AtomicU64,
    pub(crate) auth_timeout_ns: AtomicU64,
    pub(crate) script_ns_max: AtomicU64,
    pub(crate) script_memory_bytes_max: AtomicU64,
}

impl Tuned {
    /// Nothing is known before the first [`Tuned::refresh`].
    pub(crate) fn new() -> Self {
        Tuned { generation: AtomicU64::new(u64::MAX), ..Tuned::default() }
    }

    /// Copies `settings` if they have changed, which costs one load if they have not; says whether.
    #[inline]
    pub(crate) fn refresh(&self, settings: &Config) -> bool {
        let generation = settings.generation();
        let has_changed = self.generation.load(Ordering::Relaxed) != generation;
        if has_changed {
            self.load(&settings.current());
            self.generation.store(generation, Ordering::Relaxed);
        }
        has_changed
    }

    /// The sizes up to which Redis keeps collections in its small forms.
    fn load_small(&self, settings: &Settings) {
        let Small { is_set, hash, set, integers, sorted_set, list } = &self.sizes.small;
        let mut is_any_set = false;
        for (name, to) in [
            ("hash-max-listpack-entries", &hash[0]),
            ("hash-max-listpack-value", &hash[1]),
            ("set-max-listpack-entries", &set[0]),
            ("set-max-listpack-value", &set[1]),
            ("set-max-intset-entries", integers),
            ("zset-max-listpack-entries", &sorted_set[0]),
            ("zset-max-listpack-value", &sorted_set[1]),
            ("list-max-listpack-size", list),
        ] {
            let (number, is_one_set) = settings.accepted_number(name);
            is_any_set |= is_one_set;
            to.store(number, Ordering::Relaxed);
        }
        is_set.store(is_any_set, Ordering::Relaxed);
    }

    #[cold]
    fn load(&self, settings: &Settings) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let or_off = |ns: u64| if ns == 0 { u64::MAX } else { ns };
        let slow_ns = match settings.slowlog_threshold {
            Threshold::Off => u64::MAX,
            Threshold::From(time) => nanos(time),
        };
        self.load_small(settings);
        self.timed.store(settings.metrics_latency, Ordering::Relaxed);
        self.slow_ns.store(slow_ns, Ordering::Relaxed);
        self.latency_ns.store(or_off(nanos(settings.latency_threshold)), Ordering::Relaxed);
        self.idle_timeout_ns.store(nanos(settings.connections_idle_timeout), Ordering::Relaxed);
        self.auth_timeout_ns.store(nanos(settings.connections_auth_timeout), Ordering::Relaxed);
        self.script_ns_max.store(nanos(settings.script_time_limit), Ordering::Relaxed);
        self.script_memory_bytes_max.store(settings.script_memory_limit.0, Ordering::Relaxed);
        self.sizes.value_bytes_max.store(settings.value_max.0, Ordering::Relaxed);
        self.input_bytes_max.store(settings.connections_input_max.0, Ordering::Relaxed);
        self.sizes.output_bytes_max.store(settings.connections_output_max.0, Ordering::Relaxed);
        self.transaction_bytes_max.store(settings.transaction_max.0, Ordering::Relaxed);
    }

    /// Limits of the requests that are taken from a connection now.
    #[inline]
    pub(crate) fn limits(&self, is_authenticated: bool) -> Limits {
        if !is_authenticated {
            return STRANGER_LIMITS;
        }
        let bytes =
            |setting: &AtomicU64| usize::try_from(setting.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        Limits {
            bulk_bytes_max: bytes(&self.sizes.value_bytes_max).max(Limits::BEFORE_AUTH.bulk_bytes_max),
            query_bytes_max: bytes(&self.input_bytes_max),
            ..Limits::REDIS
        }
    }

    /// When a connection that is not authenticated has to be; `None`: whenever it likes.
    pub(crate) fn auth_deadline(&self, since: Nanos) -> Option<Nanos> {
        let timeout_ns = self.auth_timeout_ns.load(Ordering::Relaxed);
        (timeout_ns != 0).then(|| since + Duration::from_nanos(timeout_ns))
    }
}

/// What a client may send that has to authenticate: so little that no room has to be granted for it.
const STRANGER_LIMITS: Limits =
    Limits { inline_bytes_max: 16 << 10, query_bytes_max: 48 << 10, ..Limits::BEFORE_AUTH };
