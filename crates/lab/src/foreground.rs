//! Latency-sensitive traffic: small packets in bursts, and how long their answers take.
//!
//! The sender is its own monitor: it says a few times a second in a file of traffic how much it sent, as
//! whatever measures links between sites would.

use std::fs;
use std::io::{self, Read};
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use outpour_cli::out::Failure;
use outpour_core::Rate;
use serde::Serialize;

use crate::args::bench::ForegroundArgs;

/// A packet with its headers, and without.
const PACKET_BYTES: usize = 1000;
const HEADER_BYTES: usize = 28;
const PAYLOAD_BYTES: usize = PACKET_BYTES - HEADER_BYTES;
/// An answer is the number of the packet and when it was sent.
const STAMP_BYTES: usize = 16;
/// How often it is said what is sent.
const SAY_EVERY: Duration = Duration::from_millis(100);
/// How long answers may take that count.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How many packets a run may have, so that all answers can be kept.
const PACKETS_MAX: u64 = 4_000_000;

/// What was measured.
#[derive(Debug, Serialize)]
struct Log {
    /// When the first packet was sent, in seconds since 1970.
    since_unix_s: f64,
    packet_bytes: usize,
    /// When each packet was sent, in ms since then.
    sent_ms: Vec<f64>,
    /// How long each answer took, in ms; `null` if none came.
    answer_ms: Vec<Option<f64>>,
}

/// Sends or answers, as the arguments say, until the input ends.
///
/// # Errors
/// If there is no socket, or a file cannot be written.
pub(crate) fn run(args: &ForegroundArgs) -> Result<(), Failure> {
    let done = match (&args.listen, &args.to) {
        (Some(address), _) => UdpSocket::bind(address).and_then(|socket| answer(&socket)),
        (None, Some(address)) => UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect(address)?;
            send(&socket, args)
        }),
        (None, None) => return Err(Failure::Usage("--listen or --to is needed".to_owned())),
    };
    done.map_err(|error| Failure::Failed(format!("latency-sensitive traffic: {error}")))
}

fn answer(socket: &UdpSocket) -> io::Result<()> {
    let mut packet = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut packet)?;
        if len >= STAMP_BYTES {
            // Who does not take answers loses them.
            let _ = socket.send_to(&packet[..STAMP_BYTES], from);
        }
    }
}

fn send(socket: &UdpSocket, args: &ForegroundArgs) -> io::Result<()> {
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    thread::scope(|scope| {
        let hearing = scope.spawn(|| hear(socket, &over, begun));
        scope.spawn(|| {
            // Its end is what counts.
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            over.store(true, Ordering::Relaxed);
        });
        let sent = pace(socket, args, &over, begun);
        over.store(true, Ordering::Relaxed);
        let answers = hearing.join().unwrap_or_default();
        let sent = sent?;
        let mut answer_ms = vec![None; sent.len()];
        for (number, ms) in answers {
            if let Some(place) = answer_ms.get_mut(number as usize) {
                *place = Some(ms);
            }
        }
        let log = Log {
            since_unix_s: since.unwrap_or_default().as_secs_f64(),
            packet_bytes: PACKET_BYTES,
            sent_ms: sent,
            answer_ms,
        };
        match &args.output {
            Some(path) => fs::write(path, serde_json::to_string(&log)?),
            None => Ok(()),
        }
    })
}

/// Sends at the high and the low rate in turn; when each packet left, in ms.
fn pace(
    socket: &UdpSocket,
    args: &ForegroundArgs,
    over: &AtomicBool,
    begun: Instant,
) -> io::Result<Vec<f64>> {
    let gap = |rate: Option<Rate>| {
        let rate = rate.unwrap_or(Rate::ZERO).bytes_per_s();
        Duration::from_secs_f64((PACKET_BYTES as f64 / rate.max(1.0)).min(1.0))
    };
    let gaps = [gap(args.high), gap(args.low)];
    let mut packet = [0; PAYLOAD_BYTES];
    let (mut sent, mut due) = (Vec::new(), Duration::ZERO);
    let mut said = (Duration::ZERO, 0);
    while !over.load(Ordering::Relaxed) && (sent.len() as u64) < PACKETS_MAX {
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let now = begun.elapsed();
        packet[..8].copy_from_slice(&(sent.len() as u64).to_be_bytes());
        packet[8..STAMP_BYTES].copy_from_slice(&(now.as_nanos() as u64).to_be_bytes());
        match socket.send(&packet) {
            // Nobody listens yet, or the device is full: it is lost like others.
            Ok(_) | Err(_) => sent.push(now.as_secs_f64() * 1e3),
        }
        let turn = (now.as_nanos() / args.turn.as_nanos().max(1)) % 2;
        due += gaps[turn as usize];
        // Who was held up does not make up for it at once.
        due = due.max(now.saturating_sub(Duration::from_millis(5)));
        if now >= said.0 + SAY_EVERY {
            let rate = (sent.len() - said.1) * PACKET_BYTES;
            say(args, rate as f64 / (now - said.0).as_secs_f64())?;
            said = (now, sent.len());
        }
    }
    Ok(sent)
}

/// Says in the file of traffic how much is sent, in bytes per second. Readers find the old file or the new.
fn say(args: &ForegroundArgs, rate: f64) -> io::Result<()> {
    let (Some(path), Some(link)) = (&args.traffic, &args.link) else {
        return Ok(());
    };
    replace(path, &format!("{link} {:.3} kB/s\n", rate / 1e3))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// Hears answers, until some time after the end; the packet of each, and how long it took in ms.
fn hear(socket: &UdpSocket, over: &AtomicBool, begun: Instant) -> Vec<(u64, f64)> {
    let mut answers = Vec::new();
    let mut packet = [0; 64];
    let mut ended = None;
    // Without a limit it would wait for ever for an answer that was lost.
    let _ = socket.set_read_timeout(Some(Duration::from_millis(50)));
    loop {
        let heard = socket.recv(&mut packet);
        let now = begun.elapsed();
        if over.load(Ordering::Relaxed) && now >= *ended.get_or_insert(now) + ANSWER_MAX {
            return answers;
        }
        let Ok(len) = heard else { continue };
        let word = |at: usize| {
            let word = packet.get(at..at + 8)?;
            Some(u64::from_be_bytes(word.try_into().ok()?))
        };
        if len == STAMP_BYTES
            && let (Some(number), Some(sent)) = (word(0), word(8))
        {
            let took = now.saturating_sub(Duration::from_nanos(sent));
            answers.push((number, took.as_secs_f64() * 1e3));
        }
    }
}
