//! `stream-sink` and `pubsub-sink`: an entry of a stream, or a message of a channel, for each tuple.

use resp::Value as Reply;
use topology::builder::Factory;
use topology::component::{Fault, Tuple};
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::asking::{Ask, Asking, PIPELINE, Requests, Server, URL_OPTION, Writing};
use crate::convert::append_field;
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};
use crate::template::Template;

/// An entry for each tuple.
#[derive(Clone, Debug)]
struct StreamSink {
    key: Template,
    /// `None`: all.
    fields: Option<Vec<String>>,
    max: Option<u64>,
}

/// A message for each tuple.
#[derive(Clone, Debug)]
struct Publish {
    channel: Template,
    message: Template,
}

impl Ask for StreamSink {
    type Kept = ();

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<(), Fault> {
        let mut words: Vec<Vec<u8>> = vec![b"XADD".to_vec(), self.key.filled(tuple)?];
        if let Some(max) = self.max {
            words.extend([b"MAXLEN".to_vec(), b"~".to_vec(), max.to_string().into_bytes()]);
        }
        words.push(b"*".to_vec());
        for name in self.fields.as_ref().unwrap_or(&tuple.stream().fields) {
            let mut value = Vec::new();
            append_field(tuple, name, &mut value)?;
            words.extend([name.as_bytes().to_vec(), value]);
        }
        out.push(&words);
        Ok(())
    }

    fn reply(&mut self, (): &mut (), _: usize, _: Reply) -> Result<Option<Values>, Fault> {
        Ok(None)
    }
}

impl Ask for Publish {
    type Kept = ();

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<(), Fault> {
        out.push(&[b"PUBLISH".to_vec(), self.channel.filled(tuple)?, self.message.filled(tuple)?]);
        Ok(())
    }

    fn reply(&mut self, (): &mut (), _: usize, _: Reply) -> Result<Option<Values>, Fault> {
        Ok(None)
    }
}

fn make_stream(arguments: &Arguments) -> Result<Made, CommandError> {
    let (server, key) = (Server::read(arguments)?, Template::read(&arguments.words()[0])?);
    let fields = arguments.text("--fields").map(|_| arguments.names("--fields"));
    let reads = key.fields().cloned().chain(fields.clone().unwrap_or_default()).collect();
    let sink = StreamSink { key, fields, max: arguments.number("--maxlen") };
    let writes = sink.clone();
    let exact = Exact::Other(Factory::bolt(move || Writing::new(writes.clone())));
    let factory = Factory::bolt(move || Asking::new(sink.clone(), server.clone()));
    Ok(Made { factory, reads, reach: Reach::Server, emits: Emits::Nothing, exact })
}

fn make_publish(arguments: &Arguments) -> Result<Made, CommandError> {
    let (server, words) = (Server::read(arguments)?, arguments.words());
    let (channel, message) = (Template::read(&words[0])?, Template::read(&words[1])?);
    let reads = channel.fields().chain(message.fields()).cloned().collect();
    let sink = Publish { channel, message };
    let writes = sink.clone();
    let exact = Exact::Other(Factory::bolt(move || Writing::new(writes.clone())));
    let factory = Factory::bolt(move || Asking::new(sink.clone(), server.clone()));
    Ok(Made { factory, reads, reach: Reach::Server, emits: Emits::Nothing, exact })
}

/// The row of `stream-sink`.
pub(crate) const ROW: Row = Row {
    name: "stream-sink",
    what: "appends an entry to a stream for each tuple",
    signature: Signature {
        words: "KEY",
        words_count: (1, 1),
        options: &[
            Opt {
                name: "--fields",
                value: Kind::Names,
                default: "",
                what: "fields of the entry; without it all of the tuple",
            },
            Opt {
                name: "--maxlen",
                value: Kind::Number(1, 1 << 40),
                default: "",
                what: "entries of the stream, beyond which the oldest are dropped, about",
            },
            URL_OPTION,
            PIPELINE,
        ],
    },
    keeps: &[Keeps::Output(0)],
    make: make_stream,
};

/// The row of `pubsub-sink`.
pub(crate) const PUBLISH: Row = Row {
    name: "pubsub-sink",
    what: "publishes a message to a channel for each tuple",
    signature: Signature { words: "CHANNEL MESSAGE", words_count: (2, 2), options: &[URL_OPTION, PIPELINE] },
    keeps: &[Keeps::Channel(0)],
    make: make_publish,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stand, tuple};
    use topology::value::Value;

    fn asked(ask: &mut impl Ask) -> String {
        let mut out = Requests::default();
        let values = [Value::from("a"), Value::from(7)];
        assert!(tuple(&["word", "n"], &values, |tuple| ask.request(tuple, &mut out)).is_ok());
        let Ok(Some((Reply::Array(words), _))) = resp::decode_value(out.bytes()) else { panic!("a request") };
        let word = |word: &Reply| match word {
            Reply::Bulk(word) => String::from_utf8_lossy(word).into_owned(),
            other => panic!("{other:?}"),
        };
        words.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tuple_becomes_an_entry_or_a_message() {
        let key = Template::read("out:{word}").expect("right");
        let mut sink = StreamSink { key: key.clone(), fields: None, max: Some(100) };
        assert_eq!(asked(&mut sink), "XADD out:a MAXLEN ~ 100 * word a n 7");
        let mut sink = StreamSink { key: key.clone(), fields: Some(vec!["n".to_owned()]), max: None };
        assert_eq!(asked(&mut sink), "XADD out:a * n 7");
        let message = Template::read("{n}!").expect("right");
        assert_eq!(asked(&mut Publish { channel: key, message }), "PUBLISH out:a 7!");
    }

    #[test]
    fn with_exactly_once_the_entry_is_part_of_the_epoch() {
        let key = Template::read("out:{word}").expect("right");
        let sink = Writing::new(StreamSink { key, fields: None, max: None });
        let mut stand = Stand::bolt(sink, &["word", "n"], &[]);
        stand.execute(&[Value::from("a"), Value::from(7)]);
        assert_eq!(
            (&stand.record.commands[..], &stand.record.acked[..]),
            (&["XADD out:a * word a n 7".to_owned()][..], &[1][..])
        );
    }
}
