//! What rounds came to, as a table and as JSON.

use serde_json::{Value, json};

/// What became of one fault.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// By which the table is ordered.
    pub(crate) sort: String,
    pub(crate) object: &'static str,
    pub(crate) about: String,
    /// Whether the disturbed cast itself ended verified.
    pub(crate) verified: bool,
    /// What the host had written when it was disturbed, in bytes,
    pub(crate) held: u64,
    /// and what of that it fetched again,
    pub(crate) lost: u64,
    /// and how long before it had come, in seconds, if it was anything.
    pub(crate) lost_s: f64,
}

/// A round that broke a promise.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) kind: &'static str,
    pub(crate) round: u64,
    pub(crate) why: String,
    /// What is left of it.
    pub(crate) kept: String,
}

/// The rows of one kind of fault, as a table.
pub(crate) fn table(kind: &str, rows: &[Row]) -> String {
    let mut sorts: Vec<&str> = rows.iter().map(|row| row.sort.as_str()).collect();
    sorts.sort_unstable();
    sorts.dedup();
    // Where a host goes on is measured if it was ended.
    let is_measured = rows.iter().any(|row| row.held > 0);
    let mut text = format!("| {kind} | faults | verified at once |");
    if is_measured {
        text += " fetched again, MB: median, 90 %, most | which had come s before: median, 90 %, most |";
    }
    text += if is_measured {
        "\n|---|--:|--:|--:|--:|\n"
    } else {
        "\n|---|--:|--:|\n"
    };
    for sort in sorts.iter().copied().chain(["all"]) {
        let is_of_sort = |row: &&Row| sort == "all" || row.sort == sort;
        let of_sort: Vec<&Row> = rows.iter().filter(is_of_sort).collect();
        let verified = of_sort.iter().filter(|row| row.verified).count();
        text += &format!("| {sort} | {} | {verified} |", of_sort.len());
        if is_measured {
            let megabytes = spread(of_sort.iter().map(|row| row.lost as f64 / 1e6));
            let [m50, m90, m100] = megabytes.map(|megabytes| format!("{megabytes:.1}"));
            let seconds = spread(of_sort.iter().map(|row| row.lost_s));
            let [s50, s90, s100] = seconds.map(|seconds| format!("{seconds:.2}"));
            text += &format!(" {m50}, {m90}, {m100} | {s50}, {s90}, {s100} |");
        }
        text += "\n";
    }
    text
}

/// Median, nine tenths, most.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (share * sorted.len() as f64) as usize;
        sorted
            .get(index.min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0.0)
    };
    [at(0.5), at(0.9), at(1.0)]
}

pub(crate) fn to_json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        json!({
            "sort": row.sort, "object": row.object, "about": row.about, "verified": row.verified,
            "held_bytes": row.held, "lost_bytes": row.lost, "lost_s": row.lost_s,
        })
    };
    rows.iter().map(row).collect()
}

pub(crate) fn violations_to_json(violations: &[Violation]) -> Value {
    let one = |violation: &Violation| {
        json!({
            "kind": violation.kind, "round": violation.round,
            "why": violation.why, "kept": violation.kept,
        })
    };
    violations.iter().map(one).collect()
}
