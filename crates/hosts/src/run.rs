//! One seed: hosts, and casts among them until everybody has the object.

use std::cell::RefCell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use outpour_core::{Bytes, NodeId};
use outpour_disks::simulated::{Dice, Host, Met, Object};
use outpour_protocols::coordinator::HostState;
use outpour_protocols::registry::Entry;
use outpour_sim::fault::FaultKind;
use outpour_sim::fuzz::{self, EVENTS_MAX};
use outpour_sim::world::{NodeDisk, World};
use outpour_sim::{check, object};

use crate::disk::HostDisk;

/// How many casts there are at most in which things go wrong.
const CASTS_MAX: u64 = 2;
/// How many there may be once everything is well: what was broken before may show in the first ones, and is mended.
const CASTS_AFTER_MAX: u64 = 4;
/// So many times its patience a coordinator may take to end a cast, beside what the cast itself may take.
const PATIENCE_FACTOR: u32 = 4;

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Of which everything is drawn.
    pub seed: u64,
    /// The protocol; one is drawn if there is none.
    pub protocol: Option<&'static Entry>,
    /// Whether all that happens is printed to the standard error.
    pub loud: bool,
}

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The protocol.
    pub protocol: &'static str,
    /// How many casts there were.
    pub casts: u64,
    /// In how many of them a source could not be described, so that nothing was cast.
    pub unread: u64,
    /// How many hosts got which verdict.
    pub verified: u64,
    /// See there.
    pub failed: u64,
    /// How many machines stopped.
    pub stopped: u64,
    /// How often a host came back to a cast after something was wrong with its disk.
    pub recovered: u64,
    /// Events of the network.
    pub events: u64,
    /// Calls of the stores.
    pub calls: u64,
    /// What the disks did.
    pub met: Met,
    /// Faults of the network and of hosts, by kind as in [`FaultKind::NAMES`].
    pub faults: [u32; FaultKind::NAMES.len()],
}

impl Outcome {
    /// Adds another run; the protocol stays.
    pub(crate) fn add(&mut self, other: &Self) {
        self.casts += other.casts;
        self.unread += other.unread;
        self.verified += other.verified;
        self.failed += other.failed;
        self.stopped += other.stopped;
        self.recovered += other.recovered;
        self.events += other.events;
        self.calls += other.calls;
        self.met.add(&other.met);
        for (sum, more) in self.faults.iter_mut().zip(other.faults) {
            *sum += more;
        }
    }
}

/// Plays a case.
///
/// # Errors
/// What was promised and is not so.
pub fn play(case: &Case) -> Result<Outcome, String> {
    let result = catch_unwind(AssertUnwindSafe(|| Run::draw(case).play()));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

struct Run {
    /// What is cast among whom, and what goes wrong with the network.
    transfer: fuzz::Case,
    hosts: Vec<Rc<RefCell<Host>>>,
    dice: Dice,
    outcome: Outcome,
    loud: bool,
}

impl Run {
    fn draw(case: &Case) -> Self {
        let mut dice = Dice::new(case.seed);
        let object = Arc::new(Object::with_blocks(dice.word()));
        let block = Bytes(object.block_bytes().into());
        let size = Bytes(u64::from(object.blocks()) * block.0);
        let moved = object::Object::new(size, block, dice.word());
        let moved = moved.expect("some blocks of some bytes");
        let mut transfer = fuzz::Case::draw_of(case.seed, case.protocol, moved);
        if dice.once_in(2) {
            transfer = transfer.undisturbed(case.seed);
        }
        let host = |is_source: &bool| {
            let seed = dice.word();
            let mut host = match is_source {
                true => Host::source(&object, seed),
                false => Host::receiver(&object, seed),
            };
            if case.loud {
                host.be_loud();
            }
            Rc::new(RefCell::new(host))
        };
        let hosts = transfer.sources.iter().map(host).collect();
        let outcome = Outcome {
            protocol: transfer.protocol.name,
            ..Outcome::default()
        };
        Self {
            transfer,
            hosts,
            dice,
            outcome,
            loud: case.loud,
        }
    }

    fn play(mut self) -> Result<Outcome, String> {
        for _ in 0..self.dice.between(1, CASTS_MAX) {
            self.cast(false)?;
        }
        self.hosts.iter().for_each(|host| host.borrow_mut().heal());
        self.transfer = self.transfer.undisturbed(self.transfer.seed);
        let mut casts = 0;
        while !self.cast(true)? {
            casts += 1;
            if casts == CASTS_AFTER_MAX {
                return Err("everything is well, and not everybody gets the object".to_owned());
            }
        }
        for host in &self.hosts {
            let mut host = host.borrow_mut();
            host.stop(true);
            host.start();
        }
        self.look()?;
        for host in &self.hosts {
            let mut host = host.borrow_mut();
            self.outcome.calls += host.calls();
            self.outcome.recovered += host.recovered();
            self.outcome.met.add(&host.met());
        }
        Ok(self.outcome)
    }

    /// Casts the object once; whether all hosts were verified.
    fn cast(&mut self, well: bool) -> Result<bool, String> {
        let transfer = self.transfer.undisturbed(self.dice.word());
        let transfer = fuzz::Case {
            faults: self.transfer.faults.clone(),
            script: self.transfer.script.clone(),
            ..transfer
        };
        self.outcome.casts += 1;
        self.say(format_args!("casts by {}", transfer.protocol.name));
        if !self.open_sources() {
            self.outcome.unread += 1;
            self.end_cast();
            self.look()?;
            return match well {
                true => Err("everything is well, and a source cannot be read".to_owned()),
                false => Ok(false),
            };
        }
        let sink = || Box::new(std::io::stderr()) as Box<dyn Write + Send>;
        let mut world = transfer.world(self.loud.then(sink));
        world.skip_hash();
        world.set_disks(self.disks());
        let result = run(&mut world, &transfer);
        self.outcome.events += world.totals().events;
        for (sum, more) in self.outcome.faults.iter_mut().zip(world.totals().faults) {
            *sum += more;
        }
        result?;
        self.look()?;
        let all = self.judge(&world)?;
        drop(world);
        self.end_cast();
        self.look()?;
        Ok(all)
    }

    fn say(&self, what: std::fmt::Arguments<'_>) {
        if self.loud {
            eprintln!("----- {what}");
        }
    }

    fn with_roles(&self) -> impl Iterator<Item = (&Rc<RefCell<Host>>, bool)> {
        self.hosts.iter().zip(self.transfer.sources.iter().copied())
    }

    /// Sources are read before a cast begins.
    fn open_sources(&self) -> bool {
        let mut sources = self.with_roles().filter(|(_, is_source)| *is_source);
        sources.all(|(host, _)| host.borrow_mut().open().is_ok())
    }

    fn disks(&self) -> Vec<Box<dyn NodeDisk>> {
        let disk = |(host, is_source): (&Rc<RefCell<Host>>, bool)| {
            if !is_source {
                host.borrow_mut().may_stop();
            }
            Box::new(HostDisk::new(host, is_source)) as Box<dyn NodeDisk>
        };
        self.with_roles().map(disk).collect()
    }

    /// Hosts let go; machines that have stopped come back.
    fn end_cast(&mut self) {
        for host in &self.hosts {
            let mut host = host.borrow_mut();
            if host.stopped().is_none() {
                host.close();
            }
            if host.stopped().is_some() {
                self.outcome.stopped += 1;
                host.start();
            }
        }
    }

    /// No host has broken a promise.
    fn look(&self) -> Result<(), String> {
        for (node, host) in self.hosts.iter().enumerate() {
            if let Some(broken) = host.borrow().broken() {
                return Err(format!("host {node}: {broken}"));
            }
        }
        Ok(())
    }

    /// Whether the coordinator says what is so; and whether that is that all are verified.
    fn judge(&mut self, world: &World) -> Result<bool, String> {
        let nodes = || (0..self.hosts.len() as u32).map(NodeId);
        let troubled = self
            .hosts
            .iter()
            .any(|host| host.borrow_mut().is_troubled());
        let has_reason =
            troubled || !self.transfer.faults.is_empty() || nodes().any(|node| world.is_lost(node));
        let (mut verified, mut failed) = (0, 0);
        for node in nodes() {
            let Some(verdict) = world.verdict(node) else {
                continue;
            };
            let complete = self.hosts[node.index()].borrow().is_complete();
            let why = verdict.error.as_deref().unwrap_or_default();
            match verdict.state {
                HostState::Verified if !complete => {
                    return Err(format!("{node} is called verified and is not complete"));
                }
                HostState::Verified => verified += 1,
                HostState::Failed if why.is_empty() => {
                    return Err(format!("{node} has failed and does not say why"));
                }
                HostState::Failed if !has_reason => {
                    return Err(format!("{node} has failed without a reason: {why}"));
                }
                HostState::Failed => failed += 1,
                state => return Err(format!("the cast has ended, and {node} is {state:?}")),
            }
        }
        self.outcome.verified += verified;
        self.outcome.failed += failed;
        Ok(failed == 0)
    }
}

/// Lets a cast come to its end.
fn run(world: &mut World, transfer: &fuzz::Case) -> Result<(), String> {
    let deadline =
        fuzz::calm(transfer) + fuzz::deadline(transfer) + transfer.patience() * PATIENCE_FACTOR;
    while !world.has_ended() {
        if !world.step(deadline) {
            return Err(format!("no end by {deadline}"));
        }
        if world.totals().events > EVENTS_MAX {
            return Err(format!("{EVENTS_MAX} events until {}", world.now()));
        }
    }
    check::contracts(world)
}
