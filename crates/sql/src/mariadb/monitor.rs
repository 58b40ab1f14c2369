//! The transactions in what SHOW ENGINE INNODB STATUS says.
//!
//! ```text
//!  LIST OF TRANSACTIONS FOR EACH SESSION:
//!  ---TRANSACTION 27, ACTIVE (PREPARED) 6 sec                                     its number, and how far it is
//!  1 lock struct(s), heap size 1128, 0 row lock(s), undo log entries 1
//!  MariaDB thread id 6, OS thread handle 140320748037824, query id 14 ...         "MySQL thread id" elsewhere; missing: no session has it
//!  what its session runs
//!  ---TRANSACTION (0x7f9f05561b80), not started
//!  --------
//! ```
//!
//! Invariants
//!   1. Whatever a statement has in it hides no transaction: it stands behind its own transaction's session, and before the next. It may
//!      only look like one more.
//!
//! Out of scope: locks, and all other sections.
//! Source: `trx_print_low`, `innobase_mysql_print_thd`, `innodb_show_status` of MariaDB 10.11.

/// A transaction that a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// 0: it has no number.
    pub(super) id: u64,
    pub(super) session: u64,
    pub(super) is_prepared: bool,
}

/// The transactions that have a session; `None` if the list is not there whole.
pub(super) fn transactions(text: &str) -> Option<Vec<Shown>> {
    let (_, list) = text.split_once(LIST)?;
    if text.contains(CUT) {
        return None;
    }
    let (mut all, mut head) = (Vec::new(), None);
    for line in list.lines() {
        if let Some(rest) = line.strip_prefix(HEAD) {
            let id = rest.split(',').next().and_then(|id| id.trim().parse().ok()).unwrap_or(0);
            head = Some((id, rest.contains("(PREPARED)")));
        } else if let (Some((id, is_prepared)), Some(session)) = (head, session(line)) {
            all.push(Shown { id, session, is_prepared });
        }
    }
    Some(all)
}

/// `MariaDB thread id 6, ...`
fn session(line: &str) -> Option<u64> {
    let (server, rest) = line.split_once(" thread id ")?;
    let is_word = server.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then(|| rest.split(',').next()?.parse().ok()).flatten()
}

const LIST: &str = "LIST OF TRANSACTIONS FOR EACH SESSION:";
const HEAD: &str = "---TRANSACTION ";
/// The server shows 1 MiB, and leaves out transactions if that is not enough.
const CUT: &str = "... truncated...";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_transactions_are_told_with_their_sessions() {
        let text = "\nTRANSACTIONS\n---\nTrx id counter 30\nLIST OF TRANSACTIONS FOR EACH SESSION:\n\
            ---TRANSACTION 27, ACTIVE (PREPARED) 6 sec\n1 lock struct(s), heap size 1128, 0 row lock(s)\n\
            MariaDB thread id 6, OS thread handle 140320748037824, query id 14 127.0.0.1 root \n\
            ---TRANSACTION 26, ACTIVE (PREPARED) 9 sec recovered trx\n1 lock struct(s), heap size 1128\n\
            ---TRANSACTION (0x7f9f05561b80), ACTIVE 0 sec\n0 lock struct(s), heap size 1128, 0 row lock(s)\n\
            MySQL thread id 5, OS thread handle 1, query id 15 127.0.0.1 root starting\nSHOW ENGINE INNODB STATUS\n\
            ---TRANSACTION (0x7f9f05561b81), not started\n--------\nFILE I/O\n";
        let prepared = Shown { id: 27, session: 6, is_prepared: true };
        let own = Shown { id: 0, session: 5, is_prepared: false };
        assert_eq!(transactions(text), Some(vec![prepared, own]));
    }

    #[test]
    fn statement_that_looks_like_a_transaction_hides_none() {
        let text = "LIST OF TRANSACTIONS FOR EACH SESSION:\n---TRANSACTION 27, ACTIVE 6 sec\n\
            MariaDB thread id 6, OS thread handle 1, query id 14 127.0.0.1 root \nSELECT '\n\
            ---TRANSACTION 1, not started\nMariaDB thread id 6, '\n---TRANSACTION 28, ACTIVE (PREPARED) 6 sec\n\
            MariaDB thread id 7, OS thread handle 1, query id 14 127.0.0.1 root \n";
        let shown = transactions(text).unwrap_or_default();
        assert!(shown.contains(&Shown { id: 28, session: 7, is_prepared: true }), "{shown:?}");
    }

    #[test]
    fn list_that_is_missing_or_cut_is_none() {
        assert_eq!(transactions("---TRANSACTION 27, ACTIVE\n"), None);
        assert_eq!(transactions("LIST OF TRANSACTIONS FOR EACH SESSION:\n... truncated...\n"), None);
    }
}
