//! Admission as a whole: random requests of any footprint, on a journal driven by hand, must all end.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::SimClock;
use journal::{Class, Credits, Draft, Driver, Hooks, Journal, Keyspace, Options, Refusal, footprint};
use proptest::prelude::*;
use vfs::SimDisk;

use common::{dir, start};

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A request arrives and asks; if it is refused, it waits until it is woken.
    Ask {
        size: u32,
        reclaim: bool,
    },
    /// As [`Step::Ask`], but it first reserves for a small group, as a command does that finds out later how much it writes.
    AskAfterLittle {
        size: u32,
    },
    /// A request that was granted appends.
    Append(usize),
    /// A request that was granted ends without an effect.
    Drop(usize),
    /// A request that waits is cancelled: its client left.
    Cancel(usize),
    Commit,
    Prepare,
    /// The oldest sealed segment is given back.
    Retire,
    Advance(u16),
    /// Space on the disk beside what is used, in files of full size.
    Capacity(u8),
}

fn step() -> impl Strategy<Value = Step> {
    // of one file of full size: nothing, a share of it, more than all of it
    let size = prop_oneof![1_u32..200, 1_000_u32..70_000, 10_000_u32..1_500_000];
    let full = 64_u8..255;
    prop_oneof![
        4 => (size.clone(), any::<bool>()).prop_map(|(size, reclaim)| Step::Ask { size, reclaim }),
        4 => size.prop_map(|size| Step::AskAfterLittle { size }),
        5 => any::<usize>().prop_map(Step::Append),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Cancel),
        4 => Just(Step::Commit),
        4 => Just(Step::Prepare),
        2 => Just(Step::Retire),
        1 => any::<u16>().prop_map(Step::Advance),
        1 => prop_oneof![full, 0_u8..8].prop_map(Step::Capacity),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Request {
    size: u32,
    class: Class,
    little: bool,
}

struct World {
    journal: Arc<Journal>,
    driver: Driver,
    disk: SimDisk,
    clock: Arc<SimClock>,
    options: Options,
    /// Calls of the hook that lets requests ask again.
    told: Arc<AtomicU64>,
    heard: u64,
    granted: Vec<(Request, Credits)>,
    waiting: VecDeque<Request>,
    refused: u32,
    appended: u32,
}

impl World {
    fn new(options: Options) -> Self {
        let (disk, clock, told) = (SimDisk::new(1), common::clock(), Arc::new(AtomicU64::new(0)));
        let teller = Arc::clone(&told);
        let on_credits = Box::new(move || {
            teller.fetch_add(1, Ordering::Relaxed);
        });
        let recovery = Journal::open(Arc::new(disk.clone()), clock.clone(), &dir(), options.clone());
        let hooks = Hooks { on_credits, ..Hooks::default() };
        let (journal, mut driver) = recovery.expect("a fresh folder").start_manual(hooks).expect("starts");
        driver.prepare();
        let (granted, waiting) = (Vec::new(), VecDeque::new());
        Self {
            journal,
            driver,
            disk,
            clock,
            options,
            told,
            heard: 0,
            granted,
            waiting,
            refused: 0,
            appended: 0,
        }
    }

    fn run(&mut self, step: &Step) {
        let class = |reclaim: bool| if reclaim { Class::Reclaim } else { Class::Write };
        match *step {
            Step::Ask { size, reclaim } => self.ask(Request { size, class: class(reclaim), little: false }),
            Step::AskAfterLittle { size } => self.ask(Request { size, class: Class::Write, little: true }),
            Step::Append(pick) if !self.granted.is_empty() => {
                let granted = self.granted.swap_remove(pick % self.granted.len());
                self.append(granted);
            }
            Step::Drop(pick) if !self.granted.is_empty() => {
                drop(self.granted.swap_remove(pick % self.granted.len()));
            }
            Step::Cancel(pick) if !self.waiting.is_empty() => {
                self.waiting.remove(pick % self.waiting.len());
            }
            Step::Append(_) | Step::Drop(_) | Step::Cancel(_) => {}
            Step::Commit => _ = self.driver.commit(),
            Step::Prepare => _ = self.driver.prepare_once(),
            Step::Retire => {
                let oldest = self.journal.segments()[0].segment;
                let _ = self.journal.retire(oldest);
            }
            Step::Advance(ms) => self.clock.advance(Duration::from_millis(ms.into())),
            Step::Capacity(files) => {
                let room = u64::from(files) * self.options.segment_size_bytes;
                self.disk.set_capacity(self.disk.used_bytes() + room);
            }
        }
        self.wake();
        self.check();
    }

    fn ask(&mut self, request: Request) {
        let bytes = footprint([request.size]);
        let reserved = if request.little {
            match self.journal.reserve(footprint([1]), Class::Write) {
                Ok(little) => self.journal.reserve_instead(little, bytes, request.class),
                refused => refused,
            }
        } else {
            self.journal.reserve(bytes, request.class)
        };
        match reserved {
            Ok(credits) => self.granted.push((request, credits)),
            Err(Refusal::Busy { .. }) => self.waiting.push_back(request),
            Err(Refusal::Full { .. }) => self.refused += 1,
            Err(other) => panic!("{other}"),
        }
    }

    fn append(&mut self, (request, credits): (Request, Credits)) {
        let payload = vec![7; request.size as usize];
        let parts: [&[u8]; 1] = [&payload];
        self.journal.append(credits, &[Draft::new(1, Keyspace::NONE, &parts)], &mut Vec::new());
        self.appended += 1;
    }

    /// Whoever waits asks again, once, if the hook was called.
    fn wake(&mut self) {
        let told = self.told.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.heard, told) != told {
            for request in std::mem::take(&mut self.waiting) {
                self.ask(request);
            }
        }
    }

    /// What is prepared stays bounded: shared files by what they promise, the others by their number. A file counts as ready until
    /// the group that was appended to it is written.
    fn check(&self) {
        self.journal.check_state();
        let counters = self.journal.counters();
        let unwritten = u64::from(self.appended) - counters.records;
        let most = OWN_FILES_MAX + ready_files_max(&self.options) + unwritten;
        assert!(
            counters.files_ready <= most,
            "{} of {most} files are ready: {counters:?}",
            counters.files_ready
        );
    }

    /// Nobody new arrives, and who was granted ends: all others must be granted or refused, woken by the journal alone.
    fn finish(&mut self) {
        self.clock.advance(Duration::from_secs(20));
        for _ in 0..STEPS_MAX {
            let granted = std::mem::take(&mut self.granted);
            for (n, granted) in granted.into_iter().enumerate() {
                // every third one finds nothing to do
                if n % 3 == 2 { drop(granted) } else { self.append(granted) }
            }
            self.driver.commit();
            self.wake();
            self.driver.prepare_once();
            self.wake();
            self.check();
            if self.granted.is_empty() && self.waiting.is_empty() {
                return;
            }
        }
        panic!("{:?} wait for ever: {:?}", self.waiting, self.journal.counters());
    }

    /// Files that nobody asks for any more go away by themselves.
    fn rest(&mut self) {
        while self.driver.prepare_once() {}
        self.clock.advance(Duration::from_secs(20));
        while self.driver.prepare_once() {}
        let (files, most) = (self.journal.counters().files_ready, ready_files_max(&self.options));
        assert!(files <= most, "{files} of {most} files stay");
    }
}

/// The most shared files that are ready, and one beyond: none was used while files grew, and at each size those that were there
/// promised less than `wanted` files of that size.
fn ready_files_max(options: &Options) -> u64 {
    let wanted = u64::from(options.ready_segments + options.reserve_segments);
    let promise = |size_bytes: u64| footprint_max_of_file(size_bytes) * 3 / 4;
    let (mut files, mut promised) = (0, 0);
    let mut size_bytes = options.file_size_bytes_min;
    loop {
        while promised < wanted * promise(size_bytes) {
            (files, promised) = (files + 1, promised + promise(size_bytes));
        }
        if size_bytes >= options.segment_size_bytes {
            return files + 1;
        }
        size_bytes *= 2;
    }
}

/// Bytes of a file that groups may take: all but its header, stamps, seal and the footer's alignment.
fn footprint_max_of_file(size_bytes: u64) -> u64 {
    size_bytes - 4096 - 8192
}

/// What `own_files` allows.
const OWN_FILES_MAX: u64 = 4;
/// Rounds in which all requests of a history must have ended: some for each.
const STEPS_MAX: usize = 2_000;

fn options(ready: u32, reserve: u32, grows: bool) -> Options {
    let segment_size_bytes = 512 << 10;
    Options {
        segment_size_bytes,
        file_size_bytes_min: if grows { 64 << 10 } else { segment_size_bytes },
        buffer_bytes_max: 256 << 10,
        ready_segments: ready,
        reserve_segments: reserve,
        ..Options::small()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_and_files_stay_bounded(
        steps in prop::collection::vec(step(), 1..150),
        ready in 1_u32..3,
        reserve in 0_u32..3,
        grows in any::<bool>(),
    ) {
        let mut world = World::new(options(ready, reserve, grows));
        steps.iter().for_each(|step| world.run(step));
        world.finish();
        world.rest();
        let (appended, records) = (world.appended, world.journal.counters().records);
        prop_assert_eq!(u64::from(appended), records);
        // What was appended is found again, and a start knows what to do with the files that were left.
        drop((world.journal, world.driver, world.granted));
        world.disk.set_capacity(1 << 40);
        let (_, driver) = start(&world.disk.crash(1), &world.options);
        drop(driver);
    }
}

/// `SET big <3 MB>`, wait, `APPEND big x`: the little that the command had reserved was missing from what its large group needs,
/// each time it asked, and each time a file was made: 900 of them, and the disk was full.
#[test]
fn large_group_of_who_holds_little_credit_needs_one_file() {
    for (ready, reserve) in [(1, 1), (1, 0), (2, 1), (1, 2)] {
        let mut world = World::new(options(ready, reserve, true));
        for _ in 0..4 {
            world.ask(Request { size: 300_000, class: Class::Write, little: true });
            world.finish();
        }
        assert_eq!((world.appended, world.refused), (4, 0));
        let made = world.journal.counters().files_created;
        assert!(made <= 4 + u64::from(ready + reserve), "{made} files were made");
    }
}

/// The next files are eight times as large, and the old ones that are ready promise too little for a large group: it waited
/// for ever.
#[test]
fn large_group_finds_room_while_files_grow() {
    let mut world = World::new(options(1, 1, true));
    for _ in 0..40 {
        for size in [600_000, 100] {
            world.ask(Request { size, class: Class::Write, little: true });
            world.finish();
        }
    }
    assert_eq!((world.appended, world.refused), (80, 0));
}

/// A large group that found no space was remembered as a full disk: small writes that only had to wait were refused.
#[test]
fn large_group_that_finds_no_space_leaves_small_ones_alone() {
    let mut world = World::new(options(1, 1, false));
    world.disk.set_capacity(world.disk.used_bytes() + (600 << 10));
    world.ask(Request { size: 700_000, class: Class::Write, little: true });
    world.finish();
    assert_eq!((world.appended, world.refused), (0, 1));
    for _ in 0..20 {
        world.ask(Request { size: 20_000, class: Class::Write, little: false });
        world.finish();
    }
    assert_eq!((world.appended, world.refused), (20, 1));
    world.disk.set_capacity(1 << 40);
    world.ask(Request { size: 700_000, class: Class::Write, little: true });
    world.finish();
    assert_eq!(world.refused, 1, "the disk is asked again");
}

/// Credits that came back unused woke nobody.
#[test]
fn request_that_waits_for_what_another_holds_goes_on_when_it_comes_back_unused() {
    let mut world = World::new(options(1, 1, false));
    world.ask(Request { size: 120_000, class: Class::Write, little: false });
    world.ask(Request { size: 120_000, class: Class::Write, little: false });
    world.ask(Request { size: 120_000, class: Class::Write, little: false });
    assert_eq!((world.granted.len(), world.waiting.len()), (2, 1), "the buffer is full");
    world.granted.clear();
    world.driver.prepare_once();
    world.wake();
    assert_eq!((world.granted.len(), world.waiting.len()), (1, 0));
}
