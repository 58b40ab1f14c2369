//! Users, and what they may do.
//!
//! ```text
//!  ACL SETUSER, ACL LOAD, requirepass -> Users -> generation
//!                                          |          \-- each request compares it: one load
//!                                          \-> Member of a session: its user's rules, or none where all is allowed
//! ```
//!
//! A [`User`] never changes: a new one takes its place, and each connection takes that one at its next request, those that wait and those
//! that only listen at once.
//!
//! Invariants
//!   1. One check decides, wherever a command comes from (`permit`).
//!   2. Who is removed has no connection left, and who may not listen to a channel any more neither.
//!   3. When the reply to a change leaves, no request runs any more that was admitted before it.

pub(crate) mod file;
pub(crate) mod log;
pub(crate) mod selector;
pub(crate) mod user;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use commands::failure::Failure;
use commands::lookup::Table;

use user::User;

use crate::clients::{Client, DEFAULT_USER};
use crate::settings::Secret;

pub(crate) use permissions::{AclContext, Permissions};
pub(crate) use selector::RuleError;

mod permissions;

/// All users.
#[derive(Debug)]
pub(crate) struct Acl {
    users: RwLock<Users>,
    /// The setting that `default` took its password from last.
    requirepass: Mutex<Secret>,
    /// Counts changes of them.
    generation: AtomicU64,
    pub(crate) log: log::Log,
}

/// Rules of all users.
pub(crate) const ALL_BYTES_MAX: usize = 8 << 20;

type Users = BTreeMap<Box<[u8]>, Arc<User>>;

/// Who a connection is, as it knows its rules.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Its user.
    pub(crate) name: Arc<[u8]>,
    /// The rules are those of this one; 0: not looked up yet.
    generation: u64,
    /// Its user was removed.
    pub(crate) is_gone: bool,
    pub(crate) permissions: Permissions,
}

impl Member {
    /// One of the user of this name.
    pub(crate) fn of(name: Arc<[u8]>) -> Self {
        Self { name, generation: 0, is_gone: false, permissions: Permissions::default() }
    }
}

impl Acl {
    /// The user `default` with this password, or without one.
    pub(crate) fn new(requirepass: &Secret, table: &'static Table) -> Self {
        let user = User::default_with(requirepass.reveal(), table);
        let users = Users::from([(DEFAULT_USER.into(), Arc::new(user))]);
        let requirepass = Mutex::new(requirepass.clone());
        let (users, generation, log) = (RwLock::new(users), AtomicU64::new(1), log::Log::default());
        Self { users, requirepass, generation, log }
    }

    /// The setting is `requirepass` now: if it has changed, it takes the place of all passwords of `default`.
    pub(crate) fn take_password(&self, requirepass: &Secret) {
        let mut known = self.requirepass.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == *requirepass {
            return;
        }
        let changed = self.change(DEFAULT_USER, |user| {
            let mut user = user.cloned().expect("nobody removes it");
            user.set_password(requirepass.reveal());
            Ok::<_, std::convert::Infallible>(user)
        });
        let Ok(_) = changed;
        *known = requirepass.clone();
    }

    /// The user of this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.read().get(name).cloned()
    }

    /// Who connections are that have not said who they are.
    pub(crate) fn default_user(&self) -> Arc<User> {
        self.find(DEFAULT_USER).expect("nobody removes it")
    }

    /// All, by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.read().values().cloned().collect()
    }

    /// Puts what `change` makes of the user of this name, if there is one, in its place; says whether there was one.
    ///
    /// # Errors
    /// Those of `change`; nothing has changed.
    pub(crate) fn change<E>(
        &self,
        name: &[u8],
        change: impl FnOnce(Option<&User>) -> Result<User, E>,
    ) -> Result<bool, E> {
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let former = users.get(name).map(Arc::as_ref);
        let new = Arc::new(change(former)?);
        let was_there = users.insert(name.into(), new).is_some();
        self.generation.fetch_add(1, Ordering::Release);
        Ok(was_there)
    }

    /// The same, if the user has no more rules than all users together may have: 8 MiB, which compiled take some 20 times as much.
    ///
    /// # Errors
    /// Those of `change`, and that there are too many.
    pub(crate) fn change_within_bounds(
        &self,
        name: &[u8],
        change: impl FnOnce(Option<&User>) -> Result<User, Failure>,
    ) -> Result<bool, Failure> {
        let others: usize = self
            .read()
            .iter()
            .filter(|(other, _)| ***other != *name)
            .map(|(_, user)| user.line().len())
            .sum();
        self.change(name, |former| {
            let user = change(former)?;
            let bytes = others + user.line().len();
            if bytes > ALL_BYTES_MAX {
                let text = format!(
                    "ERR all users would have {bytes} B of rules, more than the limit of {ALL_BYTES_MAX} B"
                );
                return Err(text.into());
            }
            Ok(user)
        })
    }

    /// Removes a user, which is not `default`; says whether there was one.
    pub(crate) fn remove(&self, name: &[u8]) -> bool {
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let was_there = name != DEFAULT_USER && users.remove(name).is_some();
        self.generation.fetch_add(u64::from(was_there), Ordering::Release);
        was_there
    }

    /// These are all users from now on, but for `default` if it is not among them.
    pub(crate) fn replace(&self, new: Vec<User>) {
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        users.retain(|name, _| **name == *DEFAULT_USER);
        users.extend(new.into_iter().map(|user| (Box::from(&*user.name), Arc::new(user))));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Takes over what has changed of the user of `client`, if anything has.
    #[inline]
    pub(crate) fn refresh(&self, member: &mut Member, client: &Arc<Client>) {
        if member.generation != self.generation.load(Ordering::Acquire) {
            self.renew(member, client);
        }
    }

    #[cold]
    fn renew(&self, member: &mut Member, client: &Arc<Client>) {
        let users = self.read();
        member.generation = self.generation.load(Ordering::Acquire);
        let user = users.get(&*member.name);
        member.is_gone = user.is_none();
        let restricted = user.filter(|user| !user.is_unrestricted());
        member.permissions.client = restricted.map(|_| Arc::clone(client));
        member.permissions.user = restricted.cloned();
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Users> {
        self.users.read().unwrap_or_else(PoisonError::into_inner)
    }
}
