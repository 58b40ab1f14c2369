//! The table of components, and a command that names one of them.

use connection::Target;
use topology::Plan;
use topology::builder::{Factory, Origin};
use topology::definition::{DEFAULT_STREAM, Grouping, Guarantee, Kind, Stream};
use topology::ids::ComponentId;
use topology::nearest::nearest;

use crate::arguments::{Arguments, CommandError, hint};
use crate::row::{Emits, Exact, Keeps, LATE, Made, Reach, Row, UNMATCHED, URL};
use crate::stream_spout::Wanted;
use crate::{
    asking, closing, counting, dedupe, distinct, enrich, file_sink, file_spout, generator, http_sink, join,
    key_sink, rate_limit, stream_sink, stream_spout, top, window,
};

/// A command that names a component of the table.
#[derive(Clone, Debug)]
pub struct Builtin {
    row: &'static Row,
    arguments: Arguments,
    made: Made,
}

/// Where a component is in a definition.
#[derive(Clone, Debug)]
pub struct Shape<'a> {
    /// What it is declared as.
    pub kind: Kind,
    /// The streams that it reads, with who emits them.
    pub inputs: Vec<(&'a str, &'a Stream)>,
    /// The streams that it declares.
    pub outputs: &'a [Stream],
    /// How many tasks it has.
    pub tasks: u32,
    /// Which of them gets a tuple, for each component that it reads.
    pub groupings: Vec<(&'a str, &'a Grouping)>,
    /// Whether a component reads one of its streams.
    pub is_read: bool,
    /// What holds for each tuple.
    pub guarantee: Guarantee,
}

impl Builtin {
    /// The words of `command` after `evenkeel component`, if it begins with them: then it is run in this process.
    #[must_use]
    pub fn words(command: &[String]) -> Option<&[String]> {
        match command {
            [program, word, rest @ ..] if program == PROGRAM && word == WORD => Some(rest),
            _ => None,
        }
    }

    /// The component that `words` name; what an option may leave open is looked up in `environment`.
    ///
    /// # Errors
    /// There is no such component, or an argument does not fit.
    pub fn read(
        words: &[String],
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, CommandError> {
        let names = || ROWS.iter().map(|row| row.name);
        let Some((name, given)) = words.split_first() else {
            return Err(format!(
                "no component is named: there are {}",
                names().collect::<Vec<_>>().join(", ")
            )
            .into());
        };
        let row = ROWS
            .iter()
            .find(|row| row.name == name)
            .ok_or_else(|| format!("there is no component `{name}`{}", hint(nearest(name, names()))))?;
        let of_row = |error: CommandError| CommandError::from(format!("`{name}`: {error}"));
        let mut arguments = Arguments::read(&row.signature, given).map_err(of_row)?;
        if row.signature.options.iter().any(|option| option.name == URL) {
            let url = environment(URL_VARIABLE).unwrap_or_else(|| URL_DEFAULT.to_owned());
            arguments.set_default(URL, url);
        }
        let made = (row.make)(&arguments).map_err(of_row)?;
        Ok(Self { row, arguments, made })
    }

    /// The same for a topology that a server runs for a client of its own, who must not reach files of the machine, nor other servers
    /// from there.
    ///
    /// # Errors
    /// As [`Builtin::read`], or it reaches them.
    fn read_for_client(words: &[String], hosts: &[String]) -> Result<Self, CommandError> {
        let names_server = |word: &String| word.split_once('=').map_or(&**word, |(option, _)| option) == URL;
        // before it is read: reading looks its address up
        if words.iter().any(names_server) {
            return Err(format!(
                "on a server a component uses that server: `{URL}` is for `topology run --local`"
            )
            .into());
        }
        let builtin = Self::read(words, &|_| None)?;
        let name = builtin.row.name;
        match &builtin.made.reach {
            Reach::Machine(what) => {
                Err(format!("`{name}` uses files ({what}): that is for `topology run --local` alone").into())
            }
            Reach::Host(host) if !hosts.iter().any(|it| it.eq_ignore_ascii_case(host)) => Err(format!(
                "`{name}` connects to `{host}`, which is not among the hosts that this server lets topologies call (topologies.http_hosts)"
            ).into()),
            Reach::Host(_) | Reach::Server => Ok(builtin),
        }
    }

    /// What is wrong with the command of the component `id` of `plan`, which a server runs for a client; `None` if it is no component of
    /// this program. `hosts`: those that it may call.
    #[must_use]
    pub fn check_for_client(
        command: &[String],
        plan: &Plan,
        id: ComponentId,
        hosts: &[String],
    ) -> Option<Result<(), CommandError>> {
        let words = Self::words(command)?;
        let misfits = |builtin: Self| builtin.misfits(&Shape::of(plan, id)).into_iter().next();
        Some(
            Self::read_for_client(words, hosts)
                .and_then(|builtin| misfits(builtin).map_or(Ok(()), |misfit| Err(misfit.into()))),
        )
    }

    /// Whether it is a spout.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.made.factory {
            Factory::Spout(_) => Kind::Spout,
            Factory::Bolt(_) => Kind::Bolt,
        }
    }

    /// Its row of the table, and what it was given.
    pub(crate) fn parts(&self) -> (&'static Row, &Arguments) {
        (self.row, &self.arguments)
    }

    /// What makes its instances, for a topology of this guarantee, which [`Builtin::misfits`] has looked at.
    #[must_use]
    pub fn factory(&self, guarantee: Guarantee) -> Factory {
        match &self.made.exact {
            Exact::Other(factory) | Exact::Keyed(factory, _) | Exact::Silent(factory)
                if guarantee == Guarantee::ExactlyOnce =>
            {
                factory.clone()
            }
            _ => self.made.factory.clone(),
        }
    }

    /// The stream of the server that it reads, if it is a spout that reads one, with the fields of an entry that become those of `emitted`.
    #[must_use]
    pub fn origin(&self, emitted: &Stream) -> Option<Origin> {
        if !self.row.keeps.contains(&Keeps::Position) {
            return None;
        }
        let chosen = self.arguments.text("--fields").map(|_| self.arguments.names("--fields"));
        let of_entry = |wanted| match wanted {
            Wanted::Id => None,
            Wanted::Field(name) => Some(name),
        };
        let wanted = stream_spout::wanted(chosen.as_deref(), &emitted.fields);
        let fields = wanted.into_iter().map(of_entry).collect();
        Some(Origin { stream: self.arguments.words().first()?.clone(), fields })
    }

    /// What does not fit between it and its place in a definition.
    #[must_use]
    pub fn misfits(&self, shape: &Shape<'_>) -> Vec<String> {
        let (name, mut misfits) = (self.row.name, Vec::new());
        if self.kind() != shape.kind {
            let words = |kind| if kind == Kind::Spout { "a spout" } else { "a bolt" };
            misfits.push(format!("`{name}` is {}, and here is {}", words(self.kind()), words(shape.kind)));
            return misfits;
        }
        for field in &self.made.reads {
            for (from, stream) in shape.inputs.iter().filter(|(_, stream)| !stream.fields.contains(field)) {
                let nearest = hint(nearest(field, stream.fields.iter().map(String::as_str)));
                let id = &stream.id;
                misfits.push(format!(
                    "`{name}` reads the field `{field}`, which stream `{id}` of `{from}` does not have{nearest}"
                ));
            }
        }
        misfits.extend(self.misfit_of_guarantee(shape));
        misfits.extend(shape.outputs.iter().filter_map(|stream| self.misfit_of(stream, &shape.inputs)));
        misfits
    }

    fn misfit_of_guarantee(&self, shape: &Shape<'_>) -> Option<String> {
        let name = self.row.name;
        match &self.made.exact {
            _ if shape.guarantee != Guarantee::ExactlyOnce => None,
            Exact::None(why) => Some(format!("`{name}` cannot be exactly-once: {why}")),
            Exact::Silent(_) if shape.is_read => Some(format!(
                "with exactly-once `{name}` changes its key and emits nothing, and here its tuples are read"
            )),
            Exact::Keyed(_, field) if shape.tasks > 1 => {
                let is_by = |grouping: &Grouping| matches!(grouping, Grouping::Fields(fields) if fields == std::slice::from_ref(field));
                let (from, _) = shape.groupings.iter().find(|(_, grouping)| !is_by(grouping))?;
                Some(format!(
                    "with exactly-once each value of `{field}` belongs to one task of `{name}`: group what comes from `{from}` by FIELDS [{field}], or have one task"
                ))
            }
            _ => None,
        }
    }

    fn misfit_of(&self, stream: &Stream, inputs: &[(&str, &Stream)]) -> Option<String> {
        let (name, id, count) = (self.row.name, &stream.id, stream.fields.len());
        if let Emits::Joined(sources) = &self.made.emits {
            return misfit_of_join(name, sources, stream, inputs);
        }
        let (fits, what) = match &self.made.emits {
            Emits::Nothing | Emits::Joined(_) => return None,
            Emits::Values(counts, what) | Emits::ValuesAndLate(counts, what) => {
                (counts.contains(&count), *what)
            }
            Emits::InputAnd(more, what) => {
                (inputs.iter().all(|(_, input)| input.fields.len() + more == count), *what)
            }
        };
        if let (Emits::ValuesAndLate(..), LATE) = (&self.made.emits, id.as_str()) {
            let fits = inputs.iter().all(|(_, input)| input.fields.len() == count);
            let misfit =
                || format!("`{name}` emits what it reads on `{LATE}`, and {count} fields are declared");
            return (!fits).then(misfit);
        }
        if id != DEFAULT_STREAM {
            return Some(format!("`{name}` emits on the stream `default` alone, nothing on `{id}`"));
        }
        (!fits).then(|| format!("`{name}` emits {what}, and {count} fields are declared"))
    }
}

/// What does not fit between `name`, which joins tuples of `sources`, and a stream that it declares.
fn misfit_of_join(
    name: &str,
    sources: &[String; 2],
    stream: &Stream,
    inputs: &[(&str, &Stream)],
) -> Option<String> {
    let fields = |source: &String| {
        let mut of = inputs.iter().filter(|(from, _)| from == source);
        of.next().map(|(_, input)| input.fields.len()).filter(|_| of.next().is_none())
    };
    let Some(both) = fields(&sources[0]).zip(fields(&sources[1])) else {
        let [left, right] = sources;
        return Some(format!(
            "`{name}` reads one stream of `{left}` and one of `{right}`: subscribe to both"
        ));
    };
    let (count, wanted) = match stream.id.as_str() {
        DEFAULT_STREAM => (stream.fields.len(), both.0 + both.1),
        UNMATCHED => (stream.fields.len(), 3),
        other => return Some(format!("`{name}` emits on `default` and `{UNMATCHED}`, nothing on `{other}`")),
    };
    (count != wanted).then(|| {
        format!("`{name}` emits {wanted} values on `{}`, and {count} fields are declared", stream.id)
    })
}

/// The server that components use which name none.
///
/// # Errors
/// What `environment` says is no server that speaks the Redis protocol.
pub fn default_target(environment: &dyn Fn(&str) -> Option<String>) -> Result<Target, CommandError> {
    asking::target_at(&environment(URL_VARIABLE).unwrap_or_else(|| URL_DEFAULT.to_owned()))
}

/// What does not fit between a program that is no component of this one and its place in a definition.
#[must_use]
pub fn misfit_of_program(plan: &Plan, id: ComponentId) -> Option<String> {
    let is_spout = plan.component(id).kind == Kind::Spout;
    (is_spout && plan.settings().guarantee == Guarantee::ExactlyOnce).then(|| {
        "a spout that is a program cannot be exactly-once, as it has no positions: use `stream-spout`, or at-least-once"
            .to_owned()
    })
}

impl<'a> Shape<'a> {
    /// The place of the component `id` in `plan`.
    #[must_use]
    pub fn of(plan: &'a Plan, id: ComponentId) -> Self {
        let component = plan.component(id);
        let inputs = plan.edges_to(id).map(|edge| {
            let (from, stream) = plan.declaration(edge.stream);
            (plan.component(from).id.as_str(), stream)
        });
        Self {
            kind: component.kind,
            inputs: inputs.collect(),
            outputs: &component.streams,
            tasks: plan.tasks(id).len() as u32,
            groupings: plan
                .edges_to(id)
                .map(|edge| (plan.component(edge.from).id.as_str(), &edge.grouping))
                .collect(),
            is_read: plan.edges_from(id).next().is_some(),
            guarantee: plan.settings().guarantee,
        }
    }
}

/// All components, in the order of the manual.
pub const ROWS: &[Row] = &[
    stream_spout::ROW,
    file_spout::ROW,
    generator::ROW,
    counting::COUNT,
    counting::SUM,
    distinct::ROW,
    window::ROW,
    closing::ROW,
    top::ROW,
    dedupe::ROW,
    rate_limit::ROW,
    enrich::ROW,
    join::ROW,
    key_sink::ROW,
    stream_sink::ROW,
    stream_sink::PUBLISH,
    file_sink::ROW,
    http_sink::ROW,
];

const PROGRAM: &str = "evenkeel";
const WORD: &str = "component";
const URL_VARIABLE: &str = "EVENKEEL_URL";
const URL_DEFAULT: &str = "redis://127.0.0.1:6379";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Builtin, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Builtin::read(&words, &|_| None).map_err(|error| error.to_string())
    }

    /// The place of a bolt that reads `input` from `split`, and is read.
    fn bolt(input: &Stream) -> Shape<'_> {
        Shape {
            kind: Kind::Bolt,
            inputs: vec![("split", input)],
            outputs: &[],
            tasks: 1,
            groupings: vec![("split", &Grouping::Shuffle)],
            is_read: true,
            guarantee: Guarantee::AtLeastOnce,
        }
    }

    #[test]
    fn command_of_this_program_is_recognized_and_others_are_not() {
        let command = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let own = command("evenkeel component count --by word");
        assert_eq!(Builtin::words(&own).map(<[String]>::len), Some(3));
        assert!(Builtin::words(&command("python3 component.py")).is_none());
        assert!(Builtin::words(&command("evenkeel serve")).is_none());
    }

    #[test]
    fn unknown_component_is_refused_with_the_nearest() {
        let error = read("stream-spot orders").expect_err("refused");
        assert_eq!(error, "there is no component `stream-spot` (did you mean `stream-spout`?)");
        assert!(read("").expect_err("refused").contains("there are stream-spout, file-spout, generator"));
        assert_eq!(
            read("count --bye word").expect_err("refused"),
            "`count`: unknown option `--bye` (did you mean `--by`?)"
        );
    }

    #[test]
    fn wrong_server_is_refused_wherever_it_comes_from() {
        let words = ["stream-spout".to_owned(), "orders".to_owned()];
        let error = Builtin::read(&words, &|name| (name == "EVENKEEL_URL").then(|| "http://x".to_owned()));
        assert!(error.expect_err("refused").to_string().contains("is no scheme of a server"));
    }

    #[test]
    fn client_of_a_server_reaches_no_files_and_no_other_server() {
        let refused = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Builtin::read_for_client(&words, &["api.example".to_owned()])
                .map_or_else(|error| error.to_string(), |_| String::new())
        };
        assert!(refused("file-spout /etc/passwd").contains("`topology run --local` alone"));
        assert!(refused("file-sink /etc/passwd").contains("`topology run --local` alone"));
        let other = refused("http-sink http://10.0.0.1/ --key {id}");
        assert!(other.contains("`10.0.0.1`") && other.ends_with("(topologies.http_hosts)"), "{other}");
        assert_eq!(refused("http-sink https://API.example:8443/x --key {id}"), "");
        for files in ["--ca /etc/shadow", "--authorization-env EVENKEEL_URL"] {
            let error = refused(&format!("http-sink https://api.example/ --key {{id}} {files}"));
            assert!(error.contains("`topology run --local` alone"), "{error}");
        }
        for of_another in ["enrich k --url redis://db.example", "stream-spout orders --url=redis://10.0.0.1"]
        {
            let error = refused(of_another);
            assert!(error.contains("on a server a component uses that server"), "{of_another}: {error}");
        }
        for fine in ["key-sink SET a b", "count --by word", "generator"] {
            assert_eq!(refused(fine), "", "{fine}");
        }
    }

    #[test]
    fn fields_that_do_not_fit_are_named() {
        let count = read("count --by word").expect("it is right");
        let input = Stream::default_with(&["wort", "n"]);
        let outputs = [Stream::default_with(&["word"]), Stream::default_with(&["a"]).named("late")];
        let mut shape = Shape { outputs: &outputs, ..bolt(&input) };
        assert_eq!(
            count.misfits(&shape),
            [
                "`count` reads the field `word`, which stream `default` of `split` does not have (did you mean `wort`?)",
                "`count` emits the value and its count, and 1 fields are declared",
                "`count` emits on the stream `default` alone, nothing on `late`",
            ]
        );
        shape.guarantee = Guarantee::ExactlyOnce;
        assert!(count.misfits(&shape)[1].ends_with("give `--prefix`"), "{:?}", count.misfits(&shape));
        shape.kind = Kind::Spout;
        assert_eq!(count.misfits(&shape), ["`count` is a bolt, and here is a spout"]);
    }

    #[test]
    fn with_exactly_once_a_key_belongs_to_one_task() {
        let (input, by_word) = (Stream::default_with(&["word"]), Grouping::Fields(vec!["word".to_owned()]));
        let mut shape = Shape { tasks: 2, guarantee: Guarantee::ExactlyOnce, ..bolt(&input) };
        let misfits = |text: &str, shape: &Shape<'_>| read(text).expect("it is right").misfits(shape);
        let count = "count --by word --prefix w:";
        assert!(misfits(count, &shape)[0].contains("what comes from `split` by FIELDS [word]"));
        shape.groupings = vec![("split", &by_word)];
        assert!(misfits(count, &shape).is_empty());
        let silent = misfits("top-k 5 --by word --prefix w:", &shape);
        assert!(silent[0].contains("emits nothing, and here its tuples are read"), "{silent:?}");
        shape.is_read = false;
        assert!(misfits("top-k 5 --by word --prefix w:", &shape).is_empty());
        assert!(
            misfits("file-sink /tmp/x", &shape)[0].contains("`file-sink` cannot be exactly-once: a file")
        );
    }

    #[test]
    fn late_tuples_have_the_fields_that_were_read() {
        let window = read("closing-window --by word --id id --time id --gap-ms 9 --prefix p").expect("right");
        let input = Stream::default_with(&["id", "word"]);
        let results = Stream::default_with(&["start", "end", "word", "count"]);
        let late = |fields: &[&str]| {
            let outputs = [results.clone(), Stream::default_with(fields).named("late")];
            window.misfits(&Shape {
                kind: Kind::Bolt,
                inputs: vec![("split", &input)],
                outputs: &outputs,
                tasks: 1,
                groupings: vec![("split", &Grouping::Shuffle)],
                is_read: true,
                guarantee: Guarantee::AtLeastOnce,
            })
        };
        assert_eq!(late(&["id", "word"]), [""; 0]);
        assert_eq!(
            late(&["word"]),
            ["`closing-window` emits what it reads on `late`, and 1 fields are declared"]
        );
    }
}
