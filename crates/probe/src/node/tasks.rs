//! The measurements a node makes, one function each.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use outpour_core::{BlockId, Bytes, NodeId, Rate};
use tokio::task::spawn_blocking;

use super::io::{BLOCK_BYTES, BLOCKS};
use super::{Shared, TRANSFER};
use crate::available::{Flight, Search, Trend, verdict};
use crate::message::{Arrival, Message, Outcome, Packets, Task, Token};
use crate::train::{self, OVERHEAD_BYTES, PACKET_BYTES, Shape};
use crate::{estimate, hops};

/// How long a peer may take to be connected.
const CONNECT_MAX: Duration = Duration::from_secs(15);
/// How many pings make a round trip.
const PINGS: u32 = 20;
const PING_PATIENCE: Duration = Duration::from_secs(1);
/// How long one measurement of a rate may be ordered to take.
const TIME_MAX: Duration = Duration::from_secs(60);
/// A transfer of which nothing comes for so long is over.
const STALL_MAX: Duration = Duration::from_secs(5);
/// So much of a path's rate may be under way.
const UNDER_WAY: Duration = Duration::from_millis(400);
const BLOCKS_MIN: u64 = 8;
/// Less than the data plane lets wait for one peer.
const BLOCKS_MAX: u64 = 224;
/// Over which time the rate is looked at while it is found.
const GLANCE: Duration = Duration::from_millis(200);
/// Queues that a train left behind have so long to empty.
const SETTLE: Duration = Duration::from_millis(100);
/// Short trains that show the capacity, how many packets each has, and what is between them. More
/// than two, because the system is not on time to the microsecond.
const SHORTS: u32 = 25;
const SHORT_PACKETS: u32 = 5;
const SHORT_GAP: Duration = Duration::from_millis(10);
/// Trains, and how long each is.
const TRAINS: u32 = 3;
const TRAIN_PACKETS: u32 = 48;
/// Streams: how long they are, how many are sent at a rate, and how many packets they have.
const STREAM_TIME: Duration = Duration::from_millis(250);
const STREAMS_PER_RATE: u32 = 3;
const STREAM_PACKETS_MIN: f64 = 20.0;
const STREAM_PACKETS_MAX: f64 = 100.0;
/// A process cannot send packets closer to each other than this and mean it.
const GAP_MIN: Duration = Duration::from_micros(20);
/// Numbers of trains within one order.
const TRAINS_OF_ORDER: u32 = 64;

/// Carries out an order.
pub(super) async fn run(shared: &Shared, id: u32, task: Task) -> Result<Outcome, String> {
    match task {
        Task::Connect { to } => {
            let all = to.iter().take(crate::schedule::FLOWS_MAX);
            let connected = join(all.map(|peer| ready(shared, *peer))).await;
            let connected: Result<Vec<_>, String> = connected.into_iter().collect();
            connected.map(|_| Outcome::Connected)
        }
        Task::RoundTrip { to } => round_trip(shared, to).await,
        Task::Rate { to, time } => rates(shared, id, to, time.min(TIME_MAX)).await,
        Task::Packets { to } => packets(shared, id, to).await.map(Outcome::Packets),
        Task::Hops { to } => {
            let (addr, token) = address(shared, to).await?;
            let traced = spawn_blocking(move || hops::trace(addr, token)).await;
            let hops = traced.map_err(|panic| panic.to_string())?;
            let hops = hops.map_err(|error| match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "not permitted: routes need a raw socket (CAP_NET_RAW)".to_owned()
                }
                _ => error.to_string(),
            })?;
            Ok(Outcome::Hops { hops })
        }
    }
}

/// Waits until a peer is connected and has said where packets go.
async fn ready(shared: &Shared, to: NodeId) -> Result<(u16, Token), String> {
    if to == shared.me || !shared.peers.has(to) {
        return Err("ordered to measure to a node that is no peer".to_owned());
    }
    shared.session.connect(to);
    let hello = shared.peers.wait(to, CONNECT_MAX, |peer| peer.hello);
    match hello.await {
        Some(hello) => Ok(hello),
        None => {
            let trouble = shared.peers.look(to, |peer| peer.trouble.clone());
            let trouble = trouble.flatten();
            Err(trouble.unwrap_or_else(|| "it does not answer".to_owned()))
        }
    }
}

/// The address at which a peer answers pings, found out once.
async fn address(shared: &Shared, to: NodeId) -> Result<(SocketAddr, Token), String> {
    let (port, token) = ready(shared, to).await?;
    let known = shared
        .peers
        .look(to, |peer| (peer.answers, peer.hosts.clone()));
    let (answers, hosts) = known.unwrap_or_default();
    if let Some(answers) = answers {
        return Ok((answers, token));
    }
    for host in hosts {
        let addr = SocketAddr::new(host, port);
        let pinged = spawn_blocking(move || train::ping(addr, token, 1, PING_PATIENCE)).await;
        if let Ok(Ok(times)) = pinged
            && !times.is_empty()
        {
            shared.peers.change(to, |peer| peer.answers = Some(addr));
            return Ok((addr, token));
        }
    }
    Err("UDP packets do not get through".to_owned())
}

async fn round_trip(shared: &Shared, to: NodeId) -> Result<Outcome, String> {
    ready(shared, to).await?;
    if let Ok((addr, token)) = address(shared, to).await {
        let pings = spawn_blocking(move || train::ping(addr, token, PINGS, PING_PATIENCE));
        let samples = pings.await.map_err(|panic| panic.to_string())?;
        let samples = samples.map_err(|error| error.to_string())?;
        if let Some(times) = estimate::round_trip(&samples, PINGS) {
            return Ok(Outcome::RoundTrip { times, udp: true });
        }
    }
    let mut samples = Vec::new();
    for _ in 0..PINGS {
        let nonce = train::random().map_err(|error| error.to_string())?;
        let sent = Instant::now();
        shared.send(to, &Message::Ping { nonce });
        let pong = shared.peers.wait(to, PING_PATIENCE, |peer| {
            (peer.pong == Some(nonce)).then_some(())
        });
        if pong.await.is_some() {
            samples.push(sent.elapsed());
        }
    }
    let times = estimate::round_trip(&samples, PINGS);
    times
        .map(|times| Outcome::RoundTrip { times, udp: false })
        .ok_or_else(|| "no ping was answered".to_owned())
}

/// Sends to several peers at once, after all of them are connected.
async fn rates(
    shared: &Shared,
    id: u32,
    to: Vec<NodeId>,
    time: Duration,
) -> Result<Outcome, String> {
    let all: Vec<NodeId> = to.into_iter().take(crate::schedule::FLOWS_MAX).collect();
    let connected = join(all.iter().map(|peer| ready(shared, *peer))).await;
    let streams = all
        .iter()
        .zip(connected)
        .map(|(peer, connected)| async move {
            match connected {
                Ok(_) => stream(shared, id, *peer, time).await,
                Err(error) => Err(error),
            }
        });
    let rates = join(streams).await;
    let peers = all.iter().copied().zip(rates).collect();
    Ok(Outcome::Rate { peers })
}

/// Runs futures side by side and returns what each gives, in order.
async fn join<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut ended: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, ended) in running.iter_mut().zip(&mut ended) {
            if ended.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(output) => *ended = Some(output),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    ended.into_iter().flatten().collect()
}

/// Sends to one peer for a time and waits until all of it has come; bytes per second.
async fn stream(shared: &Shared, id: u32, to: NodeId, time: Duration) -> Result<f64, String> {
    shared.peers.change(to, |peer| peer.expect(id));
    shared.send(to, &Message::Stream { stream: id });
    // Blocks may take another connection than messages: none before the peer counts them.
    let counts = |peer: &mut super::peers::Peer| (!peer.curve.is_empty()).then_some(());
    if shared.peers.wait(to, STALL_MAX, counts).await.is_none() {
        return Err("it does not start to count".to_owned());
    }
    let begin = Instant::now();
    let (mut sent, mut came, mut moved) = (0_u64, 0_u64, begin);
    loop {
        let over = begin.elapsed() >= time;
        let window = shared.peers.look(to, |peer| window(&peer.curve));
        let window = window.unwrap_or(BLOCKS_MIN);
        while !over && sent < came + window {
            let block = (sent % u64::from(BLOCKS)) as BlockId;
            shared.session.send_block(TRANSFER, to, block);
            sent += 1;
        }
        if over && came >= sent {
            break;
        }
        let rest = (begin + time).saturating_duration_since(Instant::now());
        let patience = if over { STALL_MAX } else { rest.min(STALL_MAX) };
        let more = |peer: &mut super::peers::Peer| {
            if !peer.up {
                return Some(None);
            }
            let blocks = peer.curve.last()?.1 / u64::from(BLOCK_BYTES);
            (blocks > came).then_some(Some(blocks))
        };
        match shared.peers.wait(to, patience, more).await {
            Some(Some(blocks)) => {
                came = blocks;
                moved = Instant::now();
            }
            Some(None) => return Err("the connection broke".to_owned()),
            None if moved.elapsed() >= STALL_MAX => {
                return Err(format!("no data arrived for {} s", STALL_MAX.as_secs()));
            }
            None => {}
        }
    }
    let curve = shared.peers.look(to, |peer| peer.curve.clone());
    let curve = curve.unwrap_or_default();
    rate_of(&curve, time).ok_or_else(|| "too little data arrived".to_owned())
}

/// How many blocks may be under way: what the path brought of late, for a fraction of a second.
fn window(curve: &[(Duration, u64)]) -> u64 {
    let Some((now, bytes)) = curve.last() else {
        return BLOCKS_MIN;
    };
    let since = now.saturating_sub(GLANCE);
    let then = curve
        .partition_point(|(at, _)| *at < since)
        .saturating_sub(1);
    let (at, had) = curve.get(then).copied().unwrap_or_default();
    let glance = (*now - at).max(Duration::from_millis(1));
    let rate = Bytes(bytes.saturating_sub(had)).per(glance).bytes_per_s();
    let blocks = rate * UNDER_WAY.as_secs_f64() / f64::from(BLOCK_BYTES);
    (blocks as u64).clamp(BLOCKS_MIN, BLOCKS_MAX)
}

/// The rate of a stream while it was sent; of all of it, on paths so slow that hardly any of it
/// came in that time.
fn rate_of(curve: &[(Duration, u64)], time: Duration) -> Option<f64> {
    let within = curve.partition_point(|(at, _)| *at <= time);
    let steady = curve.get(..within).and_then(estimate::steady_rate);
    let whole = || {
        let (at, bytes) = curve.last()?;
        (!at.is_zero()).then(|| Bytes(*bytes).per(*at))
    };
    steady.or_else(whole).map(Rate::bytes_per_s)
}

/// Trains to one peer, one after the other.
struct Trains<'a> {
    shared: &'a Shared,
    to: NodeId,
    addr: SocketAddr,
    token: Token,
    next: u32,
}

impl Trains<'_> {
    /// Sends a train; returns when packets left, and when which came.
    async fn send(&mut self, shape: Shape) -> Result<(Vec<Duration>, Vec<Arrival>), String> {
        let (addr, token, id) = (self.addr, self.token, self.next);
        self.next += 1;
        let sent = spawn_blocking(move || train::send(addr, token, id, shape)).await;
        let sent = sent.map_err(|panic| panic.to_string())?;
        let sent = sent.map_err(|error| error.to_string())?;
        tokio::time::sleep(SETTLE).await;
        self.shared.send(self.to, &Message::Gather { train: id });
        let came = self.shared.peers.wait(self.to, STALL_MAX, |peer| {
            let (_, came) = peer.gathered.take_if(|(train, _)| *train == id)?;
            Some(came)
        });
        let came = came.await;
        came.map(|came| (sent, came))
            .ok_or_else(|| "it does not report what arrived".to_owned())
    }
}

async fn packets(shared: &Shared, id: u32, to: NodeId) -> Result<Packets, String> {
    let (addr, token) = address(shared, to).await?;
    let mut trains = Trains {
        shared,
        to,
        addr,
        token,
        next: id.wrapping_mul(TRAINS_OF_ORDER),
    };
    let whole = Bytes((PACKET_BYTES + OVERHEAD_BYTES) as u64);
    let shorts = Shape {
        packets: SHORTS * SHORT_PACKETS,
        bytes: PACKET_BYTES,
        burst: SHORT_PACKETS,
        gap: SHORT_GAP,
    };
    let (_, came) = trains.send(shorts).await?;
    let gaps: Vec<Duration> = came
        .chunk_by(|a, b| a.seq / SHORT_PACKETS == b.seq / SHORT_PACKETS)
        .filter(|short| short.len() == SHORT_PACKETS as usize)
        .filter_map(|short| {
            let spread = short.last()?.at.checked_sub(short.first()?.at)?;
            Some(spread / (SHORT_PACKETS - 1))
        })
        .collect();
    let mut dispersions = Vec::new();
    for _ in 0..TRAINS {
        let train = Shape {
            packets: TRAIN_PACKETS,
            bytes: PACKET_BYTES,
            burst: TRAIN_PACKETS,
            gap: Duration::ZERO,
        };
        let (_, came) = trains.send(train).await?;
        let at: Vec<Duration> = came.iter().map(|arrival| arrival.at).collect();
        dispersions.extend(estimate::dispersion_rate(&at, whole));
    }
    dispersions.sort_by(|a, b| a.bytes_per_s().total_cmp(&b.bytes_per_s()));
    let dispersion = dispersions.get(dispersions.len() / 2).copied();
    let capacity = estimate::capacity(&gaps, whole, dispersion);
    let available = match capacity.max_rate(dispersion) {
        Some(most) => Some(available(&mut trains, most).await?),
        None => None,
    };
    Ok(Packets {
        capacity: capacity.map(Rate::bytes_per_s),
        dispersion: dispersion.map(Rate::bytes_per_s),
        available: available.map(Rate::bytes_per_s),
    })
}

/// The larger of two figures of which either may be missing.
trait MaxRate {
    fn max_rate(self, other: Option<Rate>) -> Option<Rate>;
}

impl MaxRate for Option<Rate> {
    fn max_rate(self, other: Option<Rate>) -> Option<Rate> {
        match (self, other) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Searches for what is free, up to `most`.
async fn available(trains: &mut Trains<'_>, most: Rate) -> Result<Rate, String> {
    let whole = (PACKET_BYTES + OVERHEAD_BYTES) as f64;
    let possible = Rate::from_bytes_per_s(whole / GAP_MIN.as_secs_f64()).unwrap_or(most);
    let mut search = Search::new(most.min(possible));
    while let Some(rate) = search.next_rate() {
        let gap = Duration::try_from_secs_f64(whole / rate.bytes_per_s());
        let gap = gap.unwrap_or(STREAM_TIME).min(STREAM_TIME);
        let packets = STREAM_TIME.as_secs_f64() / gap.as_secs_f64();
        let packets = packets.clamp(STREAM_PACKETS_MIN, STREAM_PACKETS_MAX) as u32;
        let shape = Shape {
            packets,
            bytes: PACKET_BYTES,
            burst: 1,
            gap,
        };
        // A process that is not on time makes queues grow, but never makes them shorter: one stream
        // without a queue outweighs several with one.
        let mut trend = Trend::Unclear;
        for _ in 0..STREAMS_PER_RATE {
            trend = stream_trend(trains, shape).await?;
            if trend == Trend::Flat {
                break;
            }
        }
        search.tell(trend);
    }
    Ok(search.found())
}

/// What one stream shows.
async fn stream_trend(trains: &mut Trains<'_>, shape: Shape) -> Result<Trend, String> {
    let (sent, came) = trains.send(shape).await?;
    let flights = came.iter().filter_map(|arrival| {
        let sent = sent.get(arrival.seq as usize)?;
        let came = arrival.at;
        Some(Flight { sent: *sent, came })
    });
    let flights: Vec<Flight> = flights.collect();
    Ok(verdict(&flights, sent.len()))
}
