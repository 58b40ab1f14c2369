//! Reading and writing whole strings.

use resp::{ArgsView, Writer};
use store::{Deadline, EventClass, Value, ValueKind};

use super::conditions::Condition;
use crate::args::{Unit, expiry, is, string};
use crate::call::{Data, Failure, Keys, Outcome, text};

/// Options of SET.
#[derive(Debug, Default)]
struct SetOptions<'a> {
    only_if: Option<Condition<'a>>,
    get: bool,
    keep_ttl: bool,
    expiry: Option<(Unit, &'a [u8])>,
}

impl<'a> SetOptions<'a> {
    fn parse(args: ArgsView<'a>) -> Result<Self, Failure> {
        let mut options = SetOptions::default();
        let mut index = 3;
        while let Some(arg) = args.try_get(index) {
            if let Some((condition, words)) = Condition::of_set(args, index)
                && options.only_if.is_none_or(|former| former == condition && words == 1)
            {
                options.only_if = Some(condition);
                index += words - 1;
            } else if is(arg, "get") {
                options.get = true;
            } else if is(arg, "keepttl") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else if let (Some(unit), Some(time)) = (Unit::of(arg), args.try_get(index + 1))
                && !options.keep_ttl
                && options.expiry.is_none_or(|(former, _)| former == unit)
            {
                options.expiry = Some((unit, time));
                index += 1;
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        Ok(options)
    }
}

pub(crate) fn get(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    data.value(string(data, args.get(1))?, out);
    Ok(())
}

pub(crate) fn set(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (key, value) = (args.get(1), data.copies.value(args, 2));
    if args.len() == 3 {
        data.access.put(data.db, key, value, None);
        data.event(EventClass::String, "set", key);
        out.ok();
        return Ok(());
    }
    let options = SetOptions::parse(args)?;
    let mut expires = match options.expiry {
        Some((unit, time)) => Some(expiry(time, unit, data.now, "set")?),
        None => None,
    };
    if let Some(condition) = options.only_if {
        condition.check()?;
    }
    let (mut found, mut holds) = (None, true);
    if options.get || options.only_if.is_some_and(Condition::reads) {
        let former = string(data, key)?;
        if options.get {
            data.value(former, out);
        }
        holds = options.only_if.is_none_or(|condition| condition.holds(former.map(|former| former.value)));
        found = former.and_then(|former| former.expiry);
    } else if options.only_if.is_some() || options.keep_ttl {
        let meta = data.access.meta(data.db, key)?;
        holds = options.only_if.is_none_or(|condition| condition.holds(meta.map(|_| &[][..])));
        found = meta.and_then(|meta| meta.expiry);
    }
    if !holds {
        if !options.get {
            out.null();
        }
        return Ok(());
    }
    if options.keep_ttl {
        expires = found;
    }
    put(data, key, value, expires)?;
    name_put(data, key, options.expiry.and(expires));
    if !options.get {
        out.ok();
    }
    Ok(())
}

/// Names what [`put`] has done; `expires`: the time that was given.
fn name_put(data: &Data<'_, '_>, key: &[u8], expires: Option<Deadline>) {
    data.event(EventClass::String, "set", key);
    if let Some(at) = expires {
        data.event(EventClass::Generic, "expire", key);
        if data.now.has_passed(at) {
            data.event(EventClass::Expired, "expired", key);
        }
    }
}

/// Stores `value`, unless its time is over already: then the key goes.
fn put(data: &mut Data<'_, '_>, key: &[u8], value: Value<'_>, expires: Option<Deadline>) -> Outcome {
    if expires.is_some_and(|at| data.now.has_passed(at)) {
        data.access.remove(data.db, key)?;
    } else {
        data.access.put(data.db, key, value, expires);
    }
    Ok(())
}

pub(crate) fn setnx(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let key = args.get(1);
    let absent = data.access.meta(data.db, key)?.is_none();
    if absent {
        data.access.put(data.db, key, data.copies.value(args, 2), None);
        data.event(EventClass::String, "set", key);
    }
    out.integer(absent.into());
    Ok(())
}

pub(crate) fn setex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let at = expiry(args.get(2), Unit::EX, data.now, "setex")?;
    put(data, args.get(1), data.copies.value(args, 3), Some(at))?;
    name_put(data, args.get(1), Some(at));
    out.ok();
    Ok(())
}

pub(crate) fn psetex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let at = expiry(args.get(2), Unit::PX, data.now, "psetex")?;
    put(data, args.get(1), data.copies.value(args, 3), Some(at))?;
    name_put(data, args.get(1), Some(at));
    out.ok();
    Ok(())
}

pub(crate) fn getset(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    data.value(string(data, args.get(1))?, out);
    data.access.put(data.db, args.get(1), data.copies.value(args, 2), None);
    data.event(EventClass::String, "set", args.get(1));
    Ok(())
}

pub(crate) fn getdel(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = string(data, args.get(1))?;
    data.value(found, out);
    if found.is_none() {
        return Ok(());
    }
    data.access.remove(data.db, args.get(1))?;
    data.removed(args.get(1), true);
    Ok(())
}

/// What GETEX does with the expiry.
#[derive(Clone, Copy, Debug)]
enum Retime<'a> {
    Keep,
    Persist,
    At(Unit, &'a [u8]),
}

impl<'a> Retime<'a> {
    fn parse(args: ArgsView<'a>) -> Result<Self, Failure> {
        let mut parsed = Retime::Keep;
        let mut index = 2;
        while let Some(arg) = args.try_get(index) {
            parsed = match (parsed, Unit::of(arg), args.try_get(index + 1)) {
                (Retime::Keep | Retime::Persist, None, _) if is(arg, "persist") => Retime::Persist,
                (Retime::Keep, Some(unit), Some(time)) => {
                    index += 1;
                    Retime::At(unit, time)
                }
                (Retime::At(former, _), Some(unit), Some(time)) if former == unit => {
                    index += 1;
                    Retime::At(unit, time)
                }
                _ => return Err(text::SYNTAX.into()),
            };
            index += 1;
        }
        Ok(parsed)
    }
}

pub(crate) fn getex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (key, retime) = (args.get(1), Retime::parse(args)?);
    let Some(found) = string(data, key)? else {
        out.null();
        return Ok(());
    };
    let expires = found.expiry.is_some();
    let at = match retime {
        Retime::At(unit, time) => Some(expiry(time, unit, data.now, "getex")?),
        Retime::Keep | Retime::Persist => None,
    };
    data.value(Some(found), out);
    match (retime, at) {
        (Retime::Keep, _) => {}
        (_, Some(at)) if data.now.has_passed(at) => {
            data.access.remove(data.db, key)?;
            data.removed(key, true);
        }
        (Retime::Persist, _) if !expires => {}
        (_, at) => {
            data.access.set_expiry(data.db, key, at)?;
            data.event(EventClass::Generic, if at.is_some() { "expire" } else { "persist" }, key);
        }
    }
    Ok(())
}

pub(crate) fn mget(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let start = out.position();
    out.array(args.len() - 1);
    let keys = data.keys(args, 1);
    for at in 0..keys.count {
        let at = data.turn_to(args, &keys, at);
        // Keys of other types are absent here, not errors.
        let there = data.access.get(data.db, args.get(at))?;
        let found = there.filter(|found| found.kind == ValueKind::String);
        match there {
            None => data.count_lookup(false, args.get(at)),
            Some(_) => data.count_quietly(found.is_some()),
        }
        data.value(found, out);
        data.admit_reply(out.position() - start)?;
    }
    Ok(())
}

/// The keys of MSET, each before its value.
fn pairs(data: &Data<'_, '_>, args: ArgsView<'_>, name: &str) -> Result<Keys, Failure> {
    if args.len().is_multiple_of(2) { Err(crate::failure::arity(name)) } else { Ok(data.quick_keys(args, 2)) }
}

fn put_pairs(data: &mut Data<'_, '_>, args: ArgsView<'_>, pairs: &Keys) {
    for at in 0..pairs.count {
        let at = data.expect(pairs, at);
        data.access.put(data.db, args.get(at), data.copies.value(args, at + 1), None);
        data.event(EventClass::String, "set", args.get(at));
    }
}

pub(crate) fn mset(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let pairs = pairs(data, args, "mset")?;
    put_pairs(data, args, &pairs);
    out.ok();
    Ok(())
}

pub(crate) fn msetnx(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let pairs = pairs(data, args, "msetnx")?;
    for at in 0..pairs.count {
        let at = data.turn_to(args, &pairs, at);
        if data.access.meta(data.db, args.get(at))?.is_some() {
            out.integer(0);
            return Ok(());
        }
    }
    put_pairs(data, args, &pairs);
    out.integer(1);
    Ok(())
}

/// What MSETEX asks for behind its pairs.
struct PairOptions<'a> {
    only_if: Option<Condition<'a>>,
    keep_ttl: bool,
    expiry: Option<(Unit, &'a [u8])>,
}

impl<'a> PairOptions<'a> {
    fn parse(args: ArgsView<'a>, mut index: usize) -> Result<Self, Failure> {
        let mut options = Self { only_if: None, keep_ttl: false, expiry: None };
        while let Some(arg) = args.try_get(index) {
            let is_timed = options.keep_ttl || options.expiry.is_some();
            if let Some(condition) = Condition::of_presence(arg).filter(|_| options.only_if.is_none()) {
                options.only_if = Some(condition);
            } else if is(arg, "keepttl") && !is_timed {
                options.keep_ttl = true;
            } else if let (Some(unit), Some(time), false) = (Unit::of(arg), args.try_get(index + 1), is_timed)
            {
                options.expiry = Some((unit, time));
                index += 1;
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        Ok(options)
    }
}

pub(crate) fn msetex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let invalid = "ERR invalid numkeys value";
    let count = crate::args::count(args.get(1), invalid)?;
    let end = count.checked_mul(2).and_then(|words| words.checked_add(2)).ok_or(invalid)?;
    if count == 0 {
        return Err(invalid.into());
    }
    if end > args.len() {
        return Err("ERR wrong number of key-value pairs".into());
    }
    let options = PairOptions::parse(args, end)?;
    let expires = match options.expiry {
        Some((unit, time)) => Some(expiry(time, unit, data.now, "msetex")?),
        None => None,
    };
    for at in (2..end).step_by(2) {
        let Some(condition) = options.only_if else { break };
        data.turn_to_key(args.get(at));
        let there = data.access.meta(data.db, args.get(at))?;
        if !condition.holds(there.map(|_| &[][..])) {
            out.integer(0);
            return Ok(());
        }
    }
    for at in (2..end).step_by(2) {
        let key = args.get(at);
        data.turn_to_key(key);
        let kept =
            if options.keep_ttl { data.access.meta(data.db, key)?.and_then(|it| it.expiry) } else { None };
        put(data, key, data.copies.value(args, at + 1), expires.or(kept))?;
        name_put(data, key, expires);
    }
    out.integer(1);
    Ok(())
}
