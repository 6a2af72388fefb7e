//! Where the object is at a node, and what it does when something is wrong with its destination
//! that may pass: a full disk, a write that fails, a file that another process changed or a disk that
//! returns other bytes.
//!
//! Then it takes no part in the object's transfer for a while, like a node that is away; its peers
//! get what they need elsewhere. When the reason is gone it comes back with what is here then.

use std::time::Duration;

use outpour_core::blocks::Want;
use outpour_core::{BlockSet, NodeId, Time};

use super::{Measures, Node, Object, Output, SERVED, Transfer, Trouble, report};
use crate::coordinator::{CodingCounts, Report};

/// How long to wait before it is looked whether the reason of a pause is gone.
const RETRY: Duration = Duration::from_secs(1);
/// So often at most everything is read again: what is damaged more often is of no use.
const RECOVERIES_MAX: u32 = 5;

/// Where the object is at this node.
#[derive(Debug)]
pub(super) enum Stage {
    /// A receiver without the manifest.
    Waiting,
    /// The destination is being looked at.
    Opening,
    /// The transfer is on, or over while the files are put in place.
    Moving,
    /// Something is wrong with the destination that may pass.
    Paused(Pause),
    /// A source, or a node that has failed and only waits for its dismissal.
    Settled,
}

/// What the driver does with the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Opening,
    Finishing,
    Recovering,
}

/// A node is away from the transfer.
#[derive(Debug)]
pub(super) struct Pause {
    /// Whether there is only no room.
    full: bool,
    /// When it is tried again.
    retry: Time,
}

impl Node {
    /// What the stage says of everything else; see [`Node::check`].
    pub(super) fn check_stage(&self) {
        let part = self.parts[Transfer::Object.index()].as_ref();
        let failed = matches!(self.verdict, Some(Report::Failed { .. }));
        debug_assert!(!failed || self.parts.iter().all(Option::is_none));
        debug_assert!(!failed || matches!(self.stage, Stage::Settled));
        debug_assert!(self.recoveries <= RECOVERIES_MAX + 1);
        debug_assert!(part.is_some() || failed || self.pending.is_empty());
        match &self.stage {
            Stage::Waiting | Stage::Opening => {
                debug_assert!(self.object.is_none());
                debug_assert!(part.is_none(), "a part without an object");
                let opening = matches!(self.stage, Stage::Opening);
                debug_assert_eq!(self.work, opening.then_some(Work::Opening));
            }
            Stage::Moving => {
                debug_assert!(self.object.is_some());
                debug_assert!(!matches!(self.work, Some(Work::Opening | Work::Recovering)));
                debug_assert!(self.work.is_none() || self.lacks == 0);
            }
            Stage::Paused(_) => {
                debug_assert!(part.is_none(), "it takes part during a pause");
                debug_assert!(self.verdict.is_none());
                debug_assert!(self.pauses > 0);
                debug_assert!(matches!(self.work, None | Some(Work::Recovering)));
            }
            Stage::Settled => debug_assert!(self.config.source || failed),
        }
    }

    /// Goes on to the next stage if a transfer has become complete.
    pub(super) fn advance(&mut self, transfer: Transfer, out: &mut Vec<Output>) {
        let manifest = self.manifest.as_ref();
        let manifest_here = manifest.is_none_or(|(have, _)| have.is_full());
        // A node that only forwards is never done with it.
        let relays = self.config.want == Want::Nothing;
        let object_here = self.lacks == 0 && !relays;
        match (transfer, &self.stage) {
            (Transfer::Manifest, Stage::Waiting) if manifest_here => {
                debug_assert!(self.work.is_none());
                debug_assert!(self.object.is_none(), "a destination is opened once");
                self.stage = Stage::Opening;
                report(Report::Preparing, out);
                self.work_on(Work::Opening, Output::OpenDestination, out);
            }
            (Transfer::Object, Stage::Moving)
                if object_here && self.work.is_none() && self.verdict.is_none() =>
            {
                debug_assert!(
                    (self.object.as_ref()).is_some_and(|it| self.want.is_subset(&it.have)),
                    "something that is wanted is not here"
                );
                report(Report::Finishing, out);
                self.work_on(Work::Finishing, Output::Finish, out);
            }
            _ => {}
        }
    }

    fn work_on(&mut self, work: Work, output: Output, out: &mut Vec<Output>) {
        debug_assert!(self.work.is_none(), "{work:?} while {:?}", self.work);
        self.work = Some(work);
        out.push(output);
    }

    fn done_with(&mut self, work: Work) {
        debug_assert_eq!(self.work, Some(work), "what is done was not under way");
        self.work = None;
    }

    pub(super) fn on_opened(&mut self, opened: Result<Box<Object>, String>, out: &mut Vec<Output>) {
        self.done_with(Work::Opening);
        match opened {
            Err(error) => self.fail(error, out),
            Ok(object) => {
                debug_assert!(matches!(self.stage, Stage::Opening));
                let Some(want) = self.config.want.of(object.have.len()) else {
                    return self.fail("it is to get blocks that the object lacks".into(), out);
                };
                self.want = want;
                self.object = Some(*object);
                let have_bytes = self.take_stock();
                report(Report::Prepared { have_bytes }, out);
                self.take_part(out);
            }
        }
    }

    /// Notes how many bytes are here, and says so.
    fn take_stock(&mut self) -> u64 {
        let Some(object) = &self.object else {
            return 0;
        };
        let mut here = object.have.clone();
        here.intersect(&self.want);
        let lens = here.iter().map(|block| (object.block_len)(block));
        self.have_bytes = lens.map(u64::from).sum();
        self.lacks = self.want.count() - here.count();
        debug_assert!(self.lacks > 0 || self.want.is_subset(&object.have));
        self.have_bytes
    }

    /// Takes part in the object's transfer from now on.
    fn take_part(&mut self, out: &mut Vec<Output>) {
        debug_assert!(matches!(self.stage, Stage::Opening | Stage::Paused(_)));
        debug_assert!(self.verdict.is_none(), "a node with a verdict stays away");
        self.stage = Stage::Moving;
        out.push(Output::Open(Transfer::Object));
        self.start_object(out);
        debug_assert_eq!(self.parts[Transfer::Object.index()].is_some(), self.begun);
        self.advance(Transfer::Object, out);
    }

    /// Takes no part in the object's transfer any more.
    fn leave(&mut self, out: &mut Vec<Output>) {
        self.parts[Transfer::Object.index()] = None;
        for (peer, rate) in self.rates.forget(Transfer::Object.number().into()) {
            out.push(Output::SetRate(peer, rate));
        }
        self.pending.clear();
        out.push(Output::Close(Transfer::Object));
    }

    pub(super) fn on_finished(
        &mut self,
        finished: Result<(), Trouble>,
        measures: Measures,
        out: &mut Vec<Output>,
    ) {
        self.done_with(Work::Finishing);
        self.measures = measures;
        // It has failed meanwhile, and stays failed.
        if self.verdict.is_some() {
            return;
        }
        match finished {
            Err(trouble) => self.pause_or_fail(trouble, out),
            Ok(()) => {
                debug_assert_eq!(self.lacks, 0, "finished without all that is wanted");
                let received_bytes = self.all_received_bytes();
                self.conclude(Report::Complete { received_bytes }, out);
            }
        }
    }

    /// The node cannot go on. Its first verdict counts.
    pub(super) fn fail(&mut self, error: String, out: &mut Vec<Output>) {
        if self.verdict.is_some() {
            return;
        }
        self.stage = Stage::Settled;
        self.parts = [None, None];
        self.conclude(Report::Failed { error }, out);
    }

    fn conclude(&mut self, verdict: Report, out: &mut Vec<Output>) {
        self.report_coding(out);
        debug_assert!(
            self.verdict.is_none(),
            "{verdict:?} after {:?}",
            self.verdict
        );
        debug_assert!(matches!(
            verdict,
            Report::Complete { .. } | Report::Failed { .. }
        ));
        report(verdict.clone(), out);
        self.verdict = Some(verdict);
    }

    // ---- trouble

    /// A block could not be stored or read.
    pub(super) fn on_trouble(
        &mut self,
        error: String,
        trouble: Option<Trouble>,
        out: &mut Vec<Output>,
    ) {
        // It is being taken care of.
        if matches!(self.stage, Stage::Paused(_)) {
            return;
        }
        let moving = matches!(self.stage, Stage::Moving);
        let trouble = trouble.filter(|_| moving);
        if self.verdict.is_some() {
            // It has its verdict; what became of its files since then is not passed on.
            if let Some(Trouble { why, .. }) = trouble {
                let rereads = false;
                report(Report::Paused { why, rereads }, out);
            }
            return self.leave(out);
        }
        // While files are put in place, wait for the end of that: it meets the same trouble. If
        // several reads fail at once, only the first event finds the reason.
        let passes = trouble.as_ref().is_none_or(|trouble| trouble.passes);
        if moving && self.work.is_some() && passes {
            return;
        }
        match trouble {
            Some(trouble) => self.pause_or_fail(trouble, out),
            // What began before a pause may end after it: that has been taken care of.
            None if self.pauses > 0 => {}
            None => self.fail(error, out),
        }
    }

    /// Takes a pause if the trouble may pass.
    fn pause_or_fail(&mut self, trouble: Trouble, out: &mut Vec<Output>) {
        debug_assert!(self.verdict.is_none());
        self.recoveries += u32::from(!trouble.full);
        let again = self.recoveries <= RECOVERIES_MAX && trouble.passes;
        match self.stage {
            Stage::Moving if again => self.pause(trouble, out),
            _ => self.fail(trouble.why, out),
        }
    }

    fn pause(&mut self, Trouble { why, full, .. }: Trouble, out: &mut Vec<Output>) {
        debug_assert!(self.work.is_none(), "{:?} goes on in a pause", self.work);
        debug_assert!(!self.config.source, "a source has no destination");
        self.leave(out);
        self.pauses += 1;
        let rereads = !full;
        report(Report::Paused { why, rereads }, out);
        // Whatever may pass at once is tried at once.
        let wait = if full { RETRY } else { Duration::ZERO };
        let retry = self.now + wait;
        self.stage = Stage::Paused(Pause { full, retry });
    }

    /// Looks whether the reason of a pause is gone, if it is time.
    fn retry(&mut self, out: &mut Vec<Output>) {
        if let Stage::Paused(pause) = &self.stage
            && self.work.is_none()
            && self.now >= pause.retry
        {
            let rereads = !pause.full;
            self.work_on(Work::Recovering, Output::Recover { rereads }, out);
        }
    }

    pub(super) fn on_recovered(
        &mut self,
        recovered: Result<BlockSet, Trouble>,
        out: &mut Vec<Output>,
    ) {
        self.done_with(Work::Recovering);
        let Stage::Paused(pause) = &mut self.stage else {
            return;
        };
        match recovered {
            Ok(have) => self.come_back(have, out),
            Err(Trouble { why, full, passes }) if passes => {
                // What is to be done about the first reason is still to be done.
                let rereads = !pause.full;
                let other = full != pause.full;
                pause.full &= full;
                pause.retry = self.now + RETRY;
                if other {
                    report(Report::Paused { why, rereads }, out);
                }
            }
            Err(trouble) => self.fail(trouble.why, out),
        }
    }

    fn come_back(&mut self, have: BlockSet, out: &mut Vec<Output>) {
        debug_assert!(self.parts[Transfer::Object.index()].is_none());
        if let Some(object) = &mut self.object {
            debug_assert_eq!(have.len(), object.have.len(), "another object");
            object.have = have;
        }
        let have_bytes = self.take_stock();
        report(Report::Resumed { have_bytes }, out);
        self.moved = self.now;
        self.take_part(out);
    }

    /// Parts from peers that may wait for what the disk does not give or take.
    pub(super) fn on_hung(&mut self, hung: bool, out: &mut Vec<Output>) {
        self.hung = hung;
        if !self.is_silent() {
            self.stepped_aside = false;
            return;
        }
        let mut parted = BlockSet::new(self.left.len());
        for part in self.parts.iter().flatten() {
            part.dependents().for_each(|peer| {
                parted.insert(peer.0);
            });
        }
        // What was sent to others is looked at once.
        if !std::mem::replace(&mut self.stepped_aside, true) {
            parted.union(&self.take_served());
        }
        for peer in parted.iter() {
            out.push(Output::Disconnect(NodeId(peer)));
        }
    }

    /// The peers that were sent anything lately.
    fn take_served(&mut self) -> BlockSet {
        let members = BlockSet::new(self.left.len());
        let nobody = members.clone();
        let [mut served, before] = std::mem::replace(&mut self.served, [members.clone(), members]);
        match self.now.since(self.served_since) {
            age if age < SERVED => served.union(&before),
            age if age < 2 * SERVED => {}
            _ => return nobody,
        }
        served
    }

    // ---- reports

    /// Bytes of blocks and packets that came.
    fn all_received_bytes(&self) -> u64 {
        let coded = self.measures.coding.filter(|_| self.batches().is_some());
        coded.map_or(self.received_bytes, |(received, _)| received)
    }

    fn report_coding(&self, out: &mut Vec<Output>) {
        if let Some(batches) = self.batches()
            && let Some((_, counts)) = self.measures.coding
        {
            let coefficients = counts.packets * u64::from(batches.size());
            let counts = CodingCounts {
                dropped: self.dropped,
                overhead_bytes: coefficients + self.message_bytes,
                ..counts
            };
            report(Report::Coding(counts), out);
        }
    }

    pub(super) fn on_beat(&mut self, measures: Measures, out: &mut Vec<Output>) {
        self.measures = measures;
        self.retry(out);
        self.report_coding(out);
        let progress = || Report::Progress {
            have_bytes: self.have_bytes + self.pending_bytes(),
            received_bytes: self.all_received_bytes(),
            disk: measures.disk,
        };
        report(self.verdict.clone().unwrap_or_else(progress), out);
    }
}
