//! `enrich`: a tuple with a value that a key has.

use resp::Value as Reply;
use topology::builder::Factory;
use topology::component::{Fault, Tuple};
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Signature};
use crate::asking::{self, Ask, Asking, PIPELINE, Requests, Server, URL_OPTION};
use crate::convert::text_value;
use crate::row::{Emits, Exact, Made, Reach, Row};
use crate::template::Template;

/// A question: GET of a key, or HGET of a field.
#[derive(Clone, Debug)]
struct Enrich {
    key: Template,
    field: Option<Template>,
}

impl Ask for Enrich {
    type Kept = Values;

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<Values, Fault> {
        let key = self.key.filled(tuple)?;
        match &self.field {
            None => out.push(&[b"GET".to_vec(), key]),
            Some(field) => out.push(&[b"HGET".to_vec(), key, field.filled(tuple)?]),
        }
        Ok(tuple.values().clone())
    }

    fn reply(&mut self, kept: &mut Values, _: usize, reply: Reply) -> Result<Option<Values>, Fault> {
        let found = match &reply {
            Reply::Bulk(bytes) => text_value(bytes),
            Reply::Null => Value::Null,
            other => return Err(Fault::new(format!("the server answered {other:?}"))),
        };
        let mut values =
            (0..kept.len()).filter_map(|place| kept.value(place)).collect::<Result<Vec<_>, _>>()?;
        values.push(found);
        asking::values(&values)
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let server = Server::read(arguments)?;
    let words = arguments.words().iter().map(|word| Template::read(word)).collect::<Result<Vec<_>, _>>()?;
    let reads = words.iter().flat_map(Template::fields).cloned().collect();
    let enrich = Enrich { key: words[0].clone(), field: words.get(1).cloned() };
    let factory = Factory::bolt(move || Asking::new(enrich.clone(), server.clone()));
    let emits = Emits::InputAnd(1, "what it reads and the value that was found");
    Ok(Made { factory, reads, reach: Reach::Server, emits, exact: Exact::Same })
}

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "enrich",
    what: "adds the value of a key (GET), or of a field of a hash (HGET), to each tuple; null if there is none",
    signature: Signature { words: "KEY [FIELD]", words_count: (1, 2), options: &[URL_OPTION, PIPELINE] },
    keeps: &[],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tuple;

    #[test]
    fn tuple_goes_on_with_what_was_found() {
        let template = |text| Template::read(text).expect("right");
        let mut enrich = Enrich { key: template("c:{id}"), field: Some(template("name")) };
        let mut out = Requests::default();
        let mut kept =
            tuple(&["id"], &[Value::from(7)], |tuple| enrich.request(tuple, &mut out)).expect("it fits");
        assert_eq!(out.bytes(), b"*3\r\n$4\r\nHGET\r\n$3\r\nc:7\r\n$4\r\nname\r\n");
        let found =
            enrich.reply(&mut kept, 0, Reply::Bulk(b"Ann".to_vec())).expect("a value").expect("a tuple");
        assert_eq!(found, Values::encode(&[Value::from(7), Value::from("Ann")]).expect("they fit"));
        let found = enrich.reply(&mut kept, 0, Reply::Null).expect("a value").expect("a tuple");
        assert_eq!(found, Values::encode(&[Value::from(7), Value::Null]).expect("they fit"));
    }
}
