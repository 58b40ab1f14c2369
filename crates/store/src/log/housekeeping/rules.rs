//! What housekeeping does next: one decision over a few counts, and nothing else.
//!
//! It has three hands, for footers, checkpoints and cleaning. A busy hand goes on with its piece, a free one begins one if a rule
//! says so. The first hand that has something to do is next; whoever asks rests a hand that had its turn, and asks again.
//!
//! | # | begins | when | because |
//! |---|---|---|---|
//! | 1 | a footer | a sealed segment above the checkpoint has none, unless keys are few | a start reads a footer in a third of the time |
//! | 2 | a checkpoint | the log above it is two segments and its size | a start reads all of that, and room is given back below it alone |
//! | 3 | a checkpoint | keys are few and the log above it is eight times what they take | it is less work than footers |
//! | 4 | a checkpoint | it gives files back: four times its size, or an eighth of what lives and its own size, and half a segment or after a rest; anything while a delete waits for room | room comes back by checkpoints only |
//! | 5 | cleaning any segment | log to live data is beyond 1.35, or the disk is nearly full | the rate rises with what is dead |
//! | 6 | cleaning a listed segment | next to nothing lives there | a few records are read, not the segment |
//!
//! Keys are few where their checkpoint is an eighth of a segment at most. Rule 3 rests between two checkpoints. Rules 4 and 5 leave a small
//! log alone, unless the disk is nearly full. By hand ([`Manner::Eager`]) keys are never few to rule 1, and rule 5 always holds.
//!
//! Out of scope: which segment (`liveness`), writers (`throttle`), doing it (`housekeeping`).

/// How to take the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As a thread beside commands: paced, and only what is worth it.
    Paced,
    /// As fast as it goes, for tests and simulations; cleans whatever has anything dead, be it a batch's header: while any
    /// segment is sealed it finds something to do.
    Eager,
}

/// What the rules look at; sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) manner: Manner,
    pub(super) hands: Hands,
    /// Whether a sealed segment with records above the checkpoint in force has no footer and could have one.
    pub(super) lacks_footer: bool,
    /// Batches of sealed segments that reach above the checkpoint in force, or most of their files where these are larger.
    pub(super) above_bytes: u64,
    /// The checkpoint in force; 0 for none.
    pub(super) checkpoint_bytes: u64,
    /// What the next one will take, about.
    pub(super) expected_bytes: u64,
    /// Whether the last checkpoint began a while ago.
    pub(super) has_rested: bool,
    /// Whether a delete waits for room.
    pub(super) is_awaited: bool,
    /// Files that the next checkpoint gives back, as far as was counted.
    pub(super) freed_bytes: u64,
    /// Batches of all segments.
    pub(super) log_bytes: u64,
    /// Those of them that are not as good as given back.
    pub(super) kept_bytes: u64,
    /// Records that live.
    pub(super) live_bytes: u64,
    /// Segments of which all that lives is listed.
    pub(super) listed_segments: usize,
    /// What the file system still has.
    pub(super) available_bytes: u64,
    /// Largest size of a segment (`journal.segment_size`).
    pub(super) segment_bytes: u64,
}

/// What each hand is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hands {
    pub(super) footer: Hand,
    pub(super) checkpoint: Hand,
    pub(super) cleaning: Hand,
}

/// Whether a kind of work can go on now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hand {
    /// It had its turn, or waits for a time.
    #[default]
    Rests,
    /// It may begin something.
    Free,
    /// It is at a piece.
    Busy,
}

/// What to do next: to begin it, or a slice of what is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Footer,
    Checkpoint,
    Cleaning(CleaningRate),
    Nothing,
}

/// How to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CleaningRate {
    /// Segments with less than this share dead are left alone.
    pub(super) dead_percent_min: u64,
    /// Only segments of which all that lives is listed are begun.
    pub(super) only_listed: bool,
    /// Read or copy at most so many bytes a second.
    pub(super) bytes_per_second: u64,
}

/// The next piece of work.
pub(super) fn next(counts: &Counts) -> Piece {
    let Hands { footer, checkpoint, cleaning } = counts.hands;
    let takes = |hand, begins: fn(&Counts) -> bool| match hand {
        Hand::Rests => false,
        Hand::Free => begins(counts),
        Hand::Busy => true,
    };
    if takes(footer, Counts::begins_footer) {
        return Piece::Footer;
    }
    if takes(checkpoint, Counts::begins_checkpoint) {
        return Piece::Checkpoint;
    }
    if cleaning == Hand::Rests {
        return Piece::Nothing;
    }
    match counts.urgent_rate() {
        Some(rate) => Piece::Cleaning(rate),
        // what has begun is finished, slowly; to read a segment for the little that lives there can wait for its list
        None if cleaning == Hand::Busy || counts.listed_segments > 0 => Piece::Cleaning(LISTED_RATE),
        None => Piece::Nothing,
    }
}

impl Counts {
    /// Rule 1.
    fn begins_footer(&self) -> bool {
        let is_needless = self.manner == Manner::Paced && self.is_within_share(self.segment_bytes);
        self.lacks_footer && !is_needless
    }

    /// Rules 2 to 4.
    fn begins_checkpoint(&self) -> bool {
        let is_much_above = self.above_bytes >= (2 * self.segment_bytes).max(self.checkpoint_bytes);
        let is_cheap = self.is_within_share(self.above_bytes.min(self.segment_bytes));
        is_much_above || self.above_bytes > 0 && is_cheap && self.has_rested || self.frees_enough()
    }

    /// Rule 4: often where much comes free, and now and then where little does: each costs a walk over all keys.
    fn frees_enough(&self) -> bool {
        let is_worth = self.freed_bytes >= small_log_bytes(self.segment_bytes) / 4 || self.has_rested;
        let is_large = self.log_bytes >= small_log_bytes(self.segment_bytes);
        let few_bytes = (4 * self.checkpoint_bytes).min(self.live_bytes / 8).max(self.checkpoint_bytes);
        let is_worth = self.freed_bytes >= few_bytes && is_worth && (is_large || self.is_nearly_full());
        self.freed_bytes > 0 && (is_worth || self.is_awaited)
    }

    /// Rule 5: at a trickle from [`RATIO_START_PERCENT`] on, at full speed from [`RATIO_FULL_PERCENT`] on and on a disk that is
    /// nearly full.
    fn urgent_rate(&self) -> Option<CleaningRate> {
        let rate = |dead_percent_min, bytes_per_second| {
            Some(CleaningRate { dead_percent_min, only_listed: false, bytes_per_second })
        };
        if self.manner == Manner::Eager {
            return rate(1, u64::MAX);
        }
        let dead_bytes = self.kept_bytes.saturating_sub(self.live_bytes);
        if self.is_nearly_full() {
            return if dead_bytes > 0 { rate(DEAD_PERCENT_MIN_FULL, RATE_FULL_BYTES) } else { None };
        }
        let ratio_percent = self.kept_bytes * 100 / self.live_bytes.max(1);
        if self.kept_bytes < small_log_bytes(self.segment_bytes) || ratio_percent < RATIO_START_PERCENT {
            return None;
        }
        let over = (ratio_percent - RATIO_START_PERCENT).min(RATIO_FULL_PERCENT - RATIO_START_PERCENT);
        let rise = (RATE_FULL_BYTES - RATE_SLOW_BYTES) * over / (RATIO_FULL_PERCENT - RATIO_START_PERCENT);
        rate(DEAD_PERCENT_MIN, RATE_SLOW_BYTES + rise)
    }

    /// Whether the next checkpoint is a small part of `bytes`.
    fn is_within_share(&self, bytes: u64) -> bool {
        CHECKPOINT_SHARE * self.expected_bytes <= bytes
    }

    /// Whether space is more urgent than work.
    fn is_nearly_full(&self) -> bool {
        self.available_bytes < SEGMENTS_SPARE * self.segment_bytes
    }
}

/// Below this a log is left as it is, however much of it is dead: a few keys that are overwritten all the time would
/// keep housekeeping busy for a saving that nobody sees.
pub(super) fn small_log_bytes(segment_bytes: u64) -> u64 {
    2 * segment_bytes
}

/// A checkpoint that has at most this part of what it covers is taken instead of footers.
const CHECKPOINT_SHARE: u64 = 8;
/// A disk with room for fewer segments is nearly full.
const SEGMENTS_SPARE: u64 = 8;
/// Log / live data from which cleaning begins, in percent.
const RATIO_START_PERCENT: u64 = 135;
/// Log / live data at which cleaning runs at full speed, in percent.
const RATIO_FULL_PERCENT: u64 = 170;
/// What must be dead of a segment, in percent: where there is time, and where space is short.
const DEAD_PERCENT_MIN: u64 = 15;
const DEAD_PERCENT_MIN_FULL: u64 = 5;
/// Bytes a second when little is dead.
const RATE_SLOW_BYTES: u64 = 4 << 20;
/// Bytes a second when the disk fills: two pieces of 256 KiB in flight measured 21-419 MB/s without hurting reads.
const RATE_FULL_BYTES: u64 = 200 << 20;
/// Rule 6, and finishing what is no longer urgent.
const LISTED_RATE: CleaningRate =
    CleaningRate { dead_percent_min: 100, only_listed: true, bytes_per_second: RATE_SLOW_BYTES };

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A large store of which nothing is dead, everything is below the checkpoint, and all hands are free.
    fn at_rest() -> Counts {
        let hands = Hands { footer: Hand::Free, checkpoint: Hand::Free, cleaning: Hand::Free };
        Counts {
            manner: Manner::Paced,
            hands,
            lacks_footer: false,
            above_bytes: 0,
            checkpoint_bytes: 100 * MIB,
            expected_bytes: 100 * MIB,
            has_rested: true,
            is_awaited: false,
            freed_bytes: 0,
            log_bytes: 1_000 * MIB,
            kept_bytes: 1_000 * MIB,
            live_bytes: 1_000 * MIB,
            listed_segments: 0,
            available_bytes: 1 << 40,
            segment_bytes: 64 * MIB,
        }
    }

    fn is_cleaning(counts: &Counts) -> Option<CleaningRate> {
        match next(counts) {
            Piece::Cleaning(rate) => Some(rate),
            _ => None,
        }
    }

    #[test]
    fn without_a_reason_nothing_is_done() {
        assert_eq!(next(&at_rest()), Piece::Nothing);
    }

    #[test]
    fn busy_hands_go_on_whatever_the_rules_say_and_resting_ones_do_not() {
        let busy = Hands { footer: Hand::Busy, checkpoint: Hand::Busy, cleaning: Hand::Busy };
        let mut counts = Counts { hands: busy, ..at_rest() };
        assert_eq!(next(&counts), Piece::Footer);
        counts.hands.footer = Hand::Rests;
        assert_eq!(next(&counts), Piece::Checkpoint);
        counts.hands.checkpoint = Hand::Rests;
        assert_eq!(next(&counts), Piece::Cleaning(LISTED_RATE), "slowly: nothing is urgent");
        counts.hands.cleaning = Hand::Rests;
        assert_eq!(next(&counts), Piece::Nothing);
        let all = Counts { lacks_footer: true, above_bytes: 1 << 40, manner: Manner::Eager, ..counts };
        assert_eq!(next(&all), Piece::Nothing, "however much there is to do");
    }

    #[test]
    fn rule_1_a_segment_gets_its_footer_unless_keys_are_few() {
        let lacking = Counts { lacks_footer: true, ..at_rest() };
        assert_eq!(next(&lacking), Piece::Footer);
        let few = Counts { expected_bytes: 8 * MIB, ..lacking };
        assert_eq!(next(&few), Piece::Nothing);
        assert_eq!(next(&Counts { expected_bytes: 8 * MIB + 1, ..few }), Piece::Footer);
        assert_eq!(next(&Counts { manner: Manner::Eager, ..few }), Piece::Footer);
    }

    #[test]
    fn rule_2_a_checkpoint_comes_when_a_start_would_read_much() {
        let above = |above_mib: u64, checkpoint_mib: u64| {
            let checkpoint_bytes = checkpoint_mib * MIB;
            next(&Counts { above_bytes: above_mib * MIB, checkpoint_bytes, has_rested: false, ..at_rest() })
        };
        assert_eq!(above(127, 60), Piece::Nothing);
        assert_eq!(above(128, 60), Piece::Checkpoint);
        assert_eq!(above(999, 1_000), Piece::Nothing, "of many keys it is long work itself");
        assert_eq!(above(1_000, 1_000), Piece::Checkpoint);
    }

    #[test]
    fn rule_3_few_keys_get_a_checkpoint_when_the_log_is_eight_times_as_large_and_it_has_rested() {
        let few = Counts { expected_bytes: 4 * MIB, checkpoint_bytes: 4 * MIB, ..at_rest() };
        let above = |above_bytes| Counts { above_bytes, ..few };
        assert_eq!(next(&above(32 * MIB - 1)), Piece::Nothing);
        assert_eq!(next(&above(32 * MIB)), Piece::Checkpoint);
        assert_eq!(next(&Counts { has_rested: false, ..above(32 * MIB) }), Piece::Nothing);
        assert_eq!(next(&Counts { expected_bytes: 0, ..above(0) }), Piece::Nothing, "nothing to cover");
        let many = Counts { expected_bytes: 9 * MIB, ..above(100 * MIB) };
        assert_eq!(next(&many), Piece::Nothing, "to them rule 2 applies");
    }

    #[test]
    fn rule_4_a_checkpoint_comes_for_the_files_that_it_gives_back() {
        let freeing = |freed_mib: u64| Counts { freed_bytes: freed_mib * MIB, ..at_rest() };
        assert_eq!(next(&freeing(124)), Piece::Nothing, "it costs too much for what it frees");
        assert_eq!(next(&freeing(125)), Piece::Checkpoint, "an eighth of what lives");
        let costly =
            |freed_mib: u64| Counts { live_bytes: 100 * MIB, kept_bytes: 100 * MIB, ..freeing(freed_mib) };
        assert_eq!(next(&costly(99)), Piece::Nothing, "it costs more than it frees");
        assert_eq!(next(&costly(100)), Piece::Checkpoint);
        let cheap = |freed_mib: u64| Counts { checkpoint_bytes: 20 * MIB, ..freeing(freed_mib) };
        assert_eq!([79, 80].map(|freed| next(&cheap(freed))), [Piece::Nothing, Piece::Checkpoint]);
        let small =
            |freed_mib: u64| Counts { checkpoint_bytes: MIB, has_rested: false, ..freeing(freed_mib) };
        assert_eq!(next(&small(31)), Piece::Nothing, "soon after the last one");
        assert_eq!(next(&small(32)), Piece::Checkpoint);
        assert_eq!(next(&Counts { has_rested: true, ..small(31) }), Piece::Checkpoint);
        let small_log = Counts { log_bytes: 127 * MIB, ..freeing(125) };
        assert_eq!(next(&small_log), Piece::Nothing, "a saving that nobody sees");
        assert_eq!(next(&Counts { available_bytes: 511 * MIB, ..small_log }), Piece::Checkpoint);
        let awaited = |freed_mib: u64| Counts { is_awaited: true, has_rested: false, ..freeing(freed_mib) };
        assert_eq!([0, 1].map(|freed| next(&awaited(freed))), [Piece::Nothing, Piece::Checkpoint]);
    }

    #[test]
    fn rule_5_cleaning_begins_with_what_is_dead_and_its_pace_rises() {
        let kept = |kept_mib: u64| Counts { kept_bytes: kept_mib * MIB, ..at_rest() };
        assert_eq!(next(&kept(1_349)), Piece::Nothing);
        let slow = is_cleaning(&kept(1_350)).expect("a third is dead");
        let faster = is_cleaning(&kept(1_500)).expect("more is dead");
        let full = is_cleaning(&kept(1_700)).expect("much is dead");
        assert!(slow.bytes_per_second < faster.bytes_per_second, "{slow:?} {faster:?}");
        assert_eq!((slow.bytes_per_second, full.bytes_per_second), (RATE_SLOW_BYTES, RATE_FULL_BYTES));
        assert_eq!(is_cleaning(&kept(9_000)), Some(full));
        assert_eq!((full.dead_percent_min, full.only_listed), (15, false));
        let few = |kept_mib: u64| Counts { live_bytes: MIB, ..kept(kept_mib) };
        assert_eq!(next(&few(127)), Piece::Nothing, "a few keys that are overwritten all the time");
        assert_eq!(is_cleaning(&few(128)), Some(full));
        let tight = Counts { available_bytes: 511 * MIB, ..kept(1_001) };
        assert_eq!(
            is_cleaning(&tight),
            Some(CleaningRate { dead_percent_min: 5, ..full }),
            "a disk that is nearly full"
        );
        assert_eq!(next(&Counts { available_bytes: 0, ..kept(1_000) }), Piece::Nothing, "all of it lives");
        let eager = is_cleaning(&Counts { manner: Manner::Eager, ..at_rest() }).expect("by hand always");
        assert_eq!((eager.dead_percent_min, eager.only_listed), (1, false));
    }

    #[test]
    fn rule_6_where_nothing_is_urgent_only_listed_segments_are_cleaned() {
        let listed = Counts { listed_segments: 1, ..at_rest() };
        assert_eq!(next(&listed), Piece::Cleaning(LISTED_RATE));
        let urgent = Counts { kept_bytes: 2_000 * MIB, ..listed };
        assert!(is_cleaning(&urgent).is_some_and(|rate| !rate.only_listed), "rule 5 comes first");
    }
}
