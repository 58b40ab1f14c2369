//! Positions on the earth as scores of a sorted set, bit for bit as Redis has them, and distances between them.
//!
//! ```text
//!  longitude -180 .. 180 -> 26 bits, at the odd places of the score
//!  latitude  -85.05112878 .. 85.05112878 -> 26 bits, at the even places
//! ```
//!
//! Invariants
//!   1. Scores with a common beginning lie in one [`Cell`]: a range of scores is a rectangle of the map.
//!   2. The position of a score is the middle of its cell, at most 0.6 m from what was encoded.
//!
//! At the upper ends a coordinate has a 27th bit, which Redis keeps, too. Crates that make geohashes have the latitudes of the
//! standard, -90 to 90, whose scores are others.
//!
//! Source: Niemeyer's geohash (2008); the distance is the haversine formula. Which cells a search visits is in `area`.

mod area;

pub(crate) use area::{Area, Shape};

/// A place on the earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    pub(crate) longitude: f64,
    pub(crate) latitude: f64,
}

impl Position {
    /// The position, if it can be a score.
    pub(crate) fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let is_on_map = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        is_on_map.then_some(Self { longitude, latitude })
    }

    /// The position of which `score` tells; any number tells of one.
    pub(crate) fn of_score(score: f64) -> Self {
        let bits = bits_of(score);
        let cell =
            Cell { longitude: every_other_bit(bits >> 1), latitude: every_other_bit(bits), steps: STEPS_MAX };
        let [low, high] = cell.corners();
        Self {
            longitude: f64::midpoint(low.longitude, high.longitude).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
            latitude: f64::midpoint(low.latitude, high.latitude).clamp(-LATITUDE_MAX, LATITUDE_MAX),
        }
    }

    /// The score that tells of it.
    pub(crate) fn score(self) -> f64 {
        Cell::of(self, STEPS_MAX).scores().0
    }

    /// How far `other` is, in metres, on a sphere.
    pub(crate) fn distance_m(self, other: Self) -> f64 {
        let half_sine = |a: f64, b: f64| ((b.to_radians() - a.to_radians()) / 2.0).sin();
        let across = half_sine(self.longitude, other.longitude);
        if across == 0.0 {
            return self.distance_along_m(other);
        }
        let along = half_sine(self.latitude, other.latitude);
        let cosines = self.latitude.to_radians().cos() * other.latitude.to_radians().cos();
        // Opposite places may come out a little above 1.
        let square = (along * along + cosines * across * across).min(1.0);
        2.0 * EARTH_RADIUS_M * square.sqrt().asin()
    }

    /// How far the latitude of `other` is, in metres.
    fn distance_along_m(self, other: Self) -> f64 {
        EARTH_RADIUS_M * (other.latitude.to_radians() - self.latitude.to_radians()).abs()
    }

    /// The geohash of the standard, with the letters that other programs know. The last of its 11 is always `0`: there are
    /// bits for 10.
    pub(crate) fn geohash(self) -> [u8; GEOHASH_LETTERS] {
        let longitude = scaled(self.longitude, 180.0, STEPS_MAX);
        let bits = interleaved(longitude, scaled(self.latitude, 90.0, STEPS_MAX));
        std::array::from_fn(|at| match (2 * STEPS_MAX).checked_sub(5 * (at as u32 + 1)) {
            Some(rest) => ALPHABET[(bits >> rest) as usize & 0x1F],
            None => ALPHABET[0],
        })
    }
}

/// A rectangle of the map: which one of 2^steps columns and 2^steps rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    longitude: u32,
    latitude: u32,
    steps: u32,
}

impl Cell {
    /// The one in which `position` is.
    fn of(position: Position, steps: u32) -> Self {
        Self {
            longitude: scaled(position.longitude, LONGITUDE_MAX, steps),
            latitude: scaled(position.latitude, LATITUDE_MAX, steps),
            steps,
        }
    }

    /// The one so many columns to the east and rows to the north; beyond an end of the map comes the other end.
    fn moved(self, east: i32, north: i32) -> Self {
        let moved = |at: u32, by: i32| {
            if by == 0 { at } else { at.wrapping_add_signed(by) & ((1 << self.steps) - 1) }
        };
        Self { longitude: moved(self.longitude, east), latitude: moved(self.latitude, north), ..self }
    }

    /// Its south-western and its north-eastern corner.
    fn corners(self) -> [Position; 2] {
        let cells = f64::from(1_u32 << self.steps);
        let edge = |at: u32, max: f64| -max + f64::from(at) / cells * (2.0 * max);
        let corner = |by: u32| Position {
            longitude: edge(self.longitude.wrapping_add(by), LONGITUDE_MAX),
            latitude: edge(self.latitude.wrapping_add(by), LATITUDE_MAX),
        };
        [corner(0), corner(1)]
    }

    /// The scores of what is in it: from the first on, and below the second.
    pub(crate) fn scores(self) -> (f64, f64) {
        let (bits, rest) = (interleaved(self.longitude, self.latitude), 2 * (STEPS_MAX - self.steps));
        ((bits << rest) as f64, ((bits + 1) << rest) as f64)
    }
}

/// Which of 2^steps parts of `-max ..= max` `degrees` is in.
fn scaled(degrees: f64, max: f64, steps: u32) -> u32 {
    ((degrees + max) / (2.0 * max) * f64::from(1_u32 << steps)) as u32
}

/// The bits of a score. Of numbers that no position has, what a processor of the x86-64 kind makes of them, as in Redis there.
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    match score {
        _ if score < HALF => (score as i64).cast_unsigned(),
        _ if score < 2.0 * HALF => score as u64,
        _ => 0,
    }
}

/// The bits of both, one after the other in turn, that of `latitude` lowest.
fn interleaved(longitude: u32, latitude: u32) -> u64 {
    spread(longitude) << 1 | spread(latitude)
}

/// A 0 before each bit.
fn spread(bits: u32) -> u64 {
    (0..5).rev().fold(u64::from(bits), |bits, at| (bits | bits << (1 << at)) & GROUPS[at])
}

/// The opposite of [`spread`]: the bits at even places.
fn every_other_bit(bits: u64) -> u32 {
    (0..5).fold(bits & GROUPS[0], |bits, at| (bits | bits >> (1 << at)) & GROUPS[at + 1]) as u32
}

/// Groups of 1, 2, 4, ... 32 bits, with as many zeroes before each.
const GROUPS: [u64; 6] = [
    0x5555_5555_5555_5555,
    0x3333_3333_3333_3333,
    0x0F0F_0F0F_0F0F_0F0F,
    0x00FF_00FF_00FF_00FF,
    0x0000_FFFF_0000_FFFF,
    0x0000_0000_FFFF_FFFF,
];

/// Bits of each coordinate.
const STEPS_MAX: u32 = 26;
const LONGITUDE_MAX: f64 = 180.0;
/// Where the map of Mercator is a square.
const LATITUDE_MAX: f64 = 85.051_128_78;
/// Of the sphere that Redis has.
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
const GEOHASH_LETTERS: usize = 11;
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of the manual of Redis with their scores.
    const KNOWN: [(f64, f64, f64, &[u8; 11]); 2] = [
        (13.361389, 38.115556, 3_479_099_956_230_698.0, b"sqc8b49rny0"),
        (15.087269, 37.502669, 3_479_447_370_796_909.0, b"sqdtr74hyu0"),
    ];

    #[test]
    fn positions_have_the_scores_and_geohashes_that_redis_gives_them() {
        for (longitude, latitude, score, geohash) in KNOWN {
            let position = Position::new(longitude, latitude).expect("on the map");
            assert_eq!(position.score(), score);
            let again = Position::of_score(score);
            assert!(again.distance_m(position) < 0.6, "{again:?}");
            assert_eq!((again.score(), &again.geohash()), (score, geohash));
        }
        let [palermo, catania] = KNOWN.map(|(_, _, score, _)| Position::of_score(score));
        assert_eq!(format!("{:.4}", palermo.distance_m(catania)), "166274.1516");
    }

    #[test]
    fn ends_of_the_map_are_on_it_and_have_a_bit_more() {
        assert_eq!(Position::new(-180.0, -LATITUDE_MAX).map(Position::score), Some(0.0));
        let corner = Position::new(180.0, LATITUDE_MAX).expect("on the map");
        assert_eq!(corner.score(), (3_u64 << 52) as f64);
        assert_eq!(Position::of_score(corner.score()), corner, "kept within the map");
        for (longitude, latitude) in
            [(180.1, 0.0), (-180.1, 0.0), (0.0, 85.06), (0.0, -85.06), (f64::INFINITY, 0.0), (f64::NAN, 0.0)]
        {
            assert_eq!(Position::new(longitude, latitude), None);
        }
    }

    #[test]
    fn any_score_has_a_position() {
        for score in [f64::NEG_INFINITY, -1.0, -0.5, 1.5, 1e16, 1e18, 1e19, 1e300, f64::INFINITY] {
            let Position { longitude, latitude } = Position::of_score(score);
            assert!(Position::new(longitude, latitude).is_some(), "{score}");
        }
        assert_eq!(Position::of_score(f64::INFINITY), Position::of_score(0.0));
        assert_eq!((bits_of(-1.0), bits_of(-0.5), bits_of(1e19)), (u64::MAX, 0, 10_000_000_000_000_000_000));
    }

    #[test]
    fn bits_come_apart_and_together() {
        for bits in [0, 1, 0x8000_0000, 0xFFFF_FFFF, 0xDEAD_BEEF, 0x0123_4567] {
            let slow = (0..32).fold(0, |all, at| all | u64::from(bits >> at & 1) << (2 * at));
            assert_eq!((spread(bits), every_other_bit(slow | 0xAAAA_AAAA_AAAA_AAAA)), (slow, bits));
        }
    }

    #[test]
    fn opposite_places_are_half_of_the_earth_apart() {
        let half = EARTH_RADIUS_M * std::f64::consts::PI;
        for (longitude, latitude) in [(0.0, 0.0), (-90.0, 45.3), (-12.345, 67.891), (-179.9, 85.0)] {
            let here = Position { longitude, latitude };
            let there = Position { longitude: longitude + 180.0, latitude: -latitude };
            assert!((here.distance_m(there) - half).abs() < 1.0, "{here:?}");
        }
    }
}
