//! Results as people read them: tables, and the report at the end of a cast.

use std::time::Duration;

use outpour::{CastReport, DryRun, HostReport, HostState};
use outpour_agent::cast::HERE;
use outpour_core::Bytes;
use outpour_core::text::escape;
use outpour_core::units::format_duration;

/// Rows in columns two spaces apart, each as wide as it has to be; the first row is the heading.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
    let line = |row: &[String; N]| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Seconds for people.
pub(crate) fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "-".to_owned(), format_duration)
}

/// How a cast ended: every host, what happened to it, and whether all of it is done.
pub(crate) fn cast(report: &CastReport) -> String {
    let mut rows = vec![["HOST", "STATE", "TIME", "NOTE"].map(str::to_owned)];
    rows.extend(report.hosts.iter().map(|host| {
        let time = host.finish_s.map_or_else(|| "-".to_owned(), seconds);
        let state = if host.verified { "verified" } else { "failed" };
        [
            escape(&host.host).into_owned(),
            state.to_owned(),
            time,
            note(host, report.size_bytes),
        ]
    }));
    let lost: String = report.hosts.iter().filter_map(not_kept).collect();
    format!(
        "{}\n\n{lost}{}{}",
        table(&rows),
        why(report),
        verdict(report)
    )
}

/// What a cast would come to: every source and host, and how it would go.
pub(crate) fn dry_run(run: &DryRun) -> String {
    let mut rows = vec![["HOST", "HAS", "LACKS", "NOTE"].map(str::to_owned)];
    let row = |name: &str, has: String, lacks: String, note: Option<&str>| {
        let note = escape(note.unwrap_or_default()).into_owned();
        [escape(name).into_owned(), has, lacks, note]
    };
    let size = Bytes(run.size_bytes).to_string();
    rows.extend(run.sources.iter().map(|source| match &source.error {
        None => row(
            &source.source,
            size.clone(),
            "-".to_owned(),
            (source.source != HERE).then_some("source"),
        ),
        Some(error) => row(&source.source, "-".to_owned(), "-".to_owned(), Some(error)),
    }));
    rows.extend(run.relays.iter().map(|relay| {
        let note = relay.error.as_deref().unwrap_or("a relay");
        row(&relay.relay, "-".to_owned(), "-".to_owned(), Some(note))
    }));
    let bytes =
        |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |it| Bytes(it).to_string());
    rows.extend(run.hosts.iter().map(|host| {
        let (has, lacks) = (bytes(host.have_bytes), bytes(host.lacks_bytes));
        row(&host.host, has, lacks, host.error.as_deref())
    }));
    let limit = run.limit_s.map_or_else(
        || "no limit is known".to_owned(),
        |limit| format!("at least {} for a host that has nothing", seconds(limit)),
    );
    format!(
        "{}\n\n{}: {}\n{size} in {} blocks of {}; {limit}",
        table(&rows),
        escape(&run.protocol),
        escape(&run.why),
        run.blocks,
        Bytes(run.block_bytes.into()),
    )
}

/// What is remarkable about a host.
fn note(host: &HostReport, size_bytes: u64) -> String {
    let there = Bytes(host.resumed_bytes);
    match &host.error {
        Some(error) => escape(error).into_owned(),
        None if host.state != HostState::Verified => "has not finished".to_owned(),
        None if there == Bytes(0) => String::new(),
        None if there.0 >= size_bytes => "was there already".to_owned(),
        None => format!("{there} was there already"),
    }
}

/// What a host could not keep, in a line.
fn not_kept(host: &HostReport) -> Option<String> {
    if host.not_kept.is_empty() {
        return None;
    }
    let lost = host.not_kept.iter().map(|it| {
        let entries = match it.entries {
            1 => String::new(),
            entries => format!("{entries} entries, first "),
        };
        format!("{} of {entries}{}", it.what, escape(&it.example))
    });
    let lost: Vec<_> = lost.collect();
    Some(format!(
        "{} could not keep: {}\n",
        escape(&host.host),
        lost.join("; ")
    ))
}

/// Why it went by that protocol, in a line, unless that goes without saying.
fn why(report: &CastReport) -> String {
    if report.why == outpour_terms::ASKED_FOR {
        return String::new();
    }
    format!("{}: {}\n", escape(&report.protocol), escape(&report.why))
}

/// The last line.
fn verdict(report: &CastReport) -> String {
    let verified = report.hosts.iter().filter(|host| host.verified).count();
    let all = report.hosts.len();
    let size = Bytes(report.size_bytes);
    if verified < all {
        let hosts = if all == 1 { "host has" } else { "hosts have" };
        return format!("not done: {verified} of {all} {hosts} verified {size}");
    }
    let time = seconds(report.finish_s);
    let hosts = match all {
        1 => "the host has".to_owned(),
        2 => "both hosts have".to_owned(),
        _ => format!("all {all} hosts have"),
    };
    // The limit is that of a whole copy to every host.
    let whole = report.hosts.iter().all(|host| host.resumed_bytes == 0);
    let limit = match report.limit_s {
        Some(limit) if limit > 0.0 && whole => {
            format!(
                ", {:.2} x the limit of {}",
                report.finish_s / limit,
                seconds(limit)
            )
        }
        _ => String::new(),
    };
    format!(
        "done: {hosts} verified {size} in {time} by {}{limit}",
        escape(&report.protocol)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, error: Option<&str>, resumed_bytes: u64) -> HostReport {
        let verified = error.is_none();
        HostReport {
            host: name.to_owned(),
            state: if verified {
                HostState::Verified
            } else {
                HostState::Failed
            },
            finish_s: verified.then_some(81.5),
            verified,
            resumed_bytes,
            received_bytes: 0,
            not_kept: Vec::new(),
            error: error.map(str::to_owned),
        }
    }

    fn report(hosts: Vec<HostReport>) -> CastReport {
        CastReport {
            protocol: "chain".to_owned(),
            why: "asked for".to_owned(),
            object: "0".repeat(64),
            size_bytes: 2_000_000_000,
            finish_s: 84.0,
            transfer_s: Some(82.0),
            coding: None,
            limit_s: Some(80.0),
            ratio: Some(84.0 / 80.0),
            hosts,
            notices: Vec::new(),
        }
    }

    #[test]
    fn every_host_is_named_with_what_happened() {
        let mixed = report(vec![
            host("node01", None, 0),
            host(
                "node2",
                Some("ssh: connection refused (port 22)\u{1b}[2J"),
                0,
            ),
            host("node03", None, 500_000_000),
            host("node04", None, 2_000_000_000),
        ]);
        assert_eq!(
            cast(&mixed),
            "HOST    STATE     TIME    NOTE\n\
             node01  verified  81.5 s\n\
             node2   failed    -       ssh: connection refused (port 22)\\u{1b}[2J\n\
             node03  verified  81.5 s  500 MB was there already\n\
             node04  verified  81.5 s  was there already\n\n\
             not done: 3 of 4 hosts have verified 2 GB"
        );
    }

    #[test]
    fn done_is_said_only_when_all_have_verified() {
        let text = cast(&report(vec![host("a", None, 0), host("b", None, 0)]));
        assert!(text.ends_with(
            "done: both hosts have verified 2 GB in 84 s by chain, 1.05 x the limit of 80 s"
        ));
        let resumed = cast(&report(vec![host("a", None, 0), host("b", None, 5)]));
        assert!(resumed.ends_with("have verified 2 GB in 84 s by chain"));
        let mut unfinished = host("b", None, 0);
        unfinished.verified = false;
        unfinished.state = HostState::Receiving;
        let text = cast(&report(vec![host("a", None, 0), unfinished]));
        assert!(!text.contains("done: all") && text.contains("has not finished"));
    }

    #[test]
    fn a_table_has_no_trailing_space() {
        let rows = [["A", "LONG"], ["wide cell", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "A          LONG\nwide cell");
    }
}
