//! Who is killed in a cycle, and when: at a step of the protocol, or at a random moment.
#![allow(clippy::disallowed_methods, reason = "a blow falls at a moment, and waits until it has come")]

use std::time::Duration;

use txn::steps::Step;
use vfs::sim::Rng;

use crate::crowd::Crowd;
use crate::parties::{MARIADB, POSTGRES, Parties};

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    Server,
    Postgres,
    MariaDb,
    Clients,
}

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    After(Duration),
    At(Step, u64),
}

/// What happens in a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blow {
    pub moment: Moment,
    pub victims: Vec<Victim>,
    /// A server that was killed is killed again at this step of its recovery, if it comes to it.
    pub again: Option<Step>,
}

impl Blow {
    /// The blow of a cycle: mostly the next pair of step and victim, sometimes a random moment and several victims.
    pub fn of(cycle: u64, first: u64, rng: &mut Rng) -> Self {
        const RECOVERY: [Step; 4] = [Step::Commit, Step::Committed, Step::Rollback, Step::RolledBack];
        let moment = Moment::After(Duration::from_millis(20 + rng.below(500)));
        let mut blow = if cycle % 5 == 4 {
            let victims = Victim::ALL.into_iter().filter(|_| rng.chance(2, 5)).collect();
            Self { moment, victims, again: None }
        } else {
            let pairs = (Step::ALL.len() * Victim::ALL.len()) as u64;
            // Neighbours differ in both, and after as many cycles as there are pairs each has had its turn.
            let pair = ((first + cycle - cycle / 5) * STRIDE % pairs) as usize;
            let (step, victim) = (pair / Victim::ALL.len(), pair % Victim::ALL.len());
            let step = match Step::ALL[step] {
                // Decisions are kept for a minute before they are removed.
                Step::Remove if cycle < CYCLES_A_MINUTE => Step::Decided,
                step => step,
            };
            let moment = Moment::At(step, 1 + rng.below(4));
            Self { moment, victims: vec![Victim::ALL[victim]], again: None }
        };
        if blow.victims.is_empty() {
            blow.victims.push(Victim::ALL[rng.index(Victim::ALL.len())]);
        }
        if blow.victims.contains(&Victim::Server) && rng.chance(1, 3) {
            blow.again = Some(RECOVERY[rng.index(RECOVERY.len())]);
        }
        blow
    }

    /// Waits for the moment, and kills. True if the step was reached, or there is none.
    pub fn fall(&self, parties: &mut Parties, crowd: &mut Crowd) -> bool {
        let is_reached = match self.moment {
            Moment::After(duration) => {
                std::thread::sleep(duration);
                true
            }
            Moment::At(step, count) => {
                parties.server.order_stop(step.name(), count);
                parties.server.await_stop(STEP_TIME_MAX)
            }
        };
        for victim in &self.victims {
            match victim {
                Victim::Server => parties.server.kill(),
                Victim::Postgres => parties.postgres.kill(),
                Victim::MariaDb => parties.mariadb.kill(),
                Victim::Clients => crowd.kill(),
            }
        }
        if parties.server.is_stopped() {
            parties.server.go_on();
        }
        is_reached
    }

    /// Starts again who was killed, the server before or after the databases.
    pub fn restore(&self, parties: &mut Parties, rng: &mut Rng) {
        let server_first = rng.chance(1, 2);
        if server_first {
            self.restore_server(parties);
        }
        if self.victims.contains(&Victim::Postgres) {
            parties.postgres.run(POSTGRES);
        }
        if self.victims.contains(&Victim::MariaDb) {
            parties.mariadb.run(MARIADB);
        }
        if !server_first {
            self.restore_server(parties);
        }
    }

    fn restore_server(&self, parties: &mut Parties) {
        let server = &mut parties.server;
        if server.is_running() {
            return;
        }
        let Some(step) = self.again else { return server.run() };
        server.order_stop(step.name(), 1);
        server.spawn();
        if server.await_answer() && !server.await_stop(AGAIN_TIME_MAX) {
            return;
        }
        server.kill();
        server.run();
    }
}

impl Victim {
    pub const ALL: [Self; 4] = [Self::Server, Self::Postgres, Self::MariaDb, Self::Clients];
}

/// Without a factor in common with the number of pairs.
const STRIDE: u64 = 17;
/// More than any machine does.
const CYCLES_A_MINUTE: u64 = 60;
/// All steps are common, but a client may have to wait for locks first.
const STEP_TIME_MAX: Duration = Duration::from_secs(4);
/// Recovery may have nothing to do.
const AGAIN_TIME_MAX: Duration = Duration::from_millis(300);
