//! With exactly-once: what keys of tasks were made for. Another number of tasks, or other options, would read them wrongly, and does not begin.

use topology::changes::StateKey;
use topology::component::Fault;

use crate::arguments::Arguments;
use crate::draft::Draft;

/// What the keys under a prefix are made for: the component's words and some of its options, as they were given.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    prefix: String,
    given: String,
}

impl Form {
    /// That of a component with `--prefix`, by its words and these options.
    pub(crate) fn new(arguments: &Arguments, options: &[&str]) -> Option<Self> {
        let options = options.iter().filter_map(|name| Some(format!(" {name} {}", arguments.text(name)?)));
        let words = arguments.words().iter().map(|word| format!(" {word}"));
        Some(Self { prefix: arguments.text("--prefix")?.to_owned(), given: words.chain(options).collect() })
    }

    /// The same with so many tasks.
    pub(crate) fn text(&self, tasks: u32) -> String {
        format!("{tasks} tasks:{}", self.given)
    }

    /// The key that has it.
    pub(crate) fn key(&self) -> String {
        format!("{}form", self.prefix)
    }

    /// Looks whether the keys are of this form, which they get if they have none.
    ///
    /// # Errors
    /// They are of another one, or it is being read.
    pub(crate) fn check(&self, draft: &mut Draft<'_, '_>, tasks: u32) -> Result<(), Fault> {
        let (key, text) = (StateKey::of_key(self.key()), self.text(tasks));
        match draft.get(&key)? {
            Some(kept) if kept == text => {}
            Some(kept) => {
                let (kept, prefix) = (String::from_utf8_lossy(&kept), &self.prefix);
                return Err(Fault::silent(format!(
                    "the keys `{prefix}*` are those of `{kept}`, and this is `{text}`: remove them, or choose another --prefix"
                )));
            }
            None => draft.set(key, Some(text.into())),
        }
        Ok(())
    }
}
