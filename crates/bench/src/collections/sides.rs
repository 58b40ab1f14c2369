//! The sides of a comparison, ours and its peers, measured by turns.

use clap::ValueEnum;

use crate::figure::{Figure, Series};
use crate::servers::{Recipe, Server};
use crate::{Failure, Named};

use super::shape::Shape;

/// A server that ours is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// redis-server
    Redis,
    /// valkey-server
    Valkey,
}

/// Our server, and those that the shape wants beside it.
#[derive(Debug)]
pub(super) struct Sides(Vec<Server>);

/// A series of each side, ours first.
#[derive(Debug)]
pub(super) struct Measured(Vec<Series>);

impl Peer {
    /// How it is started; `fsync` as [`Recipe::redis`] has it.
    #[must_use]
    pub fn recipe(self, fsync: &str) -> Recipe {
        match self {
            Self::Redis => Recipe::redis(fsync),
            Self::Valkey => Recipe::valkey(fsync),
        }
    }
}

impl Sides {
    /// Starts all; peers write their logs as `fsync` says.
    pub(super) fn start(shape: &Shape, ours: &Recipe, fsync: &str) -> Result<Self, Failure> {
        let peers = shape.peers.iter().map(|peer| peer.recipe(fsync));
        let recipes = std::iter::once(ours.clone()).chain(peers);
        recipes.map(|recipe| Server::start(&recipe, &shape.folder)).collect::<Result<_, _>>().map(Self)
    }

    /// Does `work` with each.
    pub(super) fn each(&self, work: impl FnMut(&Server) -> Result<(), Failure>) -> Result<(), Failure> {
        self.0.iter().try_for_each(work)
    }

    /// Measures all by turns, `runs` times.
    pub(super) fn in_turn(
        &self,
        runs: usize,
        mut measure: impl FnMut(&Server) -> Result<f64, Failure>,
    ) -> Result<Measured, Failure> {
        let mut values = vec![Vec::new(); self.0.len()];
        for _ in 0..runs {
            for (server, values) in self.0.iter().zip(&mut values) {
                values.push(measure(server)?);
            }
        }
        let series = self.0.iter().zip(values).map(|(server, values)| Series::new(server.label(), values));
        Ok(Measured(series.collect()))
    }
}

impl Measured {
    /// Of one series or more, ours first.
    pub(super) fn of(series: Vec<Series>) -> Self {
        Self(series)
    }

    /// A figure for each of `peers`, or one of ours alone; of several peers the second one's has its name in its id.
    pub(super) fn figures(self, peers: &[Peer], id: &str, title: &str, unit: &str) -> Vec<Figure> {
        let mut series = self.0.into_iter();
        let ours = series.next().unwrap_or_else(|| Series::new("", Vec::new()));
        if peers.is_empty() {
            return vec![Figure::new(id, title, None, unit, ours, None)];
        }
        let sides = peers.iter().zip(series).enumerate();
        let figure = |(index, (peer, theirs)): (usize, (&Peer, Series))| {
            let id = if index == 0 { id.to_owned() } else { format!("{id}-{}", peer.name()) };
            Figure::new(&id, title, None, unit, ours.clone(), Some(theirs))
        };
        sides.map(figure).collect()
    }
}

/// A figure of ours alone.
pub(super) fn alone(id: &str, title: &str, unit: &str, label: &str, values: Vec<f64>) -> Figure {
    Figure::new(id, title, None, unit, Series::new(label, values), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_figure_of_its_own_beside_the_same_runs_of_ours() {
        let measured = || {
            let series = [("ours", 6.0), ("first", 3.0), ("second", 2.0)];
            Measured::of(series.map(|(label, value)| Series::new(label, vec![value])).to_vec())
        };
        let figures = measured().figures(&[Peer::Redis, Peer::Valkey], "x/set", "SET", "1/s");
        let of = |figure: &Figure| (figure.id.clone(), figure.b.clone().map(|b| b.label), figure.measured());
        assert_eq!(of(&figures[0]), ("x/set".to_owned(), Some("first".to_owned()), 2.0));
        assert_eq!(of(&figures[1]), ("x/set-valkey".to_owned(), Some("second".to_owned()), 3.0));
        let alone = Measured(measured().0[..1].to_vec()).figures(&[], "x/set", "SET", "1/s");
        assert_eq!(of(&alone[0]), ("x/set".to_owned(), None, 6.0));
    }
}
