//! Positions as members of a sorted set: GEOADD, GEODIST, GEOHASH, GEOPOS. Searches are in `geo_search`.

use resp::{ArgsView, Writer};
use store::score_of;

use super::elements::values;
use super::sorted_sets::{AddOptions, SORTED_SET, add, score};
use crate::args::is;
use crate::call::{Data, Failure, Outcome, text};
use crate::geo::Position;

/// The position that the arguments at `index` and behind it are.
pub(super) fn position(args: ArgsView<'_>, index: usize) -> Result<Position, Failure> {
    let (longitude, latitude) = (score(args.get(index))?, score(args.get(index + 1))?);
    Position::new(longitude, latitude)
        .ok_or_else(|| format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into())
}

/// How many metres a unit has.
pub(super) fn unit_m(arg: &[u8]) -> Result<f64, Failure> {
    match arg {
        _ if is(arg, "m") => Ok(1.0),
        _ if is(arg, "km") => Ok(1_000.0),
        _ if is(arg, "ft") => Ok(0.3048),
        _ if is(arg, "mi") => Ok(1_609.34),
        _ => Err("ERR unsupported unit provided. please use M, KM, FT, MI".into()),
    }
}

/// Where these members of the sorted set at `key` are, as far as they are there.
pub(super) fn positions<'m>(
    data: &Data<'_, '_>,
    key: &[u8],
    members: impl ExactSizeIterator<Item = &'m [u8]>,
) -> Result<Vec<Option<Position>>, Failure> {
    let scores = values(data, key, SORTED_SET, members)?;
    Ok(scores.into_iter().map(|score| score.map(|score| Position::of_score(score_of(score)))).collect())
}

/// A distance, with four decimals; text in RESP3, too. Rounded as Redis rounds it: as a whole number of the last decimal.
pub(super) fn write_distance(distance: f64, out: &mut Writer<'_>) {
    let parts = (distance * 10_000.0).round_ties_even() as u64;
    out.bulk(format!("{}.{:04}", parts / 10_000, parts % 10_000).as_bytes());
}

/// Longitude and latitude.
pub(super) fn write_position(position: Position, out: &mut Writer<'_>) {
    out.array(2);
    out.double_as(&decimal::plain(position.longitude));
    out.double_as(&decimal::plain(position.latitude));
}

pub(crate) fn geoadd(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (mut options, mut first) = (AddOptions::default(), 2);
    while let Some(arg) = args.try_get(first) {
        match arg {
            _ if is(arg, "nx") => options.only_new = true,
            _ if is(arg, "xx") => options.only_there = true,
            _ if is(arg, "ch") => options.counts_changed = true,
            _ => break,
        }
        first += 1;
    }
    let words = args.len() - first;
    if words == 0 || !words.is_multiple_of(3) || (options.only_new && options.only_there) {
        return Err(text::SYNTAX.into());
    }
    let triples = (first..args.len()).step_by(3);
    let members = triples.map(|at| Ok((args.get(at + 2), position(args, at)?.score())));
    let done = add(data, args.get(1), options, &members.collect::<Result<Vec<_>, Failure>>()?)?;
    out.integer(options.count(done));
    Ok(())
}

pub(crate) fn geodist(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let unit_m = match (args.try_get(4), args.len()) {
        (None, _) => 1.0,
        (Some(unit), 5) => unit_m(unit)?,
        _ => return Err(text::SYNTAX.into()),
    };
    let found = positions(data, args.get(1), args.iter().skip(2).take(2))?;
    match found[0].zip(found[1]) {
        Some((from, to)) => write_distance(from.distance_m(to) / unit_m, out),
        None => out.null(),
    }
    Ok(())
}

pub(crate) fn geohash(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = positions(data, args.get(1), args.iter().skip(2))?;
    out.array(found.len());
    for position in found {
        match position {
            Some(position) => out.bulk(&position.geohash()),
            None => out.null(),
        }
    }
    Ok(())
}

pub(crate) fn geopos(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = positions(data, args.get(1), args.iter().skip(2))?;
    out.array(found.len());
    for position in found {
        match position {
            Some(position) => write_position(position, out),
            None => out.null_array(),
        }
    }
    Ok(())
}
