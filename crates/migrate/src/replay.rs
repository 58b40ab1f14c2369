//! Commands that a server wrote down or sends on, as they are: one after the other, a transaction at once.

use resp::{Value, ValueEnd};

use crate::error::MigrateError;
use crate::sink::Sink;

/// A command: its bytes, and its words.
pub(crate) struct Command<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) words: Vec<Vec<u8>>,
}

/// The command at the front of `input`; `None`: it has not all come.
///
/// # Errors
/// It is none.
pub(crate) fn next_command<'a>(input: &'a [u8], end: &mut ValueEnd) -> Result<Option<Command<'a>>, String> {
    let wrong = |what: &str| format!("something else where a command belongs: {what}");
    if input.first().is_some_and(|first| *first != b'*') {
        return Err(wrong(&input[..input.len().min(20)].escape_ascii().to_string()));
    }
    let Some(len) = end.find(input).map_err(|error| wrong(&error.to_string()))? else { return Ok(None) };
    *end = ValueEnd::default();
    let bytes = &input[..len];
    let Ok(Some((Value::Array(values), _))) = resp::decode_value(bytes) else {
        return Err(wrong("no list of words"));
    };
    let word = |value| if let Value::Bulk(word) = value { Ok(word) } else { Err(wrong("no word")) };
    let words = values.into_iter().map(word).collect::<Result<Vec<_>, _>>()?;
    if words.is_empty() { Err(wrong("an empty list")) } else { Ok(Some(Command { bytes, words })) }
}

/// A transaction that has begun.
struct Transaction {
    /// The database that it began in.
    db: u64,
    queued: Vec<u8>,
    count: usize,
}

/// Passes commands on.
#[derive(Default)]
pub(crate) struct Replayer {
    /// Commands of this database only.
    only: Option<u64>,
    db: u64,
    /// Whether the server has it, and it is wanted.
    takes: bool,
    open: Option<Transaction>,
}

impl Replayer {
    /// Begins in database 0.
    pub(crate) fn new(only: Option<u64>) -> Self {
        Self { only, takes: only.is_none_or(|only| only == 0), ..Self::default() }
    }

    /// Whether a transaction has begun, and not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Forgets a transaction that has begun.
    pub(crate) fn abandon(&mut self) {
        self.open = None;
    }

    /// # Errors
    /// The server went away, or a transaction is too long.
    pub(crate) fn take(&mut self, command: &Command<'_>, sink: &mut Sink) -> Result<(), MigrateError> {
        let Command { bytes, words } = command;
        let name = words[0].to_ascii_lowercase();
        match &name[..] {
            b"select" => self.select(words.get(1).map_or(&[][..], |db| db), sink),
            b"multi" => {
                self.open = Some(Transaction { db: self.db, queued: Vec::new(), count: 0 });
                Ok(())
            }
            b"exec" => self.exec(sink),
            b"ping" | b"replconf" => Ok(()),
            _ if !self.takes => Ok(()),
            name if !sink.report.is_dry && !sink.commands.contains(name) => {
                sink.report.refused(name, "the server does not know it");
                Ok(())
            }
            _ => {
                sink.report.command();
                match &mut self.open {
                    None => {
                        sink.turn_to(self.db);
                        sink.encoded(bytes, 1)
                    }
                    Some(Transaction { queued, count, .. }) => {
                        queued.extend_from_slice(bytes);
                        *count += 1;
                        if queued.len() > TRANSACTION_BYTES_MAX {
                            let text = format!("a transaction of more than {TRANSACTION_BYTES_MAX} B");
                            return Err(MigrateError::Input(text));
                        }
                        Ok(())
                    }
                }
            }
        }
    }

    fn select(&mut self, db: &[u8], sink: &mut Sink) -> Result<(), MigrateError> {
        let number = std::str::from_utf8(db).ok().and_then(|text| text.parse().ok());
        let Some(db) = number else {
            return Err(MigrateError::Input("SELECT of something that is no database".to_owned()));
        };
        let has_db = sink.has_db(db)?;
        if !has_db {
            sink.report.refused(b"SELECT", &format!("the server has no database {db}"));
        }
        self.db = db;
        self.takes = has_db && self.only.is_none_or(|only| only == db);
        if let Some(Transaction { queued, count, .. }) = self.open.as_mut().filter(|_| self.takes) {
            resp::encode_command(queued, &[&b"SELECT"[..], db.to_string().as_bytes()]);
            *count += 1;
        }
        Ok(())
    }

    fn exec(&mut self, sink: &mut Sink) -> Result<(), MigrateError> {
        let Some(open) = self.open.take().filter(|open| open.count > 0) else { return Ok(()) };
        let mut whole = Vec::with_capacity(open.queued.len() + 64);
        resp::encode_command(&mut whole, &[b"MULTI"]);
        whole.extend_from_slice(&open.queued);
        resp::encode_command(&mut whole, &[b"EXEC"]);
        sink.turn_to(open.db);
        // a database that is not there is left out: what follows says again where it belongs
        sink.encoded(&whole, open.count + 2)?;
        sink.is_lost();
        Ok(())
    }
}

/// A transaction waits until its end has come.
const TRANSACTION_BYTES_MAX: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_taken_once_all_of_it_has_come_and_nothing_else_is() {
        let bytes = b"*2\r\n$3\r\nDEL\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n";
        let mut end = ValueEnd::default();
        for len in 0..20 {
            assert!(next_command(&bytes[..len], &mut end).expect("a beginning").is_none(), "{len}");
        }
        let command = next_command(bytes, &mut end).expect("a command").expect("whole");
        assert_eq!(command.words, [b"DEL".to_vec(), b"a".to_vec()]);
        assert_eq!(command.bytes.len(), 20);
        for wrong in [&b"DEL a\r\n"[..], b"*1\r\n:1\r\n", b"*0\r\n", b"$1\r\na\r\n", b"*x\r\n"] {
            assert!(next_command(wrong, &mut ValueEnd::default()).is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn transaction_is_passed_on_at_its_end_and_counted_without_what_is_around_it() {
        let mut sink = Sink::dry();
        let mut replayer = Replayer::new(None);
        for words in [&["MULTI"][..], &["SET", "a", "1"], &["SELECT", "3"], &["DEL", "b"]] {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            replayer.take(&Command { bytes: b"", words }, &mut sink).expect("nothing is sent");
        }
        assert!(replayer.is_open());
        replayer.take(&Command { bytes: b"", words: vec![b"exec".to_vec()] }, &mut sink).expect("as well");
        assert!(!replayer.is_open());
        assert!(sink.report.to_string().contains("followed: 2 commands"), "{}", sink.report);
    }

    #[test]
    fn commands_of_other_databases_are_left_out() {
        let mut sink = Sink::dry();
        let mut replayer = Replayer::new(Some(2));
        for words in
            [&["SET", "a", "1"][..], &["SELECT", "2"], &["SET", "b", "1"], &["SELECT", "0"], &["DEL", "c"]]
        {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            replayer.take(&Command { bytes: b"", words }, &mut sink).expect("nothing is sent");
        }
        assert!(sink.report.to_string().contains("followed: 1 commands"), "{}", sink.report);
    }
}
