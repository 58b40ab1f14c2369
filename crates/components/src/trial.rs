//! A definition on trial: it reads what it would read, from a position on, and writes under a prefix.
//!
//! ```text
//!  key-sink HSET totals ..        -> key-sink HSET shadow:totals ..
//!  count --by w --prefix words:   -> count --by w --prefix shadow:words:
//!  stream-spout orders --group g  -> stream-spout orders --group shadow:g --from ID
//! ```
//!
//! Out of scope: what a program writes, which nobody knows.

use crate::arguments::{Arguments, CommandError};
use crate::catalog::Builtin;
use crate::row::Keeps;

/// How a definition is tried.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// The topology that it is to take the place of.
    pub of: &'a str,
    /// What the keys begin with that it writes.
    pub prefix: &'a str,
    /// Where its spouts begin: as `--from` of `stream-spout` says it.
    pub from: &'a str,
}

/// What a component on trial reads by a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The stream.
    pub stream: String,
    /// The group that it has without a trial.
    pub live: String,
    /// Its group on trial.
    pub trial: String,
}

/// Has what `command` writes redirected; other than a command of this program it stays as it is.
///
/// # Errors
/// It is no right command of this program.
pub fn redirect(command: &mut Vec<String>, trial: &Trial<'_>) -> Result<(), CommandError> {
    let Some(words) = Builtin::words(command) else { return Ok(()) };
    let builtin = Builtin::read(words, &|_| None)?;
    let (row, given) = builtin.parts();
    // Read again: what the environment says is none of the command's.
    let mut arguments = Arguments::read(&row.signature, &words[1..])?;
    let under = |text: &str| format!("{}{text}", trial.prefix);
    for keeps in row.keeps {
        match *keeps {
            Keeps::Position => {
                arguments.set("--group", under(given.text("--group").unwrap_or(trial.of)));
                arguments.set("--from", trial.from.to_owned());
            }
            Keeps::Key(_) | Keeps::Keys | Keeps::KeysOfTasks(_) | Keeps::MemoryOrKeysOfTasks(..) => {
                redirect_option(&mut arguments, "--prefix", under);
            }
            Keeps::DeadLetters(option) => redirect_option(&mut arguments, option, under),
            Keeps::Output(place) | Keeps::Channel(place) => arguments.change_word(place, under),
            Keeps::Progress | Keeps::Memory(_) => {}
        }
    }
    let name = words[0].clone();
    command.truncate(2);
    command.push(name);
    command.extend(arguments.command(&row.signature));
    Ok(())
}

/// The consumer group of `command`, if it has one without exactly-once: it was not redirected.
#[must_use]
pub fn group(command: &[String], trial: &Trial<'_>) -> Option<Group> {
    let builtin = Builtin::read(Builtin::words(command)?, &|_| None).ok()?;
    let (row, arguments) = builtin.parts();
    if !row.keeps.contains(&Keeps::Position) {
        return None;
    }
    let live = arguments.text("--group").unwrap_or(trial.of).to_owned();
    let trial = format!("{}{live}", trial.prefix);
    Some(Group { stream: arguments.words().first()?.clone(), live, trial })
}

/// The stream that `command` writes dead letters to, if it names one.
#[must_use]
pub fn letters(command: &[String]) -> Option<String> {
    let builtin = Builtin::read(Builtin::words(command)?, &|_| None).ok()?;
    let (row, arguments) = builtin.parts();
    row.keeps.iter().find_map(|keeps| match keeps {
        Keeps::DeadLetters(option) => arguments.text(option).map(str::to_owned),
        _ => None,
    })
}

/// Whether `command` is a program of the user's.
#[must_use]
pub fn is_program(command: &[String]) -> bool {
    Builtin::words(command).is_none()
}

fn redirect_option(arguments: &mut Arguments, option: &'static str, under: impl Fn(&str) -> String) {
    if let Some(value) = arguments.text(option).map(under) {
        arguments.set(option, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(text: &str) -> String {
        let mut command: Vec<String> = text.split(' ').map(str::to_owned).collect();
        redirect(&mut command, &Trial { of: "sales", prefix: "shadow:", from: "17-0" }).expect("it is right");
        assert!(is_program(&command) || Builtin::read(&command[2..], &|_| None).is_ok(), "{command:?}");
        command.join(" ")
    }

    #[test]
    fn what_is_written_is_under_the_prefix_and_what_is_read_is_not() {
        let has = |text: &str, wanted: &[&str]| {
            let redirected = redirected(&format!("evenkeel component {text}"));
            for part in wanted {
                assert!(redirected.contains(part), "{part}: {redirected}");
            }
        };
        has("stream-spout orders", &["--group shadow:sales", "--from 17-0", "-- orders"]);
        has("stream-spout orders --group=g --dead-letter d", &["--group shadow:g", "--dead-letter shadow:d"]);
        has("count --by w --prefix w:", &["--prefix shadow:w:"]);
        has(
            "closing-window --by w --id i --time t --gap-ms 5 --prefix p",
            &["--prefix shadow:p", "--gap-ms 5"],
        );
        has("key-sink HSET t:{w} {w} {n}", &["-- HSET shadow:t:{w} {w} {n}"]);
        has("stream-sink out --maxlen 5", &["--maxlen 5", "-- shadow:out"]);
        has("pubsub-sink c {n}", &["-- shadow:c {n}"]);
        has("enrich customer:{id} name", &["-- customer:{id} name"]);
        assert!(!redirected("evenkeel component count --by w").contains("shadow:"));
        assert_eq!(redirected("python3 a.py"), "python3 a.py");
    }

    #[test]
    fn group_of_a_trial_is_another_one() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let trial = Trial { of: "sales", prefix: "shadow:", from: "0" };
        let found = group(&words("evenkeel component stream-spout orders"), &trial).expect("a group");
        assert_eq!((&*found.stream, &*found.live, &*found.trial), ("orders", "sales", "shadow:sales"));
        assert_eq!(group(&words("evenkeel component count --by w"), &trial), None);
    }
}
