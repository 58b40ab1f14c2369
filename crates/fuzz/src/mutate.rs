//! Seeded mutations: flips, splices, lengths and numbers that programs get wrong.

use vfs::sim::Rng;

/// Numbers at the edges of the types that lengths and integers are kept in.
const NUMBERS: [i128; 22] = [
    0,
    1,
    -1,
    9,
    10,
    127,
    128,
    255,
    256,
    511,
    4_095,
    4_096,
    65_535,
    65_536,
    1 << 20,
    512 << 20,
    i32::MAX as i128,
    1 << 31,
    u32::MAX as i128,
    1 << 32,
    i64::MAX as i128,
    u64::MAX as i128,
];

/// Makes inputs out of inputs.
#[derive(Debug)]
pub struct Mutator {
    rng: Rng,
    words: &'static [&'static [u8]],
    input_bytes_max: usize,
}

impl Mutator {
    /// A stream of mutations that `seed` determines.
    #[must_use]
    pub fn new(seed: u64, words: &'static [&'static [u8]], input_bytes_max: usize) -> Self {
        Self { rng: Rng::new(seed), words, input_bytes_max }
    }

    /// A new input out of some of `pool`.
    pub fn next(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        let mut input = pick(&mut self.rng, pool).cloned().unwrap_or_default();
        let rounds = 1 + self.rng.below(1 << self.rng.clone().below(5));
        for _ in 0..rounds {
            self.mutate(&mut input, pool);
        }
        input.truncate(self.input_bytes_max);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>, pool: &[Vec<u8>]) {
        let at = self.rng.index(input.len() + 1);
        let rest = input.len() - at;
        match self.rng.below(12) {
            0 | 1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.rng.below(8);
                }
            }
            2 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.rng.bits() as u8;
                }
            }
            3 => self.overwrite_binary_number(input, at),
            4 => self.replace_text_number(input, at),
            5 => insert(input, at, pick(&mut self.rng, self.words).copied().unwrap_or(b"\0")),
            6 => drop(input.drain(at..at + self.rng.index(rest.min(64) + 1))),
            7 => input.truncate(at),
            8 => {
                let piece = input[at..at + self.rng.index(rest.min(256) + 1)].to_vec();
                let to = self.rng.index(input.len() + 1);
                insert(input, to, &piece);
            }
            9 => {
                let bytes: Vec<u8> = (0..1 + self.rng.below(16)).map(|_| self.rng.bits() as u8).collect();
                insert(input, at, &bytes);
            }
            10 => self.splice(input, at, pool),
            _ => {
                let byte = self.rng.bits() as u8;
                insert(input, at, &vec![byte; 1 << self.rng.below(10)]);
            }
        }
        input.truncate(2 * self.input_bytes_max);
    }

    fn overwrite_binary_number(&mut self, input: &mut [u8], at: usize) {
        let number = self.number();
        let width = (1 << self.rng.below(4)).min(input.len() - at);
        input[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
    }

    /// Replaces the decimal digits at or after `at` by a number from the edges.
    fn replace_text_number(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else {
            return;
        };
        let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = self.number().to_string();
        input.splice(start..start + length, text.into_bytes());
    }

    fn splice(&mut self, input: &mut Vec<u8>, at: usize, pool: &[Vec<u8>]) {
        let Some(other) = pick(&mut self.rng, pool) else { return };
        let from = self.rng.index(other.len() + 1);
        input.truncate(at);
        input.extend_from_slice(&other[from..]);
    }

    fn number(&mut self) -> i128 {
        let edge = NUMBERS[self.rng.index(NUMBERS.len())];
        edge + self.rng.below(3) as i128 - 1
    }
}

fn pick<'a, T>(rng: &mut Rng, items: &'a [T]) -> Option<&'a T> {
    items.get(rng.index(items.len()))
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seed_gives_equal_inputs_within_the_limit() {
        let pool = [b"*1\r\n$4\r\nPING\r\n".to_vec(), b"PING\r\n".to_vec(), vec![]];
        let (mut one, mut two) = (Mutator::new(9, &[b"\r\n"], 200), Mutator::new(9, &[b"\r\n"], 200));
        let mut distinct = std::collections::BTreeSet::new();
        for _ in 0..5_000 {
            let input = one.next(&pool);
            assert_eq!(input, two.next(&pool));
            assert!(input.len() <= 200);
            distinct.insert(input);
        }
        assert!(distinct.len() > 3_000, "{}", distinct.len());
    }

    #[test]
    fn nothing_to_start_from_is_no_error() {
        let mut mutator = Mutator::new(1, &[], 64);
        for _ in 0..1_000 {
            mutator.next(&[]);
        }
    }
}
