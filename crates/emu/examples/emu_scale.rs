//! How much one machine emulates: a ring of nodes, each sending to the next as fast as it may.
//!
//! ```text
//! cargo run --release -p outpour-emu --example emu_scale -- packet 20 "20 Mbit/s" 10
//! cargo run --release -p outpour-emu --example emu_scale -- bulk 16 "100 Mbit/s" 10
//! ```
//!
//! Packet by packet the nodes send UDP datagrams of 1210 bytes at 95 % of the rate; in bulk mode
//! they send TCP. Printed is what arrives after the first second, and how late the emulator was.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use outpour_core::{Bytes, Network, NodeId, Rate};
use outpour_emu::{Config, Emulation, Mode};

const PORT: u16 = 7000;
const DATAGRAM_BYTES: usize = 1210;
/// Headers of IPv4 and UDP, which count for the rate.
const HEADER_BYTES: usize = 28;
const DELAY: &str = "10 ms";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, nodes, rate, seconds] = arguments.as_slice() else {
        return Err("usage: scale packet|bulk NODES RATE SECONDS".into());
    };
    let mode = match mode.as_str() {
        "packet" => Mode::Packet,
        "bulk" => Mode::Bulk,
        other => return Err(format!("no mode {other}").into()),
    };
    let (nodes, rate, seconds): (u32, Rate, u64) =
        (nodes.parse()?, rate.parse()?, seconds.parse()?);
    let clusters: String = (0..nodes)
        .map(|node| format!("[[cluster]]\nname='n{node}'\nnodes=1\n"))
        .collect();
    let link = format!("[[link]]\nfrom='*'\nto='*'\nrate='{rate:#}'\ndelay='{DELAY}'\n");
    let network = Network::from_toml(&format!("{clusters}{link}"), "ring")?;
    let config = Config {
        network,
        script: None,
        mode,
        mtu: mode.usual_mtu(),
        seed: 1,
        sample: None,
    };
    let emulation = Emulation::start(config, |_| {})?;
    let until = Instant::now() + Duration::from_secs(seconds + 1);
    let mut receivers = Vec::new();
    let mut senders = Vec::new();
    for node in 0..nodes {
        let to = SocketAddr::new(IpAddr::V4(emulation.address(NodeId(node))), PORT);
        let from = NodeId((node + nodes - 1) % nodes);
        let (receive, send): (fn(SocketAddr) -> Outcome, _) = match mode {
            Mode::Packet => (receive_datagrams, Sender::Datagrams),
            Mode::Bulk => (receive_stream, Sender::Stream),
        };
        receivers.push(emulation.run_inside(NodeId(node), move || receive(to))?);
        senders.push((from, to, send));
    }
    thread::sleep(Duration::from_millis(200));
    let senders: Vec<_> = (senders.into_iter())
        .map(|(from, to, send)| {
            emulation.run_inside(from, move || match send {
                Sender::Datagrams => send_datagrams(to, rate, until),
                Sender::Stream => send_stream(to, until),
            })
        })
        .collect::<Result<_, _>>()?;
    for sender in senders {
        sender.join().map_err(|_| "a sender panicked")???;
    }
    let mut rates = Vec::new();
    for receiver in receivers {
        rates.push(receiver.join().map_err(|_| "a receiver panicked")???);
    }
    let report = emulation.finish()?;
    rates.sort_by(f64::total_cmp);
    let mbit = |bytes_per_s: f64| bytes_per_s * 8.0 / 1e6;
    let total: f64 = rates.iter().sum();
    println!(
        "{nodes} nodes at {rate:#}: received {:.3} Mbit/s each (least {:.3}), {:.0} together",
        mbit(total / f64::from(nodes)),
        mbit(rates.first().copied().unwrap_or(0.0)),
        mbit(total),
    );
    println!(
        "late by {:.0} us (median), {:.0} us (99 %), {:.1} ms (worst); void: {}",
        report.lateness.median_s * 1e6,
        report.lateness.p99_s * 1e6,
        report.lateness.worst_s * 1e3,
        report.void
    );
    println!(
        "{} packets sent, {} received, {} dropped; {:.2} s of processor time: {:.2} us a packet, \
         {:.1} Gbit a second",
        report.sent_packets,
        report.received_packets,
        report.dropped_packets,
        report.cpu_s,
        report.cpu_s * 1e6 / report.received_packets as f64,
        report.received_bytes as f64 * 8.0 / 1e9 / report.cpu_s
    );
    Ok(())
}

enum Sender {
    Datagrams,
    Stream,
}

type Outcome = std::io::Result<f64>;

fn send_datagrams(to: SocketAddr, rate: Rate, until: Instant) -> std::io::Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(to)?;
    let datagram = [0; DATAGRAM_BYTES];
    let start = Instant::now();
    let mut sent = 0_u64;
    while Instant::now() < until {
        let due = rate.amount_in(start.elapsed()).0 * 95 / 100;
        while sent < due {
            socket.send(&datagram)?;
            sent += (DATAGRAM_BYTES + HEADER_BYTES) as u64;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Bytes per second on the wire after the first second.
fn receive_datagrams(at: SocketAddr) -> Outcome {
    let socket = UdpSocket::bind(at)?;
    let mut buffer = [0; 2048];
    let mut meter = Meter::default();
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    loop {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                meter.add(len + HEADER_BYTES);
                socket.set_read_timeout(Some(Duration::from_millis(500)))?;
            }
            Err(_) => return Ok(meter.rate()),
        }
    }
}

fn send_stream(to: SocketAddr, until: Instant) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    let data = vec![0; 256 << 10];
    while Instant::now() < until {
        stream.write_all(&data)?;
    }
    Ok(())
}

fn receive_stream(at: SocketAddr) -> Outcome {
    let (mut stream, _) = TcpListener::bind(at)?.accept()?;
    let mut buffer = vec![0; 256 << 10];
    let mut meter = Meter::default();
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(meter.rate()),
            len => meter.add(len),
        }
    }
}

/// What came after the first second, and in which time.
#[derive(Default)]
struct Meter {
    first: Option<Instant>,
    counted: Option<(Instant, Instant)>,
    bytes: u64,
}

impl Meter {
    fn add(&mut self, bytes: usize) {
        let now = Instant::now();
        let first = *self.first.get_or_insert(now);
        if now.duration_since(first) < Duration::from_secs(1) {
            return;
        }
        match &mut self.counted {
            // What ends the first second is where counting begins.
            None => self.counted = Some((now, now)),
            Some((_, last)) => {
                *last = now;
                self.bytes += bytes as u64;
            }
        }
    }

    fn rate(&self) -> f64 {
        self.counted.map_or(0.0, |(first, last)| {
            Bytes(self.bytes)
                .per(last.duration_since(first))
                .bytes_per_s()
        })
    }
}
