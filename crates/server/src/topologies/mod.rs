//! Topologies that the server runs: what was submitted, kept by the store, and the supervisor that runs it.
//!
//! ```text
//!  SUBMIT -> checked (flux, place, limits) -> kept -> supervisor -> worker process
//!  start:                             kept ----------^
//! ```
//!
//! Invariants
//!   1. What the supervisor runs is what the store keeps; a change is kept first.
//!   2. What is kept is bounded: in number by the setting, in bytes by [`BYTES_MAX`].
//!
//! Out of scope: processes (`supervisor`), arguments and replies (`handlers::topology`).

mod diff;
pub(crate) mod guard;
pub(crate) mod record;
pub(crate) mod rights;
pub(crate) mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use components::{Builtin, misfit_of_program};
use flux::Variables;
use store::{Stop, Store, StoreError};
use supervisor::{Bounds, Hold, Job, Share, Submission, Supervisor};
use ticket::Ticket;
use topology::Plan;
use topology::definition::Transport;

pub(crate) use diff::{Diff, Former};
use record::{Definition, Listed, decode_list, encode_list};
use rights::Rights;

use crate::clients::DEFAULT_USER;
use trial::{Running, Tried};

/// All topologies of a server.
#[derive(Debug)]
pub(crate) struct Topologies {
    pub(crate) supervisor: Arc<Supervisor>,
    /// What the store keeps of them, without their texts.
    kept: Mutex<BTreeMap<String, Kept>>,
    /// A thread checks a definition; one looks at all keys.
    is_checking: Arc<AtomicBool>,
    is_walking: Arc<AtomicBool>,
    /// Topologies whose trials end just now.
    ending: Mutex<BTreeSet<String>>,
}

/// The right to do something on a thread; it goes back when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<AtomicBool>);

/// What is kept of one.
#[derive(Clone, Debug)]
struct Kept {
    listed: Listed,
    bytes: usize,
    letters: DeadLetterKeys,
    /// How it is tried, if it is, and can be read.
    tried: Option<Arc<Tried>>,
}

/// The keys of dead letters that a definition names; `None` with exactly-once, which has a key by the topology's name.
type DeadLetterKeys = Option<Arc<[String]>>;

/// A definition that may run.
#[derive(Clone, Debug)]
pub struct Checked {
    pub(crate) plan: Arc<Plan>,
    /// How many workers it is to have, if somebody said so beside the definition.
    pub(crate) workers: Option<u32>,
    /// Its first component that is a program.
    pub(crate) program: Option<String>,
    letters: DeadLetterKeys,
    /// What it reads on trial.
    tried: Option<Arc<Tried>>,
    /// What it would change, if it was compared.
    pub(crate) diff: Option<Arc<Diff>>,
    /// Who asks, if not `default`: its workers have the rights of this user.
    pub(crate) user: Option<Arc<[u8]>>,
}

/// Who a connection is that has logged in.
#[derive(Debug)]
pub(crate) struct Login {
    /// Its user.
    pub(crate) user: Arc<[u8]>,
    /// Of a worker whose topology names its keys.
    pub(crate) rights: Option<Arc<Rights>>,
    /// Of a worker.
    pub(crate) hold: Option<Hold>,
}

/// What a definition is to the topology of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    /// There must be none.
    New,
    /// It takes the place of the one that there may be.
    Replaces,
    /// It is the same one with other numbers of executors.
    Same,
}

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It cannot be, and why.
    Because(String),
    /// The store does not keep it now.
    Store(Stop),
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

impl Topologies {
    /// None so far.
    pub(crate) fn new(supervisor: Arc<Supervisor>) -> Self {
        let (is_checking, is_walking) = Default::default();
        Self { supervisor, kept: Mutex::default(), is_checking, is_walking, ending: Mutex::default() }
    }

    /// The right to check a definition on a thread, if nobody else has it: clients share one thread.
    pub(crate) fn begin_check(&self) -> Option<Turn> {
        Turn::take(&self.is_checking)
    }

    /// The same for a walk over all keys.
    pub(crate) fn begin_walk(&self) -> Option<Turn> {
        Turn::take(&self.is_walking)
    }

    /// Reads what the store keeps, and hands it to the supervisor. Gives the trials whose removal was cut by a crash.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub(crate) fn recover(&self, store: &Store) -> Result<Vec<Running>, StoreError> {
        let mut ending = Vec::new();
        for (name, listed) in list(store)? {
            if listed.is_ending {
                let definition = definition(store, &name)?;
                self.kept().insert(name.clone(), Kept { bytes: definition.bytes(), ..Kept::unread(listed) });
                ending.extend(self.begin_removal(name, definition));
                continue;
            }
            let kept = self.run_kept(store, &name, &listed)?;
            self.kept().insert(name, kept);
        }
        Ok(ending)
    }

    /// Runs the topology `name` as the store keeps it.
    fn run_kept(&self, store: &Store, name: &str, listed: &Listed) -> Result<Kept, StoreError> {
        let definition = definition(store, name)?;
        let mut kept = Kept { bytes: definition.bytes(), ..Kept::unread(listed.clone()) };
        let mut plan = None;
        // One that is refused by now is refused by its worker, too, which says why.
        if let Ok((read, tried)) = read_tried(&definition) {
            (kept.letters, kept.tried) = (letters(&read), tried);
            plan = Some(Arc::new(read.plan));
        }
        self.run(name, definition, plan, listed, Duration::ZERO);
        Ok(kept)
    }

    /// Runs what is checked. If it takes the place of one of this name, that one finishes what is under way before, for at most `wait`.
    pub(crate) fn submit(
        &self,
        store: &Store,
        name: &str,
        definition: Definition,
        checked: Checked,
        placing: Placing,
        wait: Duration,
    ) -> Result<Ticket, Refused> {
        let mut kept = self.kept();
        if self.supervisor.is_stopping() {
            return Err("the server stops: submit it again after its next start".to_owned().into());
        }
        let former = kept.get(name).map(|kept| kept.listed.clone());
        if placing == Placing::New && former.is_some() {
            return Err(format!("there is a topology '{name}': REPLACE it, or KILL it before").into());
        }
        if placing == Placing::Same {
            let job = self.supervisor.job(name);
            if former.is_none() || job.is_none_or(|job| job.definition != definition.text) {
                return Err(format!("'{name}' was changed meanwhile").into());
            }
        }
        self.admit(&kept, name, &definition)?;
        let mut new = kept.clone();
        let Checked { plan, workers, letters, tried, user, .. } = checked;
        let mut listed = Listed { is_active: true, is_ending: false, workers, user };
        if let (Placing::Same, Some(former)) = (placing, former) {
            listed = Listed { workers: workers.or(former.workers), ..former };
        }
        new.insert(
            name.to_owned(),
            Kept { listed: listed.clone(), bytes: definition.bytes(), letters, tried },
        );
        let changes: [(&[u8], Option<&[u8]>); 2] =
            [(&key(name), Some(&definition.encode())), (LIST, Some(&encoded(&new)))];
        let ticket = store.keep_all(&changes).map_err(Refused::Store)?;
        *kept = new;
        self.run(name, definition, Some(plan), &listed, wait);
        Ok(ticket)
    }

    /// Whether there is room for one more.
    fn admit(
        &self,
        kept: &BTreeMap<String, Kept>,
        name: &str,
        definition: &Definition,
    ) -> Result<(), Refused> {
        let others = || kept.iter().filter(|(other, _)| *other != name);
        let most = self.supervisor.options().topologies_max;
        // One that was killed and is not gone has a worker, too.
        let running = self.supervisor.reports().into_iter().filter(|it| it.name != name).count();
        if others().count().max(running) >= most {
            return Err(format!("there are {most} topologies, the most (topologies.count_max): KILL one, or wait until one that was killed is gone").into());
        }
        let bytes = others().map(|(_, it)| it.bytes).sum::<usize>() + definition.bytes();
        if bytes > BYTES_MAX {
            return Err(format!(
                "the definitions of all topologies together would have {bytes} B, more than the limit of {BYTES_MAX} B"
            )
            .into());
        }
        Ok(definition.trial.as_ref().map_or(Ok(()), |trial| trial::refuse_shared(kept, trial))?)
    }

    /// Ends a topology and forgets it, with its trial; `None` if there is none. What the trial has written is to be removed by [`Topologies::finish_killed`] then.
    pub(crate) fn kill(
        &self,
        store: &Store,
        name: &str,
        wait: Duration,
    ) -> Option<Result<(Ticket, Option<Running>), Stop>> {
        let trial = self.trial(name);
        let mut kept = self.kept();
        let mut new = kept.clone();
        new.remove(name)?;
        let trial = trial.and_then(|(trial, job)| {
            new.get_mut(&trial)?.listed.is_ending = true;
            let definition = Definition { trial: job.trial.clone(), ..trial::definition_of(&job) };
            Some((trial, definition))
        });
        let changes: [(&[u8], Option<&[u8]>); 2] = [(&key(name), None), (LIST, Some(&encoded(&new)))];
        Some(store.keep_all(&changes).map(|ticket| {
            *kept = new;
            self.supervisor.kill(name, wait);
            let running = trial.and_then(|(trial, definition)| {
                self.supervisor.kill(&trial, wait);
                self.begin_removal(trial, definition)
            });
            (ticket, running)
        }))
    }

    /// Has spouts emit, or emit nothing new; `None` if there is no such topology.
    pub(crate) fn set_active(
        &self,
        store: &Store,
        name: &str,
        is_active: bool,
    ) -> Option<Result<Ticket, Stop>> {
        let mut kept = self.kept();
        let mut new = kept.clone();
        let it = new.get_mut(name)?;
        if it.listed.is_active == is_active {
            return Some(Ok(Ticket::NOTHING));
        }
        it.listed.is_active = is_active;
        Some(store.keep(LIST, &encoded(&new)).inspect(|_| {
            *kept = new;
            self.supervisor.set_active(name, is_active);
        }))
    }

    /// Has `workers` workers share the tasks of a topology, or as many as now, evenly; `None` if there is no such topology.
    pub(crate) fn rebalance(
        &self,
        store: &Store,
        name: &str,
        workers: Option<u32>,
    ) -> Option<Result<Ticket, Refused>> {
        let mut kept = self.kept();
        let mut new = kept.clone();
        let it = new.get_mut(name)?;
        let Some(workers) = workers else {
            self.supervisor.rebalance(name, None);
            return Some(Ok(Ticket::NOTHING));
        };
        if let Err(why) = self.allow(workers) {
            return Some(Err(why.into()));
        }
        it.listed.workers = Some(workers);
        let ticket = store.keep(LIST, &encoded(&new)).map_err(Refused::Store);
        Some(ticket.inspect(|_| {
            *kept = new;
            self.supervisor.rebalance(name, Some(workers));
        }))
    }

    /// Whether a topology may have so many workers.
    fn allow(&self, workers: u32) -> Result<(), String> {
        let most = self.supervisor.options().workers_max;
        if workers > most {
            return Err(format!("it has {workers} workers, more than topologies.workers_max ({most})"));
        }
        Ok(())
    }

    /// Logs connection `id` in as the worker whose token `is_it`.
    pub(crate) fn admit_worker(&self, id: u64, is_it: impl Fn(&[u8]) -> bool) -> Option<Login> {
        let worker = self.supervisor.admits(is_it)?;
        let job = self.supervisor.job(&worker.topology);
        let prefix = job.as_ref().and_then(|job| job.trial.as_ref()).map(|trial| trial.prefix.as_str());
        let rights = worker.plan.and_then(|plan| Rights::of(&worker.topology, &plan, prefix));
        let user = self.kept().get(&worker.topology).and_then(|kept| kept.listed.user.clone());
        let user = user.unwrap_or_else(|| DEFAULT_USER.into());
        Some(Login { user, rights, hold: Some(worker.lease.hold(id)?) })
    }

    /// The keys of the dead letters of topology `name`.
    pub(crate) fn letters(&self, name: &str) -> Arc<[String]> {
        match self.kept().get(name) {
            Some(Kept { letters: None, .. }) => [own_key(name, "dead-letters")].into(),
            Some(Kept { letters: Some(named), .. }) => Arc::clone(named),
            None => Arc::default(),
        }
    }

    /// Whether there is a topology `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.kept().contains_key(name)
    }

    /// One that is exactly-once, if any is.
    pub(crate) fn exactly_once(&self) -> Option<String> {
        self.kept().iter().find(|(_, kept)| kept.letters.is_none()).map(|(name, _)| name.clone())
    }

    fn run(
        &self,
        name: &str,
        definition: Definition,
        plan: Option<Arc<Plan>>,
        listed: &Listed,
        wait: Duration,
    ) {
        let Definition { text, properties, folder, trial } = definition;
        let (name, dir) = (name.to_owned(), self.supervisor.options().dir.clone());
        let (is_active, share) = (listed.is_active, Share::default());
        let transport = plan.as_deref().and_then(|plan| plan.settings().transport);
        let transport = transport.unwrap_or(self.supervisor.options().transport).name().to_owned();
        let http_hosts = self.supervisor.options().http_hosts.clone();
        let job = Job {
            name,
            definition: text,
            properties,
            dir,
            folder,
            http_hosts,
            transport,
            bounds: Bounds::default(),
            is_active,
            trial,
            share,
        };
        let by_definition = plan.as_ref().map_or(1, |plan| plan.settings().workers);
        // The setting may have been lowered since.
        let workers = listed.workers.unwrap_or(by_definition).min(self.supervisor.options().workers_max);
        self.supervisor.submit(Submission { job, plan, workers }, wait);
    }

    /// The topology `name`, if there is one, to be compared with.
    pub(crate) fn former(&self, name: &str) -> Option<Former> {
        let workers = self.kept().get(name)?.listed.workers;
        Some(Former { job: self.supervisor.job(name)?, workers, is_asked_for: true })
    }

    /// The definition of the topology `name`, which runs and is no trial, with other numbers of executors of components.
    pub(crate) fn redealt(&self, name: &str, executors: &[(String, u32)]) -> Option<Definition> {
        let job = self.supervisor.job(name).filter(|job| job.trial.is_none())?;
        let mut definition = trial::definition_of(&job);
        let given =
            executors.iter().map(|(id, count)| (format!("{}{id}", flux::EXECUTORS), count.to_string()));
        definition.properties.extend(given);
        Some(definition)
    }

    /// Checks what a client wants to run, with the number of workers that it wants beside the definition, and compares it with `former`.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub(crate) fn check(
        &self,
        definition: &Definition,
        workers: Option<u32>,
        former: Option<&Former>,
    ) -> Result<Checked, String> {
        let (read, tried) = self.read_checked(definition, workers)?;
        let diff = match former.map(|it| (it, diff::compare(it, definition, &read, workers))) {
            Some((former, Err(_))) if !former.is_asked_for => None,
            compared => compared.map(|(_, diff)| diff.map(Arc::new)).transpose()?,
        };
        let program = read.plan.components().zip(&read.programs).find_map(|((_, component), program)| {
            components::is_program(&program.command).then(|| component.id.clone())
        });
        let letters = letters(&read);
        Ok(Checked { plan: Arc::new(read.plan), workers, program, letters, tried, diff, user: None })
    }

    /// Reads what a client wants to run, if it may run.
    fn read_checked(
        &self,
        definition: &Definition,
        workers: Option<u32>,
    ) -> Result<(flux::Definition, Option<Arc<Tried>>), String> {
        let (read, tried) = read_tried(definition)?;
        let (plan, options) = (&read.plan, self.supervisor.options());
        let settings = plan.settings();
        self.allow(workers.unwrap_or(settings.workers))?;
        if settings.transport == Some(Transport::ZeroMq) && !options.has_zeromq {
            return Err(NO_ZEROMQ.to_owned());
        }
        let (components, tasks) = (read.programs.len(), plan.tasks_count());
        if components > COMPONENTS_MAX {
            return Err(format!("it has {components} components, more than the limit of {COMPONENTS_MAX}"));
        }
        if tasks > options.tasks_max {
            let most = options.tasks_max;
            return Err(format!(
                "it has {tasks} tasks, each a process, more than topologies.tasks_max ({most})"
            ));
        }
        if let Some((_, long)) = plan.components().find(|(_, it)| it.id.len() > ID_BYTES_MAX) {
            let bytes = long.id.len();
            return Err(format!(
                "the id of a component has {bytes} B, more than the limit of {ID_BYTES_MAX} B"
            ));
        }
        let place = self.supervisor.place();
        let folder = place.folder(definition.folder.as_deref()).map_err(|error| error.to_string())?;
        for ((id, component), program) in plan.components().zip(&read.programs) {
            let checked = Builtin::check_for_client(&program.command, plan, id, &options.http_hosts)
                .map(|checked| checked.map_err(|error| error.to_string()))
                .unwrap_or_else(|| match misfit_of_program(plan, id) {
                    Some(misfit) => Err(misfit),
                    None => place.check(&folder, &program.command).map_err(|error| error.to_string()),
                });
            checked.map_err(|error| {
                format!("{}: error: component `{}`: {error}", program.place, component.id)
            })?;
        }
        Ok((read, tried))
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        lock(&self.kept)
    }
}

impl Kept {
    /// One whose definition was not read.
    fn unread(listed: Listed) -> Self {
        Self { listed, bytes: 0, letters: Some(Arc::default()), tried: None }
    }
}

impl Turn {
    fn take(flag: &Arc<AtomicBool>) -> Option<Self> {
        (!flag.swap(true, Ordering::Acquire)).then(|| Self(Arc::clone(flag)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// How many topologies the store keeps, for a server that runs none.
pub(crate) fn count_kept(store: &Store) -> Result<usize, StoreError> {
    list(store).map(|list| list.len())
}

/// Reads a definition.
fn read(definition: &Definition) -> Result<flux::Definition, String> {
    Ok(read_tried(definition)?.0)
}

/// Reads a definition, and what it reads if it is tried.
fn read_tried(definition: &Definition) -> Result<(flux::Definition, Option<Arc<Tried>>), String> {
    let environment = |name: &str| definition.properties.get(&format!("ENV-{name}")).cloned();
    let variables = Variables { properties: &definition.properties, environment: &environment };
    let (mut read, _) = flux::read(&definition.text, &variables).map_err(|faults| {
        let first = faults.first().map(ToString::to_string).unwrap_or_default();
        match faults.len() {
            0 | 1 => first,
            count => format!("{first} (and {} more)", count - 1),
        }
    })?;
    let tried = definition.trial.as_ref().map(|trial| Arc::new(Tried::new(&read, trial)));
    if let Some(trial) = &definition.trial {
        let trial = trial::of_components(trial);
        for program in &mut read.programs {
            components::redirect(&mut program.command, &trial)
                .map_err(|error| format!("{}: error: {error}", program.place))?;
        }
    }
    Ok((read, tried))
}

/// The definition that the store keeps as `name`.
fn definition(store: &Store, name: &str) -> Result<Definition, StoreError> {
    let damaged = || StoreError::Open(format!("the record of the topology {name} is damaged"));
    let record = store.kept(&key(name))?.ok_or_else(damaged)?;
    Definition::decode(&record).ok_or_else(damaged)
}

fn letters(definition: &flux::Definition) -> DeadLetterKeys {
    (!trial::is_exactly_once(&definition.plan)).then(|| named_letters(definition).into_iter().collect())
}

/// The keys that components name for their dead letters.
fn named_letters(definition: &flux::Definition) -> BTreeSet<String> {
    definition.programs.iter().filter_map(|it| components::letters(&it.command)).collect()
}

/// A key that a topology has for itself with exactly-once.
fn own_key(name: &str, what: &str) -> String {
    format!("topology:{name}:{what}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it is replaced as a whole, or a set.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list(store: &Store) -> Result<Vec<(String, Listed)>, StoreError> {
    let Some(record) = store.kept(LIST)? else { return Ok(Vec::new()) };
    decode_list(&record).ok_or_else(|| StoreError::Open("the list of topologies is damaged".to_owned()))
}

fn encoded(kept: &BTreeMap<String, Kept>) -> Vec<u8> {
    encode_list(kept.iter().map(|(name, it)| (name.as_str(), &it.listed)))
}

/// What the store keeps a definition as.
fn key(name: &str) -> Vec<u8> {
    [b"topology:", name.as_bytes()].concat()
}

/// Why a definition is refused.
const NO_ZEROMQ: &str = "evenkeel.transport is zeromq, which this build has not: build evenkeel with `--features zeromq`, or use tcp";
/// What it keeps the list as.
const LIST: &[u8] = b"topologies";
/// Definitions of all topologies: the supervisor has them in memory.
const BYTES_MAX: usize = 64 << 20;
/// Components of a topology: each is a line of its worker's status.
const COMPONENTS_MAX: usize = 1_000;
/// Of the id of a component: it is a label of metrics.
const ID_BYTES_MAX: usize = 128;
