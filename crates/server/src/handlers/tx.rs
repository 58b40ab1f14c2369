//! TX.*: transactions over keys and databases. TX.DO is in `tx::stage`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;
use commands::args::shown;
use commands::call::{Failure, Outcome as Answer, text};
use commands::words::{ECHO_BYTES_MAX, shortened};
use resp::{Args, ArgsView, Limits, Parsed, RequestParser, Writer};
use sql::{Answered, Statement, StatementError};
use txn::coordinator::TransactionInfo;
use txn::id::TxId;
use txn::protocol::{Outcome, State};

use crate::clients::Client;
use crate::control::Control;
use crate::errors;
use crate::server::Server;
use crate::session::{Newest, Session};
use crate::tx::chain::Statements;
use crate::tx::error::TxError;
use crate::tx::{Ending, Known, Named, Stray, Summary, Transactions, rows_bytes};

/// The transactions, unless this server has none.
pub(crate) fn transactions(server: &Server) -> Result<&Arc<Transactions>, Failure> {
    server.transactions.as_ref().ok_or_else(|| "ERR this server was started without transactions".into())
}

/// A request was answered with an error. If it is a TX.* command of a transaction, by its identifier or as the newest of its
/// connection, that transaction can only roll back from now on: who sends several at once has seen no reply when the commit comes, and
/// who goes on after an error would commit a part.
pub(crate) fn spoil(server: &Server, session: &mut Session, args: ArgsView<'_>, reply: &[u8]) {
    let (verb, Some(id)) = (args.get(0), args.try_get(1)) else { return };
    spoil_named(server, session, verb, id, reply);
}

/// As [`spoil`], for a request that could not be parsed: what it begins with is looked at.
pub(crate) fn spoil_unparsed(server: &Server, session: &mut Session, input: &[u8], reply: &[u8]) {
    let words: [Option<&[u8]>; 2] = if input.starts_with(b"*") {
        // *COUNT $LENGTH VERB $LENGTH ID, each on a line.
        let head = &input[..input.len().min(UNPARSED_BYTES_MAX)];
        let mut lines =
            head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        [lines.nth(2), lines.nth(1)]
    } else {
        let mut words = input.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        [words.next(), words.next()]
    };
    if let [Some(verb), Some(id)] = words {
        spoil_named(server, session, verb, id, reply);
    }
}

fn spoil_named(server: &Server, session: &mut Session, verb: &[u8], id: &[u8], reply: &[u8]) {
    let Some(transactions) = &server.transactions else { return };
    if !session.authenticated || !works_in_transaction(verb) {
        return;
    }
    let Ok(tx) = named(session, id) else { return };
    if let Some(newest) = session.newest_tx.as_mut().filter(|newest| newest.tx == tx) {
        newest.answers.clear();
    }
    let error = String::from_utf8_lossy(shortened(reply, REPLY_BYTES_MAX));
    let error = error.trim_start_matches('-').trim_end();
    let verb = String::from_utf8_lossy(shortened(verb, ECHO_BYTES_MAX));
    transactions.spoil(tx, &format!("{}: {error}", verb.to_ascii_uppercase()));
}

/// Whether an error of this command leaves its transaction nothing but to roll back: it is none that only looks, or that operators use.
fn works_in_transaction(verb: &[u8]) -> bool {
    let looks = [&b"tx.status"[..], b"tx.list", b"tx.resolve", b"tx.recover", b"tx.begin"];
    verb.get(..3).is_some_and(|head| head.eq_ignore_ascii_case(b"tx."))
        && !looks.iter().any(|other| verb.eq_ignore_ascii_case(other))
}

/// The transaction that the first argument names: by its identifier, or as the newest of this connection.
pub(crate) fn transaction_id(session: &Session, args: ArgsView<'_>) -> Result<TxId, Failure> {
    named(session, args.get(1))
}

fn named(session: &Session, id: &[u8]) -> Result<TxId, Failure> {
    if id == NEWEST {
        return session.newest_tx.as_ref().map(|newest| newest.tx).ok_or_else(|| NO_NEWEST.into());
    }
    let tx = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
    tx.ok_or_else(|| {
        format!("ERR '{}' is no identifier of a transaction: TX.BEGIN gives them", shown(id)).into()
    })
}

/// Whether a request names its transaction as the newest of its connection: what was begun in one pipeline may be answered at once.
pub(crate) fn names_newest(args: ArgsView<'_>) -> bool {
    args.try_get(1) == Some(NEWEST)
        && args.get(0).get(..3).is_some_and(|verb| verb.eq_ignore_ascii_case(b"tx."))
}

/// Whether a request ends the newest transaction of its connection.
pub(crate) fn ends_newest(args: ArgsView<'_>) -> bool {
    names_newest(args)
        && [&b"tx.commit"[..], b"tx.rollback"].iter().any(|verb| args.get(0).eq_ignore_ascii_case(verb))
}

pub(crate) fn begin(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    // Should it fail, what follows in the same pipeline must not go into the one before.
    control.session.newest_tx = None;
    let settings = control.server.settings.current();
    let (usual, most) = (settings.txn_timeout, settings.txn_timeout_max);
    let timeout = match (args.len(), args.try_get(1)) {
        (1, _) => usual.min(most),
        (3, Some(word)) if word.eq_ignore_ascii_case(b"timeout") => {
            let most_ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
            let what = format!("TIMEOUT '{}' is not a whole number of milliseconds", shown(args.get(2)));
            let ms = number(args.get(2), most_ms);
            Duration::from_millis(
                ms.ok_or_else(|| format!("ERR {what} from 1 to {most_ms} (txn.timeout_max)"))?,
            )
        }
        _ => return Err(text::SYNTAX.into()),
    };
    let transactions = transactions(control.server)?;
    let begun = transactions.begin(timeout, control.now, &who(&control.session.client));
    let tx = begun.map_err(|error| errors::of_transaction(&error.into()))?;
    control.session.newest_tx = Some(Box::new(Newest { tx, answers: VecDeque::new() }));
    let branches = transactions.branches(tx);
    out.map(2);
    pair(out, "id", &tx.to_string());
    out.bulk(b"branches");
    out.map(branches.len());
    branches.for_each(|(name, branch)| pair(out, name, &branch));
    Ok(())
}

/// A number from 1 to `most`.
fn number(text: &[u8], most: u64) -> Option<u64> {
    let number: Option<u64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| (1..=most).contains(number))
}

/// `TX.ENLIST id RESOURCE name [BRANCH branch] [OWNER session]`
pub(crate) fn enlist(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    let tx = transaction_id(control.session, args)?;
    if !args.get(2).eq_ignore_ascii_case(b"resource") {
        return Err(text::SYNTAX.into());
    }
    let (mut branch, mut owner) = (None, None);
    for at in (4..args.len()).step_by(2) {
        let value = args.try_get(at + 1).ok_or(Failure::from(text::SYNTAX))?;
        if args.get(at).eq_ignore_ascii_case(b"branch") {
            branch = Some(value);
        } else if args.get(at).eq_ignore_ascii_case(b"owner") {
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            owner = Some(number.ok_or(Failure::from(text::NOT_INTEGER))?);
        } else {
            return Err(text::SYNTAX.into());
        }
    }
    let transactions = transactions(control.server)?;
    let (place, named) = database(transactions, args.get(3))?;
    await_start(control, transactions, tx, place)?;
    let id = transactions.branch_id(tx, place);
    if branch.is_some_and(|branch| branch != id.as_bytes()) {
        return Err(format!("ERR the branch of {} in transaction {tx} is {id}", named.name).into());
    }
    transactions.adopt(tx, place, named, owner).map_err(|error| errors::of_transaction(&error))?;
    out.bulk(id.as_bytes());
    Ok(())
}

/// Waits for a database that is not ready, if the server has just started: it may not have had the time to connect.
fn await_start(control: &Control<'_>, transactions: &Transactions, tx: TxId, place: u16) -> Answer {
    match transactions.may_become_ready(tx, place, control.now) {
        true => Err(Failure::Wait(control.now + START_PAUSE)),
        false => Ok(()),
    }
}

fn database<'a>(transactions: &'a Transactions, name: &[u8]) -> Result<(u16, &'a Named), Failure> {
    transactions
        .database(name)
        .ok_or_else(|| format!("ERR there is no resource '{}': {}", shown(name), transactions.names()).into())
}

/// `TX.SQL id resource statement [parameter ...]`
pub(crate) fn sql(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    let again = control.now + PATIENCE;
    let session = &mut *control.session;
    let is_newest = args.get(1) == NEWEST;
    let answer = match (&mut session.pending, &mut session.newest_tx) {
        (Some(pending), newest) if pending.until.is_some() => {
            // Woken for another reason: it still runs.
            let answer = pending.answers.pop_front().ok_or(Failure::Wait(again))?;
            if let Some(newest) = newest.as_mut().filter(|_| is_newest) {
                newest.answers = std::mem::take(&mut pending.answers);
            }
            Some(answer)
        }
        (_, Some(newest)) if is_newest => newest.answers.pop_front(),
        _ => None,
    };
    if let Some(answer) = answer {
        // What it took itself: it may have waited for others of its chain.
        let took_ns = u64::try_from(answer.took.as_nanos()).unwrap_or(u64::MAX);
        session.pending.get_or_insert_default().since = Some(Nanos(control.now.0.saturating_sub(took_ns)));
        return write_answered(control.server, answer.answered, out);
    }
    let tx = transaction_id(session, args)?;
    let transactions = transactions(control.server)?;
    let first = statement(transactions, args)?;
    await_start(control, transactions, tx, first.0)?;
    let mut statements = Statements::from([first]);
    let session = &mut *control.session;
    if is_newest {
        let limits = control.server.tuned.limits(session.authenticated);
        statements.extend(statements_behind(transactions, control.behind, &limits));
    }
    let (peers, clock) = (&control.server.peers, &control.server.clock);
    transactions
        .run(peers, clock, session.client.id, tx, statements)
        .map_err(|error| errors::of_transaction(&error))?;
    session.pending.get_or_insert_default().until = Some(again);
    Err(Failure::Wait(again))
}

/// The statement of a request, and the place of its database.
fn statement(transactions: &Transactions, args: ArgsView<'_>) -> Result<(u16, Statement), Failure> {
    let (place, _) = database(transactions, args.get(2))?;
    let not_text = || Failure::from("ERR the statement is no UTF-8");
    let text = String::from_utf8(args.get(3).to_vec()).map_err(|_| not_text())?;
    let parameters = args.iter().skip(4).map(|parameter| Some(parameter.to_vec())).collect();
    Ok((place, Statement { text, parameters }))
}

/// The statements of the requests that `behind` begins with, as far as they are statements of the newest transaction, too, and can be run.
fn statements_behind(
    transactions: &Transactions,
    mut behind: &[u8],
    limits: &Limits,
) -> Vec<(u16, Statement)> {
    let (mut statements, mut args) = (Vec::new(), Args::default());
    while statements.len() < STATEMENTS_BEHIND_MAX
        && let Ok(Parsed::Complete { consumed }) = RequestParser::new().parse(behind, limits, &mut args)
        && let request = args.view(behind)
        && request.len() >= 4
        && names_newest(request)
        && request.get(0).eq_ignore_ascii_case(b"tx.sql")
        && let Ok(statement) = statement(transactions, request)
    {
        statements.push(statement);
        behind = &behind[consumed..];
        args.clear();
    }
    statements
}

fn write_answered(
    server: &Server,
    answered: Result<Answered, StatementError>,
    out: &mut Writer<'_>,
) -> Answer {
    match answered {
        Err(error) => return Err(format!("ERR {}", one_line(&error.to_string())).into()),
        Ok(Answered::Changed(count)) => out.integer(i64::try_from(count).unwrap_or(i64::MAX)),
        Ok(Answered::Rows(rows)) => {
            if server.tuned.sizes.admit_reply(rows_bytes(&rows)).is_err() {
                // The statement has run, and may have changed what it returned.
                return Err(errors::rows_too_large(server.tuned.sizes.reply_bytes_max()).into());
            }
            out.array(rows.len());
            for row in rows {
                out.array(row.len());
                for value in row {
                    match value {
                        Some(value) => out.bulk(&value),
                        None => out.null(),
                    }
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn commit(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    end(control, args, None, out)
}

pub(crate) fn rollback(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    end(control, args, Some("the client rolled it back"), out)
}

fn end(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    rollback: Option<&str>,
    out: &mut Writer<'_>,
) -> Answer {
    let tx = transaction_id(control.session, args)?;
    let transactions = transactions(control.server)?;
    // It can be asked again, as it is when the connection is woken.
    match transactions
        .end(tx, control.session.client.id, rollback)
        .map_err(|error| errors::of_transaction(&error))?
    {
        Ending::Waits => Err(Failure::Wait(control.now + LOOK_AGAIN)),
        Ending::Ended(outcome) => {
            let (word, why) = outcome_words(&outcome);
            let why = if outcome == Outcome::Committed { transactions.laggards(tx) } else { one_line(why) };
            out.array(2);
            out.bulk(word.as_bytes());
            out.bulk(why.as_bytes());
            Ok(())
        }
    }
}

pub(crate) fn status(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    let tx = transaction_id(control.session, args)?;
    let ended = |word: &str, why: &str, out: &mut Writer<'_>| {
        out.map(4);
        pair(out, "id", &tx.to_string());
        pair(out, "state", word);
        pair(out, "reason", &one_line(why));
        out.bulk(b"branches");
        out.array(0);
    };
    match transactions(control.server)?.known(tx) {
        Known::Live(info) => write_info(control, &info, out),
        Known::Ended(outcome) => {
            let (word, why) = outcome_words(&outcome);
            ended(word, why, out);
        }
        Known::Nothing => ended("none", NOTHING_KNOWN, out),
    }
    Ok(())
}

/// `TX.LIST [state] [COUNT n]`
pub(crate) fn list(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    let is_count = |at: usize| args.try_get(at).is_some_and(|word| word.eq_ignore_ascii_case(b"count"));
    let (state, most) = match args.len() {
        1 => (None, LISTED_USUALLY),
        2 => (Some(state(args.get(1))?), LISTED_USUALLY),
        3 if is_count(1) => (None, count(args.get(2))?),
        4 if is_count(2) => (Some(state(args.get(1))?), count(args.get(3))?),
        _ => return Err(text::SYNTAX.into()),
    };
    let coordinator = transactions(control.server)?.coordinator();
    let all = match state {
        Some(State::Done) => coordinator.kept(most),
        state => coordinator.transactions(state, most),
    };
    let bytes = all
        .iter()
        .map(|info| NOTE_BYTES + 128 + info.branches.iter().map(|it| 160 + it.trouble.len()).sum::<usize>())
        .sum();
    control.admit_reply(bytes)?;
    out.array(all.len());
    all.iter().for_each(|info| write_info(control, info, out));
    Ok(())
}

fn state(word: &[u8]) -> Result<State, Failure> {
    let found = State::ALL.into_iter().find(|state| state.name().as_bytes().eq_ignore_ascii_case(word));
    found.ok_or_else(|| {
        let names = State::ALL.map(State::name);
        format!("ERR '{}' is no state: one of {}", shown(word), names.join(", ")).into()
    })
}

fn count(text: &[u8]) -> Result<usize, Failure> {
    let number = number(text, LISTED_MAX).map(|number| number as usize);
    number.ok_or_else(|| format!("ERR COUNT is a whole number from 1 to {LISTED_MAX}").into())
}

/// `TX.RESOLVE id COMMIT|ROLLBACK [DRYRUN]`; `id` may be that of a branch, as TRYAGAIN tells it where no transaction of this server has
/// begun it.
pub(crate) fn resolve(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    let (commit, word) = match args.get(2) {
        word if word.eq_ignore_ascii_case(b"commit") => (true, "commit"),
        word if word.eq_ignore_ascii_case(b"rollback") => (false, "rollback"),
        _ => return Err(text::SYNTAX.into()),
    };
    let is_dry = match args.try_get(3) {
        None => false,
        Some(word) if args.len() == 4 && word.eq_ignore_ascii_case(b"dryrun") => true,
        Some(_) => return Err(text::SYNTAX.into()),
    };
    let transactions = transactions(control.server)?;
    let branch = std::str::from_utf8(args.get(1)).ok().filter(|id| id.starts_with("evk_"));
    let tx = match branch {
        Some(branch) => transactions.transaction_of(branch),
        None => Some(transaction_id(control.session, args)?),
    };
    let what = tx.map_or_else(|| format!("of branch {}", shown(args.get(1))), |tx| tx.to_string());
    let state = tx.and_then(|tx| transactions.coordinator().transaction(tx)).map(|info| info.state.name());
    let resolved = resolve_one(control, transactions, tx, branch, &what, commit, is_dry);
    if !is_dry && !matches!(resolved, Err(Failure::Wait(_))) {
        let who = who(&control.session.client);
        let (state, outcome) =
            (state.unwrap_or("not known here"), if resolved.is_ok() { "done" } else { "refused" });
        tracing::warn!(
            who,
            decision = word,
            outcome,
            "operator decision on transaction {what}, which was {state}"
        );
    }
    resolved?;
    out.ok();
    Ok(())
}

/// Resolves, or only looks whether that can be.
fn resolve_one(
    control: &Control<'_>,
    transactions: &Transactions,
    tx: Option<TxId>,
    branch: Option<&str>,
    what: &str,
    commit: bool,
    is_dry: bool,
) -> Answer {
    let coordinator = transactions.coordinator();
    let resolved = tx.and_then(|tx| match is_dry {
        true => coordinator.check_resolvable(tx),
        false => coordinator.resolve(tx, commit),
    });
    if let Some(resolved) = resolved {
        return resolved.map_err(|misuse| errors::of_transaction(&misuse.into()));
    }
    let own = tx.map(|tx| transactions.keys_branch(tx));
    let branch = own.as_deref().or(branch).expect("it has no transaction as it is a branch");
    let unknown = || Err(errors::of_transaction(&TxError::NotWaiting(what.to_owned())));
    if is_dry {
        return if transactions.has_stray(branch) { Ok(()) } else { unknown() };
    }
    match transactions.end_stray(branch, commit) {
        Stray::Ended => Ok(()),
        Stray::Waits => Err(Failure::Wait(control.now + STRAY_PAUSE)),
        Stray::Unknown => unknown(),
        Stray::Failed(why) => Err(format!("ERR {branch} is prepared as before: {why}").into()),
    }
}

/// A client, for operators: its address, and its name if it has one.
fn who(client: &Client) -> String {
    let (address, labels) = (client.address(), client.labels());
    if labels.name.is_empty() {
        return address;
    }
    format!("{address} ({})", shown(&labels.name))
}

pub(crate) fn recover(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Answer {
    transactions(control.server)?.coordinator().recover_now();
    tracing::info!(
        who = who(&control.session.client),
        "operator decision: databases are asked what they hold prepared"
    );
    out.ok();
    Ok(())
}

fn write_info(control: &Control<'_>, info: &TransactionInfo, out: &mut Writer<'_>) {
    let summary = control.server.transactions.as_ref().and_then(|all| all.noted(info.tx));
    out.map(7);
    pair(out, "id", &info.tx.to_string());
    pair(out, "state", info.state.name());
    pair(out, "reason", &one_line(&info.reason));
    out.bulk(b"age_ms");
    match &summary {
        Some(summary) => {
            out.integer(i64::try_from(control.now.since(summary.begun).as_millis()).unwrap_or(i64::MAX));
        }
        None => out.null(),
    }
    pair(out, "client", summary.as_ref().map_or("", |summary| &summary.client));
    pair(out, "last", &summary.as_ref().map(Summary::last).unwrap_or_default());
    out.bulk(b"branches");
    out.array(info.branches.len());
    for branch in &info.branches {
        out.map(5);
        pair(out, "resource", &branch.resource);
        pair(out, "branch", &branch.id);
        pair(out, "state", branch.state.name());
        out.bulk(b"attempts");
        out.integer(branch.attempts.into());
        let trouble = if branch.is_configured {
            one_line(&branch.trouble)
        } else {
            "there is no such resource any more".to_owned()
        };
        pair(out, "trouble", &trouble);
    }
}

fn outcome_words(outcome: &Outcome) -> (&'static str, &str) {
    match outcome {
        Outcome::Committed => ("committed", ""),
        Outcome::Aborted(why) => ("aborted", why),
        Outcome::Unknown(why) => ("unknown", why),
        Outcome::Heuristic(why) => ("heuristic", why),
    }
}

fn pair(out: &mut Writer<'_>, name: &str, value: &str) {
    out.bulk(name.as_bytes());
    out.bulk(value.as_bytes());
}

/// What databases say may have several lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How commands name the transaction that their connection began last.
const NEWEST: &[u8] = b"$";
const NO_NEWEST: &str = "NOTX this connection has begun no transaction for $ to name: TX.BEGIN begins one";
const NOTHING_KNOWN: &str = "nothing is known of it: it never began here, or was rolled back before the server was started \
                             again, or was committed longer than txn.keep ago, or by a single resource, which knows";
/// A database that is not ready is looked at again after so long, while a server has just started.
const START_PAUSE: Duration = Duration::from_millis(20);
/// So much of an error is looked at: less is remembered.
const REPLY_BYTES_MAX: usize = 2 << 10;
/// A request that is wrong has its verb and its transaction within so much.
const UNPARSED_BYTES_MAX: usize = 256;
/// Statements that are run with the one before them.
const STATEMENTS_BEHIND_MAX: usize = 15;
/// Transactions that TX.LIST tells unless it is told how many, and at most: other connections of the loop wait meanwhile.
const LISTED_USUALLY: usize = 100;
const LISTED_MAX: u64 = 10_000;
/// What is told of a summary, at most.
const NOTE_BYTES: usize = 512;
/// The message that an answer has come wakes the connection; these only bound a wait that lost it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing tells when the end of a branch that an operator ends is durable.
const STRAY_PAUSE: Duration = Duration::from_millis(10);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
