//! A host of a cast: a disk, and the source or the destination on it, for whoever plays casts of several.
//!
//! Each host has a disk of its own, which is this thread's for as long as a call takes. What is promised is
//! looked at as in [`play`](super::play), and what is broken is kept until it is asked for.

use std::sync::Arc;
use std::time::Duration;

use outpour_core::manifest::BlockSize;
use outpour_core::{BlockId, BlockSet};

use super::check::{self, Before};
use super::dice::Dice;
use super::disk::{Disk, Features, Survival};
use super::faults::{Fault, Met, Plan};
use super::object::{BLOCK, Object};
use super::setting::{self, TO, TROUBLE};
use crate::destination::{Destination, DestinationOptions, Keep};
use crate::source::{Attributes, BuildOptions, Source, Survey};
use crate::{Error, fs};

/// Within how many calls of a cast the machine stops, if it is to stop.
const STOPS_WITHIN: u64 = 400;
/// A thread that syncs takes its turn once in so many writes.
const TURN: u64 = 3;
/// It is looked at what is at final names once in so many writes, and after all that may change it more.
const LOOK: u64 = 4;

/// Something that is wrong with the place of an object, as a driver hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What, in one line.
    pub why: String,
    /// Whether it is only that there is no room.
    pub full: bool,
    /// Whether it may be different the next time.
    pub passes: bool,
}

/// What a host has open.
enum Place {
    Source(Source),
    Destination(Destination),
}

/// See the module.
pub struct Host {
    /// `None` while it is this thread's.
    disk: Option<Box<Disk>>,
    object: Arc<Object>,
    place: Option<Place>,
    is_source: bool,
    before: Before,
    options: DestinationOptions,
    confined: bool,
    dice: Dice,
    /// What the disk does while it is in use, once that is so.
    plan: Option<Plan>,
    /// What is left if the machine stops.
    survival: Survival,
    /// What went wrong last: that there was no room, and anything else.
    errors: [Option<Error>; 2],
    /// Whether it was complete, and was not opened again.
    complete: bool,
    /// How often it was recovered.
    recovered: u64,
    /// What is on the disk may be wrong, until it is looked at: the disk has lost what it said was on it.
    excused: bool,
    /// The promise that was broken first.
    broken: Option<String>,
}

impl Host {
    /// A host that has an object. Its disk is sound as long as it is described, and may fail when it is read.
    pub fn source(object: &Arc<Object>, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::of_source(&mut dice);
        // Whoever casts files can read them.
        let features = Features {
            user: 0,
            ..setting::features(&mut dice)
        };
        let mut disk = Disk::new(features, Plan::default(), dice.word());
        setting::supply(&mut disk, object);
        Self::new(disk, object, Before::new(), Some(plan), dice, true)
    }

    /// A host that is to get an object, with a disk that fails as the seed says; a seed may say that it does not.
    pub fn receiver(object: &Arc<Object>, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let plan = match dice.once_in(4) {
            true => Plan::healthy(&mut dice),
            false => Plan::draw(&mut dice),
        };
        let features = setting::features(&mut dice);
        let mut disk = Disk::new(features, plan, dice.word());
        let before = setting::furnish(&mut disk, object, &mut dice);
        Self::new(disk, object, before, None, dice, false)
    }

    fn new(
        disk: Disk,
        object: &Arc<Object>,
        before: Before,
        plan: Option<Plan>,
        mut dice: Dice,
        is_source: bool,
    ) -> Self {
        Self {
            disk: Some(Box::new(disk)),
            object: object.clone(),
            place: None,
            is_source,
            before,
            options: setting::options(&mut dice),
            confined: dice.once_in(2),
            plan,
            survival: Survival::Process,
            errors: [None, None],
            complete: false,
            recovered: 0,
            excused: false,
            broken: None,
            dice,
        }
    }

    /// Prints every call to the standard error from now on.
    pub fn be_loud(&mut self) {
        self.on(|_| disk(|disk| disk.loud = true));
    }

    // ---- a cast

    /// Opens what the cast is about; returns the blocks that are here.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn open(&mut self) -> Result<BlockSet, Wrong> {
        self.on(|host| {
            debug_assert!(host.place.is_none(), "it was not closed");
            host.errors = [None, None];
            host.complete = false;
            let place = match host.is_source {
                true => host.describe().map(Place::Source),
                false => setting::open(&host.object, &host.options, host.confined)
                    .map(Place::Destination),
            };
            host.place = Some(host.said(place)?);
            if let Some(plan) = host.plan.take() {
                disk(|disk| disk.plan = plan);
            }
            host.look();
            Ok(host.have())
        })
    }

    /// Has the machine stop at some call from now on, if that is still to be.
    pub fn may_stop(&mut self) {
        self.on(|host| {
            let at = host.dice.between(1, STOPS_WITHIN);
            host.survival = Survival::draw(&mut host.dice);
            disk(|disk| {
                if disk.plan.crashes > 0 {
                    disk.plan.crashes -= 1;
                    disk.crash_at = Some(disk.calls + at);
                }
            });
        });
    }

    fn describe(&self) -> Result<Source, Error> {
        let survey = Survey::beneath(
            &setting::supplied(&self.object),
            &setting::roots()?,
            Attributes::Left,
        )?;
        let options = BuildOptions {
            block: BlockSize::Given(BLOCK),
            threads: std::num::NonZero::<usize>::MIN,
            ..BuildOptions::default()
        };
        let (manifest, source) = survey.hash(&options, &|_| {})?;
        if manifest.id() != self.object.manifest.id() {
            let path = setting::path().to_path_buf();
            return Err(Error::Mismatch { path });
        }
        Ok(source)
    }

    fn have(&self) -> BlockSet {
        match &self.place {
            Some(Place::Destination(destination)) => destination.have(),
            Some(Place::Source(_)) => BlockSet::full(self.object.blocks()),
            None => BlockSet::new(self.object.blocks()),
        }
    }

    /// Reads a block that is here.
    ///
    /// # Errors
    /// If it cannot be read; of a source, none says more than why.
    pub fn read(&mut self, block: BlockId) -> Result<(), Wrong> {
        self.on(|host| {
            let mut buf = Vec::new();
            let read = match &host.place {
                Some(Place::Destination(destination)) => destination.read(block, &mut buf),
                Some(Place::Source(source)) => source.read(block, &mut buf),
                None => Err(Error::Absent { block }),
            };
            if read.is_ok() && buf != host.object.block(block) {
                host.breaks(format!("block {block} is served and wrong"));
            }
            host.said(read)
        })
    }

    /// Writes a block that came and was verified.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, block: BlockId) -> Result<(), Wrong> {
        self.on(|host| {
            let Some(Place::Destination(destination)) = &host.place else {
                return host.said(Err(Error::Absent { block }));
            };
            let written = destination.write(block, host.object.block(block));
            if host.dice.once_in(TURN) {
                destination.take_turn();
            }
            if host.dice.once_in(LOOK) {
                host.look();
            }
            host.said(written.map(drop).map_err(Error::from))
        })
    }

    /// Lets time pass, after which a thread that syncs takes its turn.
    pub fn pass(&mut self, time: Duration) {
        self.on(|host| {
            disk(|disk| disk.pass(time));
            if let Some(Place::Destination(destination)) = &host.place {
                destination.take_turn();
            }
            host.look();
        });
    }

    /// Puts everything in place.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn finish(&mut self) -> Result<(), Wrong> {
        self.on(|host| {
            let Some(Place::Destination(destination)) = &host.place else {
                return Ok(());
            };
            let finished = destination.finish();
            let have = destination.have();
            host.said(finished)?;
            if !have.is_full() {
                host.breaks("it was complete without all blocks".to_owned());
            }
            host.complete = true;
            host.excused = false;
            host.look_whole(false, "it is complete");
            Ok(())
        })
    }

    /// Recovers from what went wrong last, beside that there was no room if all is read again; returns the blocks
    /// that are here then.
    ///
    /// # Errors
    /// If the reason still stands, or there is another.
    pub fn recover(&mut self, rereads: bool) -> Result<BlockSet, Wrong> {
        self.on(|host| {
            let after = host.errors[usize::from(rereads)].take();
            if let (Some(Place::Destination(destination)), Some(error)) = (&host.place, after) {
                let recovered = destination.recover(&error);
                host.said(recovered)?;
            }
            host.recovered += 1;
            host.look();
            Ok(host.have())
        })
    }

    /// Ends the cast in order.
    pub fn close(&mut self) {
        self.on(|host| {
            let open = host.place.take().is_some();
            host.look_at_descriptors();
            if !open || disk(|disk| disk.dead) {
                return;
            }
            let troubled = disk(|disk| disk.met.any(&TROUBLE));
            host.look_whole(!troubled, "it was complete and closed");
            let failed = disk(|disk| disk.met.of(Fault::Call)) > 0;
            let state = setting::state(&host.object);
            let kept = host.options.keep == Keep::Files;
            if host.complete && kept && !failed && disk(|disk| disk.find(&state).is_some()) {
                host.breaks("the state is still there".to_owned());
            }
        });
    }

    // ---- the machine

    /// Whether the machine has stopped: then every call fails, until it is [started](Self::start) again. Says
    /// whether it is gone as a whole, and not only the process.
    pub fn stopped(&self) -> Option<bool> {
        let disk = self.disk.as_ref().filter(|disk| disk.dead);
        disk.map(|_| self.survival != Survival::Process)
    }

    /// Stops the machine, as a whole or only the process.
    pub fn stop(&mut self, whole: bool) {
        self.on(|host| {
            host.survival = match whole {
                false => Survival::Process,
                true => std::iter::repeat_with(|| Survival::draw(&mut host.dice))
                    .find(|survival| *survival != Survival::Process)
                    .unwrap_or(Survival::None),
            };
            disk(|disk| disk.dead = true);
            host.place = None;
        });
    }

    /// Starts a machine that has stopped, with what its disk has kept.
    pub fn start(&mut self) {
        self.on(|host| {
            host.place = None;
            host.look_at_descriptors();
            let survival = host.survival;
            host.excused |= disk(|disk| {
                disk.revive(survival);
                survival != Survival::Process && disk.lied
            });
            host.look_whole(false, "after it was complete, and a crash");
        });
    }

    /// Ends all faults: from now on the disk is well.
    pub fn heal(&mut self) {
        self.plan = None;
        self.on(|_| disk(Disk::heal));
    }

    /// Which faults it has met.
    pub fn met(&mut self) -> Met {
        self.on(|_| disk(|disk| disk.met.clone()))
    }

    /// How many calls there were.
    pub fn calls(&mut self) -> u64 {
        self.on(|_| disk(|disk| disk.calls))
    }

    /// How often it came back after something was wrong.
    pub const fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Whether anything happened to it that may have it fail.
    pub fn is_troubled(&mut self) -> bool {
        self.on(|host| host.has_reason())
    }

    /// Whether everything is in place, as was said and is so still.
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// The promise that was broken first, if one was.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    // ---- what is looked at

    /// Does something with this host's disk as the thread's.
    fn on<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let other = fs::swap(self.disk.take());
        let result = act(self);
        self.disk = fs::swap(other);
        debug_assert!(self.disk.is_some());
        result
    }

    /// Sorts what the store said, and keeps it for a recovery.
    fn said<T>(&mut self, result: Result<T, Error>) -> Result<T, Wrong> {
        result.map_err(|error| {
            let wrong = Wrong {
                why: error.to_string(),
                full: error.lacks_room(),
                passes: error.may_pass(),
            };
            if !disk(|disk| disk.dead) && !self.has_reason() {
                self.breaks(format!("without a reason: {error}"));
            }
            self.errors[usize::from(!wrong.full)] = Some(error);
            wrong
        })
    }

    /// Whether the disk has done what may make a store fail. Where names are not in a journal, a cut may bring back
    /// a file of the same size and time.
    fn has_reason(&self) -> bool {
        let cut = |disk: &Disk| !disk.has_journal() && disk.met.of(Fault::Cut) > 0;
        disk(|disk| disk.met.any(&TROUBLE) || cut(disk))
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn keep(&mut self, looked: Result<(), String>) {
        if let Err(what) = looked {
            self.breaks(what);
        }
    }

    fn look(&mut self) {
        let looked = disk(|disk| check::others(disk));
        self.keep(looked);
        if !self.excused && !self.is_source {
            let (object, before) = (&self.object, &self.before);
            let looked = disk(|disk| check::places(disk, TO, object, before));
            self.keep(looked);
        }
    }

    /// What was complete is whole.
    fn look_whole(&mut self, exact: bool, when: &str) {
        self.look();
        if self.complete && !self.excused && self.options.keep == Keep::Files {
            let object = &self.object;
            let looked = disk(|disk| check::complete(disk, TO, object, exact));
            self.keep(looked.map_err(|what| format!("{when}: {what}")));
        }
    }

    fn look_at_descriptors(&mut self) {
        let open = disk(|disk| disk.open_descriptors());
        if open > 0 {
            self.breaks(format!("{open} descriptors are left open"));
        }
    }
}

impl Drop for Host {
    /// What is open belongs to its own disk.
    fn drop(&mut self) {
        if let Some(mut disk) = self.disk.take() {
            disk.dead = true;
            let other = fs::swap(Some(disk));
            self.place = None;
            fs::swap(other);
        }
    }
}

fn disk<T>(act: impl FnOnce(&mut Disk) -> T) -> T {
    fs::with(act).expect("its disk is this thread's")
}
