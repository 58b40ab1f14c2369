//! Traces: which keys are read, and what comes of it.

use vfs::sim::Rng;

use crate::Cache;

/// The numbers below `count` in any order.
fn shuffled(random: &mut Rng, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    (1..count).rev().for_each(|at| all.swap(at, random.index(at + 1)));
    all
}

/// Ranks by Zipf's law with exponent 0.99.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: usize) -> Self {
        let mut sum = 0.0;
        Self((1..=count).map(|rank| (sum += (rank as f64).powf(-0.99), sum).1).collect())
    }

    fn draw(&self, random: &mut Rng) -> usize {
        let at = random.unit() * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum <= at)
    }
}

/// Hit ratio after the first of `shifts` times `reads` reads of `keys`; each time all keys get other ranks (`whole`), or a tenth of
/// them goes from the front to the end.
pub(crate) fn shifting_zipf(
    cache: &mut dyn Cache,
    mut random: Rng,
    (keys, reads, shifts): (usize, usize, usize),
    whole: bool,
) -> f64 {
    let (zipf, mut by_rank, mut hits) = (Zipf::new(keys), shuffled(&mut random, keys), 0);
    for shift in 0..shifts {
        for _ in 0..reads {
            let hit = cache.read(by_rank[zipf.draw(&mut random)]);
            hits += u64::from(hit && shift > 0);
        }
        if whole {
            by_rank = shuffled(&mut random, keys);
        } else {
            by_rank.rotate_left(keys / 10);
        }
    }
    hits as f64 / (reads * (shifts - 1)) as f64
}

/// Hit ratio of the last twenty of thirty rounds over `length` keys.
pub(crate) fn loop_over(cache: &mut dyn Cache, length: usize) -> f64 {
    let mut hits = 0;
    for round in 0..30 {
        for at in 0..length {
            // not in the order of the slots
            let hit = cache.read(at * 7_919 % length);
            hits += u64::from(hit && round >= 10);
        }
    }
    hits as f64 / (20 * length) as f64
}

/// Misses in each of six rounds over the same `few` of `keys` keys, after all were written.
pub(crate) fn rounds(cache: &mut dyn Cache, mut random: Rng, keys: usize, few: usize) -> [u64; 6] {
    (0..keys).for_each(|key| cache.write(key));
    let order = shuffled(&mut random, keys);
    [(); 6].map(|()| order[..few].iter().map(|key| u64::from(!cache.read(*key))).sum())
}

/// Hit ratio of `hot` keys, read at random, while each of `keys` is read once, one beside each read of the hot ones; by that before.
pub(crate) fn scan_beside_hot_set(cache: &mut dyn Cache, mut random: Rng, keys: usize, hot: usize) -> f64 {
    let order = shuffled(&mut random, keys);
    (0..keys).for_each(|key| cache.write(key));
    let mut hits_of = |reads: usize, scans: bool| {
        let hits = (0..reads).filter(|read| {
            let hit = cache.read(order[random.index(hot)]);
            if scans {
                cache.read(*read);
            }
            hit
        });
        hits.count() as f64 / reads as f64
    };
    hits_of(30 * hot, false);
    let before = hits_of(10 * hot, false);
    hits_of(keys, true) / before
}
