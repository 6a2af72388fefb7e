//! The picture of a cast on a terminal: a pure function from how it stands and the size of the screen.

use std::time::Duration;

use outpour::{HostProgress, HostState, Phase, Progress};
use outpour_core::text::escape;
use outpour_core::units::format_duration;
use outpour_core::{Bytes, Rate};

use super::{Sums, elapsed, idle, percent, slow, states, word};

/// Up to so many hosts have a line each, if the screen has the room.
const LINES_MAX: usize = 16;

/// The bar is at least and at most this wide.
const BAR: (usize, usize) = (10, 40);

/// Eighths of a cell, from empty to full.
const EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Heights of a cell, from empty to full.
const HEIGHTS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws how it stands for a screen of `width` columns and `height` rows, one row left free.
pub(super) fn picture(now: &Progress, width: usize, height: usize) -> Vec<String> {
    let mut lines = vec![bar(now, width), clock(now)];
    if matches!(now.phase, Phase::Starting | Phase::Moving | Phase::Done) {
        lines.push(format!("{} hosts: {}", now.hosts.len(), states(now)));
    }
    let room = height.saturating_sub(lines.len() + 1);
    lines.extend(match now.phase {
        Phase::Hashing => Vec::new(),
        _ => hosts(now, width, room),
    });
    lines.truncate(height.saturating_sub(1));
    for line in &mut lines {
        // A picture wider than the screen would not be erased in full.
        if let Some((cut, _)) = line.char_indices().nth(width) {
            line.truncate(cut);
        }
    }
    lines
}

/// The first line: what goes on, and how far it is.
fn bar(now: &Progress, width: usize) -> String {
    match now.phase {
        Phase::Hashing => format!("hashing {}", Bytes(now.hashed_bytes)),
        Phase::Starting => format!("starting agents, {} to cast", Bytes(now.size_bytes)),
        Phase::Moving | Phase::Done => {
            let sums = Sums::of(now);
            let share = sums.share(now);
            let rate = Rate::from_bytes_per_s(sums.rate_bytes_per_s).unwrap_or_default();
            let tail = format!(
                " {:>3} %  {} of {}  {rate}",
                (share * 100.0) as u64,
                Bytes(sums.have_bytes),
                Bytes(sums.want_bytes),
            );
            let head = format!("{} ", escape(&now.protocol));
            let room = width.saturating_sub(head.len() + tail.len());
            format!("{head}{}{tail}", filled(share, room.clamp(BAR.0, BAR.1)))
        }
    }
}

/// A bar of `cells` cells, of which `share` is full.
fn filled(share: f64, cells: usize) -> String {
    let eighths = (share * cells as f64 * 8.0) as usize;
    let cell = |index: usize| EIGHTHS[eighths.saturating_sub(index * 8).min(8)];
    (0..cells).map(cell).collect()
}

/// The second line: times.
fn clock(now: &Progress) -> String {
    let mut line = short(elapsed(now));
    if now.phase == Phase::Moving {
        let left = Sums::of(now).left();
        if let Some(left) = left {
            line.push_str(&format!(", about {} left", short(left)));
        }
        if let Some(limit) = now.limit_s {
            let text = Duration::try_from_secs_f64(limit)
                .map(short)
                .unwrap_or_default();
            line.push_str(&format!("; the limit allows {text}"));
            let finish = left.map(|left| (elapsed(now) + left).as_secs_f64());
            if let Some(finish) = finish.filter(|_| limit > 0.0) {
                line.push_str(&format!(" ({:.2} x)", finish / limit));
            }
        }
    }
    line
}

/// Whole seconds are enough while the clock runs.
fn short(time: Duration) -> String {
    match time.as_secs() {
        0 => "0 s".to_owned(),
        seconds => format_duration(Duration::from_secs(seconds)),
    }
}

/// What is below: a line for each host, or cells and a line for each one in trouble.
fn hosts(now: &Progress, width: usize, room: usize) -> Vec<String> {
    if now.hosts.len() <= room.min(LINES_MAX) {
        let names = now
            .hosts
            .iter()
            .map(|host| escape(&host.host).chars().count());
        let names = names.max().unwrap_or_default().min(width / 2);
        return now
            .hosts
            .iter()
            .map(|host| line(host, now.size_bytes, names))
            .collect();
    }
    let mut lines = cells(now, width, room.min(4));
    let failed = now
        .hosts
        .iter()
        .filter(|host| host.state == HostState::Failed);
    let trouble: Vec<_> = failed.chain(slow(now)).collect();
    let room = room.saturating_sub(lines.len());
    let shown = if trouble.len() > room {
        room.saturating_sub(1)
    } else {
        trouble.len()
    };
    lines.extend(
        trouble
            .iter()
            .take(shown)
            .map(|host| line(host, now.size_bytes, 0)),
    );
    if shown < trouble.len() && room > 0 {
        lines.push(format!(
            "and {} more that are slow or failed",
            trouble.len() - shown
        ));
    }
    lines
}

/// A host in one line.
fn line(host: &HostProgress, size_bytes: u64, name_width: usize) -> String {
    let name = escape(&host.host);
    let head = format!("  {name:<name_width$}  {}", word(host.state));
    match host.state {
        HostState::Failed => {
            format!(
                "{head}: {}",
                escape(host.error.as_deref().unwrap_or_default())
            )
        }
        HostState::Receiving => {
            let rate = Rate::from_bytes_per_s(host.rate_bytes_per_s).unwrap_or_default();
            let idle = match idle(host) >= super::IDLE_SLOW {
                true => format!(", nothing for {}", short(idle(host))),
                false => String::new(),
            };
            format!(
                "{head} {:>3} %  {rate}{idle}",
                percent(host.have_bytes, size_bytes)
            )
        }
        _ => head,
    }
}

/// Every host as a cell as high as what it has; `x` has failed. Where there are more hosts than
/// cells, a cell stands for several and shows the one furthest behind that has not failed.
fn cells(now: &Progress, width: usize, rows: usize) -> Vec<String> {
    let cells = (width.saturating_sub(2) * rows).max(1);
    let per_cell = now.hosts.len().div_ceil(cells).max(1);
    let drawn: Vec<char> = now
        .hosts
        .chunks(per_cell)
        .map(|group| {
            let last = group.iter().map(|host| height(host, now.size_bytes)).min();
            last.map_or('x', |height| HEIGHTS.get(height).copied().unwrap_or('x'))
        })
        .collect();
    let rows = drawn.chunks(width.saturating_sub(2).max(1));
    rows.map(|row| format!("  {}", row.iter().collect::<String>()))
        .collect()
}

/// The height of a host's cell; past the last for one that failed and is out of the count.
fn height(host: &HostProgress, size_bytes: u64) -> usize {
    match host.state {
        HostState::Failed => HEIGHTS.len(),
        HostState::Verified => HEIGHTS.len() - 1,
        // Full is for what is verified.
        _ => (percent(host.have_bytes, size_bytes) as usize * 8 / 100).min(7),
    }
}
