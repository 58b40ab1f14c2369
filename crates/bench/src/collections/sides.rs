//! The two sides of a comparison, ours and Redis, measured in turn.

use crate::Failure;
use crate::figure::{Figure, Series};
use crate::servers::{Recipe, Server};

use super::shape::Shape;

/// Our server, and Redis if the shape wants it.
#[derive(Debug)]
pub(super) struct Sides(Vec<Server>);

/// A series of each side.
#[derive(Debug)]
pub(super) struct Pair {
    ours: Series,
    redis: Option<Series>,
}

impl Sides {
    /// Starts both.
    pub(super) fn start(shape: &Shape, ours: &Recipe, redis: &Recipe) -> Result<Self, Failure> {
        let recipes = std::iter::once(ours).chain(shape.with_redis.then_some(redis));
        recipes.map(|recipe| Server::start(recipe, &shape.folder)).collect::<Result<_, _>>().map(Self)
    }

    /// Does `work` with each.
    pub(super) fn each(&self, work: impl FnMut(&Server) -> Result<(), Failure>) -> Result<(), Failure> {
        self.0.iter().try_for_each(work)
    }

    /// Measures ours and Redis in turn, `runs` times.
    pub(super) fn in_turn(
        &self,
        runs: usize,
        mut measure: impl FnMut(&Server) -> Result<f64, Failure>,
    ) -> Result<Pair, Failure> {
        let mut values = vec![Vec::new(); self.0.len()];
        for _ in 0..runs {
            for (server, values) in self.0.iter().zip(&mut values) {
                values.push(measure(server)?);
            }
        }
        let series = self.0.iter().zip(values).map(|(server, values)| Series::new(server.label(), values));
        Ok(Pair::of(series.collect()))
    }
}

impl Pair {
    /// Of one series or two, ours first.
    pub(super) fn of(series: Vec<Series>) -> Self {
        let mut series = series.into_iter();
        Self { ours: series.next().unwrap_or_else(|| Series::new("", Vec::new())), redis: series.next() }
    }

    /// As a figure.
    pub(super) fn figure(self, id: &str, title: &str, unit: &str) -> Figure {
        Figure::new(id, title, None, unit, self.ours, self.redis)
    }
}

/// A figure of ours alone.
pub(super) fn alone(id: &str, title: &str, unit: &str, label: &str, values: Vec<f64>) -> Figure {
    Figure::new(id, title, None, unit, Series::new(label, values), None)
}
