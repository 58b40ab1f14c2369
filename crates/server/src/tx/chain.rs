//! Statements that follow each other in one pipeline, each begun when the one before was answered.
//!
//! ```text
//!  TX.SQL $ a   -> Chain: a -answered-> b -answered-> c ...      on the drivers' thread
//!  TX.SQL $ b                                          '-> the connection is woken once, with all answers
//!  TX.SQL $ c
//! ```
//!
//! Their order is that of the pipeline, and no two run at a time: as if the connection had been woken after each.
//!
//! Invariants
//!   1. A chain ends with the first error, and where answers have become large: commands that were not run with it are run by themselves.
//!   2. Each answer is taken by the command whose statement it answers: between commands of a chain there is none of another kind, and an
//!      error of one of them forgets the answers behind it.
//!   3. A chain keeps neither the server nor its transactions alive.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use clock::{Clock, Nanos};
use sql::{Answered, Statement, StatementError};
use txn::id::{BranchId, TxId};

use super::answer::Answer;
use super::{Transactions, rows_bytes};
use crate::message::Message;
use crate::peers::Connections;

/// Statements of a transaction, and the place of the database of each, in order.
pub(crate) type Statements = VecDeque<(u16, Statement)>;

/// Statements that are being run.
pub(super) struct Chain {
    transactions: Weak<Transactions>,
    peers: Weak<Connections>,
    clock: Arc<dyn Clock>,
    client: u64,
    tx: TxId,
    statements: Statements,
    answers: VecDeque<Answer>,
    /// Of rows, so far.
    answers_bytes: usize,
    /// The statement that runs now.
    begun: Nanos,
}

impl Chain {
    pub(super) fn new(
        transactions: &Arc<Transactions>,
        peers: &Arc<Connections>,
        clock: &Arc<dyn Clock>,
        client: u64,
        tx: TxId,
        statements: Statements,
    ) -> Self {
        Self {
            transactions: Arc::downgrade(transactions),
            peers: Arc::downgrade(peers),
            clock: Arc::clone(clock),
            client,
            tx,
            statements,
            answers: VecDeque::new(),
            answers_bytes: 0,
            begun: clock.now(),
        }
    }

    /// The place of the database that is next, if any is.
    pub(super) fn next_place(&self) -> Option<u16> {
        self.statements.front().map(|(place, _)| *place)
    }

    /// Begins the next statement, in this branch.
    pub(super) fn begin_next(mut self, transactions: &Transactions, branch: BranchId) {
        let (place, statement) = self.statements.pop_front().expect("a statement is next");
        transactions.note(self.tx, place, &statement.text);
        let database = &transactions.databases[usize::from(place) - 1].database;
        database.run(branch, statement, Box::new(move |answered| self.on_answer(answered)));
    }

    fn on_answer(mut self, answered: Result<Answered, StatementError>) {
        let (Some(peers), Some(transactions)) = (self.peers.upgrade(), self.transactions.upgrade()) else {
            return;
        };
        let now = self.clock.now();
        if let Ok(Answered::Rows(rows)) = &answered {
            self.answers_bytes += rows_bytes(rows);
        }
        // Also if its connection is gone, and nobody reads the error.
        if let Err(error) = &answered {
            transactions.spoil(self.tx, &format!("TX.SQL: ERR {error}"));
        }
        let may_go_on = answered.is_ok() && self.answers_bytes <= ANSWERS_BYTES_MAX;
        self.answers.push_back(Answer { answered, took: now.since(self.begun) });
        self.begun = now;
        // One that cannot be run is left to its own command, which is told why.
        if let (true, Some(place)) = (may_go_on, self.next_place())
            && let Ok(branch) = transactions.enlist(self.tx, place)
        {
            return self.begin_next(&transactions, branch);
        }
        peers.post(self.client, Message::Answered(self.answers));
    }
}

/// Rows of a chain that wait for statements behind them: more would not leave with one write.
const ANSWERS_BYTES_MAX: usize = 16 << 10;
