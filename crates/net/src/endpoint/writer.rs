//! The sending half of a connection: what is to be said of channels first, then messages, then
//! blocks and packets, fragment by fragment, of all sessions by their weights.

mod feed;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use self::feed::Feed;
use super::Core;
use super::limiter::{Passage, Way, portion};
use super::stream::{SILENCE_MAX, StreamSink, wire_len};
use super::transport::FrameSink;
use super::trunk::Trunk;
use crate::LinkError;
use crate::bucket::Bucket;
use crate::frame::{FRAGMENT_BYTES_MAX, Frame, Piece};
use crate::session::{Link, Waited};

/// Messages are gathered up to so much before they are written.
const MESSAGES_BYTES: usize = 256 << 10;
/// A connection that has nothing to send says so this often.
const ALIVE_EVERY: Duration = Duration::from_secs(3);

// A sign of life may be late, or be lost with all that TCP sends again.
const _: () = assert!(2 * ALIVE_EVERY.as_millis() < SILENCE_MAX.as_millis());

pub(crate) struct Writer<S = StreamSink> {
    core: Arc<Core>,
    trunk: Arc<Trunk>,
    sink: S,
    /// Which connection of the trunk this is; the first, 0, carries everything but fragments, and
    /// these, too, while it is the only one.
    number: usize,
    feeds: Vec<Feed>,
    /// Which links the feeds are of.
    version: u64,
    /// The start tag of the fragment that was sent last; see [`Feed`].
    tag: u64,
    connection: Bucket,
    changes: watch::Receiver<u64>,
    wake: Arc<Notify>,
    /// Blocks and packets whose last byte is gathered.
    complete: Vec<(Arc<Link>, u8, Piece)>,
    wrote: Instant,
    /// How long the peer has let it wait.
    waited: Arc<Waited>,
}

impl<S: FrameSink> Writer<S> {
    pub(crate) fn new(core: Arc<Core>, trunk: Arc<Trunk>, sink: S, number: usize) -> Self {
        let connection = Bucket::new(core.limits.get().per_connection);
        let mut changes = core.limits.changes();
        changes.mark_changed();
        let wake = trunk.wake_of(number);
        Self {
            core,
            trunk,
            sink,
            number,
            feeds: Vec::new(),
            // Of no version there is: the first look finds links.
            version: u64::MAX,
            tag: 0,
            connection,
            changes,
            wake,
            complete: Vec::new(),
            wrote: Instant::now(),
            waited: Arc::default(),
        }
    }

    /// Sends until something fails; says what.
    pub(crate) async fn run(mut self) -> LinkError {
        loop {
            if let Err(why) = self.step().await {
                return why;
            }
        }
    }

    async fn step(&mut self) -> Result<(), LinkError> {
        self.look_at_links();
        if self.number == 0 {
            self.take_control()?;
            self.announce().await?;
            self.take_messages()?;
            if self.trunk.probing.swap(false, Ordering::Relaxed) {
                self.sink.push(Frame::Alive, &[])?;
            }
        }
        let carries_blocks = self.trunk.carries_blocks(self.number);
        for feed in &mut self.feeds {
            if carries_blocks {
                feed.take_pieces(&self.core, &self.wake);
            } else {
                feed.stop();
            }
        }
        let until = self.fill().await?;
        if self.sink.gathered() == 0 {
            self.wait(until).await
        } else {
            self.flush().await
        }
    }

    /// Follows the links of the trunk, and what may move over it.
    fn look_at_links(&mut self) {
        let links = self.trunk.links_since(&mut self.version);
        let changed = self.changes.has_changed().unwrap_or(false);
        if changed {
            self.changes.mark_unchanged();
            let now = self.core.limits.clock.now();
            let rate = self.core.limits.get().per_connection;
            self.connection.set_rate(now, rate);
        }
        let news = links.is_some();
        if let Some(links) = links {
            let mut old = std::mem::take(&mut self.feeds);
            self.feeds = links
                .into_iter()
                .map(|link| {
                    let known = old.iter().position(|feed| Arc::ptr_eq(&feed.link, &link));
                    known.map_or_else(|| Feed::new(link), |at| old.swap_remove(at))
                })
                .collect();
            let channels = || self.feeds.iter().map(|feed| feed.link.channel);
            debug_assert!(
                channels().is_sorted_by(|a, b| a < b),
                "a link has two feeds"
            );
        }
        if news || changed {
            let sessions = self.feeds.iter().map(|feed| feed.link.session.rates());
            let (outgoing, incoming) = self.core.rates(sessions);
            self.sink.shape(outgoing, incoming);
        }
    }

    /// Says what is to be said of channels.
    fn take_control(&mut self) -> Result<(), LinkError> {
        while self.sink.gathered() < MESSAGES_BYTES
            && let Some((frame, join)) = self.trunk.next_control()
        {
            debug_assert_eq!(join.is_some(), matches!(frame, Frame::Join { .. }));
            match join {
                Some(join) => self.sink.push(frame, &join.encode())?,
                None => self.sink.push(frame, &[])?,
            }
        }
        Ok(())
    }

    /// Says which transfers were opened since we last looked, whether the peer has joined or not: it
    /// would be another round trip until it may send.
    async fn announce(&mut self) -> Result<(), LinkError> {
        for index in 0..self.feeds.len() {
            let link = self.feeds[index].link.clone();
            if link.is_closing() {
                continue;
            }
            for (transfer, io) in link.session.opened_since(link.announced()) {
                link.announce(transfer, io);
                let channel = link.channel;
                self.push_message(index, Frame::Ready { channel, transfer }, &[])?;
            }
            // What the peer was ready for before it was answered counts here, too.
            while let Some(transfer) = link.next_due() {
                let room = tokio::select! {
                    room = link.session.room() => room,
                    _ = link.closed() => break,
                };
                link.session.report_up(&link, room, transfer);
            }
        }
        Ok(())
    }

    fn take_messages(&mut self) -> Result<(), LinkError> {
        for index in 0..self.feeds.len() {
            let link = self.feeds[index].link.clone();
            while link.is_open()
                && self.sink.gathered() < MESSAGES_BYTES
                && let Some((transfer, body)) = link.pop_message()
            {
                let frame = Frame::Message {
                    channel: link.channel,
                    transfer,
                    len: body.len() as u32,
                };
                self.push_message(index, frame, &body)?;
            }
        }
        Ok(())
    }

    /// Gathers what does not wait for rate limits, but counts.
    fn push_message(&mut self, feed: usize, frame: Frame, payload: &[u8]) -> Result<(), LinkError> {
        debug_assert_eq!(self.number, 0, "messages go over the first connection");
        let wire = wire_len(payload.len());
        let change = *self.changes.borrow();
        let feed = &mut self.feeds[feed];
        let Feed { link, gate, .. } = feed;
        let mut way = Way {
            host: &self.core.limits.outgoing,
            session: link.session.serial,
            shared: [&link.session.outgoing, &link.peering.outgoing],
            connection: &mut self.connection,
            clock: self.core.limits.clock,
            change,
            wake: &self.wake,
        };
        gate.charge(&mut way, wire);
        let sent = &link.session.stats.wire_out;
        sent.fetch_add(wire as u64, Ordering::Relaxed);
        self.sink.push(frame, payload)
    }

    /// Gathers fragments until there is enough for one write, or the next has to wait; then says
    /// until when, if that is known.
    async fn fill(&mut self) -> Result<Option<Instant>, LinkError> {
        let mut until: Option<Instant> = None;
        let mut waiting = vec![false; self.feeds.len()];
        while self.sink.gathered() < self.sink.portion() {
            for feed in &mut self.feeds {
                feed.begin(&self.waited).await;
            }
            let ready = self
                .feeds
                .iter()
                .enumerate()
                .filter(|(index, feed)| !waiting[*index] && feed.is_ready());
            let next = ready.min_by_key(|(_, feed)| feed.start(self.tag));
            let Some((index, _)) = next else { break };
            match self.pass(index) {
                Passage::Now(len) => self.push_fragment(index, len)?,
                Passage::At(at) => {
                    until = Some(until.map_or(at, |until| until.min(at)));
                    waiting[index] = true;
                }
                Passage::Turn => waiting[index] = true,
            }
        }
        Ok(until)
    }

    /// Whether the next fragment of a feed may be sent.
    fn pass(&mut self, index: usize) -> Passage {
        let limits = self.core.limits.get();
        let change = *self.changes.borrow();
        let most = self.sink.portion().min(FRAGMENT_BYTES_MAX as usize);
        let Feed {
            link,
            gate,
            current,
            ..
        } = &mut self.feeds[index];
        let left = current.as_ref().map_or(0, |current| current.left());
        debug_assert!(left > 0, "what is all sent is not ready");
        let shared: [&super::SharedBucket; 2] = [&link.session.outgoing, &link.peering.outgoing];
        let rate = shared
            .iter()
            .map(|bucket| bucket.rate())
            .fold(limits.outgoing.min(limits.per_connection), |a, b| a.min(b));
        let weight = link.session.weight();
        let most = self
            .core
            .limits
            .outgoing
            .portion(weight, portion(rate, most));
        let len = left.min(most);
        let mut way = Way {
            host: &self.core.limits.outgoing,
            session: link.session.serial,
            shared,
            connection: &mut self.connection,
            clock: self.core.limits.clock,
            change,
            wake: &self.wake,
        };
        match gate.pass(&mut way, len, wire_len(len)) {
            // It was asked for when another piece was at hand.
            Passage::Now(granted) => Passage::Now(granted.min(left)),
            wait => wait,
        }
    }

    fn push_fragment(&mut self, index: usize, len: usize) -> Result<(), LinkError> {
        let feed = &mut self.feeds[index];
        let wire = wire_len(len);
        debug_assert!(len > 0);
        debug_assert!(len <= FRAGMENT_BYTES_MAX as usize);
        self.tag = feed.serve(self.tag, wire);
        let Some(current) = &mut feed.current else {
            return Ok(());
        };
        debug_assert!(len <= current.left());
        let end = current.offset + len;
        let frame = Frame::Fragment {
            channel: feed.link.channel,
            transfer: current.transfer,
            piece: current.piece,
            offset: current.offset as u32,
            len: len as u32,
        };
        self.sink.push(frame, &current.data[current.offset..end])?;
        current.offset = end;
        current.memory.moved(len);
        let session = &feed.link.session;
        let stats = &session.stats;
        stats.payload_out.fetch_add(len as u64, Ordering::Relaxed);
        stats.wire_out.fetch_add(wire as u64, Ordering::Relaxed);
        feed.link
            .peering
            .note_sent(self.core.limits.clock.now(), len);
        if current.left() == 0 {
            if let Piece::Packet { .. } = current.piece {
                stats.packets_out.fetch_add(1, Ordering::Relaxed);
            }
            let (transfer, piece) = (current.transfer, current.piece);
            self.complete.push((feed.link.clone(), transfer, piece));
            feed.current = None;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), LinkError> {
        let Self {
            sink, feeds, wake, ..
        } = self;
        self.waited.begin(Instant::now());
        let flush = sink.flush();
        tokio::pin!(flush);
        // A peer that does not read must not keep what was to be sent over links that have ended.
        let flushed = loop {
            tokio::select! {
                biased;
                flushed = &mut flush => break flushed,
                () = wake.notified() => feeds.iter_mut().for_each(Feed::let_go),
            }
        };
        self.wrote = Instant::now();
        self.waited.end(self.wrote);
        flushed?;
        for (link, transfer, piece) in std::mem::take(&mut self.complete) {
            feed::report_sent(&link, transfer, piece).await;
        }
        Ok(())
    }

    /// Waits until there may be something to send.
    async fn wait(&mut self, until: Option<Instant>) -> Result<(), LinkError> {
        debug_assert_eq!(self.sink.gathered(), 0);
        debug_assert!(self.complete.is_empty(), "what is sent was not reported");
        for feed in &mut self.feeds {
            feed.rest();
        }
        let alive_at = self.wrote + ALIVE_EVERY;
        let wake_at = until.map_or(alive_at, |until| until.min(alive_at));
        tokio::select! {
            () = self.wake.notified() => {}
            _ = self.changes.changed() => self.changes.mark_changed(),
            () = sleep_until(wake_at) => {
                if wake_at == alive_at {
                    self.sink.push(Frame::Alive, &[])?;
                }
            }
        }
        Ok(())
    }
}
