//! What the store keeps of topologies: one record for each definition, and one that lists them, with what they are to be.
//!
//! ```text
//!  list:        | "EVKT" | version u8 = 2 | entry, entry, ... |    entry: name | flags u8 | workers u32 | user, if its flag is set
//!  definition:  | "EVKD" | version u8 = 1 | text | has folder u8 | folder | property, property, ... |    property: name | value
//!  on trial:    | "EVKD" | version u8 = 2 | of | prefix | from | text, and so on |
//!  name, text, folder, value: parts; each record is sealed (`sealed`)
//! ```
//!
//! A definition and the list that has it change in one group. Of the flags 1 is set if it is active, 2 if what it has written is being removed, 4 if
//! a user other than `default` has submitted it: then the list has version 3. `workers` is 0 where the definition says how many. Version 1 of the list
//! had no such field, and is read as if it were 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use commands::sealed::{push_bytes, seal, take, take_bytes, unseal};
use supervisor::Trial;

/// What was submitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Definition {
    /// In the YAML of Flux.
    pub(crate) text: String,
    /// Values for what the text leaves open.
    pub(crate) properties: BTreeMap<String, String>,
    /// The folder below topologies.dir where its components run.
    pub(crate) folder: Option<String>,
    /// How it is tried, if it is.
    pub(crate) trial: Option<Trial>,
}

impl Definition {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let properties = self.properties.iter().map(|(name, value)| name.len() + value.len());
        self.text.len() + self.folder.as_ref().map_or(0, String::len) + properties.sum::<usize>()
    }

    /// Its record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut record = DEFINITION_HEAD.to_vec();
        if let Some(Trial { of, prefix, from }) = &self.trial {
            record = TRIAL_HEAD.to_vec();
            [of, prefix, from].iter().for_each(|part| push_bytes(part.as_bytes(), &mut record));
        }
        push_bytes(self.text.as_bytes(), &mut record);
        record.push(u8::from(self.folder.is_some()));
        push_bytes(self.folder.as_deref().unwrap_or_default().as_bytes(), &mut record);
        for (name, value) in &self.properties {
            push_bytes(name.as_bytes(), &mut record);
            push_bytes(value.as_bytes(), &mut record);
        }
        seal(record)
    }

    /// The definition of a record; `None` for all other bytes.
    pub(crate) fn decode(record: &[u8]) -> Option<Self> {
        let record = unseal(record)?;
        let (mut rest, trial) = match record.strip_prefix(&TRIAL_HEAD) {
            None => (record.strip_prefix(&DEFINITION_HEAD)?, None),
            Some(mut rest) => {
                let (of, prefix) = (take_text(&mut rest)?, take_text(&mut rest)?);
                let from = take_text(&mut rest)?;
                (rest, Some(Trial { of, prefix, from }))
            }
        };
        let text = take_text(&mut rest)?;
        let [has_folder] = *take::<1>(&mut rest)?;
        let folder = take_text(&mut rest)?;
        let mut properties = BTreeMap::new();
        while !rest.is_empty() {
            let name = take_text(&mut rest)?;
            properties.insert(name, take_text(&mut rest)?);
        }
        Some(Self { text, properties, folder: (has_folder != 0).then_some(folder), trial })
    }
}

/// What a topology of the list is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Whether spouts are to emit.
    pub(crate) is_active: bool,
    /// What it has written is being removed: it does not run any more.
    pub(crate) is_ending: bool,
    /// How many workers it is to have; `None`: as many as its definition says.
    pub(crate) workers: Option<u32>,
    /// Who has submitted it, and whose rights its workers have; `None`: `default`.
    pub(crate) user: Option<Arc<[u8]>>,
}

/// The record of the list.
pub(crate) fn encode_list<'a>(list: impl Iterator<Item = (&'a str, &'a Listed)>) -> Vec<u8> {
    let mut record = LIST_HEAD.to_vec();
    for (name, Listed { is_active, is_ending, workers, user }) in list {
        push_bytes(name.as_bytes(), &mut record);
        let flags = [(*is_active, ACTIVE), (*is_ending, ENDING), (user.is_some(), HAS_USER)];
        record.push(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
        record.extend_from_slice(&workers.unwrap_or(0).to_le_bytes());
        if let Some(user) = user {
            push_bytes(user, &mut record);
            record[..LIST_HEAD.len()].copy_from_slice(&USERS_LIST_HEAD);
        }
    }
    seal(record)
}

/// The list of a record; `None` for all other bytes.
pub(crate) fn decode_list(record: &[u8]) -> Option<Vec<(String, Listed)>> {
    let record = unseal(record)?;
    let is_first = record.starts_with(&FIRST_LIST_HEAD);
    let mut heads = [FIRST_LIST_HEAD, LIST_HEAD, USERS_LIST_HEAD].iter();
    let mut rest = heads.find_map(|head| record.strip_prefix(head))?;
    let mut list = Vec::new();
    while !rest.is_empty() {
        let name = take_text(&mut rest)?;
        let [flags] = *take::<1>(&mut rest)?;
        let workers = if is_first { 0 } else { u32::from_le_bytes(*take(&mut rest)?) };
        let (is_active, is_ending) = (flags & ACTIVE != 0, flags & ENDING != 0);
        let user = if flags & HAS_USER != 0 { Some(take_bytes(&mut rest)?.into()) } else { None };
        let workers = Some(workers).filter(|it| *it > 0);
        list.push((name, Listed { is_active, is_ending, workers, user }));
    }
    Some(list)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(rest)?.to_vec()).ok()
}

const ACTIVE: u8 = 1;
const ENDING: u8 = 2;
const HAS_USER: u8 = 4;
const LIST_HEAD: [u8; 5] = *b"EVKT\x02";
const USERS_LIST_HEAD: [u8; 5] = *b"EVKT\x03";
const FIRST_LIST_HEAD: [u8; 5] = *b"EVKT\x01";
const TRIAL_HEAD: [u8; 5] = *b"EVKD\x02";
const DEFINITION_HEAD: [u8; 5] = *b"EVKD\x01";

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Definition {
        let properties = BTreeMap::from([("a", "1"), ("b", "")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        Definition { text: "name: x".to_owned(), properties, folder: Some("words".to_owned()), trial: None }
    }

    fn on_trial() -> Definition {
        let [of, prefix, from] = ["words", "shadow:", "17-0"].map(str::to_owned);
        Definition { trial: Some(Trial { of, prefix, from }), ..definition() }
    }

    #[test]
    fn records_hold_all_of_what_was_submitted() {
        for definition in [definition(), on_trial(), Definition::default()] {
            assert_eq!(Definition::decode(&definition.encode()), Some(definition));
        }
        let listed = |is_active, is_ending, workers, user: Option<&[u8]>| Listed {
            is_active,
            is_ending,
            workers,
            user: user.map(Arc::from),
        };
        let kept = [
            listed(true, false, None, None),
            listed(false, false, Some(3), Some(b"bob \xff")),
            listed(true, true, None, None),
        ];
        let list: Vec<_> = ["a", "b", "c"].map(str::to_owned).into_iter().zip(kept).collect();
        let record = encode_list(list.iter().map(|(name, it)| (name.as_str(), it)));
        assert_eq!(decode_list(&record), Some(list));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_of_a_record_is_found() {
        let record = on_trial().encode();
        for at in 0..record.len() {
            let mut flipped = record.clone();
            flipped[at] ^= 1;
            assert_eq!(Definition::decode(&flipped), None, "bit at {at}");
            assert_eq!(Definition::decode(&record[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn records_have_these_bytes() {
        let mut listed = Listed { is_active: true, is_ending: false, workers: Some(3), user: None };
        let bytes = b"EVKT\x02\x02\0\0\0ab\x01\x03\0\0\0".to_vec();
        assert_eq!(encode_list([("ab", &listed)].into_iter()), seal(bytes));
        listed.user = Some(b"u"[..].into());
        let bytes = b"EVKT\x03\x02\0\0\0ab\x05\x03\0\0\0\x01\0\0\0u".to_vec();
        assert_eq!(encode_list([("ab", &listed)].into_iter()), seal(bytes));
        let definition = Definition { text: "x".to_owned(), ..Definition::default() };
        assert_eq!(definition.encode(), seal(b"EVKD\x01\x01\0\0\0x\0\0\0\0\0".to_vec()));
    }

    #[test]
    fn list_of_version_1_leaves_the_number_of_workers_to_the_definition() {
        let record = seal(b"EVKT\x01\x02\0\0\0ab\x01".to_vec());
        let listed = Listed { is_active: true, is_ending: false, workers: None, user: None };
        assert_eq!(decode_list(&record), Some(vec![("ab".to_owned(), listed)]));
    }
}
