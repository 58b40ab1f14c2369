//! What all loops know of scripts: their sources by digest, the libraries, and which of them run beside the loops.
//!
//! A script is kept until SCRIPT FLUSH, or until there are too many: then those go first that were sent by EVAL and were not
//! used for longest. A client meets that as NOSCRIPT, which it is ready for.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::Nanos;
use sha1::{Digest as _, Sha1};

use super::library::Libraries;
use super::shebang::{self, FunctionFlags};

/// Dropped when what somebody waits for is done.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// The digest of a source.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 20]);

impl Digest {
    /// That of `source`.
    pub fn of(source: &[u8]) -> Self {
        Self(Sha1::digest(source).into())
    }

    /// The one that `text` spells, in any case; `None`: no script is called that.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let mut digest = [0; 20];
        if text.len() != 40 {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(text.chunks(2)) {
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(Self(digest))
    }

    /// As clients spell it.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// `bytes` in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A script.
#[derive(Debug)]
pub struct Script {
    /// Its name.
    pub digest: Digest,
    /// All of it, the first line included.
    pub source: Box<[u8]>,
    body_at: usize,
    /// `None`: it has no first line that says.
    pub flags: Option<FunctionFlags>,
    /// It took longer than a loop waits when it ran last.
    pub is_slow: AtomicBool,
}

impl Script {
    /// The script `source`.
    ///
    /// # Errors
    /// The text of the error reply, for a first line that is wrong.
    pub fn new(source: &[u8], digest: Digest) -> Result<Self, Vec<u8>> {
        let (flags, body_at) = shebang::of_script(source)?;
        Ok(Self { digest, source: source.into(), body_at, flags, is_slow: AtomicBool::new(false) })
    }

    /// What is compiled: with the end of the first line, so that lines are counted from there.
    pub(super) fn body(&self) -> &[u8] {
        &self.source[self.body_at..]
    }
}

/// A script or a function that runs beside the loops.
#[derive(Debug)]
pub struct Running {
    /// What it is called.
    pub name: Vec<u8>,
    /// The request.
    pub command: Vec<Vec<u8>>,
    /// Since when.
    pub since: Nanos,
    /// Whether it is a function of a library.
    pub is_function: bool,
    is_killed: AtomicBool,
    /// Dropped when it has ended.
    holds: Mutex<Vec<Hold>>,
}

impl Running {
    /// Whether it is to end.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }
}

/// Takes a script out of those that run.
#[derive(Debug)]
pub struct RunningGuard<'a> {
    scripts: &'a Scripts,
    /// Which one it is.
    pub running: Arc<Running>,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        lock(&self.scripts.running).retain(|other| !Arc::ptr_eq(other, &self.running));
    }
}

#[derive(Debug)]
struct Cached {
    script: Arc<Script>,
    /// By SCRIPT LOAD.
    is_loaded: bool,
    used: u64,
}

#[derive(Debug, Default)]
struct Cache {
    scripts: HashMap<Digest, Cached>,
    bytes: usize,
    uses: u64,
}

/// Scripts and libraries of a server.
#[derive(Debug)]
pub struct Scripts {
    cache: Mutex<Cache>,
    libraries: Mutex<Arc<Libraries>>,
    /// Held while the libraries are changed.
    pub changing: Mutex<()>,
    generation: AtomicU64,
    running: Mutex<Vec<Arc<Running>>>,
    evicted: AtomicU64,
    /// What all interpreters use.
    memory_bytes: AtomicU64,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            cache: Mutex::default(),
            libraries: Mutex::default(),
            changing: Mutex::default(),
            generation: AtomicU64::new(1),
            running: Mutex::default(),
            evicted: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
        }
    }
}

/// Figures for INFO.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Scripts that the server knows.
    pub scripts: usize,
    /// Their sources.
    pub script_bytes: usize,
    /// Scripts that were forgotten for newer ones.
    pub evicted: u64,
    /// Libraries that are loaded.
    pub libraries: usize,
    /// Their functions.
    pub functions: usize,
    /// Their code.
    pub library_bytes: usize,
    /// What all interpreters use.
    pub memory_bytes: u64,
}

impl Scripts {
    /// The script with this digest, which counts as used.
    pub fn find(&self, digest: &Digest) -> Option<Arc<Script>> {
        let mut cache = lock(&self.cache);
        cache.uses += 1;
        let uses = cache.uses;
        let cached = cache.scripts.get_mut(digest)?;
        cached.used = uses;
        Some(Arc::clone(&cached.script))
    }

    /// Whether there is one with this digest.
    pub fn has(&self, digest: &Digest) -> bool {
        lock(&self.cache).scripts.contains_key(digest)
    }

    /// Keeps `script`; by SCRIPT LOAD if it `is_loaded`.
    pub fn add(&self, script: &Arc<Script>, is_loaded: bool) {
        let mut cache = lock(&self.cache);
        cache.uses += 1;
        let used = cache.uses;
        if let Some(cached) = cache.scripts.get_mut(&script.digest) {
            (cached.is_loaded, cached.used) = (cached.is_loaded | is_loaded, used);
            return;
        }
        let bytes = script.source.len();
        if cache.scripts.len() >= SCRIPTS_MAX || cache.bytes + bytes > SCRIPT_BYTES_MAX {
            self.make_room(&mut cache, bytes);
        }
        cache.bytes += bytes;
        cache.scripts.insert(script.digest, Cached { script: Arc::clone(script), is_loaded, used });
    }

    /// Takes out what was not used for longest, an eighth more than must go.
    fn make_room(&self, cache: &mut Cache, bytes: usize) {
        let mut order: Vec<(bool, u64, Digest)> =
            cache.scripts.iter().map(|(digest, it)| (it.is_loaded, it.used, *digest)).collect();
        order.sort_unstable_by_key(|(is_loaded, used, _)| (*is_loaded, *used));
        let (count_max, bytes_max) = (SCRIPTS_MAX - SCRIPTS_MAX / 8, SCRIPT_BYTES_MAX - SCRIPT_BYTES_MAX / 8);
        for (_, _, digest) in order {
            if cache.scripts.len() <= count_max && cache.bytes + bytes <= bytes_max {
                break;
            }
            if let Some(gone) = cache.scripts.remove(&digest) {
                cache.bytes -= gone.script.source.len();
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        *lock(&self.cache) = Cache::default();
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes when interpreters are to forget what they have compiled.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The libraries.
    pub fn libraries(&self) -> Arc<Libraries> {
        Arc::clone(&lock(&self.libraries))
    }

    /// Replaces them.
    pub fn set_libraries(&self, libraries: Libraries) {
        *lock(&self.libraries) = Arc::new(libraries);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Shows that a script runs beside the loops, until the guard is dropped.
    pub fn begin(
        &self,
        name: Vec<u8>,
        is_function: bool,
        command: Vec<Vec<u8>>,
        since: Nanos,
    ) -> RunningGuard<'_> {
        let (is_killed, holds) = (AtomicBool::new(false), Mutex::default());
        let running = Arc::new(Running { name, command, since, is_function, is_killed, holds });
        lock(&self.running).push(Arc::clone(&running));
        RunningGuard { scripts: self, running }
    }

    /// The oldest that runs beside the loops.
    pub fn running(&self, are_functions: bool) -> Option<Arc<Running>> {
        lock(&self.running).iter().find(|it| it.is_function == are_functions).cloned()
    }

    /// Ends what runs beside the loops; returns whether anything does. `hold` is dropped when all that is meant has ended.
    pub fn kill(&self, functions: bool, hold: &Hold) -> bool {
        let running = lock(&self.running);
        let mut meant = running.iter().filter(|it| it.is_function == functions).peekable();
        let any = meant.peek().is_some();
        for it in meant {
            lock(&it.holds).push(Hold::clone(hold));
            it.is_killed.store(true, Ordering::Relaxed);
        }
        any
    }

    /// An interpreter has grown by so much, or shrunk.
    pub fn note_memory(&self, grown: i64) {
        self.memory_bytes.fetch_add(grown.cast_unsigned(), Ordering::Relaxed);
    }

    /// Figures for INFO.
    pub fn figures(&self) -> Figures {
        let cache = lock(&self.cache);
        let (scripts, script_bytes) = (cache.scripts.len(), cache.bytes);
        drop(cache);
        let held = self.libraries();
        let ((libraries, functions), library_bytes) = (held.counts(), held.bytes());
        let (evicted, memory_bytes) =
            (self.evicted.load(Ordering::Relaxed), self.memory_bytes.load(Ordering::Relaxed));
        Figures { scripts, script_bytes, evicted, libraries, functions, library_bytes, memory_bytes }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Scripts of a server, and the bytes of their sources.
const SCRIPTS_MAX: usize = 4_096;
const SCRIPT_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn script(source: &str) -> Arc<Script> {
        let digest = Digest::of(source.as_bytes());
        Arc::new(Script::new(source.as_bytes(), digest).expect("no first line"))
    }

    #[test]
    fn digest_is_read_as_it_is_written() {
        let digest = Digest::of(b"return 1");
        assert_eq!(digest.hex(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(Digest::parse(digest.hex().to_uppercase().as_bytes()), Some(digest));
        assert_eq!(Digest::parse(b"e0e1"), None);
        assert_eq!(Digest::parse(&[b'g'; 40]), None);
    }

    #[test]
    fn scripts_of_eval_go_first_and_the_oldest_of_them() {
        let scripts = Scripts::default();
        let loaded = script("return 'loaded'");
        scripts.add(&loaded, true);
        let of_eval: Vec<_> = (0..SCRIPTS_MAX).map(|n| script(&format!("return {n}"))).collect();
        of_eval.iter().for_each(|script| scripts.add(script, false));
        assert!(scripts.has(&loaded.digest));
        assert!(!scripts.has(&of_eval[0].digest));
        assert!(scripts.has(&of_eval[SCRIPTS_MAX - 1].digest));
        assert!(scripts.figures().evicted > 0);
        scripts.flush();
        assert_eq!(scripts.figures().scripts, 0);
    }

    #[test]
    fn bytes_of_sources_are_bounded() {
        let scripts = Scripts::default();
        for n in 0..20 {
            scripts.add(&script(&format!("--{}{n}", "x".repeat(1 << 20))), true);
        }
        assert!(scripts.figures().script_bytes <= SCRIPT_BYTES_MAX);
    }
}
