//! The receiver's side of a cast over a simulated disk, from the first call until everything is in place.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use outpour_core::{BlockId, BlockSet};

use super::check::{self, Before};
use super::dice::Dice;
use super::disk::{Disk, Survival};
use super::faults::{Fault, Met, Plan};
use super::object::Object;
use super::setting::{self, TO, TROUBLE};
use crate::destination::{Destination, DestinationOptions, Keep, Written};
use crate::{Error, fs};

/// How many steps a run may take: one that takes more goes round in circles.
const STEPS_MAX: u32 = 20_000;
/// How many errors there may be once the disk is well again.
const ERRORS_AFTER_MAX: u32 = 8;
/// Of those, after what memory has no more what was written and not synced.
const DROPS: [Fault; 3] = [Fault::Sync, Fault::SyncFull, Fault::Background];
/// Of those, what makes the medium differ from what was said to be on it.
const SPOILS: [Fault; 3] = [Fault::Lie, Fault::Rot, Fault::Misread];

/// A stop of the machine at a given call, and what is left of what was not synced.
#[derive(Clone, Copy, Debug)]
pub enum Crash {
    /// The process is killed.
    Kill,
    /// The power goes, and nothing is left.
    Nothing,
    /// All names and attributes are left, and no bytes.
    Changes,
    /// All bytes are left, and no names nor attributes.
    Pages,
    /// Whatever is drawn is left.
    Some,
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Of which everything is drawn.
    pub seed: u64,
    /// Instead of the drawn faults: a healthy disk, and the machine stops once, at the call of this number.
    pub crash: Option<(u64, Crash)>,
    /// Instead of the drawn faults: a healthy disk.
    pub healthy: bool,
    /// Whether every call is printed to the standard error.
    pub loud: bool,
}

impl Case {
    /// What a seed draws.
    pub const fn of(seed: u64) -> Self {
        Self {
            seed,
            crash: None,
            healthy: false,
            loud: false,
        }
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which faults it met.
    pub met: Met,
    /// How many calls there were.
    pub calls: u64,
    /// What tells it from runs that went otherwise.
    pub trace: u64,
}

/// Plays a case.
///
/// # Errors
/// What was promised and is not so.
pub fn play(case: &Case) -> Result<Outcome, String> {
    let before = fs::swap(None);
    let result = catch_unwind(AssertUnwindSafe(|| Cast::draw(case).run()));
    STAGE.take();
    fs::set_between(None);
    fs::swap(before);
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// What others may do while something is synced.
struct Stage {
    destination: Destination,
    object: Rc<Object>,
    dice: RefCell<Dice>,
    wrong: RefCell<Option<String>>,
}

thread_local! {
    static STAGE: RefCell<Option<Rc<Stage>>> = const { RefCell::new(None) };
}

/// Why an attempt ends.
enum End {
    /// The machine stopped.
    Stopped,
    /// The destination was closed, to be opened again.
    Closed,
    /// The store said that something is wrong.
    Error(Error),
    /// A promise was broken.
    Broken(String),
}

impl From<String> for End {
    fn from(broken: String) -> Self {
        Self::Broken(broken)
    }
}

struct Cast {
    case: Case,
    object: Rc<Object>,
    dice: Dice,
    options: DestinationOptions,
    confined: bool,
    before: Before,
    /// Blocks that are here after the next crash of the process, or of the machine.
    logged: BlockSet,
    synced: BlockSet,
    /// Which of them have to be here when it is opened.
    must: BlockSet,
    /// Whether it was finished once, and nothing made that untrue.
    finished: bool,
    /// What was on disk may be wrong, until it is looked at.
    excused: bool,
    /// How often pages had been dropped before it was last looked at what is here.
    drops: u64,
    errors_after: u32,
    steps: u32,
}

impl Cast {
    fn draw(case: &Case) -> Self {
        let mut dice = Dice::new(case.seed);
        let plan = match case.crash.is_some() || case.healthy {
            true => Plan::healthy(&mut dice),
            false => Plan::draw(&mut dice),
        };
        let features = setting::features(&mut dice);
        let mut disk = Disk::new(features, plan, dice.word());
        disk.loud = case.loud;
        let object = Rc::new(Object::draw(&mut dice));
        let before = setting::furnish(&mut disk, &object, &mut dice);
        fs::swap(Some(Box::new(disk)));
        let none = BlockSet::new(object.manifest.blocks());
        let mut cast = Self {
            case: *case,
            options: setting::options(&mut dice),
            confined: dice.once_in(2),
            before,
            logged: none.clone(),
            synced: none.clone(),
            must: none,
            finished: false,
            excused: false,
            drops: 0,
            errors_after: 0,
            steps: 0,
            object,
            dice,
        };
        if cast.dice.once_in(4) {
            cast.earlier();
        }
        cast.plan_crash();
        cast
    }

    /// Another version of the object was cast here before, and not to its end.
    fn earlier(&mut self) {
        let other = self.object.other(&mut self.dice);
        let plan = disk(|disk| std::mem::take(&mut disk.plan));
        if let Ok(destination) = self.open(&other) {
            for block in 0..other.manifest.blocks() {
                if self.dice.once_in(2) {
                    let _ = destination.write(block, other.block(block));
                }
            }
            if self.dice.once_in(2) {
                let _ = destination.sync();
            }
            drop(destination);
        }
        disk(|disk| {
            disk.settle();
            disk.plan = plan;
        });
        // What it put in place is there now, like what was there before.
        self.before = disk(|disk| setting::places(disk, &self.object));
    }

    fn plan_crash(&mut self) {
        let case = self.case;
        let at = self.dice.between(1, 250);
        disk(|disk| {
            if let Some((at, _)) = case.crash {
                disk.crash_at = (disk.met.of(Fault::Kill) + disk.met.of(Fault::Cut) == 0)
                    .then_some(disk.calls + at);
            } else if disk.plan.crashes > 0 {
                disk.plan.crashes -= 1;
                disk.crash_at = Some(disk.calls + at);
            }
        });
    }

    // ---- the run

    fn run(mut self) -> Result<Outcome, String> {
        loop {
            match self.attempt() {
                Ok(()) => break,
                Err(End::Stopped) => self.revive()?,
                Err(End::Closed) => {}
                Err(End::Error(error)) => self.excuse(&error)?,
                Err(End::Broken(broken)) => return Err(broken),
            }
            self.step()?;
        }
        let open = disk(|disk| disk.open_descriptors());
        if open > 0 {
            return Err(format!("{open} descriptors are left open"));
        }
        Ok(disk(|disk| Outcome {
            met: disk.met.clone(),
            calls: disk.calls,
            trace: disk.trace(),
        }))
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err("it goes round in circles".to_owned());
        }
        disk(|disk| check::others(disk))?;
        if self.excused {
            return Ok(());
        }
        let (object, before) = (&self.object, &self.before);
        disk(|disk| check::places(disk, TO, object, before))
    }

    /// Whether an error has a reason. It may come again while the reason stands, and a few times more.
    fn excuse(&mut self, error: &Error) -> Result<(), String> {
        // Where names are not in a journal, a cut may bring back a file of the same size and time.
        let cut = |disk: &Disk| !disk.has_journal() && disk.met.of(Fault::Cut) > 0;
        let troubled = disk(|disk| disk.met.any(&TROUBLE) || cut(disk));
        let over = disk(|disk| disk.is_well());
        if !troubled {
            return Err(format!("without a reason: {error}"));
        }
        self.errors_after += u32::from(over);
        self.say(format_args!("error: {error}"));
        if self.errors_after > ERRORS_AFTER_MAX {
            return Err(format!("the disk is well again, and still: {error}"));
        }
        let none = BlockSet::new(self.object.manifest.blocks());
        self.logged = none.clone();
        self.synced = none.clone();
        self.must = none;
        self.finished = false;
        disk(|disk| disk.pass(Duration::from_secs(2)));
        Ok(())
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.case.loud {
            eprintln!("----- {what}");
        }
    }

    fn revive(&mut self) -> Result<(), String> {
        let open = disk(|disk| disk.open_descriptors());
        if open > 0 {
            return Err(format!("{open} descriptors are left open"));
        }
        let survival = match self.case.crash {
            Some((_, Crash::Kill)) => Survival::Process,
            Some((_, Crash::Nothing)) => Survival::None,
            Some((_, Crash::Changes)) => Survival::Changes,
            Some((_, Crash::Pages)) => Survival::Pages,
            Some((_, Crash::Some)) => Survival::Some,
            None => Survival::draw(&mut self.dice),
        };
        let power = survival != Survival::Process;
        disk(|disk| {
            disk.revive(survival);
            self.excused |= power && disk.lied;
        });
        // Where names are not in a journal, one that is moved may get lost.
        let trusted = !power || self.finished || disk(|disk| disk.has_journal());
        if trusted && !self.excused {
            self.must = match power {
                true => self.synced.clone(),
                false => self.left().clone(),
            };
        } else {
            self.must = BlockSet::new(self.object.manifest.blocks());
            self.synced = self.must.clone();
        }
        if power {
            self.logged = self.synced.clone();
        }
        if self.finished && !self.excused {
            let object = &self.object;
            let kept = match self.options.keep {
                Keep::Files => disk(|disk| check::complete(disk, TO, object, false)),
                _ => Ok(()),
            };
            kept.map_err(|broken| format!("after it was complete, and a crash: {broken}"))?;
        }
        self.plan_crash();
        Ok(())
    }

    /// What is here after the process ends: all that is in the journal. What the system could not write, and said so,
    /// it may drop; then it is what was synced.
    fn left(&self) -> &BlockSet {
        match drops() > self.drops {
            true => &self.synced,
            false => &self.logged,
        }
    }

    fn open(&self, object: &Object) -> Result<Destination, Error> {
        setting::open(object, &self.options, self.confined)
    }

    fn attempt(&mut self) -> Result<(), End> {
        self.say(format_args!("opens"));
        // A new cast may make directories writable again, for instance.
        self.finished = false;
        let (trouble, drops) = (troubles(), drops());
        let destination = self.open(&self.object);
        let destination = self.said(destination)?;
        let have = destination.have();
        let spoiled = disk(|disk| disk.met.any(&SPOILS)) || troubles() > trouble;
        if !spoiled {
            disk(|disk| check::kept(&have, &self.must, &disk.met))?;
        }
        self.logged = have.clone();
        self.synced.intersect(&have);
        self.drops = drops;
        let stage = Rc::new(Stage {
            destination,
            object: self.object.clone(),
            dice: RefCell::new(Dice::new(self.dice.word())),
            wrong: RefCell::default(),
        });
        let mut result = self.serve(&stage);
        while let Err(End::Error(error)) = &result {
            // What may pass is recovered from, or tried from the start.
            // What is complete is only looked at anew.
            if !error.may_pass() || self.finished || self.dice.once_in(4) {
                break;
            }
            let error = error.clone();
            self.excuse(&error)?;
            result = self.recover(&stage, &error);
        }
        let finished = result.is_ok();
        let orderly = finished || matches!(&result, Err(End::Closed));
        let have = stage.destination.have();
        drop(stage);
        if disk(|disk| disk.dead) {
            return Err(End::Stopped);
        }
        if orderly {
            // What it left when it was closed.
            self.must = match troubles() == trouble {
                true => have,
                false => self.left().clone(),
            };
            self.logged = self.must.clone();
        }
        result?;
        self.after_the_end()
    }

    /// Recovers within the attempt and goes on.
    fn recover(&mut self, stage: &Rc<Stage>, error: &Error) -> Result<(), End> {
        self.step()?;
        let recovered = stage.destination.recover(error);
        self.said(recovered)?;
        self.serve(stage)
    }

    /// Reads what is here, and takes the rest.
    fn serve(&mut self, stage: &Rc<Stage>) -> Result<(), End> {
        for block in stage.destination.have().iter() {
            self.read(stage, block)?;
        }
        self.fill(stage)
    }

    /// Sorts what the store said.
    fn said<T>(&self, result: Result<T, Error>) -> Result<T, End> {
        if disk(|disk| disk.dead) {
            return Err(End::Stopped);
        }
        result.map_err(End::Error)
    }

    // ---- what a receiver does

    fn fill(&mut self, stage: &Rc<Stage>) -> Result<(), End> {
        loop {
            self.step()?;
            let have = stage.destination.have();
            if have.is_full() && !self.dice.once_in(4) {
                break;
            }
            match self.dice.below(32) {
                0..20 => {
                    if let Some(block) = any_absent(&have, &mut self.dice) {
                        self.write(stage, block)?;
                    }
                }
                20..24 => {
                    if let Some(block) = any_present(&have, &mut self.dice) {
                        self.read(stage, block)?;
                    }
                }
                24..27 => self.turn(stage)?,
                27 => self.sync(stage)?,
                28 => {
                    if let Some(block) = any_present(&have, &mut self.dice) {
                        let again = stage
                            .destination
                            .write(block, self.object.block(block))
                            .map_err(Error::from);
                        if self.said(again)? == Written::Fresh {
                            return Err(End::Broken(format!("block {block} was taken twice")));
                        }
                    }
                }
                29 => disk(|disk| disk.pass(Duration::from_millis(500))),
                30 if self.options.keep == Keep::Files => self.finish_early(stage, &have)?,
                // Closed, and opened again later.
                31 if self.dice.once_in(3) => return Err(End::Closed),
                _ => {}
            }
        }
        self.finish(stage)
    }

    fn write(&mut self, stage: &Rc<Stage>, block: BlockId) -> Result<(), End> {
        let data = self.object.block(block);
        self.say(format_args!("writes block {block}"));
        let written = stage.destination.write(block, data);
        self.said(written.map_err(Error::from)).map(drop)
    }

    fn read(&mut self, stage: &Rc<Stage>, block: BlockId) -> Result<(), End> {
        let read = check::block(&stage.destination, &self.object, block)?;
        self.said(read)
    }

    /// A thread that syncs takes its turn; others go on meanwhile.
    fn turn(&mut self, stage: &Rc<Stage>) -> Result<(), End> {
        let (have, trouble) = (stage.destination.have(), troubles());
        meanwhile(stage, |destination| destination.take_turn())?;
        self.said(Ok(()))?;
        if troubles() == trouble {
            self.logged = have;
        }
        Ok(())
    }

    fn sync(&mut self, stage: &Rc<Stage>) -> Result<(), End> {
        let have = stage.destination.have();
        self.say(format_args!("syncs {} blocks", have.count()));
        let synced = meanwhile(stage, Destination::sync)?;
        self.said(synced.map_err(Error::from))?;
        self.logged = have.clone();
        self.synced = have;
        Ok(())
    }

    /// An object is not complete before all of it is there.
    fn finish_early(&mut self, stage: &Rc<Stage>, have: &BlockSet) -> Result<(), End> {
        if have.is_full() {
            return Ok(());
        }
        match stage.destination.finish() {
            Err(Error::Incomplete { missing }) if missing == have.missing() => self.said(Ok(())),
            Err(error) => self.said(Err(error)),
            Ok(()) => Err(End::Broken("it was complete without all blocks".to_owned())),
        }
    }

    fn finish(&mut self, stage: &Rc<Stage>) -> Result<(), End> {
        self.say(format_args!("finishes"));
        let finished = meanwhile(stage, Destination::finish)?;
        self.said(finished)?;
        self.finished = true;
        self.excused = false;
        self.logged = BlockSet::full(self.object.manifest.blocks());
        self.synced = self.logged.clone();
        let keep = self.options.keep;
        let object = &self.object;
        if keep == Keep::Files {
            disk(|disk| check::complete(disk, TO, object, false))
                .map_err(|broken| format!("it is complete: {broken}"))?;
        }
        for block in 0..self.object.manifest.blocks() {
            self.read(stage, block)?;
        }
        Ok(())
    }

    /// Everything is in place and the store has let go.
    fn after_the_end(&mut self) -> Result<(), End> {
        self.step()?;
        let troubled = disk(|disk| disk.met.any(&TROUBLE));
        if self.options.keep == Keep::Files {
            let object = &self.object;
            disk(|disk| check::complete(disk, TO, object, !troubled))
                .map_err(|broken| format!("it was complete and closed: {broken}"))?;
            let state = setting::state(object);
            let failed = disk(|disk| disk.met.of(Fault::Call)) > 0;
            if !failed && disk(|disk| disk.find(&state).is_some()) {
                return Err(End::Broken("the state is still there".to_owned()));
            }
        }
        // Half the time the power goes after that.
        let crashes = self.case.crash.is_none() && disk(|disk| disk.plan.crashes > 0);
        if crashes && self.dice.once_in(2) {
            disk(|disk| {
                disk.plan.crashes -= 1;
                disk.dead = true;
            });
            return Err(End::Stopped);
        }
        Ok(())
    }
}

/// Does something during which other threads get on.
fn meanwhile<T>(stage: &Rc<Stage>, act: impl FnOnce(&Destination) -> T) -> Result<T, End> {
    STAGE.set(Some(stage.clone()));
    fs::set_between(Some(between));
    let result = act(&stage.destination);
    fs::set_between(None);
    STAGE.take();
    match stage.wrong.take() {
        Some(wrong) => Err(End::Broken(wrong)),
        None => Ok(result),
    }
}

/// What another thread does while one syncs.
fn between() {
    if !disk(|disk| !disk.dead && disk.goes_between()) {
        return;
    }
    let Some(stage) = STAGE.with_borrow(Clone::clone) else {
        return;
    };
    let mut dice = stage.dice.borrow_mut();
    let have = stage.destination.have();
    if dice.once_in(4) {
        if let Some(block) = any_present(&have, &mut dice)
            && let Err(wrong) = check::block(&stage.destination, &stage.object, block)
        {
            stage.wrong.replace(Some(wrong));
        }
    } else if let Some(block) = any_absent(&have, &mut dice) {
        // What is wrong shows in the thread that syncs, too.
        let _ = stage.destination.write(block, stage.object.block(block));
    }
}

fn troubles() -> u64 {
    disk(|disk| disk.met.sum(&TROUBLE))
}

fn drops() -> u64 {
    disk(|disk| disk.met.sum(&DROPS))
}

fn any_absent(have: &BlockSet, dice: &mut Dice) -> Option<BlockId> {
    let from = dice.below(u64::from(have.len().max(1))) as u32;
    have.next_absent(from).or_else(|| have.next_absent(0))
}

fn any_present(have: &BlockSet, dice: &mut Dice) -> Option<BlockId> {
    let from = dice.below(u64::from(have.len().max(1))) as u32;
    have.next_present(from).or_else(|| have.next_present(0))
}

fn disk<T>(act: impl FnOnce(&mut Disk) -> T) -> T {
    fs::with(act).expect("this thread has a disk")
}
