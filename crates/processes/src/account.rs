//! Users of the system that processes run as, and whether this process may start and end such processes.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use rustix::thread::{CapabilitySet, capabilities};

/// A user that processes run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its number.
    pub uid: u32,
    /// Its group's.
    pub gid: u32,
    /// Its name and home, if it was named.
    pub person: Option<(String, PathBuf)>,
}

/// Why a process cannot run as a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountError {
    /// The system's list has no such user, or it is not numbers.
    Unknown(String),
    /// This process lacks a right.
    Right(&'static str),
}

impl Account {
    /// The user that `text` names: a name of `/etc/passwd`, or `uid:gid`.
    ///
    /// # Errors
    /// There is none.
    pub fn find(text: &str) -> Result<Self, AccountError> {
        let numbers = text.split_once(':').map(|(uid, gid)| (uid.parse().ok(), gid.parse().ok()));
        if let Some((Some(uid), Some(gid))) = numbers {
            return Ok(Self { uid, gid, person: None });
        }
        let list = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self::listed(text, &list).ok_or_else(|| AccountError::Unknown(text.to_owned()))
    }

    /// The user called `name` in a list as `/etc/passwd`.
    fn listed(name: &str, list: &str) -> Option<Self> {
        list.lines().find_map(|line| {
            let mut parts = line.split(':');
            let (of, _, uid, gid) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
            let home = parts.nth(1)?;
            if of != name {
                return None;
            }
            let person = Some((name.to_owned(), PathBuf::from(home)));
            Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()?, person })
        })
    }

    /// Whether this process may start processes of other users, find all that they start, and end them.
    ///
    /// # Errors
    /// The right that it lacks.
    pub fn check_rights() -> Result<(), AccountError> {
        // Without being root a process keeps its own groups for what it starts as another user.
        if !rustix::process::geteuid().is_root() {
            return Err(AccountError::Right("to be root"));
        }
        let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let lacks = NEEDED.iter().find(|(right, _)| !has.contains(*right));
        lacks.map_or(Ok(()), |(_, name)| Err(AccountError::Right(name)))
    }
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => {
                write!(f, "there is no user `{text}`: a name in /etc/passwd, or numbers as 65534:65534")
            }
            Self::Right(right) => {
                write!(f, "the server has not the right to run processes as another user: it lacks {right}")
            }
        }
    }
}

impl std::error::Error for AccountError {}

/// To become another user, to end its processes, and to see the mark in their environment.
const NEEDED: [(CapabilitySet, &str); 4] = [
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::KILL, "CAP_KILL"),
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_name_or_numbers() {
        let list = "root:x:0:0:root:/root:/bin/bash\nworkers:x:990:991:a: /nowhere:/bin/false\nbroken:x:no\n";
        let person = Some(("workers".to_owned(), PathBuf::from(" /nowhere")));
        assert_eq!(Account::listed("workers", list), Some(Account { uid: 990, gid: 991, person }));
        assert_eq!(Account::listed("broken", list), None);
        assert_eq!(Account::listed("work", list), None);
        assert_eq!(Account::find("7:8"), Ok(Account { uid: 7, gid: 8, person: None }));
        for unknown in ["7", "7:", "nobody-of-this-name", ":"] {
            assert_eq!(Account::find(unknown), Err(AccountError::Unknown(unknown.to_owned())));
        }
    }
}
