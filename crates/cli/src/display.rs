//! How a cast looks while it runs: a live picture on a terminal, plain lines elsewhere.
//!
//! Everything goes to standard error. What happened to a host, once known, is a line that stays;
//! the picture below it is drawn again and again. Nothing here says that a cast is done: only the
//! report does, when every host has its verdict.

mod live;
mod plain;
mod record;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use outpour::{Event, Events, HostProgress, HostState, Phase, Progress};
use outpour_core::text::escape;
use rustix::termios::tcgetwinsize;

use crate::out::program;
pub(crate) use record::Record;

/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(150);

/// How often a plain line is printed.
const LINE: Duration = Duration::from_secs(5);

/// A host that gets nothing for this long is slow.
const IDLE_SLOW: Duration = Duration::from_secs(3);

/// A host this far behind the one in the middle is slow.
const BEHIND_SLOW: f64 = 0.5;

/// Where and how a cast is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Live,
    Plain,
    Quiet,
}

/// Shows a cast until it ends.
pub(crate) struct Display {
    style: Style,
    /// Whether each host's failure has been said.
    said: Vec<bool>,
    /// How many lines of the picture are on the screen.
    drawn: usize,
}

impl Display {
    /// A display of a cast.
    pub(crate) fn new(quiet: bool) -> Self {
        let style = match quiet {
            true => Style::Quiet,
            false if std::io::stderr().is_terminal() && !dumb() => Style::Live,
            false => Style::Plain,
        };
        Self {
            style,
            said: Vec::new(),
            drawn: 0,
        }
    }

    /// Shows what events say until the last, and leaves no picture behind.
    pub(crate) async fn run(mut self, mut events: Events) {
        let mut tick = tokio::time::interval(FRAME);
        let (mut last_line, mut phase) = (Instant::now(), Phase::Hashing);
        let (mut now, mut news) = (None, Vec::new());
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Event::Progress(progress)) => {
                        news.append(&mut self.news(&progress));
                        now = Some(progress);
                        continue;
                    }
                    _ => break,
                },
                _ = tick.tick() => {}
            }
            let Some(now) = &now else {
                continue;
            };
            let stay = std::mem::take(&mut news);
            match self.style {
                Style::Live => {
                    let (width, height) = size();
                    self.draw(&stay, &live::picture(now, width, height));
                }
                Style::Plain | Style::Quiet => {
                    self.draw(&stay, &[]);
                    let due = last_line.elapsed() >= LINE || now.phase != phase;
                    if self.style == Style::Plain && due && now.phase != Phase::Done {
                        crate::out::complain(plain::line(now));
                        (last_line, phase) = (Instant::now(), now.phase);
                    }
                }
            }
        }
        self.draw(&news, &[]);
    }

    /// Lines to stay: failures that were not said before, and notices.
    fn news(&mut self, now: &Progress) -> Vec<String> {
        let mut lines = Vec::new();
        self.said.resize(now.hosts.len(), false);
        for (host, said) in now.hosts.iter().zip(&mut self.said) {
            if host.state == HostState::Failed && !*said {
                *said = true;
                let error = host.error.as_deref().unwrap_or("failed");
                let (name, error) = (escape(&host.host), escape(error));
                lines.push(format!("{}: {name}: {error}", program()));
            }
        }
        if self.style != Style::Quiet {
            let notices = now.notices.iter();
            lines.extend(notices.map(|notice| format!("{}: {}", program(), escape(notice))));
        }
        lines
    }

    /// Replaces the picture on the screen, putting lines to stay above it.
    fn draw(&mut self, stay: &[String], picture: &[String]) {
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\r\x1b[{}A\x1b[J", self.drawn);
        }
        for line in stay {
            let _ = writeln!(text, "{line}");
        }
        if !picture.is_empty() {
            // Without wrapping every line of the picture takes one row, whatever is in it.
            text.push_str("\x1b[?7l");
            for line in picture {
                let _ = writeln!(text, "{line}");
            }
            text.push_str("\x1b[?7h");
        }
        self.drawn = picture.len();
        if !text.is_empty() {
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        }
    }
}

fn dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    match tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// Sums over the hosts.
struct Sums {
    verified: usize,
    failed: usize,
    have_bytes: u64,
    /// What the hosts that did not fail are to have in the end.
    want_bytes: u64,
    rate_bytes_per_s: f64,
}

impl Sums {
    fn of(now: &Progress) -> Self {
        let count = |state| now.hosts.iter().filter(|host| host.state == state).count();
        let (verified, failed) = (count(HostState::Verified), count(HostState::Failed));
        let alive = || {
            now.hosts
                .iter()
                .filter(|host| host.state != HostState::Failed)
        };
        Self {
            verified,
            failed,
            have_bytes: alive().map(|host| host.have_bytes).sum(),
            want_bytes: now
                .size_bytes
                .saturating_mul((now.hosts.len() - failed) as u64),
            rate_bytes_per_s: alive().map(|host| host.rate_bytes_per_s).sum(),
        }
    }

    /// How much of the work is done; below 1 until every live host is verified.
    fn share(&self, now: &Progress) -> f64 {
        let share = match self.want_bytes {
            0 => 0.0,
            want => self.have_bytes as f64 / want as f64,
        };
        match self.verified + self.failed == now.hosts.len() {
            true => share.min(1.0),
            false => share.min(0.999),
        }
    }

    /// The time until the hosts have everything at today's rate.
    fn left(&self) -> Option<Duration> {
        let missing = self.want_bytes.saturating_sub(self.have_bytes) as f64;
        let seconds = missing / self.rate_bytes_per_s;
        // A rate next to nothing promises no time at all.
        (seconds < 1e7).then(|| Duration::from_secs_f64(seconds))
    }
}

/// Hosts that need a look: those that get nothing, and those far behind the rest.
fn slow(now: &Progress) -> Vec<&HostProgress> {
    let receiving = || {
        now.hosts
            .iter()
            .filter(|host| host.state == HostState::Receiving)
    };
    let mut have: Vec<u64> = receiving().map(|host| host.have_bytes).collect();
    have.sort_unstable();
    let middle = have.get(have.len() / 2).copied().unwrap_or_default();
    let behind = (middle as f64 * BEHIND_SLOW) as u64;
    let lags = |host: &&HostProgress| idle(host) >= IDLE_SLOW || host.have_bytes < behind;
    receiving().filter(lags).collect()
}

/// How long it has been going on.
fn elapsed(now: &Progress) -> Duration {
    Duration::try_from_secs_f64(now.elapsed_s).unwrap_or_default()
}

/// How long a host said nothing, or got nothing.
fn idle(host: &HostProgress) -> Duration {
    Duration::try_from_secs_f64(host.idle_s).unwrap_or_default()
}

/// The part of the object a host has, in percent, rounded down.
fn percent(have_bytes: u64, size_bytes: u64) -> u64 {
    match size_bytes {
        0 => 100,
        size => (u128::from(have_bytes) * 100 / u128::from(size)).min(100) as u64,
    }
}

const fn word(state: HostState) -> &'static str {
    match state {
        HostState::Starting => "starting",
        HostState::Waiting => "waiting",
        HostState::Joined => "joined",
        HostState::Serving => "serving",
        HostState::Preparing => "preparing",
        HostState::Receiving => "receiving",
        HostState::Finishing => "finishing",
        HostState::Verified => "verified",
        HostState::Failed => "failed",
    }
}

/// How many hosts are in each state, as `12 receiving, 5 verified, 1 failed`.
fn states(now: &Progress) -> String {
    use HostState::*;
    let mut text = String::new();
    for state in [
        Starting, Waiting, Joined, Preparing, Receiving, Finishing, Verified, Failed,
    ] {
        let count = now.hosts.iter().filter(|host| host.state == state).count();
        if count > 0 {
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}{count} {}", word(state));
        }
    }
    text
}

#[cfg(test)]
mod tests;
