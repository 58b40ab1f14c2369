//! What components keep beside their tuples, and what becomes of that when another definition takes the place of one.
//!
//! ```text
//!  old component --states--> \
//!                             compare by the component's id -> kept, lost, left, new, blocked
//!  new component --states--> /
//! ```
//!
//! Out of scope: what differs between definitions (`flux::changes`).

use topology::Plan;
use topology::definition::{Guarantee, Kind};
use topology::ids::ComponentId;

use crate::arguments::Arguments;
use crate::catalog::Builtin;
use crate::form::Form;
use crate::row::Keeps;

/// Something that a component keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    what: String,
    place: Place,
}

/// Where something is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// In the process alone.
    Memory,
    /// In keys.
    Store,
    /// In the epochs of the topology, by the component's id.
    Epochs,
    /// In keys that hold for this form, which one of them has.
    Formed { key: String, form: String },
}

/// A component of a definition.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// What it runs.
    pub command: &'a [String],
    /// The definition.
    pub plan: &'a Plan,
    /// Which one it is.
    pub id: ComponentId,
}

/// What becomes of something that a component keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What becomes of it.
    pub fate: Fate,
    /// What it is.
    pub what: String,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The new definition cannot begin with it.
    Blocks,
    /// It is gone.
    Lost,
    /// It stays in the store, and the new definition does not use it.
    Left,
    /// The new definition goes on with it.
    Kept,
    /// It begins anew.
    New,
}

impl Fate {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Lost => "lost",
            Self::Left => "left",
            Self::Kept => "kept",
            Self::New => "new",
        }
    }
}

/// What becomes of what a component of the topology `name` keeps, when `new` takes the place of `old`.
#[must_use]
pub fn compare(name: &str, old: Option<Held<'_>>, new: Option<Held<'_>>) -> Vec<Outcome> {
    let states = |held: Option<Held<'_>>| held.map(|held| held.states(name)).unwrap_or_default();
    let (old, new) = (states(old), states(new));
    let mut outcomes: Vec<Outcome> = old.iter().map(|state| state.outcome(&new)).collect();
    let is_taken = |state: &&State| old.iter().any(|of| of == *state || of.is_in_place_of(state));
    let begins = new.iter().filter(|state| state.place != Place::Memory && !is_taken(state));
    outcomes.extend(begins.map(|state| Outcome { fate: Fate::New, what: state.what.clone() }));
    outcomes.sort_by_key(|outcome| outcome.fate);
    outcomes
}

impl State {
    /// Whether it is where the other one would be, whatever it is.
    fn is_in_place_of(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (Place::Epochs, Place::Epochs) => true,
            (Place::Formed { key, .. }, Place::Formed { key: of_other, .. }) => key == of_other,
            _ => false,
        }
    }

    fn outcome(&self, new: &[Self]) -> Outcome {
        let what = self.what.clone();
        let there = new.iter().find(|state| self.is_in_place_of(state));
        let (fate, what) = match (&self.place, there.map(|state| (&state.place, &state.what))) {
            (Place::Memory, _) => (Fate::Lost, what),
            (Place::Formed { key, form }, Some((Place::Formed { form: now, .. }, _))) if form != now => {
                let text = format!(
                    "{what} are those of `{form}`: as `{now}` it does not begin until they and `{key}` are removed"
                );
                (Fate::Blocks, text)
            }
            (Place::Epochs, Some((_, now))) if *now != what => {
                (Fate::Kept, format!("{what}, which is taken as its {now}"))
            }
            (_, Some(_)) => (Fate::Kept, what),
            _ if new.contains(self) => (Fate::Kept, what),
            _ => (Fate::Left, what),
        };
        Outcome { fate, what }
    }
}

impl Held<'_> {
    fn states(&self, name: &str) -> Vec<State> {
        let component = self.plan.component(self.id);
        let Some(words) = Builtin::words(self.command) else {
            let what = match component.kind {
                Kind::Spout => "where its process is in its source",
                Kind::Bolt => "what its process has in memory",
            };
            return vec![State { what: what.to_owned(), place: Place::Memory }];
        };
        // One that cannot be read does not run.
        let Ok(builtin) = Builtin::read(words, &|_| None) else { return Vec::new() };
        let (row, arguments) = builtin.parts();
        row.keeps.iter().filter_map(|keeps| self.state(name, *keeps, arguments)).collect()
    }

    fn state(&self, name: &str, keeps: Keeps, arguments: &Arguments) -> Option<State> {
        let tasks = self.plan.tasks(self.id).len() as u32;
        let is_exact = self.plan.settings().guarantee == Guarantee::ExactlyOnce;
        let prefix = arguments.text("--prefix");
        let word = |place: usize| arguments.words().get(place).map_or("", String::as_str);
        let (what, place) = match keeps {
            Keeps::Position if is_exact => (format!("position in the stream `{}`", word(0)), Place::Epochs),
            Keeps::Position => {
                let group = arguments.text("--group").unwrap_or(name);
                (format!("position in the stream `{}`: its group `{group}`", word(0)), Place::Store)
            }
            Keeps::Progress if is_exact => ("how far it is".to_owned(), Place::Epochs),
            Keeps::Progress => ("how far it is".to_owned(), Place::Memory),
            Keeps::Key(suffix) => match prefix {
                Some(prefix) => (format!("the key `{prefix}{suffix}`"), Place::Store),
                None => ("its numbers in memory".to_owned(), Place::Memory),
            },
            Keeps::Keys => (format!("the keys `{}*`", prefix?), Place::Store),
            Keeps::MemoryOrKeysOfTasks(what, _) if !is_exact => (what.to_owned(), Place::Memory),
            Keeps::KeysOfTasks(options) | Keeps::MemoryOrKeysOfTasks(_, options) => {
                let place = Form::new(arguments, options)
                    .filter(|_| is_exact)
                    .map_or(Place::Store, |form| Place::Formed { key: form.key(), form: form.text(tasks) });
                (format!("the keys `{0}0:*` to `{0}{1}:*`", prefix?, tasks - 1), place)
            }
            Keeps::Memory(what) => (what.to_owned(), Place::Memory),
            Keeps::Output(place) => (format!("what it wrote to `{}`", word(place)), Place::Store),
            Keeps::Channel(_) => return None,
            Keeps::DeadLetters(_) if is_exact => return None,
            Keeps::DeadLetters(option) => {
                (format!("dead letters in `{}`", arguments.text(option)?), Place::Store)
            }
        };
        Some(State { what, place })
    }
}

#[cfg(test)]
mod tests {
    use topology::definition::{Component, Grouping, Settings, Stream, Subscription, Topology};

    use super::*;

    /// What becomes of a component that runs the first command with so many tasks, when the second one takes its place.
    fn outcomes(guarantee: Guarantee, old: Option<(&str, u32)>, new: Option<(&str, u32)>) -> Vec<String> {
        let words = |of: Option<(&str, u32)>| -> Vec<String> {
            of.map(|(text, _)| text.split(' ').map(str::to_owned).collect()).unwrap_or_default()
        };
        let plan = |of: Option<(&str, u32)>| {
            let (text, tasks) = of.unwrap_or(("", 1));
            let streams = vec![Stream::default_with(&["word"])];
            let it = if text.contains("spout") || text.contains("generator") {
                Component::spout("it", streams)
            } else {
                Component::bolt("it", vec![Subscription::to("first", Grouping::Shuffle)], streams)
            };
            let first = Component::spout("first", vec![Stream::default_with(&["word"])]);
            let components = vec![first, it.with_tasks(tasks)];
            let settings = Settings { guarantee, ..Settings::default() };
            Plan::new(Topology { name: "t".to_owned(), settings, components }).expect("it is right").0
        };
        let ((old_words, old_plan), (new_words, new_plan)) =
            ((words(old), plan(old)), (words(new), plan(new)));
        let held =
            |is_there: bool, command, plan| is_there.then_some(Held { command, plan, id: ComponentId(1) });
        let old = held(old.is_some(), &old_words[..], &old_plan);
        let new = held(new.is_some(), &new_words[..], &new_plan);
        compare("t", old, new).iter().map(|it| format!("{}: {}", it.fate.name(), it.what)).collect()
    }

    const SPOUT: &str = "evenkeel component stream-spout orders --group g";
    const COUNT: &str = "evenkeel component count --by word --prefix w:";

    #[test]
    fn state_in_keys_is_kept_and_state_in_memory_is_lost() {
        let at_least = Guarantee::AtLeastOnce;
        let same = |command| outcomes(at_least, Some((command, 1)), Some((command, 2)));
        assert_eq!(same(SPOUT), ["kept: position in the stream `orders`: its group `g`"]);
        assert_eq!(same(COUNT), ["kept: the key `w:count`"]);
        assert_eq!(same("evenkeel component count --by word"), ["lost: its numbers in memory"]);
        assert_eq!(same("python3 a.py"), ["lost: what its process has in memory"]);
    }

    #[test]
    fn what_another_command_does_not_use_is_left_and_what_it_uses_is_new() {
        let at_least = Guarantee::AtLeastOnce;
        let another = COUNT.replace("w:", "v:");
        let changed = outcomes(at_least, Some((COUNT, 1)), Some((&another, 1)));
        assert_eq!(changed, ["left: the key `w:count`", "new: the key `v:count`"]);
        assert_eq!(outcomes(at_least, Some((COUNT, 1)), None), ["left: the key `w:count`"]);
        assert_eq!(
            outcomes(at_least, None, Some((SPOUT, 1))),
            ["new: position in the stream `orders`: its group `g`"]
        );
        let windows =
            "evenkeel component closing-window --by word --id word --time word --gap-ms 9 --prefix p:";
        assert_eq!(
            outcomes(at_least, Some((windows, 1)), Some((windows, 2))),
            ["left: the keys `p:0:*` to `p:0:*`", "new: the keys `p:0:*` to `p:1:*`"]
        );
    }

    #[test]
    fn windows_of_exactly_once_hold_for_their_tasks_and_what_a_window_is() {
        let exactly = |old, new| outcomes(Guarantee::ExactlyOnce, Some(old), Some(new));
        let windows =
            "evenkeel component closing-window --by word --id word --time word --gap-ms 9 --prefix p:";
        let longer = windows.replace("--gap-ms 9", "--gap-ms 10 --lateness-ms 5");
        assert_eq!(exactly((windows, 1), (windows, 1)), ["kept: the keys `p:0:*` to `p:0:*`"]);
        assert_eq!(
            exactly((windows, 2), (&longer, 1)),
            [
                "blocks: the keys `p:0:*` to `p:1:*` are those of `2 tasks: --gap-ms 9`: as `1 tasks: --gap-ms 10` it does not begin until they and `p:form` are removed"
            ]
        );
        let late = windows.replace("--gap-ms 9", "--gap-ms 9 --lateness-ms 5");
        assert_eq!(exactly((windows, 1), (&late, 1)), ["kept: the keys `p:0:*` to `p:0:*`"]);
        let another = windows.replace("p:", "q:");
        assert_eq!(
            exactly((windows, 1), (&another, 2)),
            ["left: the keys `p:0:*` to `p:0:*`", "new: the keys `q:0:*` to `q:1:*`"]
        );
    }

    #[test]
    fn positions_of_exactly_once_are_kept_also_with_another_number_of_tasks() {
        let exactly = |old, new| outcomes(Guarantee::ExactlyOnce, Some(old), Some(new));
        assert_eq!(exactly((SPOUT, 2), (SPOUT, 2)), ["kept: position in the stream `orders`"]);
        assert_eq!(exactly((SPOUT, 1), (SPOUT, 2)), ["kept: position in the stream `orders`"]);
        let another = SPOUT.replace("orders", "sales");
        assert_eq!(
            exactly((SPOUT, 1), (&another, 1)),
            ["kept: position in the stream `orders`, which is taken as its position in the stream `sales`"]
        );
    }
}
