//! CLIENT KILL, in its old form (an address) and its new one (filters that must all hold).

use std::sync::Arc;
use std::time::Duration;

use commands::args::{integer, is, shown};
use commands::call::{Failure, Outcome, text};
use resp::{ArgsView, Writer};

use super::client::client_type;
use crate::acl::Acl;
use crate::blocked;
use crate::clients::Client;
use crate::control::Control;

/// What a client must be to be killed.
#[derive(Debug)]
struct Filters<'a> {
    id: Option<u64>,
    kind: Option<&'static str>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    age_min: Option<Duration>,
    user: Option<&'a [u8]>,
    skip_me: bool,
}

impl<'a> Filters<'a> {
    fn parse(args: ArgsView<'a>, acl: &Acl) -> Result<Self, Failure> {
        let (id, kind, address, local_address, age_min, user) = (None, None, None, None, None, None);
        let mut filters = Filters { id, kind, address, local_address, age_min, user, skip_me: true };
        if !args.len().is_multiple_of(2) {
            return Err(text::SYNTAX.into());
        }
        for index in (2..args.len()).step_by(2) {
            filters.add(args.get(index), args.get(index + 1), acl)?;
        }
        Ok(filters)
    }

    fn add(&mut self, option: &[u8], value: &'a [u8], acl: &Acl) -> Outcome {
        if is(option, "id") {
            let id = integer(value).ok().and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
            self.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
        } else if is(option, "type") {
            self.kind = Some(client_type(value)?);
        } else if is(option, "addr") {
            self.address = Some(value);
        } else if is(option, "laddr") {
            self.local_address = Some(value);
        } else if is(option, "maxage") {
            let age = integer(value).ok().and_then(|age| u64::try_from(age).ok()).filter(|age| *age > 0);
            let age = age.ok_or("ERR maxage is not an integer or out of range")?;
            self.age_min = Some(Duration::from_secs(age));
        } else if is(option, "user") {
            if acl.find(value).is_none() {
                return Err(format!("ERR No such user '{}'", shown(value)).into());
            }
            self.user = Some(value);
        } else if is(option, "skipme") {
            self.skip_me = match value {
                _ if is(value, "yes") => true,
                _ if is(value, "no") => false,
                _ => return Err(text::SYNTAX.into()),
            };
        } else {
            return Err(text::SYNTAX.into());
        }
        Ok(())
    }

    fn fit(&self, client: &Client, control: &Control<'_>) -> bool {
        let same = |wanted: Option<&[u8]>, text: String| wanted.is_none_or(|w| w == text.as_bytes());
        !(self.skip_me && client.id == control.session.client.id)
            && self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind == client.kind())
            && same(self.address, client.address())
            && same(self.local_address, client.local_address())
            && self.user.is_none_or(|user| *user == *client.user())
            && self.age_min.is_none_or(|age| control.now.since(client.created) >= age)
    }
}

pub(crate) fn kill(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if args.len() == 3 {
        let address = args.get(2);
        let all = control.server.clients.all();
        let found = all.into_iter().find(|client| client.address().as_bytes() == address);
        let client = found.ok_or("ERR No such client")?;
        end(control, &client);
        out.ok();
        return Ok(());
    }
    let filters = Filters::parse(args, &control.server.acl)?;
    let mut chosen = control.server.clients.all();
    chosen.retain(|client| filters.fit(client, control));
    for client in &chosen {
        end(control, client);
    }
    out.integer(chosen.len() as i64);
    Ok(())
}

/// Ends a connection; one's own after the reply. The reply waits until nothing of the others is left.
pub(super) fn end(control: &mut Control<'_>, client: &Arc<Client>) {
    if client.id == control.session.client.id {
        control.session.closing = true;
    } else if let Some(peers) = control.server.peers.get() {
        let hold = control.hold();
        control.server.clients.wait_for_end(client.id, hold);
        peers.kill(client.id);
        // What is added meanwhile is for those who stay.
        blocked::forget(control.server, client.id);
    }
}
