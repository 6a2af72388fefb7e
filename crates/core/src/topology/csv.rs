//! A backbone from a table of links: sites by number, and how far apart they are.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::build::Draft;
use super::error::{CsvProblem, check_live};
use super::{Topology, TopologyError, Vertex};
use crate::network::{Link, TEXT_BYTES_MAX};

/// Sites of a table have numbers below this.
pub const SITES_MAX: u32 = 4096;

/// The longest delay of a link in a table: far beyond any on earth.
const DELAY_MS_MAX: u32 = 10_000;

const HEADER: &str = "site_a,site_b,delay_ms";

impl Topology {
    /// Reads a table of links between sites. Lines that begin with `#` are comments, the first
    /// other line is `site_a,site_b,delay_ms`, and each further one is a link in both directions
    /// with its delay one way. Sites are numbered from 0 and all have a link.
    ///
    /// Each site becomes a switch `siteN` and one host `hN` on it. `edge` is each wire between the
    /// two, `trunk` each between sites, whose delay is that of the table. `file` is the name of the
    /// table in messages.
    ///
    /// # Errors
    /// Names the line, the column and what was found and expected there; also if sites are not all
    /// connected, and if a link is dead or cannot be.
    pub fn from_csv(
        text: &str,
        file: &str,
        edge: Link,
        trunk: Link,
    ) -> Result<Self, TopologyError> {
        check_live(&edge, "link of hosts")?;
        check_live(&trunk, "link between sites")?;
        let rows = read(text).map_err(|(line, problem)| TopologyError::Csv {
            file: file.to_owned(),
            line,
            problem,
        })?;
        // Site 0 is there, and none is missing.
        let sites = rows.iter().map(|row| row.b.saturating_add(1)).max();
        let sites = sites.unwrap_or(0);
        let mut draft = Draft::of((0..sites).map(|site| format!("h{site}")).collect());
        let switches: Vec<_> = (0..sites)
            .map(|site| draft.switch(format!("site{site}")))
            .collect();
        for (host, switch) in (0..sites).zip(&switches) {
            draft.join(Vertex(host), *switch, edge);
        }
        for Row { a, b, delay } in rows {
            let [a, b] = [a, b].map(|site| switches.get(site as usize));
            if let (Some(a), Some(b)) = (a, b) {
                draft.join(*a, *b, Link { delay, ..trunk });
            }
        }
        draft.finish()
    }
}

/// A link between two sites, the lower number first.
struct Row {
    a: u32,
    b: u32,
    delay: Duration,
}

fn read(text: &str) -> Result<Vec<Row>, (usize, CsvProblem)> {
    if text.len() > TEXT_BYTES_MAX {
        let (bytes, max) = (text.len(), TEXT_BYTES_MAX);
        return Err((1, CsvProblem::TooLong { bytes, max }));
    }
    let lines = (1..).zip(text.lines().map(str::trim));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (line, header) = lines.next().unwrap_or((1, ""));
    if header != HEADER {
        let (expected, found) = (HEADER, header.to_owned());
        return Err((line, CsvProblem::Header { expected, found }));
    }
    let (mut rows, mut seen, mut last_line) = (Vec::new(), BTreeMap::new(), line);
    for (line, text) in lines {
        last_line = line;
        let row = read_row(text).map_err(|problem| (line, problem))?;
        if let Some(first) = seen.insert((row.a, row.b), line) {
            let Row { a, b, .. } = row;
            return Err((line, CsvProblem::Twice { a, b, first }));
        }
        rows.push(row);
    }
    let Some(last) = rows.iter().map(|row| row.b).max() else {
        return Err((last_line, CsvProblem::Empty));
    };
    let joined: BTreeSet<u32> = rows.iter().flat_map(|row| [row.a, row.b]).collect();
    if let Some(site) = (0..=last).find(|site| !joined.contains(site)) {
        return Err((last_line, CsvProblem::Missing { site, last }));
    }
    match adrift(&rows) {
        Some(&Row { a, b, .. }) => {
            let line = seen.get(&(a, b)).copied().unwrap_or(last_line);
            Err((line, CsvProblem::Apart { a, b }))
        }
        None => Ok(rows),
    }
}

/// The first link that no others join with site 0.
fn adrift(rows: &[Row]) -> Option<&Row> {
    let mut neighbours = BTreeMap::<u32, Vec<u32>>::new();
    for row in rows {
        neighbours.entry(row.a).or_default().push(row.b);
        neighbours.entry(row.b).or_default().push(row.a);
    }
    let mut reached = BTreeSet::from([0]);
    let mut open = vec![0];
    while let Some(site) = open.pop() {
        for next in neighbours.get(&site).into_iter().flatten() {
            if reached.insert(*next) {
                open.push(*next);
            }
        }
    }
    rows.iter().find(|row| !reached.contains(&row.a))
}

fn read_row(text: &str) -> Result<Row, CsvProblem> {
    let columns: Vec<_> = text.split(',').map(str::trim).collect();
    let &[a, b, delay] = &columns[..] else {
        let found = columns.len();
        return Err(CsvProblem::Columns { found });
    };
    let (a, b) = (read_site("site_a", a)?, read_site("site_b", b)?);
    if a == b {
        return Err(CsvProblem::SelfLink { site: a });
    }
    let (a, b) = (a.min(b), a.max(b));
    let delay = read_delay(delay)?;
    Ok(Row { a, b, delay })
}

fn read_site(column: &'static str, text: &str) -> Result<u32, CsvProblem> {
    let site = text.parse().ok().filter(|site| *site < SITES_MAX);
    site.ok_or_else(|| CsvProblem::Site {
        column,
        found: text.to_owned(),
    })
}

fn read_delay(text: &str) -> Result<Duration, CsvProblem> {
    let range = 0.0..=f64::from(DELAY_MS_MAX);
    let ms = text.parse().ok().filter(|ms: &f64| range.contains(ms));
    let ms = ms.ok_or_else(|| CsvProblem::Delay {
        found: text.to_owned(),
        max: DELAY_MS_MAX,
    })?;
    Ok(Duration::from_nanos((ms * 1e6).round() as u64))
}
