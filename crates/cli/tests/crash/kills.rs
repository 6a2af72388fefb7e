//! `kill -9` of receivers at moments drawn by the seed: the same command continues where they were.

use std::path::Path;
use std::time::{Duration, Instant};

use super::draw::Draw;
use super::objects::{Before, Object};
use super::report::Row;
use super::site::{Meter, Said, Site};
use crate::harness::{AGAIN_MAX, Cast, DEADLINE};
use crate::support::signal;

const HOSTS: usize = 4;
/// One is left: a cast without hosts is over at once.
pub(crate) const VICTIMS: usize = HOSTS - 1;
const PROTOCOLS: [&str; 4] = ["direct", "chain", "swarm", "coded-gossip"];
const LIMIT: &str = "16 MB/s";
const LOOK_EVERY: Duration = Duration::from_millis(4);

pub(crate) fn object(dir: &Path) -> Object {
    // More than may be fetched again.
    let object = Object::update(dir, 3, 12 << 20);
    assert!(object.size > 2 * AGAIN_MAX);
    object
}

/// A host that is to be killed.
struct Victim {
    host: usize,
    /// When it has written so many bytes,
    written: u64,
    /// and then so long later.
    delay: Duration,
    due: Option<Instant>,
    /// Whether it is stopped first, so that no moment passes between the last look and the end.
    stopped: bool,
    meter: Meter,
    killed: bool,
}

/// One cast in which all hosts but one are killed: a row for each that was.
pub(crate) fn kill(site: &mut Site, object: &Object, seed: u64, round: u64) -> Vec<Row> {
    let mut draw = Draw::new(seed, round);
    site.fill(HOSTS);
    let protocol = *draw.one(&PROTOCOLS);
    let options = [
        "--protocol",
        protocol,
        "--limit",
        LIMIT,
        "--patience",
        "10 s",
    ];
    let survivor = draw.below(HOSTS);
    let mut cast = site.begin(&object.new, &options);
    let hosts = site.hosts().filter(|host| *host != survivor);
    let victims = hosts.map(|host| Victim {
        host,
        written: (object.size as f64 * draw.share()) as u64,
        delay: Duration::from_millis(200).mul_f64(draw.share()),
        due: None,
        stopped: draw.below(2) == 0,
        meter: Meter::new(site.id(host)),
        killed: false,
    });
    let mut victims = victims.collect::<Vec<_>>();
    kill_each(site, &mut cast, &mut victims);
    let first = Said::of(cast.end());
    first.assert_clear();
    for host in site.hosts() {
        object.assert_nothing_half(&site.copy(host), Before::Nothing, "after the kills");
        let killed = victims
            .iter()
            .any(|victim| victim.host == host && victim.killed);
        assert!(
            killed || first.is_verified(host),
            "host {host} was harmed: {}",
            first.errors()
        );
        if first.is_verified(host) {
            object.assert_whole(&site.copy(host), "verified before the kill");
        }
    }
    victims.retain(|victim| victim.killed);
    for victim in &victims {
        site.restart(victim.host);
    }
    let again = Said::of(site.begin(&object.new, &["--protocol", protocol]).end());
    again.assert_clear();
    again.assert_success();
    for host in site.hosts() {
        object.assert_whole(&site.copy(host), "verified after the kill");
        assert!(
            !site.copy(host).join(".outpour").exists(),
            "state is left behind"
        );
    }
    let rows = victims.iter().map(|victim| {
        lost(
            object,
            victim,
            &again,
            protocol,
            first.is_verified(victim.host),
        )
    });
    let rows = rows.collect();
    site.clear();
    site.stop();
    rows
}

fn kill_each(site: &mut Site, cast: &mut Cast, victims: &mut [Victim]) {
    let begun = Instant::now();
    while cast.runs() && victims.iter().any(|victim| !victim.killed) {
        assert!(begun.elapsed() < DEADLINE, "the cast has no end");
        for victim in victims.iter_mut().filter(|victim| !victim.killed) {
            if victim.meter.look() >= victim.written {
                victim
                    .due
                    .get_or_insert_with(|| Instant::now() + victim.delay);
            }
            if victim.due.is_some_and(|due| due <= Instant::now()) {
                if victim.stopped {
                    signal(site.id(victim.host), "STOP");
                }
                victim.meter.look();
                site.kill(victim.host);
                victim.killed = true;
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What a host had been given and fetched again, and whether that is too much.
fn lost(object: &Object, victim: &Victim, again: &Said, protocol: &str, verified: bool) -> Row {
    let (host, held) = (victim.host, victim.meter.last().min(object.size));
    let resumed = again.number(host, "resumed_bytes");
    let lost = held.saturating_sub(resumed);
    assert!(
        lost <= AGAIN_MAX,
        "host {host}, {protocol}: {lost} bytes of {held} were fetched again"
    );
    let received = again.number(host, "received_bytes");
    assert!(
        received <= object.size - resumed + (4 << 20),
        "{received} bytes came although {resumed} of {} were there",
        object.size
    );
    Row {
        sort: protocol.to_owned(),
        object: object.name,
        about: format!("after {} bytes and {:?}", victim.written, victim.delay),
        verified,
        held,
        lost,
        lost_s: if lost == 0 {
            0.0
        } else {
            victim.meter.age_of(resumed).as_secs_f64()
        },
    }
}
