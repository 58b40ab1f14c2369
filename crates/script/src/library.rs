//! Libraries of functions, and the record that keeps them.
//!
//! ```text
//!  | "EVKF" | version u8 = 1 | library, library, ... | crc32c of all before, u32 little-endian |
//!  library:  code | functions u32 | function, function, ...
//!  function: name | flags u8 | has description u8 | description
//!  code, name, description: length u32, bytes
//! ```
//!
//! The record is what FUNCTION DUMP answers, and what the store keeps under a key of its own. It lists the functions so that a
//! start runs no code. The name of a library is in the first line of its code.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::shebang;
pub use super::shebang::{FunctionFlags, is_name};
use commands::sealed::{push_bytes, seal, take, take_bytes, unseal};

/// A function as its library registers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// What it is called.
    pub name: Box<[u8]>,
    /// What it may do.
    pub flags: FunctionFlags,
    /// What its library says of it.
    pub description: Option<Box<[u8]>>,
}

/// A library.
#[derive(Debug)]
pub struct Library {
    /// Tells it from any other, also from an older one of the same name.
    pub id: u64,
    /// What it is called.
    pub name: Box<[u8]>,
    /// All of it, the first line included.
    pub code: Arc<[u8]>,
    body_at: usize,
    /// What it registered.
    pub functions: Vec<Registered>,
    /// Its code ran for too long on a loop when it was loaded there.
    pub loads_slowly: AtomicBool,
}

impl Library {
    /// The library with this code, its functions not known yet.
    ///
    /// # Errors
    /// The text of the error reply.
    pub fn new(code: &[u8]) -> Result<Self, Vec<u8>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (name, body_at) = shebang::of_library(code)?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (functions, loads_slowly) = (Vec::new(), AtomicBool::new(false));
        Ok(Self { id, name: name.into(), code: code.into(), body_at, functions, loads_slowly })
    }

    /// The same with its functions.
    pub fn with(&self, functions: Vec<Registered>) -> Self {
        let Self { id, body_at, .. } = *self;
        let loads_slowly = AtomicBool::new(false);
        Self { id, name: self.name.clone(), code: Arc::clone(&self.code), body_at, functions, loads_slowly }
    }

    /// The code behind the first line; begins with its end, so that lines are counted from there.
    pub(super) fn body(&self) -> &[u8] {
        &self.code[self.body_at..]
    }

    /// The function called `name`, in any case.
    pub fn function(&self, name: &[u8]) -> Option<&Registered> {
        self.functions.iter().find(|function| function.name.eq_ignore_ascii_case(name))
    }
}

/// All libraries of a server; replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Libraries {
    by_name: BTreeMap<Box<[u8]>, Arc<Library>>,
    /// By the names of their functions, in lower case.
    by_function: HashMap<Box<[u8]>, Arc<Library>>,
}

impl Libraries {
    /// By name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// The library that has the function `name`, in any case.
    pub fn with_function(&self, name: &[u8]) -> Option<&Arc<Library>> {
        self.by_function.get(&*name.to_ascii_lowercase())
    }

    /// How many libraries and functions there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.by_name.len(), self.by_function.len())
    }

    /// Bytes of their code.
    pub fn bytes(&self) -> usize {
        self.all().map(|library| library.code.len()).sum()
    }

    /// Adds a library, in the place of the one of its name if it `replaces`.
    ///
    /// # Errors
    /// The text of the error reply; then nothing has changed.
    pub fn add(&mut self, library: Library, replaces: bool) -> Result<(), Vec<u8>> {
        if !replaces && self.by_name.contains_key(&library.name) {
            return Err([b"ERR Library '", &library.name[..], b"' already exists"].concat());
        }
        let taken = |function: &&Registered| {
            self.with_function(&function.name).is_some_and(|other| other.name != library.name)
        };
        if let Some(function) = library.functions.iter().find(taken) {
            return Err([b"ERR Function ", &function.name[..], b" already exists"].concat());
        }
        if self.bytes() + library.code.len() > LIBRARY_BYTES_MAX {
            return Err(format!("ERR all libraries together have at most {LIBRARY_BYTES_MAX} B").into_bytes());
        }
        self.remove(&library.name.clone());
        let library = Arc::new(library);
        for function in &library.functions {
            self.by_function.insert(function.name.to_ascii_lowercase().into(), Arc::clone(&library));
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes the library called `name`; returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        for function in &library.functions {
            self.by_function.remove(&*function.name.to_ascii_lowercase());
        }
        true
    }

    /// Their record.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = HEAD.to_vec();
        for library in self.all() {
            push_bytes(&library.code, &mut record);
            record.extend((library.functions.len() as u32).to_le_bytes());
            for Registered { name, flags, description } in &library.functions {
                push_bytes(name, &mut record);
                record.extend([flags.to_byte(), u8::from(description.is_some())]);
                push_bytes(description.as_deref().unwrap_or_default(), &mut record);
            }
        }
        seal(record)
    }

    /// The libraries of a record; `None` for all other bytes.
    pub fn decode(record: &[u8]) -> Option<Self> {
        let (mut rest, mut libraries) = (unseal(record)?.strip_prefix(&HEAD)?, Self::default());
        while !rest.is_empty() {
            let library = Library::new(take_bytes(&mut rest)?).ok()?;
            let count = u32::from_le_bytes(*take::<4>(&mut rest)?);
            let mut functions = Vec::new();
            for _ in 0..count {
                let name = take_bytes(&mut rest)?.into();
                let [flags, has_description] = *take::<2>(&mut rest)?;
                let description = take_bytes(&mut rest)?;
                let description = (has_description != 0).then(|| description.into());
                functions.push(Registered { name, flags: FunctionFlags::of_byte(flags), description });
            }
            libraries.add(library.with(functions), false).ok()?;
        }
        Some(libraries)
    }
}

/// What a record begins with.
const HEAD: [u8; 5] = *b"EVKF\x01";
/// Code of all libraries of a server.
const LIBRARY_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn libraries() -> Libraries {
        let mut libraries = Libraries::default();
        for (code, names) in [("#!lua name=a\nx", &["f", "g"][..]), ("#!lua name=b\ny", &["h"])] {
            let functions = names.iter().map(|name| Registered {
                name: name.as_bytes().into(),
                flags: FunctionFlags::of_byte(1),
                description: (*name == "g").then(|| b"text"[..].into()),
            });
            let library = Library::new(code.as_bytes()).expect("a library").with(functions.collect());
            libraries.add(library, false).expect("new");
        }
        libraries
    }

    #[test]
    fn record_holds_all_of_the_libraries() {
        let record = libraries().encode();
        let read = Libraries::decode(&record).expect("a record");
        assert_eq!(read.counts(), (2, 3));
        let library = read.with_function(b"G").expect("there, in any case");
        assert_eq!((&*library.name, library.body()), (&b"a"[..], &b"\nx"[..]));
        assert_eq!(library.function(b"g"), libraries().with_function(b"g").expect("there").function(b"g"));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_of_a_record_is_found() {
        let record = libraries().encode();
        for at in 0..record.len() {
            let mut flipped = record.clone();
            flipped[at] ^= 1;
            assert!(Libraries::decode(&flipped).is_none(), "bit at {at}");
            assert!(Libraries::decode(&record[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn record_of_version_1_has_these_bytes() {
        assert_eq!(Libraries::default().encode(), seal(b"EVKF\x01".to_vec()));
    }

    #[test]
    fn names_are_not_taken_twice() {
        let mut libraries = libraries();
        let again = || Library::new(b"#!lua name=a\nz").expect("a library");
        assert_eq!(libraries.add(again(), false), Err(b"ERR Library 'a' already exists".to_vec()));
        let taken = Registered { name: b"h"[..].into(), flags: FunctionFlags::default(), description: None };
        assert_eq!(
            libraries.add(again().with(vec![taken]), true),
            Err(b"ERR Function h already exists".to_vec())
        );
        assert_eq!(libraries.add(again(), true), Ok(()));
        assert_eq!(libraries.counts(), (2, 1));
    }
}
