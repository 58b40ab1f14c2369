//! How much a PostgreSQL may send, and how it must let us in: looked at before the driver reads it.
//!
//! The driver keeps what a server sends: before the login is over each notice and each parameter, afterwards each message until it is whole,
//! and each name of a parameter for ever. A server that is broken, or that somebody has put in its place, would exhaust memory.
//!
//! ```text
//!  Login: at most LOGIN_BYTES_MAX and LOGIN_MESSAGES_MAX in all      -ReadyForQuery-> Session: bounds for each message, for what nobody
//!  [Proof::Scram: a SCRAM exchange, or nothing more is read]                          asked for, and for all between two ReadyForQuery
//! ```
//!
//! Invariants
//!   1. What is too long is refused when its length has come, before its body is read.
//!   2. With [`Proof::Scram`] the server is sent no password, nor anything that is made of one, except a SCRAM exchange; it has proved that
//!      it knows the password when the login is over. The driver checks the proof; here it is seen that there is one.
//!
//! No I/O. Source: PostgreSQL's manual, "Message Formats"; `require_auth` of libpq.

use std::fmt;

/// How a server must let us in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// As it likes.
    Any,
    /// With SCRAM.
    Scram,
}

/// What one connection has been sent.
#[derive(Debug)]
pub(super) struct Gate {
    proof: Proof,
    /// The login is not over.
    is_login: bool,
    has_proved: bool,
    messages: usize,
    /// Of the login, or since the last ReadyForQuery.
    bytes: usize,
    /// Of these, what nobody asked for.
    unasked_bytes: usize,
    /// The message that is being read.
    kind: u8,
    /// How it begins, if it is about authentication.
    lead: Vec<u8>,
    name: Option<u64>,
    /// Hashes of the names of parameters.
    names: Vec<u64>,
}

/// Why a connection is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is no PostgreSQL: how it begins.
    NoPostgres(Vec<u8>),
    /// The login is too long.
    Login,
    /// A message is: its kind, and its length.
    Message(u8, usize),
    /// What comes unasked.
    Unasked,
    /// An answer.
    Answer,
    /// Names of parameters.
    Names,
    /// Its challenge takes so many rounds.
    Rounds(u64),
    /// It lets us in without SCRAM: how it would.
    Unproved(&'static str),
}

impl Gate {
    pub(super) fn new(proof: Proof) -> Self {
        Self {
            proof,
            is_login: true,
            has_proved: false,
            messages: 0,
            bytes: 0,
            unasked_bytes: 0,
            kind: 0,
            lead: Vec::new(),
            name: None,
            names: Vec::new(),
        }
    }

    /// A message begins, whose head has come: what it is, and how long its body will be.
    pub(super) fn begin(&mut self, kind: u8, body_bytes: usize) -> Result<(), Refused> {
        self.kind = kind;
        self.lead.clear();
        self.name = (kind == PARAMETER_STATUS).then_some(FNV_START);
        self.bytes = self.bytes.saturating_add(body_bytes + HEAD_BYTES);
        if self.is_login {
            self.messages += 1;
            if !LOGIN_KINDS.contains(&kind) {
                let length = u32::try_from(body_bytes + 4).unwrap_or(u32::MAX).to_be_bytes();
                return Err(Refused::NoPostgres([&[kind], &length[..]].concat()));
            }
            let is_too_much = self.bytes > LOGIN_BYTES_MAX || self.messages > LOGIN_MESSAGES_MAX;
            return if is_too_much { Err(Refused::Login) } else { Ok(()) };
        }
        let most = match kind {
            DATA_ROW => ROW_BYTES_MAX,
            PARAMETER_STATUS => PARAMETER_BYTES_MAX,
            _ => MESSAGE_BYTES_MAX,
        };
        if body_bytes > most {
            return Err(Refused::Message(kind, body_bytes));
        }
        if UNASKED_KINDS.contains(&kind) {
            self.unasked_bytes += body_bytes + HEAD_BYTES;
        }
        match () {
            () if self.unasked_bytes > UNASKED_BYTES_MAX => Err(Refused::Unasked),
            () if self.bytes > ANSWER_BYTES_MAX => Err(Refused::Answer),
            () => Ok(()),
        }
    }

    /// A piece of the body of the message that began.
    pub(super) fn body(&mut self, piece: &[u8]) -> Result<(), Refused> {
        if let Some(hash) = &mut self.name {
            let (name, is_whole) = match piece.iter().position(|byte| *byte == 0) {
                Some(end) => (&piece[..end], true),
                None => (piece, false),
            };
            name.iter().for_each(|byte| *hash = (*hash ^ u64::from(*byte)).wrapping_mul(FNV_FACTOR));
            if is_whole {
                return self.note_name();
            }
        }
        if self.is_login && self.kind == AUTHENTICATION {
            self.lead.extend_from_slice(&piece[..piece.len().min(LEAD_BYTES_MAX - self.lead.len())]);
        }
        Ok(())
    }

    /// The message that began has come whole.
    pub(super) fn end(&mut self) -> Result<(), Refused> {
        if self.kind == READY_FOR_QUERY {
            (self.is_login, self.bytes, self.unasked_bytes) = (false, 0, 0);
        }
        match self.lead.split_first_chunk() {
            Some((code, rest)) if self.is_login && self.kind == AUTHENTICATION => {
                let rounds = rounds(rest);
                self.authentication(u32::from_be_bytes(*code), rounds)
            }
            _ => Ok(()),
        }
    }

    fn note_name(&mut self) -> Result<(), Refused> {
        let name = self.name.take().expect("it is being read");
        if !self.names.contains(&name) {
            if self.names.len() >= NAMES_MAX {
                return Err(Refused::Names);
            }
            self.names.push(name);
        }
        Ok(())
    }

    fn authentication(&mut self, code: u32, rounds: u64) -> Result<(), Refused> {
        self.has_proved |= code == SASL_FINAL;
        match code {
            SASL_CONTINUE if rounds > ROUNDS_MAX => Err(Refused::Rounds(rounds)),
            _ if self.proof == Proof::Any => Ok(()),
            0 if !self.has_proved => Err(Refused::Unproved("lets in without a password")),
            3 => Err(Refused::Unproved("asks for the password in plain text")),
            5 => Err(Refused::Unproved("asks for an MD5 of the password")),
            0 | SASL..=SASL_FINAL => Ok(()),
            _ => Err(Refused::Unproved("asks for something other than SCRAM")),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPostgres(head) => {
                write!(f, "it answers with '{}': it is no PostgreSQL", head.escape_ascii())
            }
            Self::Login => write!(
                f,
                "it sent more than {LOGIN_BYTES_MAX} B or {LOGIN_MESSAGES_MAX} messages before it was ready, the most that are taken"
            ),
            Self::Message(DATA_ROW, length) => write!(
                f,
                "a row of its result has {length} B, and {ROW_BYTES_MAX} B are the most that are taken: read long values in parts"
            ),
            Self::Message(kind, length) => write!(
                f,
                "it sent a message '{}' of {length} B: parameters may have {PARAMETER_BYTES_MAX} B, others {MESSAGE_BYTES_MAX} B",
                kind.escape_ascii()
            ),
            Self::Unasked => write!(
                f,
                "it sent more than {UNASKED_BYTES_MAX} B of notices, notifications and parameters, the most that are taken with one answer"
            ),
            Self::Answer => {
                write!(f, "one answer has more than {ANSWER_BYTES_MAX} B, the most that are taken: use LIMIT")
            }
            Self::Names => write!(f, "it reports more than {NAMES_MAX} parameters, the most that are taken"),
            Self::Rounds(rounds) => write!(
                f,
                "its SCRAM challenge takes {rounds} rounds (scram_iterations): {ROUNDS_MAX} are the most"
            ),
            Self::Unproved(how) => write!(
                f,
                "it {how}, and a password is sent over a connection without TLS only with SCRAM (auth = scram): set password_encryption = \
                 'scram-sha-256', set the password anew and use scram-sha-256 in pg_hba.conf, or use TLS; auth = any accepts this"
            ),
        }
    }
}

impl std::error::Error for Refused {}

/// The rounds that a SCRAM challenge asks for: `r=NONCE,s=SALT,i=ROUNDS`. What is none, the driver refuses.
fn rounds(challenge: &[u8]) -> u64 {
    let mut attributes = challenge.split(|byte| *byte == b',');
    let rounds = attributes.find_map(|attribute| attribute.strip_prefix(b"i=")).unwrap_or_default();
    let digits = rounds.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |rounds: u64, digit| rounds.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

const HEAD_BYTES: usize = 5;
/// A challenge has some 100 B.
const LEAD_BYTES_MAX: usize = 1 << 10;
const AUTHENTICATION: u8 = b'R';
const DATA_ROW: u8 = b'D';
const PARAMETER_STATUS: u8 = b'S';
const READY_FOR_QUERY: u8 = b'Z';
/// Authentication, BackendKeyData, ErrorResponse, NegotiateProtocolVersion, NoticeResponse, ParameterStatus, ReadyForQuery.
const LOGIN_KINDS: &[u8] = b"RKEvNSZ";
/// NotificationResponse, NoticeResponse, ParameterStatus.
const UNASKED_KINDS: &[u8] = b"ANS";
/// AuthenticationSASL, AuthenticationSASLContinue, and AuthenticationSASLFinal.
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;
/// Most rounds of a challenge: half a second of work, during which no other statement goes on. By default it is 4096.
const ROUNDS_MAX: u64 = 1_000_000;
/// A login takes some 500 B; triggers of logins may say more.
const LOGIN_BYTES_MAX: usize = 256 << 10;
const LOGIN_MESSAGES_MAX: usize = 1_000;
/// The largest row that a result may have (`session`), and its numbers of columns and lengths.
const ROW_BYTES_MAX: usize = (64 << 20) + (64 << 10);
const PARAMETER_BYTES_MAX: usize = 16 << 10;
const MESSAGE_BYTES_MAX: usize = 16 << 20;
const UNASKED_BYTES_MAX: usize = 16 << 20;
/// Twice what a result may have: one that is too large is told so where rows are read.
const ANSWER_BYTES_MAX: usize = 2 * ROW_BYTES_MAX;
/// A server reports some twenty.
const NAMES_MAX: usize = 128;
/// FNV-1a.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_FACTOR: u64 = 0x0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(gate: &mut Gate, kind: u8, body: &[u8]) -> Result<(), Refused> {
        gate.begin(kind, body.len())?;
        body.chunks(3).try_for_each(|piece| gate.body(piece))?;
        gate.end()
    }

    fn code(code: u32) -> [u8; 4] {
        code.to_be_bytes()
    }

    /// A gate behind a login.
    fn inside() -> Gate {
        let mut gate = Gate::new(Proof::Any);
        message(&mut gate, b'R', &code(0)).expect("let in");
        message(&mut gate, b'Z', b"I").expect("ready");
        gate
    }

    /// 3.5 GB in 12 s: the driver keeps each notice and each parameter until the login is over.
    #[test]
    fn login_that_does_not_end_is_given_up() {
        for (kind, body) in [(b'N', vec![b'x'; 60_000]), (b'S', vec![b'x'; 60_000]), (b'N', Vec::new())] {
            let mut gate = Gate::new(Proof::Any);
            message(&mut gate, b'R', &code(0)).expect("let in");
            let taken = (0..10_000).take_while(|_| message(&mut gate, kind, &body).is_ok()).count();
            assert!(taken < LOGIN_MESSAGES_MAX && taken * body.len() <= LOGIN_BYTES_MAX, "{taken} of {kind}");
            assert_eq!(message(&mut gate, kind, &body), Err(Refused::Login));
        }
    }

    #[test]
    fn message_is_refused_by_its_length_alone() {
        let mut gate = Gate::new(Proof::Any);
        assert_eq!(gate.begin(b'E', 1 << 30), Err(Refused::Login));
        for (kind, most) in [(b'D', ROW_BYTES_MAX), (b'E', MESSAGE_BYTES_MAX), (b'S', PARAMETER_BYTES_MAX)] {
            assert_eq!(inside().begin(kind, most), Ok(()));
            assert_eq!(inside().begin(kind, most + 1), Err(Refused::Message(kind, most + 1)));
        }
    }

    #[test]
    fn what_comes_unasked_is_bounded_until_the_next_answer_is_over() {
        for kind in UNASKED_KINDS {
            let mut gate = inside();
            let body = vec![b'x'; PARAMETER_BYTES_MAX];
            let taken = (0..10_000).take_while(|_| message(&mut gate, *kind, &body).is_ok()).count();
            assert_eq!(taken, UNASKED_BYTES_MAX / (body.len() + HEAD_BYTES));
            let mut gate = inside();
            for _ in 0..2 {
                for _ in 0..taken {
                    message(&mut gate, *kind, &body).expect("there is room");
                }
                message(&mut gate, b'Z', b"I").expect("ready");
            }
        }
    }

    #[test]
    fn answer_that_does_not_end_is_given_up() {
        let mut gate = inside();
        let row = vec![b'x'; 1 << 20];
        let taken = (0..1_000).take_while(|_| message(&mut gate, b'D', &row).is_ok()).count();
        assert_eq!(taken, 128);
        assert_eq!(message(&mut gate, b'D', &row), Err(Refused::Answer));
    }

    #[test]
    fn names_of_parameters_are_bounded_and_their_values_may_change() {
        let mut gate = inside();
        for value in 0..10_000_u32 {
            message(&mut gate, b'S', format!("TimeZone\0{value}\0").as_bytes()).expect("one name");
        }
        message(&mut gate, b'Z', b"I").expect("ready");
        let taken = (0..1_000_u32)
            .take_while(|name| message(&mut gate, b'S', format!("n{name}\0\0").as_bytes()).is_ok())
            .count();
        assert_eq!(taken, NAMES_MAX - 1);
    }

    #[test]
    fn server_that_is_none_is_told_by_how_it_begins() {
        let mut gate = Gate::new(Proof::Any);
        let no = gate.begin(b'H', 0x5454_502F - 4).expect_err("HTTP");
        assert_eq!(no.to_string(), "it answers with 'HTTP/': it is no PostgreSQL");
    }

    #[test]
    fn password_is_asked_for_with_scram_or_not_at_all() {
        let scram = [code(10), code(11), code(12), code(0)];
        for (codes, is_taken) in [
            (&scram[..], true),
            (&[code(0)], false),
            (&[code(3)], false),
            (&[code(5)], false),
            (&[code(7)], false),
            (&[code(10), code(0)], false),
            (&[code(10), code(11), code(0)], false),
            (&[code(10), code(3)], false),
        ] {
            let run = |proof| {
                let mut gate = Gate::new(proof);
                codes.iter().try_for_each(|code| message(&mut gate, b'R', code))
            };
            assert_eq!(run(Proof::Scram).is_ok(), is_taken, "{codes:?}");
            assert_eq!(run(Proof::Any), Ok(()), "{codes:?}");
        }
    }
}
