//! A stranger: opens connections and proves nothing, to see what it costs those it calls.
//!
//! It does what it reads, a line each, until its input ends: `hold 10000 10.1.0.2:7741` has so many
//! connections open at all times, as far as the other end lets it; `call 2000 10.1.0.2:7741` opens so many
//! in each second. With every second it prints how many it has opened, how many are open, and how many the
//! other end has closed: `opened 12000 open 32 closed 11968 failed 0`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outpour_cli::out::{self, Failure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// What was closed is opened again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// What is opened at a rate is left after this, if the other end has not closed it before.
const LEFT_AFTER: Duration = Duration::from_secs(5);
/// Calls at a rate come in portions, so many of them a second.
const PORTIONS: u64 = 50;
/// How long a call may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Counts {
    opened: AtomicU64,
    open: AtomicU64,
    closed: AtomicU64,
    failed: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Hold(u64, SocketAddr),
    Call(u64, SocketAddr),
}

fn parse(line: &str) -> Option<Order> {
    let mut words = line.split_whitespace();
    let (what, count, whom) = (words.next()?, words.next()?, words.next()?);
    let (count, whom) = (count.parse().ok()?, whom.parse().ok()?);
    let order = match what {
        "hold" => Order::Hold(count, whom),
        "call" => Order::Call(count, whom),
        _ => return None,
    };
    words.next().is_none().then_some(order)
}

/// Calls as it is told, until its input ends.
///
/// # Errors
/// If a line makes no sense, or there are no threads.
pub(crate) fn run() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot start: {error}"));
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, most).map_err(|error| failed(error.into()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let done = runtime.block_on(obey());
    runtime.shutdown_background();
    done
}

async fn obey() -> Result<(), Failure> {
    let counts = Arc::new(Counts::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut news = interval(Duration::from_secs(1));
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            _ = news.tick() => {
                out::result(counts.said());
                continue;
            }
        };
        let Ok(Some(line)) = line else {
            return Ok(());
        };
        match parse(&line) {
            Some(Order::Hold(count, whom)) => {
                for _ in 0..count {
                    tokio::spawn(hold(whom, counts.clone()));
                }
            }
            Some(Order::Call(rate, whom)) => {
                tokio::spawn(call(rate, whom, counts.clone()));
            }
            None => {
                let expected = "expected `hold COUNT ADDRESS` or `call RATE ADDRESS`";
                return Err(Failure::Usage(expected.to_owned()));
            }
        }
    }
}

/// Has one connection open as long as it may.
async fn hold(whom: SocketAddr, counts: Arc<Counts>) {
    loop {
        counts.open(whom, Duration::MAX).await;
        sleep(AGAIN).await;
    }
}

/// Opens so many a second.
async fn call(rate: u64, whom: SocketAddr, counts: Arc<Counts>) {
    let mut ticks = interval(Duration::from_secs(1) / PORTIONS as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for tick in 0_u64.. {
        ticks.tick().await;
        let due = |tick: u64| tick * rate / PORTIONS;
        for _ in due(tick)..due(tick + 1) {
            let counts = counts.clone();
            tokio::spawn(async move { counts.open(whom, LEFT_AFTER).await });
        }
    }
}

impl Counts {
    /// Opens a connection, says nothing, and waits for its end or this long.
    async fn open(&self, whom: SocketAddr, at_most: Duration) {
        let Ok(Ok(mut stream)) = timeout(CONNECT_MAX, TcpStream::connect(whom)).await else {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        let mut said = [0; 256];
        let ended = async { while let Ok(1..) = stream.read(&mut said).await {} };
        if timeout(at_most, ended).await.is_ok() {
            self.closed.fetch_add(1, Ordering::Relaxed);
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn said(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (opened, open) = (count(&self.opened), count(&self.open));
        let (closed, failed) = (count(&self.closed), count(&self.failed));
        format!("opened {opened} open {open} closed {closed} failed {failed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_obeys_orders_and_nothing_else() {
        let whom = SocketAddr::from(([10, 1, 0, 2], 7741));
        assert_eq!(
            parse("hold 10000 10.1.0.2:7741"),
            Some(Order::Hold(10_000, whom))
        );
        assert_eq!(
            parse(" call 2000 10.1.0.2:7741 "),
            Some(Order::Call(2_000, whom))
        );
        for wrong in [
            "",
            "hold",
            "hold x 10.1.0.2:1",
            "hold 1 host:1",
            "call 1 10.1.0.2:1 now",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
