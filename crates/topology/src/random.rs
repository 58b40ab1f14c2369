//! Random numbers that a seed determines: for tokens, shuffles and simulations, never for secrets.
//!
//! Source: SplitMix64 (Steele, Lea, Flood 2014).

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that `seed` determines.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `count`; 0 if `count` is 0.
    pub fn index(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    /// True `numerator` times out of `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Puts `items` in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.index(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        assert_eq!((random.bits(), random.bits()), (6_457_827_717_110_365_317, 3_203_168_211_198_807_973));
    }

    #[test]
    fn shuffle_keeps_all_items_and_reaches_every_order() {
        let mut random = Random::new(7);
        let mut orders = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            orders.insert(items);
        }
        assert_eq!(orders.len(), 6);
        assert_eq!((random.below(0), random.index(0)), (0, 0));
    }
}
