//! What a search looks for, and which cells of the map it looks at.
//!
//! ```text
//!  north-west  north  north-east     the cell of the centre, and those around it: together
//!  west        centre east           they cover the area. Those that only touch its
//!  south-west  south  south-east     surroundings are left out
//! ```
//!
//! Of circles and boxes the cells, and their order, are those of Redis, since replies without ASC or DESC show the order. It chooses
//! the size of the cells by the radius, and takes the next larger one if the cells in the four directions do not reach the bounds.
//!
//! A polygon is drawn on the map: its lines are straight in degrees, and none crosses the 180th meridian. Its cells are those around
//! the middle of its bounds, as small as they can be. Its centre is where its corners are on average, on the sphere, as in Valkey.

use super::{Cell, EARTH_RADIUS_M, LATITUDE_MAX, LONGITUDE_MAX, Position, STEPS_MAX};

/// The form of an area; sizes are in metres.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Circle { radius_m: f64 },
    Box { width_m: f64, height_m: f64 },
    Polygon { corners: Vec<Position> },
}

/// What a search looks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) center: Position,
    pub(crate) shape: Shape,
}

/// The rectangle of the map around an area; that of a circle or a box may reach beyond the map.
struct Bounds {
    south_west: Position,
    north_east: Position,
}

impl Shape {
    /// Corners that each member is compared with.
    pub(crate) fn corners(&self) -> usize {
        match self {
            Self::Polygon { corners } => corners.len(),
            _ => 0,
        }
    }
}

impl Area {
    /// What lies between three corners or more.
    pub(crate) fn polygon(corners: Vec<Position>) -> Self {
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for Position { longitude, latitude } in &corners {
            let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
            x += latitude.cos() * longitude.cos();
            y += latitude.cos() * longitude.sin();
            z += latitude.sin();
        }
        let longitude = f64::atan2(y, x).to_degrees();
        let latitude = f64::atan2(z, f64::hypot(x, y)).to_degrees();
        Self { center: Position { longitude, latitude }, shape: Shape::Polygon { corners } }
    }

    /// How far `position` is from the centre, in metres, if it is in the area.
    pub(crate) fn distance_m(&self, position: Position) -> Option<f64> {
        let is_in = match &self.shape {
            Shape::Circle { radius_m } => {
                let distance_m = self.center.distance_m(position);
                return (distance_m <= *radius_m).then_some(distance_m);
            }
            Shape::Polygon { corners } => has(corners, position),
            Shape::Box { width_m, height_m } => {
                let beside = Position { longitude: self.center.longitude, ..position };
                self.center.distance_along_m(position) <= height_m / 2.0
                    && position.distance_m(beside) <= width_m / 2.0
            }
        };
        is_in.then(|| self.center.distance_m(position))
    }

    /// The cells in which its members are, in the order in which they are visited.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let bounds = self.bounds();
        let (middle, steps) = match self.shape {
            Shape::Polygon { .. } => (bounds.middle(), bounds.steps()),
            Shape::Circle { .. } | Shape::Box { .. } => (self.center, self.steps()),
        };
        let mut cell = Cell::of(middle, steps);
        if steps > 1 && !bounds.are_reached_from(cell) {
            cell = Cell::of(middle, steps - 1);
        }
        let mut cells: Vec<Cell> = Vec::with_capacity(AROUND.len() + 1);
        cells.push(cell);
        for (east, north) in AROUND {
            let next = cell.moved(east, north);
            // In the largest cells the one to the west is the one to the east.
            let is_again = cells.len() > 1 && cells.last() == Some(&next);
            if !is_again && (cell.steps < 2 || bounds.go_beyond(cell, east, north)) {
                cells.push(next);
            }
        }
        cells
    }

    /// Half of its width and of its height, in metres.
    fn halves_m(&self) -> (f64, f64) {
        match self.shape {
            Shape::Circle { radius_m } => (radius_m, radius_m),
            Shape::Box { width_m, height_m } => (width_m / 2.0, height_m / 2.0),
            Shape::Polygon { .. } => unreachable!("a polygon is measured in degrees"),
        }
    }

    /// How small the cells are: their side is about the radius.
    fn steps(&self) -> u32 {
        let mut reach_m = match self.shape {
            Shape::Circle { radius_m } => radius_m,
            _ => {
                let (width_m, height_m) = self.halves_m();
                width_m.hypot(height_m)
            }
        };
        if reach_m == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = -1;
        while reach_m < MERCATOR_MAX_M {
            reach_m *= 2.0;
            steps += 1;
        }
        // Towards the poles the cells are narrower.
        let latitude = self.center.latitude.abs();
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS_MAX as i32).unsigned_abs()
    }

    fn bounds(&self) -> Bounds {
        if let Shape::Polygon { corners } = &self.shape {
            return Bounds::around(corners);
        }
        let (half_width_m, half_height_m) = self.halves_m();
        let Position { longitude, latitude } = self.center;
        let along = (half_height_m / EARTH_RADIUS_M).to_degrees();
        // Where the area is nearest to the pole it has the most degrees of longitude in Redis, which looks at one side alone.
        let widest = if latitude < 0.0 { latitude - along } else { latitude + along };
        let across = half_width_m / EARTH_RADIUS_M / widest.to_radians().cos();
        let across = across.to_degrees();
        Bounds {
            south_west: Position { longitude: longitude - across, latitude: latitude - along },
            north_east: Position { longitude: longitude + across, latitude: latitude + along },
        }
    }
}

impl Bounds {
    fn around(corners: &[Position]) -> Self {
        let fold = |of: fn(&Position) -> f64, pick: fn(f64, f64) -> f64, from: f64| {
            corners.iter().map(of).fold(from, pick)
        };
        let ends = |pick, from| Position {
            longitude: fold(|corner| corner.longitude, pick, from),
            latitude: fold(|corner| corner.latitude, pick, from),
        };
        Self { south_west: ends(f64::min, f64::INFINITY), north_east: ends(f64::max, f64::NEG_INFINITY) }
    }

    fn middle(&self) -> Position {
        Position {
            longitude: f64::midpoint(self.south_west.longitude, self.north_east.longitude),
            latitude: f64::midpoint(self.south_west.latitude, self.north_east.latitude),
        }
    }

    /// How small cells can be so that one beside that of the middle reaches the end in each direction.
    fn steps(&self) -> u32 {
        let width = (self.north_east.longitude - self.south_west.longitude) / 2.0;
        let height = (self.north_east.latitude - self.south_west.latitude) / 2.0;
        let fits = |steps: &u32| {
            let cells = f64::from(1_u32 << steps);
            width <= 2.0 * LONGITUDE_MAX / cells && height <= 2.0 * LATITUDE_MAX / cells
        };
        (1..=STEPS_MAX).rev().find(fits).unwrap_or(1)
    }

    /// Whether the cells beside `cell` reach them in all four directions.
    fn are_reached_from(&self, cell: Cell) -> bool {
        let [_, north] = cell.moved(0, 1).corners();
        let [south, _] = cell.moved(0, -1).corners();
        let [_, east] = cell.moved(1, 0).corners();
        let [west, _] = cell.moved(-1, 0).corners();
        let is_short = north.latitude < self.north_east.latitude
            || south.latitude > self.south_west.latitude
            || east.longitude < self.north_east.longitude
            || west.longitude > self.south_west.longitude;
        !is_short
    }

    /// Whether they go beyond `cell` in this direction.
    fn go_beyond(&self, cell: Cell, east: i32, north: i32) -> bool {
        let [low, high] = cell.corners();
        let ends_before = (north < 0 && low.latitude < self.south_west.latitude)
            || (north > 0 && high.latitude > self.north_east.latitude)
            || (east < 0 && low.longitude < self.south_west.longitude)
            || (east > 0 && high.longitude > self.north_east.longitude);
        !ends_before
    }
}

/// Whether `position` is in a polygon: a line from it to the east crosses an odd number of sides.
fn has(corners: &[Position], position: Position) -> bool {
    let ends = corners.iter().skip(1).chain(corners.first());
    let crossed = corners.iter().zip(ends).filter(|(from, to)| {
        let is_beside = (from.latitude > position.latitude) != (to.latitude > position.latitude);
        let slope = || (to.longitude - from.longitude) / (to.latitude - from.latitude);
        is_beside && position.longitude < from.longitude + (position.latitude - from.latitude) * slope()
    });
    crossed.count() % 2 == 1
}

/// The cells around one, as columns to the east and rows to the north, in Redis's order.
const AROUND: [(i32, i32); 8] = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// Half of the side of Mercator's map, in metres, as Redis has it.
const MERCATOR_MAX_M: f64 = 20_037_726.37;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a member at `position` is found: it is in the area, and its score in one of the cells.
    fn finds(area: &Area, position: Position) -> bool {
        let score = position.score();
        let is_visited = area.cells().iter().any(|cell| (cell.scores().0..cell.scores().1).contains(&score));
        is_visited && area.distance_m(position).is_some()
    }

    #[test]
    fn no_member_of_an_area_lies_outside_the_cells_that_are_visited() {
        for (longitude, latitude) in [(0.0, 0.0), (13.4, 38.1), (-122.4, -60.9), (89.99, 45.01)] {
            let center = Position { longitude, latitude };
            for reach_m in [0.7, 30.0, 999.0, 40_000.0, 500_000.0] {
                let circle = Area { center, shape: Shape::Circle { radius_m: reach_m } };
                let wide = Shape::Box { width_m: 2.0 * reach_m, height_m: reach_m };
                let area = Area { center, shape: wide };
                for step in 0_u32..400 {
                    let (angle, part) = (f64::from(step) * 0.7, f64::from(step % 100) / 100.0);
                    let along = reach_m * part / EARTH_RADIUS_M * angle.sin();
                    let across = reach_m * part / EARTH_RADIUS_M * angle.cos() / latitude.to_radians().cos();
                    let place = Position {
                        longitude: longitude + across.to_degrees(),
                        latitude: latitude + along.to_degrees(),
                    };
                    for area in [&circle, &area] {
                        let is_in = area.distance_m(place).is_some();
                        assert_eq!(finds(area, place), is_in, "{area:?} {place:?}");
                    }
                }
            }
        }
    }

    /// A star of five points, which crosses itself, and a square, of many sizes: against the lines alone.
    #[test]
    fn polygon_finds_what_is_between_its_lines() {
        let star = [(0.0, 1.0), (0.59, -0.81), (-0.95, 0.31), (0.95, 0.31), (-0.59, -0.81)];
        let square = [(-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (1.0, -1.0)];
        for size in [1e-4, 0.3, 5.0, 80.0] {
            for (longitude, latitude) in [(0.0, 0.0), (99.5, -4.9), (-99.9, 5.0)] {
                for shape in [&star[..], &square[..]] {
                    let scaled = |&(x, y): &(f64, f64)| Position {
                        longitude: longitude + x * size,
                        latitude: latitude + y * size,
                    };
                    let area = Area::polygon(shape.iter().map(scaled).collect());
                    let mut found = 0;
                    for step in 0..900 {
                        let at = (f64::from(step % 30) / 14.0 - 1.03, f64::from(step / 30) / 14.0 - 1.03);
                        let place = scaled(&at);
                        let is_in = area.distance_m(place).is_some();
                        assert_eq!(finds(&area, place), is_in, "{area:?} {place:?}");
                        found += u32::from(is_in);
                    }
                    let expected = if shape.len() == 4 { 780..=800 } else { 130..=170 };
                    assert!(
                        expected.contains(&found),
                        "{found} of {shape:?} at {longitude} {latitude} {size}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_cell_is_visited_twice_however_large_the_area_is() {
        for (longitude, latitude) in
            [(0.0, 0.0), (180.0, 85.051_128_78), (-180.0, -85.051_128_78), (100.0, 81.0)]
        {
            for radius_m in [0.0, 1.0, 3e6, 5e6, 1e7, 2.1e7, f64::INFINITY] {
                let area =
                    Area { center: Position { longitude, latitude }, shape: Shape::Circle { radius_m } };
                let mut starts: Vec<u64> = area.cells().iter().map(|cell| cell.scores().0 as u64).collect();
                let count = starts.len();
                starts.sort_unstable();
                starts.dedup();
                assert_eq!(starts.len(), count, "{area:?}");
            }
        }
    }
}
