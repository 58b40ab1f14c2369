//! What lies in an area: GEOSEARCH, GEOSEARCHSTORE, and the older GEORADIUS and GEORADIUSBYMEMBER.
//!
//! All words are read in the order in which Redis reads them, and the key before them: which error comes first is the same.

use resp::{ArgsView, Writer};
use store::{Sequence, score_of};

use super::elements::sequence;
use super::geo::{position, unit_m, write_distance, write_position};
use super::sorted_sets::{SORTED_SET, Scored, put_members};
use crate::args::{count, integer, is};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};
use crate::command::{KeySpec, keys_behind};
use crate::geo::{Area, Position, Shape};

/// Where GEORADIUS stores what it finds.
pub(crate) const RADIUS_TARGETS: [KeySpec; 2] = targets(6);
/// Where GEORADIUSBYMEMBER stores what it finds.
pub(crate) const MEMBER_TARGETS: [KeySpec; 2] = targets(5);

const fn targets(first: u8) -> [KeySpec; 2] {
    [keys_behind("STORE", first, 0, 0, "OW update"), keys_behind("STOREDIST", first, 0, 0, "OW update")]
}

/// The commands, by what their words mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Radius,
    RadiusReadOnly,
    Member,
    MemberReadOnly,
    Search,
    SearchStore,
}

impl Form {
    /// Which argument is the key that is searched.
    fn source(self) -> usize {
        if self == Self::SearchStore { 2 } else { 1 }
    }

    /// Whether centre and shape are named by words.
    fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchStore)
    }

    /// What STORE and STOREDIST name.
    fn targets(self) -> &'static [KeySpec] {
        match self {
            Self::Radius => &RADIUS_TARGETS,
            Self::Member => &MEMBER_TARGETS,
            _ => &[],
        }
    }
}

/// What the centre was named by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Member,
    Position,
    /// The shape.
    Polygon,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

/// What a command asks for.
#[derive(Debug)]
struct Query {
    /// Without a position if there is no key.
    center: Option<(From, Option<Position>)>,
    shape: Option<Shape>,
    unit_m: f64,
    order: Option<Order>,
    /// 0: all.
    count: usize,
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    /// Which argument is the key that the members are stored at.
    target: Option<usize>,
    stores_distances: bool,
}

impl Query {
    /// Reads the arguments; `locate` finds a member, or `None` if there is no key.
    fn parse(args: ArgsView<'_>, form: Form, locate: &Locate<'_>) -> Result<Self, Failure> {
        let mut query = Self {
            center: None,
            shape: None,
            unit_m: 1.0,
            order: None,
            count: 0,
            any: false,
            with_distance: false,
            with_hash: false,
            with_position: false,
            target: (form == Form::SearchStore).then_some(1),
            stores_distances: false,
        };
        let mut index = query.fixed(args, form, locate)?;
        while index < args.len() {
            index += 1 + query.word(args, index, form, locate)?;
        }
        query.check(args, form)?;
        Ok(query)
    }

    /// Reads what has a fixed place; returns where the words begin.
    fn fixed(&mut self, args: ArgsView<'_>, form: Form, locate: &Locate<'_>) -> Result<usize, Failure> {
        match form {
            Form::Search | Form::SearchStore => Ok(form.source() + 1),
            Form::Radius | Form::RadiusReadOnly => {
                self.center = Some((From::Position, Some(position(args, 2)?)));
                self.circle(args, 4)?;
                Ok(6)
            }
            Form::Member | Form::MemberReadOnly => {
                let found = locate(args.get(2))?;
                self.center = Some((From::Member, found));
                // Redis does not look at the radius where there is no key.
                if found.is_some() {
                    self.circle(args, 3)?;
                }
                Ok(5)
            }
        }
    }

    /// Reads the word at `index`; returns how many arguments belong to it.
    fn word(
        &mut self,
        args: ArgsView<'_>,
        index: usize,
        form: Form,
        locate: &Locate<'_>,
    ) -> Result<usize, Failure> {
        let (word, left) = (args.get(index), args.len() - index - 1);
        match word {
            _ if is(word, "withdist") => self.with_distance = true,
            _ if is(word, "withhash") => self.with_hash = true,
            _ if is(word, "withcoord") => self.with_position = true,
            _ if is(word, "any") => self.any = true,
            _ if is(word, "asc") => self.order = Some(Order::Nearest),
            _ if is(word, "desc") => self.order = Some(Order::Farthest),
            _ if is(word, "count") && left > 0 => {
                let count = integer(args.get(index + 1))?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                self.count = count.ok_or("ERR COUNT must be > 0")?;
                return Ok(1);
            }
            _ if !form.targets().is_empty() && left > 0 && (is(word, "store") || is(word, "storedist")) => {
                self.target = Some(index + 1);
                self.stores_distances = is(word, "storedist");
                return Ok(1);
            }
            _ if form == Form::SearchStore && is(word, "storedist") => self.stores_distances = true,
            _ if form.is_search() => return self.search_word(args, index, locate),
            _ => return Err(text::SYNTAX.into()),
        }
        Ok(0)
    }

    /// Reads a word of GEOSEARCH alone: the centre or the shape.
    fn search_word(
        &mut self,
        args: ArgsView<'_>,
        index: usize,
        locate: &Locate<'_>,
    ) -> Result<usize, Failure> {
        let (word, left) = (args.get(index), args.len() - index - 1);
        let is_from = |from| self.center.is_none_or(|(other, _)| other == from);
        match word {
            _ if is(word, "frommember") && left > 0 && is_from(From::Member) => {
                self.center = Some((From::Member, locate(args.get(index + 1))?));
                Ok(1)
            }
            _ if is(word, "fromlonlat") && left > 1 && is_from(From::Position) => {
                self.center = Some((From::Position, Some(position(args, index + 1)?)));
                Ok(2)
            }
            _ if is(word, "byradius")
                && left > 1
                && matches!(self.shape, None | Some(Shape::Circle { .. })) =>
            {
                self.circle(args, index + 1)?;
                Ok(2)
            }
            _ if is(word, "bybox") && left > 2 && matches!(self.shape, None | Some(Shape::Box { .. })) => {
                self.rectangle(args, index + 1)?;
                Ok(3)
            }
            _ if is(word, "bypolygon") && left > 1 && self.center.is_none() && self.shape.is_none() => {
                self.polygon(args, index + 1)
            }
            _ => Err(text::SYNTAX.into()),
        }
    }

    /// Reads a radius and its unit.
    fn circle(&mut self, args: ArgsView<'_>, index: usize) -> Outcome {
        let radius = decimal::parse(args.get(index)).ok_or("ERR need numeric radius")?;
        if radius < 0.0 {
            return Err("ERR radius cannot be negative".into());
        }
        self.unit_m = unit_m(args.get(index + 1))?;
        self.shape = Some(Shape::Circle { radius_m: radius * self.unit_m });
        Ok(())
    }

    /// Reads width, height and their unit.
    fn rectangle(&mut self, args: ArgsView<'_>, index: usize) -> Outcome {
        let width = decimal::parse(args.get(index)).ok_or("ERR need numeric width")?;
        let height = decimal::parse(args.get(index + 1)).ok_or("ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err("ERR height or width cannot be negative".into());
        }
        self.unit_m = unit_m(args.get(index + 2))?;
        self.shape = Some(Shape::Box { width_m: width * self.unit_m, height_m: height * self.unit_m });
        Ok(())
    }

    /// Reads how many corners there are, and the corners; returns how many arguments they are.
    fn polygon(&mut self, args: ArgsView<'_>, index: usize) -> Result<usize, Failure> {
        let count = count(args.get(index), "ERR invalid number of vertices")?;
        if count < 3 || count > (args.len() - index - 1) / 2 {
            return Err("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices".into());
        }
        if count > CORNERS_MAX {
            return Err(format!("ERR {count} vertices are more than the limit of {CORNERS_MAX}").into());
        }
        let corners = (0..count).map(|nth| position(args, index + 1 + 2 * nth));
        let area = Area::polygon(corners.collect::<Result<_, Failure>>()?);
        self.center = Some((From::Polygon, Some(area.center)));
        self.shape = Some(area.shape);
        Ok(1 + 2 * count)
    }

    /// Refuses words that do not go together, or are missing.
    fn check(&self, args: ArgsView<'_>, form: Form) -> Outcome {
        if self.target.is_some() && (self.with_distance || self.with_hash || self.with_position) {
            let what = if form.is_search() { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let options = "WITHDIST, WITHHASH and WITHCOORD options";
            return Err(format!("ERR {what} is not compatible with {options}").into());
        }
        let missing = |words: &str| {
            let command = String::from_utf8_lossy(args.get(0)).into_owned();
            Err(format!("ERR exactly one of {words} can be specified for {command}").into())
        };
        if form.is_search() && self.center.is_none() {
            return missing("FROMMEMBER or FROMLONLAT");
        }
        if form.is_search() && self.shape.is_none() {
            return missing("BYRADIUS and BYBOX");
        }
        if self.any && self.count == 0 {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        // Of a target that is named twice only the first key is locked.
        let is_locked = |at| form.targets().iter().any(|spec| spec.first_key(args) == Some(at));
        match self.target {
            Some(at) if !form.is_search() && !is_locked(at) => Err(text::SYNTAX.into()),
            _ => Ok(()),
        }
    }

    /// The members of `set` that it asks for.
    fn run<'a>(&self, data: &Data<'_, '_>, set: &Sequence<'a, '_>) -> Result<Vec<Match<'a>>, Failure> {
        let center = self.center.and_then(|(_, position)| position);
        let Some((center, shape)) = center.zip(self.shape.clone()).filter(|_| !set.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut found = self.matches(data, set, &Area { center, shape })?;
        let by_distance = |a: &Match<'_>, b: &Match<'_>| a.distance_m.total_cmp(&b.distance_m);
        match self.order {
            Some(Order::Farthest) => found.sort_by(|a, b| by_distance(b, a)),
            None if self.count == 0 || self.any => {}
            Some(Order::Nearest) | None => found.sort_by(by_distance),
        }
        if self.count > 0 {
            found.truncate(self.count);
        }
        Ok(found)
    }

    /// The members in `area`, cell by cell; with ANY as many as are wanted.
    fn matches<'a>(
        &self,
        data: &Data<'_, '_>,
        set: &Sequence<'a, '_>,
        area: &Area,
    ) -> Result<Vec<Match<'a>>, Failure> {
        let mut found = Vec::new();
        let most = if self.any { self.count } else { usize::MAX };
        for cell in area.cells() {
            let (low, end) = cell.scores();
            let mut start = set.partition_point(|(_, score)| score_of(score) < low)?;
            let end = set.partition_point(|(_, score)| score_of(score) < end)?;
            while start < end && found.len() < most {
                let (next, before) = (end.min(start + LOOKED_AT), found.len());
                data.access.charge((next - start) * area.shape.corners() / CORNERS_EACH)?;
                for (member, score) in set.range(start..next)? {
                    let score = score_of(score);
                    let position = Position::of_score(score);
                    let distance_m = area.distance_m(position).filter(|_| found.len() < most);
                    found.extend(distance_m.map(|distance_m| Match { member, score, distance_m, position }));
                }
                start = next;
                data.ask((found.len() - before) * size_of::<Match<'_>>())?;
            }
        }
        Ok(found)
    }

    /// Answers with what was found.
    fn write(&self, data: &Data<'_, '_>, found: &[Match<'_>], out: &mut Writer<'_>) -> Outcome {
        let parts = [self.with_distance, self.with_hash, self.with_position];
        let parts = parts.into_iter().filter(|with| *with).count();
        let bytes = |it: &Match<'_>| it.member.len() + BULK_OVERHEAD_BYTES + parts * PART_BYTES;
        data.admit_reply(found.iter().map(bytes).sum())?;
        out.array(found.len());
        for Match { member, score, distance_m, position } in found {
            if parts > 0 {
                out.array(1 + parts);
            }
            out.bulk(member);
            if self.with_distance {
                write_distance(distance_m / self.unit_m, out);
            }
            if self.with_hash {
                out.integer(*score as i64);
            }
            if self.with_position {
                write_position(*position, out);
            }
        }
        Ok(())
    }
}

/// Where a member is; `None` if there is no key.
type Locate<'a> = dyn Fn(&[u8]) -> Result<Option<Position>, Failure> + 'a;

/// A member of the area.
struct Match<'a> {
    member: &'a [u8],
    score: f64,
    distance_m: f64,
    position: Position,
}

fn run(data: &mut Data<'_, '_>, args: ArgsView<'_>, form: Form, out: &mut Writer<'_>) -> Outcome {
    data.turn_to_key(args.get(form.source()));
    let source = args.get(form.source());
    let set = sequence(data, source, SORTED_SET)?;
    let locate = |member: &[u8]| {
        let scores = data.access.values(data.db, source, SORTED_SET, std::iter::once(member))??;
        match scores.map(|scores| scores[0]) {
            None => Ok(None),
            Some(None) => Err("ERR could not decode requested zset member".into()),
            Some(Some(score)) => Ok(Some(Position::of_score(score_of(score)))),
        }
    };
    let query = Query::parse(args, form, &locate)?;
    let found = query.run(data, &set)?;
    let Some(target) = query.target else { return query.write(data, &found, out) };
    let score = |it: &Match<'_>| if query.stores_distances { it.distance_m / query.unit_m } else { it.score };
    let members: Vec<Scored> = found.iter().map(|it| (it.member.to_vec(), score(it))).collect();
    let name = if form == Form::SearchStore { "geosearchstore" } else { "georadiusstore" };
    put_members(data, args.get(target), &members, name)?;
    out.integer(members.len() as i64);
    Ok(())
}

pub(crate) fn georadius(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    run(data, args, Form::Radius, out)
}

pub(crate) fn georadius_ro(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    run(data, args, Form::RadiusReadOnly, out)
}

pub(crate) fn georadiusbymember(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    run(data, args, Form::Member, out)
}

pub(crate) fn georadiusbymember_ro(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    run(data, args, Form::MemberReadOnly, out)
}

pub(crate) fn geosearch(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    run(data, args, Form::Search, out)
}

pub(crate) fn geosearchstore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    run(data, args, Form::SearchStore, out)
}

/// Corners of a polygon: each member around it is compared with all of them.
const CORNERS_MAX: usize = 1_024;
/// Corners that take about as long as an element to compare a member with.
const CORNERS_EACH: usize = 64;
/// Members that are read at once: with ANY a few may be enough.
const LOOKED_AT: usize = 1_024;
/// A distance, a hash or two coordinates in a reply.
const PART_BYTES: usize = 64;
