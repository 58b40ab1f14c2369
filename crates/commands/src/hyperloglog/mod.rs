//! HyperLogLog: about how many different elements were added, in 12 KiB at most. Bytes as Redis has them, so that GET and SET move them.
//!
//! ```text
//!  0 "HYLL" | encoding u8: 0 dense, 1 sparse | 0 u24 | cardinality u64, its highest bit set when it is not known
//! 16 dense: 16,384 registers of 6 bits, the lowest bits of each byte first
//!    sparse: runs of registers (`sparse`)
//! ```
//!
//! A register holds the longest run of zeroes, and one more, that the hash of an element had whose low 14 bits name the register.
//!
//! Source: Heule, Nunkesser, Hall: HyperLogLog in Practice (2013); the estimator: Ertl: New cardinality estimation algorithms for
//! HyperLogLog sketches (2017).

mod sparse;

/// Registers, one a byte.
pub(crate) type Registers = Box<[u8; REGISTERS]>;

/// Why bytes are no HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// They do not begin as one, or have another length.
    Kind,
    /// Their registers cannot be read.
    Corrupt,
}

/// A HyperLogLog to be changed.
#[derive(Debug)]
pub(crate) struct Sketch {
    bytes: Vec<u8>,
}

impl Sketch {
    /// One to which nothing was added.
    pub(crate) fn new() -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[SPARSE, 0, 0, 0]);
        bytes.extend_from_slice(&0_u64.to_le_bytes());
        bytes.extend_from_slice(&sparse::EMPTY);
        Self { bytes }
    }

    /// The one in `bytes`.
    ///
    /// # Errors
    /// They are none.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, Invalid> {
        check(bytes)?;
        Ok(Self { bytes: bytes.to_vec() })
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn is_dense(&self) -> bool {
        self.bytes[4] == DENSE
    }

    /// Adds an element; returns whether that changed anything.
    ///
    /// # Errors
    /// The registers cannot be read.
    pub(crate) fn add(&mut self, element: &[u8]) -> Result<bool, Invalid> {
        let (register, count) = place(element);
        self.raise(register, count)
    }

    /// Lets a register be `count` at least; returns whether it was less.
    fn raise(&mut self, register: usize, count: u8) -> Result<bool, Invalid> {
        if !self.is_dense() {
            match sparse::raise(&mut self.bytes, register, count)? {
                sparse::Raised::Is(raised) => return Ok(raised),
                sparse::Raised::HasNoRoom => self.make_dense()?,
            }
        }
        let raised = dense_get(&self.bytes[HEADER_BYTES..], register) < count;
        if raised {
            dense_set(&mut self.bytes[HEADER_BYTES..], register, count);
        }
        Ok(raised)
    }

    fn make_dense(&mut self) -> Result<(), Invalid> {
        let registers = registers(&self.bytes)?;
        self.bytes.resize(DENSE_BYTES, 0);
        self.bytes[HEADER_BYTES..].fill(0);
        self.bytes[4] = DENSE;
        for (register, count) in registers.iter().enumerate() {
            dense_set(&mut self.bytes[HEADER_BYTES..], register, *count);
        }
        Ok(())
    }

    /// Raises its registers to those of others; `dense`: at least one of them is.
    ///
    /// # Errors
    /// Its registers cannot be read.
    pub(crate) fn merge(&mut self, others: &Registers, dense: bool) -> Result<(), Invalid> {
        if dense && !self.is_dense() {
            self.make_dense()?;
        }
        for (register, count) in others.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.raise(register, *count)?;
        }
        Ok(())
    }

    /// Notes that the number of elements has to be estimated anew.
    pub(crate) fn forget_count(&mut self) {
        self.bytes[HEADER_BYTES - 1] |= UNKNOWN;
    }
}

/// Whether the HyperLogLog in `bytes` has the dense form.
pub(crate) fn is_dense(bytes: &[u8]) -> bool {
    bytes.get(4) == Some(&DENSE)
}

fn check(bytes: &[u8]) -> Result<(), Invalid> {
    let has_head = bytes.len() >= HEADER_BYTES && bytes.starts_with(MAGIC);
    match has_head.then(|| bytes[4]) {
        Some(DENSE) if bytes.len() == DENSE_BYTES => Ok(()),
        Some(SPARSE) => Ok(()),
        _ => Err(Invalid::Kind),
    }
}

/// Reads the registers of a HyperLogLog.
///
/// # Errors
/// `bytes` are none.
pub(crate) fn registers(bytes: &[u8]) -> Result<Registers, Invalid> {
    check(bytes)?;
    let mut registers: Registers = Box::new([0; REGISTERS]);
    if is_dense(bytes) {
        for (at, register) in registers.iter_mut().enumerate() {
            *register = dense_get(&bytes[HEADER_BYTES..], at);
        }
    } else {
        sparse::read(&bytes[HEADER_BYTES..], &mut registers)?;
    }
    Ok(registers)
}

/// How many elements the HyperLogLog in `bytes` has, if that is noted.
pub(crate) fn noted_count(bytes: &[u8]) -> Option<u64> {
    let noted = bytes.get(8..HEADER_BYTES)?;
    let count = u64::from_le_bytes(noted.try_into().ok()?);
    (noted[7] & UNKNOWN == 0).then_some(count)
}

/// About how many different elements were added.
pub(crate) fn estimate(registers: &Registers) -> u64 {
    let mut histogram = [0_u32; 64];
    registers.iter().for_each(|count| histogram[usize::from(*count)] += 1);
    let all = REGISTERS as f64;
    let mut sum = all * tau((all - f64::from(histogram[COUNT_MAX + 1])) / all);
    for count in (1..=COUNT_MAX).rev() {
        sum = (sum + f64::from(histogram[count])) * 0.5;
    }
    sum += all * sigma(f64::from(histogram[0]) / all);
    (ALPHA * all * all / sum).round() as u64
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        y *= 0.5;
        let former = z;
        z -= (1.0 - x).powi(2) * y;
        if z == former {
            return z / 3.0;
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let former = z;
        z += x * y;
        y += y;
        if z == former {
            return z;
        }
    }
}

/// The register of an element, and what it lets it be at least.
fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element, SEED);
    let register = (hash as usize) & (REGISTERS - 1);
    let rest = hash >> REGISTER_BITS | 1 << COUNT_MAX;
    (register, rest.trailing_zeros() as u8 + 1)
}

/// MurmurHash64A by Austin Appleby (public domain), whose values decide what the bytes mean.
fn murmur(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mixed = |word: u64| {
        let word = word.wrapping_mul(M);
        (word ^ (word >> 47)).wrapping_mul(M)
    };
    let (words, tail) = bytes.as_chunks::<8>();
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    for word in words {
        hash = (hash ^ mixed(u64::from_le_bytes(*word))).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    hash ^ (hash >> 47)
}

fn dense_get(registers: &[u8], register: usize) -> u8 {
    let (byte, shift) = (register * 6 / 8, register * 6 % 8);
    let next = registers.get(byte + 1).copied().unwrap_or(0);
    let word = u16::from_le_bytes([registers[byte], next]);
    (word >> shift) as u8 & 0x3f
}

fn dense_set(registers: &mut [u8], register: usize, count: u8) {
    let (byte, shift) = (register * 6 / 8, register * 6 % 8);
    let next = registers.get(byte + 1).copied().unwrap_or(0);
    let word = u16::from_le_bytes([registers[byte], next]) & !(0x3f << shift) | u16::from(count) << shift;
    let [low, high] = word.to_le_bytes();
    registers[byte] = low;
    if let Some(next) = registers.get_mut(byte + 1) {
        *next = high;
    }
}

const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const UNKNOWN: u8 = 0x80;
const HEADER_BYTES: usize = 16;
const REGISTER_BITS: u32 = 14;
const REGISTERS: usize = 1 << REGISTER_BITS;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * 6 / 8;
/// Bits of a hash that are counted.
const COUNT_MAX: usize = 64 - REGISTER_BITS as usize;
const SEED: u64 = 0xadc8_3b19;
/// 1 / (2 ln 2)
const ALPHA: f64 = 0.721_347_520_444_481_7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_has_the_values_of_its_author() {
        assert_eq!(murmur(b"", 0), 0);
        assert_eq!(murmur(b"hello", 0), 0x1e68_d17c_457b_f117);
        assert_eq!(murmur(b"hello, world", 0), 0x9659_ad06_99a8_465f);
    }

    #[test]
    fn estimate_is_near_in_both_forms_and_adding_again_changes_nothing() {
        let mut sketch = Sketch::new();
        for number in 0..100_000_u32 {
            sketch.add(&number.to_le_bytes()).expect("sound");
            if [1, 10, 100, 1_000, 10_000, 100_000].contains(&(number + 1)) {
                let found = estimate(&registers(&sketch.bytes).expect("sound"));
                let error = (found as f64 - f64::from(number + 1)).abs() / f64::from(number + 1);
                assert!(error < 0.03, "{found} of {}", number + 1);
            }
        }
        assert!(sketch.is_dense());
        assert!((0..1_000_u32).all(|number| sketch.add(&number.to_le_bytes()) == Ok(false)));
    }

    #[test]
    fn both_forms_have_the_same_registers() {
        let mut sparse = Sketch::new();
        let mut dense = Sketch::new();
        dense.make_dense().expect("sound");
        for number in 0..2_000_u32 {
            let element = number.wrapping_mul(0x9e37_79b9).to_le_bytes();
            assert_eq!(sparse.add(&element), dense.add(&element), "{number}");
            if number % 100 == 0 {
                assert_eq!(registers(&sparse.bytes), registers(&dense.bytes), "{number}");
            }
        }
        let mut merged = Sketch::new();
        merged.merge(&registers(&sparse.bytes).expect("sound"), false).expect("sound");
        assert_eq!(registers(&merged.bytes), registers(&dense.bytes));
    }

    #[test]
    fn bytes_that_are_none_are_refused() {
        let mut sketch = Sketch::new();
        sketch.add(b"a").expect("sound");
        let bytes = sketch.into_bytes();
        for cut in 0..HEADER_BYTES {
            assert_eq!(registers(&bytes[..cut]), Err(Invalid::Kind), "{cut}");
        }
        for cut in HEADER_BYTES..bytes.len() {
            assert_eq!(registers(&bytes[..cut]), Err(Invalid::Corrupt), "{cut}");
        }
        for (at, byte) in [(0, b'h'), (4, 0), (4, 2)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert_eq!(registers(&bytes), Err(Invalid::Kind), "{byte} at {at}");
        }
        for wrong in [&[0x7f, 0xff, 0x00][..], &[0x3f; 300], &[0x80], &[0x7f]] {
            let bytes = [&bytes[..HEADER_BYTES], wrong].concat();
            assert_eq!(registers(&bytes), Err(Invalid::Corrupt), "{wrong:?}");
            let mut sketch = Sketch::of(&bytes).expect("its head is sound");
            for number in 0..100_u32 {
                // An error or a change, but no panic.
                let _ = sketch.add(&number.to_le_bytes());
            }
        }
    }
}
