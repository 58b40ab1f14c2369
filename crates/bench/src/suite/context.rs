//! What a group of figures is given, and how it measures two sides in turn.

use std::path::PathBuf;

use crate::Failure;

/// What a group is given.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where servers keep their data: on the disk that is measured.
    pub folder: PathBuf,
    /// Loops of our server and of the limit servers.
    pub loops: usize,
    /// Measured runs of each side.
    pub runs: usize,
    /// Tenth of the work a run: to see that everything works, not to judge.
    pub quick: bool,
    /// Numbers of keys of group `scale`, from few to many.
    pub scale_keys: Vec<u64>,
}

impl Context {
    /// `full` requests, or keys, or a tenth.
    pub(super) fn amount(&self, full: u64) -> u64 {
        if self.quick { full / 10 } else { full }
    }

    /// Runs `a` and `b` in turn, `runs` times after a run of each that does not count.
    pub(super) fn alternate<T>(
        &self,
        mut a: impl FnMut() -> Result<T, Failure>,
        mut b: impl FnMut() -> Result<T, Failure>,
    ) -> Result<(Vec<T>, Vec<T>), Failure> {
        a()?;
        b()?;
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        for _ in 0..self.runs {
            of_a.push(a()?);
            of_b.push(b()?);
        }
        Ok((of_a, of_b))
    }
}
