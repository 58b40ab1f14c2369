//! DEBUG DIGEST and DIGEST-VALUE: equal for equal contents, whatever order hashes and sets have; for tests of clients, which compare.
//!
//! Not Redis's numbers: two servers are compared by reading both.

use commands::call::{Data, Outcome};
use resp::{ArgsView, Writer};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use store::{Found, Packed, Shape, ValueKind};

use crate::acl::user::hex;

type Digest = [u8; 20];

/// All keys of all databases.
pub(crate) fn of_all(data: &mut Data<'_, '_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let mut all = Digest::default();
    for db in 0..data.store.databases() {
        let count = data.access.len(db)?;
        if count > KEYS_MAX {
            return Err(format!(
                "ERR database {db} has {count} keys, more than the {KEYS_MAX} that are looked at"
            )
            .into());
        }
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        data.access.scan_weighed(db, 0, usize::MAX, &mut |key, _| {
            keys.push(key.into());
            0
        })?;
        for key in keys {
            if let Some(value) = of_key(data, db, &key)? {
                add(&mut all, &hash(&[&db.to_le_bytes(), &key, &value]));
            }
        }
    }
    out.simple(&hex(&all));
    Ok(())
}

/// Some keys of the database, one by one; zeros where there is none.
pub(crate) fn of_values(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (count, mut digests) = (args.len() - 2, Vec::new());
    if count > VALUES_MAX {
        return Err(format!("ERR {count} keys are more than the {VALUES_MAX} that are looked at").into());
    }
    for key in args.iter().skip(2) {
        digests.push(of_key(data, data.db, key)?.unwrap_or_default());
    }
    out.array(digests.len());
    digests.iter().for_each(|digest| out.simple(&hex(digest)));
    Ok(())
}

fn of_key(data: &mut Data<'_, '_>, db: u16, key: &[u8]) -> Result<Option<Digest>, commands::call::Failure> {
    Ok(data.access.get(db, key)?.map(|found| of_value(&found)))
}

fn of_value(found: &Found<'_>) -> Digest {
    let expires: &[u8] = if found.expiry.is_some() { b"!!expire!!" } else { b"" };
    let content = match found.kind.shape() {
        None => hash(&[found.value]),
        Some(shape) => of_elements(shape, found.value),
    };
    let kind = match found.kind {
        ValueKind::String => "string",
        ValueKind::Hash => "hash",
        ValueKind::Set => "set",
        ValueKind::List => "list",
        ValueKind::SortedSet => "zset",
        ValueKind::Stream => "stream",
    };
    hash(&[kind.as_bytes(), &content, expires])
}

/// Of a list and a stream the order counts.
fn of_elements(shape: Shape, value: &[u8]) -> Digest {
    let ordered = matches!(shape, Shape::List | Shape::Ordered);
    let mut all = Digest::default();
    for (name, value) in Packed::new(shape, value).iter() {
        let element = hash(&[&(name.len() as u64).to_le_bytes(), name, value]);
        if ordered {
            all = hash(&[&all, &element]);
        } else {
            add(&mut all, &element);
        }
    }
    all
}

fn hash(parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("SHA-1 has 20 bytes")
}

fn add(all: &mut Digest, one: &Digest) {
    all.iter_mut().zip(one).for_each(|(all, one)| *all ^= one);
}

/// Of one command: it goes on when its client has gone.
const VALUES_MAX: usize = 64;
/// They are looked at while all are locked.
const KEYS_MAX: u64 = 1_000_000;
