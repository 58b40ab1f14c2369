//! LMOVEM and BLMOVEM: several elements go from one list to another.

use resp::{ArgsView, Writer};
use store::{EventClass, ListChange, ValueKind};

use super::blocking::{Nothing, first, timeout};
use super::elements::sequence_to_change;
use super::lists::{End, change, kept, write_all};
use crate::args::{count, is};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};
use crate::ready::Wants;

/// What is moved, and how.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: End,
    to: End,
    count: usize,
    /// Not fewer either.
    is_exact: bool,
    /// The elements keep their order; otherwise each is pushed in its turn.
    as_one: bool,
}

impl Move {
    /// Reads the ends at arguments 3 and 4, and how many from argument `index` on.
    fn parse(args: ArgsView<'_>, index: usize) -> Result<Self, Failure> {
        let (from, to) = (End::parse(args.get(3))?, End::parse(args.get(4))?);
        let mut parsed = Self { from, to, count: 1, is_exact: false, as_one: false };
        if args.len() == index {
            return Ok(parsed);
        }
        if args.len() != index + 3 {
            return Err(text::SYNTAX.into());
        }
        parsed.is_exact = match args.get(index) {
            word if is(word, "count") => false,
            word if is(word, "exactly") => true,
            _ => return Err(text::SYNTAX.into()),
        };
        parsed.as_one = match args.get(index + 2) {
            word if is(word, "obo") => false,
            word if is(word, "bulk") => true,
            _ => return Err(text::SYNTAX.into()),
        };
        parsed.count = match count(args.get(index + 1), text::NOT_POSITIVE)? {
            0 => return Err(text::NOT_POSITIVE.into()),
            count => count,
        };
        Ok(parsed)
    }

    /// Moves elements of the list that is argument 1 to the list that is argument 2, and answers with them; `false`: there are not
    /// enough, or none.
    fn run(self, data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Result<bool, Failure> {
        let (source, target) = (args.get(1), args.get(2));
        data.turn_to_key(source);
        let list = sequence_to_change(data, source, ValueKind::List)?;
        let (len, count) = (list.len(), self.count.min(list.len()));
        if count == 0 || (self.is_exact && count < self.count) {
            return Ok(false);
        }
        let at = if self.from == End::Left { 0 } else { len - count };
        let mut moved = kept(list.range(at..at + count)?);
        data.admit_reply(moved.iter().map(|value| value.len() + BULK_OVERHEAD_BYTES).sum())?;
        // in the order in which they will lie: one by one the first that is popped is the innermost at a left end
        if !self.as_one && (self.from == End::Right) != (self.to == End::Left) {
            moved.reverse();
        }
        data.turn_to_key(target);
        sequence_to_change(data, target, ValueKind::List)?;
        let (taken, mut added) = (ListChange::Remove(at, count), self.pushes(&moved));
        match source == target {
            // One change: the list is never gone meanwhile.
            true if len > count => {
                added.insert(0, taken);
                change(data, source, &added)?;
            }
            true => {
                let set = moved.iter().enumerate().map(|(at, value)| ListChange::Set(at, value));
                change(data, source, &set.collect::<Vec<_>>())?;
            }
            false => {
                data.turn_to_key(source);
                change(data, source, &[taken])?;
                data.turn_to_key(target);
                change(data, target, &added)?;
            }
        }
        data.event(EventClass::List, self.to.pushed(), target);
        data.turn_to_key(source);
        data.taken(EventClass::List, self.from.popped(), source, 1)?;
        write_all(&moved, out);
        Ok(true)
    }

    /// The changes by which these elements lie in this order afterwards.
    fn pushes(self, moved: &[Vec<u8>]) -> Vec<ListChange<'_>> {
        match self.to {
            End::Left => moved.iter().rev().map(|value| self.to.push(value)).collect(),
            End::Right => moved.iter().map(|value| self.to.push(value)).collect(),
        }
    }
}

pub(crate) fn lmovem(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let asked = Move::parse(args, 5)?;
    if !asked.run(data, args, out)? {
        out.null();
    }
    Ok(())
}

pub(crate) fn blmovem(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let asked = Move::parse(args, 6)?;
    let limit = timeout(args.get(5))?;
    let is_there = first(data, std::iter::once(args.get(1)), ValueKind::List)?.is_some();
    if is_there && asked.run(data, args, out)? {
        Ok(())
    } else {
        data.wait(limit, Wants::Own, Nothing::Value, out)
    }
}
