//! Emulated networks measured from inside, against what their descriptions say. Needs root.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use outpour_core::script::Script;
use outpour_core::{Network, NodeId};
use outpour_emu::{Config, EmuError, Emulation, EmulationReport, Mode, Told};

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const PORT: u16 = 9000;
/// Headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;
/// TCP's share of a packet that is data: 40 bytes of headers and 12 of options go off.
const fn share_of_data(mtu: u32) -> f64 {
    (mtu as f64 - 52.0) / mtu as f64
}

/// Emulations compete for the processor: one at a time.
static MACHINE: Mutex<()> = Mutex::new(());

struct Bed {
    emulation: Emulation,
    _machine: MutexGuard<'static, ()>,
}

/// Two nodes A and B joined by links of these keys; nothing without root.
fn two(mode: Mode, keys: &str, script: Option<&str>) -> Option<Bed> {
    if !rustix::process::geteuid().is_root() {
        let line = "\n*** SKIPPED: emulating networks needs root; the emulator is not tested\n";
        let _ = std::io::stderr().write_all(line.as_bytes());
        return None;
    }
    let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = format!(
        "[[cluster]]\nname='A'\nnodes=1\n[[cluster]]\nname='B'\nnodes=1\n\
         [[link]]\nfrom='A'\nto='B'\nboth=true\n{keys}"
    );
    let emulation = start(&text, mode, script).unwrap();
    Some(Bed {
        emulation,
        _machine: machine,
    })
}

fn start(network: &str, mode: Mode, script: Option<&str>) -> Result<Emulation, EmuError> {
    let config = Config {
        network: Network::from_toml(network, "net.toml").unwrap(),
        script: script.map(|text| Script::parse(text, "s.txt").unwrap()),
        mode,
        mtu: mode.usual_mtu(),
        seed: 7,
        sample: None,
    };
    Emulation::start(config, |_| {})
}

impl Bed {
    fn at(&self, node: NodeId) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.emulation.address(node)), PORT)
    }

    fn run<T: Send + 'static>(
        &self,
        node: NodeId,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<std::io::Result<T>> {
        self.emulation.run_inside(node, task).unwrap()
    }

    /// Runs `task` on a node to its end.
    fn done<T: Send + 'static>(
        &self,
        node: NodeId,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.run(node, task).join().unwrap().unwrap()
    }

    /// A socket of a node.
    fn udp(&self, node: NodeId) -> UdpSocket {
        let at = self.at(node);
        let socket = self.done(node, move || UdpSocket::bind(at).unwrap());
        let patience = Some(Duration::from_millis(500));
        socket.set_read_timeout(patience).unwrap();
        // What a busy machine leaves waiting here shall not count as lost on the way.
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).unwrap();
        socket
    }

    /// Bytes per second of one TCP connection from A to B, after two seconds to find its pace and to
    /// fill the holes that finding left.
    fn tcp_rate(&self, seconds: u64) -> f64 {
        let at = self.at(B);
        let listener = self.done(B, move || TcpListener::bind(at).unwrap());
        let receiver = thread::spawn(move || {
            hurry();
            let mut stream = listener.accept().unwrap().0;
            let mut buffer = vec![0; 256 << 10];
            let (mut first, mut bytes, mut last) = (None, 0, Instant::now());
            let begun = Instant::now();
            while let Ok(len) = stream.read(&mut buffer)
                && len > 0
            {
                last = Instant::now();
                if last.duration_since(begun) > Duration::from_secs(2) {
                    first.get_or_insert(last);
                    bytes += len;
                }
            }
            bytes as f64 / last.duration_since(first.unwrap()).as_secs_f64()
        });
        let mut stream = self.done(A, move || TcpStream::connect(at).unwrap());
        hurry();
        let until = Instant::now() + Duration::from_secs(seconds);
        let data = vec![0; 256 << 10];
        while Instant::now() < until {
            stream.write_all(&data).unwrap();
        }
        drop(stream);
        receiver.join().unwrap()
    }

    fn finish(self) -> EmulationReport {
        self.emulation.finish().unwrap()
    }
}

/// Counts datagrams until none comes for a while; how many, and over what time.
fn drain(socket: &UdpSocket) -> (usize, Duration) {
    let mut buffer = [0; 2048];
    let (mut count, mut first, mut last) = (0, None, Instant::now());
    while socket.recv(&mut buffer).is_ok() {
        last = Instant::now();
        first.get_or_insert(last);
        count += 1;
    }
    (count, last.duration_since(first.unwrap_or(last)))
}

/// Lets this thread run before ordinary ones, as what it measures is the network and not how busy
/// the machine is. Where that cannot be had, the machine has to be idle.
fn hurry() {
    let thread = rustix::thread::gettid().as_raw_pid().to_string();
    let mut command = std::process::Command::new("chrt");
    let _ = command.args(["--fifo", "--pid", "40", &thread]).status();
}

#[track_caller]
fn assert_near(found: f64, expected: f64, share: f64) {
    let off = (found / expected - 1.0).abs();
    assert!(
        off <= share,
        "{found} is {:.1} % off {expected}",
        off * 100.0
    );
}

/// The script has made all its changes by then, and the emulator takes them before packets.
fn until_it_waits_for(bed: &Bed, word: &str) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while bed.emulation.waits_for().as_deref() != Some(word) {
        assert!(
            Instant::now() < deadline,
            "the script never waits for {word}"
        );
        thread::yield_now();
    }
}

#[test]
fn packets_pass_at_the_rate_that_is_set() {
    let Some(bed) = two(Mode::Packet, "rate='20 Mbit/s'\ndelay='5 ms'", None) else {
        return;
    };
    let (sender, receiver, to) = (bed.udp(A), bed.udp(B), bed.at(B));
    let receiving = thread::spawn(move || {
        hurry();
        drain(&receiver)
    });
    hurry();
    // Half as much again as fits, for a second and a half.
    let (start, mut sent) = (Instant::now(), 0.0);
    while start.elapsed() < Duration::from_millis(1500) {
        while sent < start.elapsed().as_secs_f64() * 3.75e6 {
            sender.send_to(&[0; 1172], to).unwrap();
            sent += 1200.0;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let (count, time) = receiving.join().unwrap();
    let wire = (count - 1) as f64 * (1172 + HEADER_BYTES) as f64;
    assert_near(wire / time.as_secs_f64(), 2.5e6, 0.03);
    let report = bed.finish();
    assert_eq!(report.received_packets as usize, count);
    assert_eq!(
        report.sent_packets,
        report.received_packets + report.dropped_packets
    );
    assert!(report.dropped_packets > 0);
}

#[test]
fn tcp_fills_links_in_both_modes_by_default() {
    for (mode, keys, rate) in [
        (Mode::Packet, "rate='5 MB/s'\ndelay='10 ms'", 5e6),
        (Mode::Bulk, "rate='10 MB/s'\ndelay='10 ms'", 10e6),
        (Mode::Bulk, "rate='10 MB/s'\ndelay='50 ms'", 10e6),
    ] {
        let Some(bed) = two(mode, keys, None) else {
            return;
        };
        let begun = Instant::now();
        let found = bed.tcp_rate(4);
        let time = begun.elapsed().as_secs_f64();
        let possible = rate * share_of_data(mode.usual_mtu());
        assert!(found >= possible * 0.95, "{keys}: {found}");
        // Both ways together; acknowledgements are few.
        let passed = bed.finish().received_bytes as f64;
        assert!(passed <= rate * time * 1.02, "{keys}: {passed} in {time} s");
    }
}

#[test]
fn single_packets_take_the_delay() {
    let Some(bed) = two(Mode::Packet, "delay='10 ms'\nrate='100 Mbit/s'", None) else {
        return;
    };
    hurry();
    let (sender, receiver, to) = (bed.udp(A), bed.udp(B), bed.at(B));
    let begun = Instant::now();
    let mut delays: Vec<f64> = (0..100)
        .map(|_| {
            let mut buffer = [0; 64];
            let sent = begun.elapsed();
            sender.send_to(&[1; 40], to).unwrap();
            receiver.recv(&mut buffer).unwrap();
            (begun.elapsed() - sent).as_secs_f64()
        })
        .collect();
    delays.sort_by(f64::total_cmp);
    let median = delays[50];
    assert!((median - 0.010).abs() < 0.001, "{median}");
    assert!(
        delays[0] >= 0.010,
        "nothing comes before its time: {}",
        delays[0]
    );
    bed.finish();
}

#[test]
fn full_queues_mark_then_drop() {
    let keys = "rate='1 MB/s'\nqueue='40 packets'\necn='10 packets'";
    let Some(bed) = two(Mode::Packet, keys, None) else {
        return;
    };
    let (sender, receiver, to) = (bed.udp(A), bed.udp(B), bed.at(B));
    // The sender understands marks: the two lowest bits say so.
    rustix::net::sockopt::set_ip_tos(&sender, 0b10).unwrap();
    for _ in 0..100 {
        sender.send_to(&[0; 972], to).unwrap();
    }
    let (count, _) = drain(&receiver);
    let seen = bed.done(B, || {
        let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("IpExt:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut pairs = names.split(' ').zip(values.split(' '));
        pairs
            .find(|(name, _)| *name == "InCEPkts")
            .unwrap()
            .1
            .parse::<u64>()
            .unwrap()
    });
    let report = bed.finish();
    // One in service and 40 waiting, the last 30 of them marked; and what the link carries while
    // the hundred come.
    assert!((41..=45).contains(&count), "{count}");
    assert_eq!(report.dropped_packets as usize, 100 - count);
    assert!((30..=34).contains(&report.marked_packets), "{report:?}");
    assert_eq!(seen, report.marked_packets, "the receiver sees the marks");
}

#[test]
fn losses_are_as_set() {
    for (keys, runs) in [("loss=0.1", 1.0 / 0.9), ("loss=0.1\nburst=5", 5.0)] {
        let Some(bed) = two(Mode::Packet, keys, None) else {
            return;
        };
        let (sender, receiver, to) = (bed.udp(A), bed.udp(B), bed.at(B));
        let total = 20_000_u32;
        let receiving = thread::spawn(move || {
            let mut buffer = [0; 64];
            let (mut count, mut gaps, mut next) = (0, 0, 0);
            while receiver.recv(&mut buffer).is_ok() {
                let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
                gaps += u32::from(number != next);
                next = number + 1;
                count += 1;
            }
            (count, gaps)
        });
        for number in 0..total {
            sender.send_to(&number.to_be_bytes(), to).unwrap();
            if number % 50 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let (count, gaps) = receiving.join().unwrap();
        let report = bed.finish();
        assert_eq!(report.lost_packets as u32, total - count);
        let lost = f64::from(total - count);
        assert_near(lost / f64::from(total), 0.1, 0.12);
        assert_near(lost / f64::from(gaps), runs, 0.12);
    }
}

#[test]
fn a_script_changes_the_network_while_it_runs() {
    let script = "forever\nsetDelay A B 1 ms\nhear start\nsetDelay A B 30 ms\nhear reset";
    let Some(bed) = two(Mode::Packet, "rate='100 Mbit/s'", Some(script)) else {
        return;
    };
    hurry();
    let (sender, receiver, to) = (bed.udp(A), bed.udp(B), bed.at(B));
    let delay = || {
        let mut buffer = [0; 64];
        let mut delays: Vec<f64> = (0..9)
            .map(|_| {
                let sent = Instant::now();
                sender.send_to(&[1; 40], to).unwrap();
                receiver.recv(&mut buffer).unwrap();
                sent.elapsed().as_secs_f64()
            })
            .collect();
        delays.sort_by(f64::total_cmp);
        delays[4]
    };
    let patience = Duration::from_secs(5);
    assert_near(delay(), 0.001, 1.0);
    assert_eq!(bed.emulation.tell("start", patience), Told::Heard);
    until_it_waits_for(&bed, "reset");
    assert_near(delay(), 0.030, 0.05);
    assert_eq!(bed.emulation.tell("nonsense", patience), Told::Ignored);
    assert_eq!(
        bed.emulation.tell("start", Duration::ZERO),
        Told::Remembered
    );
    assert_eq!(bed.emulation.tell("reset", patience), Told::Heard);
    // It hears the start it was told before at once, and comes to the same place.
    until_it_waits_for(&bed, "reset");
    assert_near(delay(), 0.030, 0.05);
    assert_eq!(bed.finish().unheard, None, "it was told reset once");
}

#[test]
fn a_word_nobody_says_is_reported() {
    let Some(bed) = two(Mode::Packet, "", Some("hear go\nhear stop")) else {
        return;
    };
    assert_eq!(
        bed.emulation.tell("go", Duration::from_secs(5)),
        Told::Heard
    );
    until_it_waits_for(&bed, "stop");
    assert_eq!(bed.finish().unheard.as_deref(), Some("stop"));
}

#[test]
fn what_cannot_be_emulated_is_said() {
    let said = |text: &str| {
        start(text, Mode::Packet, None)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        said("[[cluster]]\nname='A'\nnodes=257"),
        "the network has 257 nodes; an emulation has at most 256"
    );
    let many: String = (0..251)
        .map(|i| format!("[[cluster]]\nname='c{i}'\nnodes=1\n"))
        .collect();
    assert_eq!(
        said(&many),
        "the network has 251 clusters; an emulation has at most 250"
    );
    if !rustix::process::geteuid().is_root() {
        let said = said("[[cluster]]\nname='A'\nnodes=2");
        assert!(said.starts_with("emulating a network needs root"), "{said}");
    }
}
