//! What was asked of an experiment, and what it found: worked out from its report.

use super::emulated::{
    BEST, CHAIN, CHAIN_BEST, DEFAULT, ONE, ONE_ENCODER, PLAIN, RANDOM, SLOWER, SMALL, SWARM, THREE,
    TWO, TWO_ENCODERS, UNCODED,
};
use super::liar::{HONEST, HONEST_SIMULATED, LYING, LYING_SIMULATED};
use super::report::{GossipReport, Trial};
use super::simulated;

/// One thing that was asked, and the answer.
pub(crate) struct Fact {
    /// What.
    pub(crate) what: String,
    /// What was required, or what the paper has.
    pub(crate) theirs: String,
    /// What was found.
    pub(crate) ours: String,
    /// Whether what was required was reached; nothing if it is a comparison.
    pub(crate) held: Option<bool>,
}

/// What a report says.
pub(crate) fn of(report: &GossipReport) -> Vec<Fact> {
    match report.name.as_str() {
        "rounds" => rounds(report),
        "blocks" => blocks(report),
        "compare" => compare(report),
        "objects" => objects(report),
        "half" => half(report),
        "churn" => churn(report),
        "liar" => liar(report),
        "gigabit" => gigabit(report),
        _ => Vec::new(),
    }
}

/// Something that has to be at most so much.
fn at_most(what: impl Into<String>, most: f64, found: Option<f64>, note: &str) -> Fact {
    Fact {
        what: what.into(),
        theirs: format!("at most {most}"),
        ours: found.map_or_else(|| "not measured".to_owned(), |it| format!("{it:.3}{note}")),
        held: found.map(|found| found <= most),
    }
}

/// Something beside what the paper has.
fn beside(what: impl Into<String>, theirs: impl Into<String>, ours: Option<String>) -> Fact {
    Fact {
        what: what.into(),
        theirs: theirs.into(),
        ours: ours.unwrap_or_else(|| "not measured".to_owned()),
        held: None,
    }
}

fn seconds(report: &GossipReport, series: &str) -> Option<f64> {
    report.one(series)?.finish_s
}

/// A time over that of the plain copy.
fn over_plain(report: &GossipReport, series: &str) -> Option<f64> {
    Some(seconds(report, series)? / seconds(report, PLAIN)?)
}

fn rounds(report: &GossipReport) -> Vec<Fact> {
    let mut facts = Vec::new();
    for trial in report.of(simulated::CODED) {
        let nodes = trial.at.unwrap_or_default();
        let share = trial.value("within_slack");
        facts.push(Fact {
            what: format!("k = 200, {nodes} nodes: seeds within k + log2 n + 4 rounds"),
            theirs: "at least 95 %".to_owned(),
            ours: share.map_or_else(|| "-".to_owned(), |it| format!("{:.1} %", it * 100.0)),
            held: share.map(|share| share >= 0.95),
        });
    }
    let mut more = Vec::new();
    for coded in report.of(simulated::CODED) {
        let mut others = report.of(simulated::RANDOM);
        let other = others.find(|other| other.at == coded.at);
        let mean = |trial: &Trial| trial.value("mean_rounds");
        if let Some(extra) = other.and_then(|other| Some(mean(other)? - mean(coded)?)) {
            more.push(format!(
                "{extra:.0} ({} nodes)",
                coded.at.unwrap_or_default()
            ));
        }
    }
    facts.push(beside(
        "rounds that random block takes more than coded",
        "30 to 50",
        Some(more.join(", ")),
    ));
    for nodes in [100, 300] {
        let series = format!("{nodes} nodes, hindsight");
        for trial in report.of(&series) {
            let (saved, promised) = (
                trial.value("saving_rounds"),
                trial.value("saving_bound_rounds"),
            );
            let (Some(saved), Some(promised)) = (saved, promised) else {
                continue;
            };
            let batches = trial.at.unwrap_or_default();
            facts.push(Fact {
                what: format!(
                    "{nodes} nodes, {batches} batches: rounds saved by overlap with hindsight"
                ),
                theirs: format!("at least {promised:.1}"),
                ours: format!("{saved:.1}"),
                held: Some(saved >= promised),
            });
        }
    }
    facts
}

/// The best of a series: where, and how long it took.
fn best(report: &GossipReport, series: &str) -> Option<(f64, f64)> {
    let all = report.of(series);
    let all = all.filter_map(|trial| Some((trial.at?, trial.finish_s?)));
    all.min_by(|a, b| a.1.total_cmp(&b.1))
}

fn blocks(report: &GossipReport) -> Vec<Fact> {
    let said = |series| best(report, series).map(|(k, time)| format!("k = {k}, {time:.1} s"));
    let mut facts = vec![
        beside(
            "best k, one encoder, 15 Mbit/s",
            "16 (80 s)",
            said(ONE_ENCODER),
        ),
        beside(
            "best k, two encoders, 15 Mbit/s",
            "30 (70 s)",
            said(TWO_ENCODERS),
        ),
        beside(
            "best k, one encoder, 10 Mbit/s",
            "35 (four nodes)",
            said(SLOWER),
        ),
        beside("best k in batches of 4 MiB, 15 Mbit/s", "-", said(SMALL)),
        beside(
            "best number of blocks of random block",
            "100 (115 s)",
            said(UNCODED),
        ),
    ];
    for trial in report.of(ONE_ENCODER) {
        let both = trial
            .value("encode_s_per_packet")
            .zip(trial.at.zip(trial.finish_s));
        let ours = both.map(|(encode, (k, finish))| {
            format!("{:.1} ms, {:.0} ms", encode * 1e3, finish / k * 1e3)
        });
        let k = trial.at.unwrap_or_default();
        let theirs = if k == 24.0 {
            "equal at k = 22 (four nodes)"
        } else {
            "-"
        };
        facts.push(beside(
            format!("encode and transfer time of a block, k = {k}"),
            theirs,
            ours,
        ));
    }
    facts
}

fn compare(report: &GossipReport) -> Vec<Fact> {
    let spread = |series: &str| {
        let trial = report.one(series)?;
        let (low, high) = (trial.value("min_s")?, trial.value("max_s")?);
        let casts = trial.value("casts").filter(|casts| *casts > 1.0)?;
        Some(format!("median of {casts} casts, {low:.1} to {high:.1} s"))
    };
    let least = |what, most, all: &[&str]| {
        let ratios = all
            .iter()
            .filter_map(|it| Some((*it, over_plain(report, it)?)));
        let least = ratios.min_by(|a, b| a.1.total_cmp(&b.1));
        let notes = least.map(|(it, _)| {
            let name = (all.len() > 1).then(|| it.to_owned());
            let notes: Vec<String> = name.into_iter().chain(spread(it)).collect();
            notes.join("; ")
        });
        let note = notes.filter(|it| !it.is_empty());
        let note = note.map_or(String::new(), |it| format!(" ({it})"));
        at_most(what, most, least.map(|(_, ratio)| ratio), &note)
    };
    let mut facts = vec![
        least(
            "20 nodes, 100 MB, 15 Mbit/s: time / plain copy, coded, best setting",
            1.06,
            &[BEST, DEFAULT, ONE, TWO, THREE],
        ),
        least(
            "the same, any protocol, best setting",
            1.06,
            &[
                BEST, DEFAULT, ONE, TWO, THREE, RANDOM, CHAIN, CHAIN_BEST, SWARM,
            ],
        ),
        least("the same, coded, default settings", 1.09, &[DEFAULT]),
    ];
    let overheads = report
        .trials
        .iter()
        .filter_map(|it| it.value("overhead_share"));
    let overhead = overheads.fold(None, |most: Option<f64>, it| {
        Some(most.unwrap_or(it).max(it))
    });
    facts.push(at_most(
        "coefficients and messages over payload, percent, at most in any of these casts",
        0.5,
        overhead.map(|share| share * 100.0),
        "",
    ));
    let peer = "BitTorrent: aria2";
    for (series, theirs) in [
        (PLAIN, "53 s (size / rate)"),
        (ONE, "80 s"),
        (TWO, "70 s"),
        (THREE, "60 s"),
        (RANDOM, "115 s"),
        (peer, "106 s (rTorrent)"),
        (BEST, "-"),
        (DEFAULT, "-"),
        (CHAIN, "-"),
        (CHAIN_BEST, "-"),
        (SWARM, "-"),
    ] {
        let ours = seconds(report, series).map(|time| match over_plain(report, series) {
            Some(ratio) => format!("{time:.1} s, {ratio:.3} x the plain copy"),
            None => format!("{time:.1} s"),
        });
        if ours.is_some() {
            facts.push(beside(series, theirs, ours));
        }
    }
    for (series, theirs) in [
        (ONE, "8 %"),
        (TWO, "far more"),
        (THREE, "5 %"),
        (DEFAULT, "-"),
    ] {
        let busiest = report
            .one(series)
            .and_then(|it| it.curves.get("busiest receiver"));
        let most = busiest.map(|curve| curve.iter().map(|(_, share)| share * 100.0));
        let ours = most.map(|most| format!("{:.0} %", most.fold(0.0, f64::max)));
        facts.push(beside(
            format!("busiest receiver in its busiest second, {series}"),
            theirs,
            ours,
        ));
    }
    facts
}

fn objects(report: &GossipReport) -> Vec<Fact> {
    let time = |series: &str, objects: f64| {
        let mut all = report.of(series);
        all.find(|trial| trial.at == Some(objects))?.finish_s
    };
    let mut facts = Vec::new();
    for (objects, theirs) in [(2.0, ["0.84", "0.80"]), (3.0, ["-", "-"])] {
        for (series, theirs) in ["overlap-1", "overlap-2"].into_iter().zip(theirs) {
            let both = time(series, objects).zip(time("sequential", objects));
            let ours = both.map(|(ours, all)| format!("{:.2}", ours / all));
            let what = format!("{objects} objects: {series} over sequential");
            facts.push(beside(what, theirs, ours));
        }
        let both = time("stream", objects).zip(time("sequential", objects));
        let ours = both.map(|(ours, all)| format!("{:.2}", ours / all));
        facts.push(beside(
            format!("{objects} objects: stream over sequential"),
            "-",
            ours,
        ));
    }
    facts
}

fn half(report: &GossipReport) -> Vec<Fact> {
    let others = report
        .one(DEFAULT)
        .and_then(|it| it.value("others_finish_s"));
    let ratio = others
        .zip(seconds(report, PLAIN))
        .map(|(ours, plain)| ours / plain);
    let what = "3 of 19 receivers at half rate: the 16 others, time / plain copy";
    vec![at_most(what, 1.15, ratio, "")]
}

fn churn(report: &GossipReport) -> Vec<Fact> {
    let trial = report.one(DEFAULT);
    let value = |name| trial.and_then(|it| it.value(name));
    let right = value("right_copies").zip(value("survivors"));
    let time = trial.and_then(|it| it.finish_s);
    vec![Fact {
        what: "two receivers killed at half time, then the source: the rest finish, verified".into(),
        theirs: "all".to_owned(),
        ours: right.map_or_else(
            || "not measured".to_owned(),
            |(right, all)| {
                let when = value("killed_source_s").unwrap_or_default();
                let lacking = value("lacking_when_source_died").unwrap_or_default();
                let end = time.map_or_else(String::new, |time| format!(", all done after {time:.1} s"));
                format!(
                    "{right} of {all}; the source died after {when:.1} s, when {lacking} nodes, the \
                     dead among them, lacked something{end}"
                )
            },
        ),
        held: right.map(|(right, all)| right >= all && time.is_some()),
    }]
}

fn liar(report: &GossipReport) -> Vec<Fact> {
    let trial = report.one(LYING);
    let value = |name| trial.and_then(|it| it.value(name));
    let ratio = |[lying, honest]: [&str; 2]| {
        let times = seconds(report, lying).zip(seconds(report, honest));
        times.map(|(lying, honest)| lying / honest)
    };
    let what = "one of ten nodes sends 5 % wrong packets: time of the others / of an honest run";
    let found = trial.zip(value("casts")).map(|(trial, casts)| {
        let with = trial.value("with_liar_s").map_or_else(String::new, |all| {
            format!("; the liar has everything after {all:.1} s")
        });
        format!(" (median of {casts} casts{with})")
    });
    let found = found.unwrap_or_default();
    let simulated = ratio([LYING_SIMULATED, HONEST_SIMULATED]);
    // Nor may any be where all are honest.
    let wrongly = |series| report.one(series)?.value("wrongly_accused");
    let accused = wrongly(LYING)
        .zip(wrongly(HONEST))
        .map(|(one, other)| one + other);
    vec![
        at_most(what, 1.5, ratio([LYING, HONEST]), &found),
        at_most(
            "copies of the others with a wrong byte",
            0.0,
            value("wrong_copies"),
            "",
        ),
        named(trial),
        at_most("others accused", 0.0, accused, ""),
        beside(
            "the same times, simulated",
            "-",
            simulated.map(|it| format!("{it:.3}")),
        ),
    ]
}

/// When the liar was named; that no node named it is not the same as that none looked.
fn named(trial: Option<&Trial>) -> Fact {
    let what = "seconds until the culprit is named";
    let fact = at_most(what, 30.0, trial.and_then(|it| it.value("named_s")), "");
    let looked = trial.is_some_and(|it| it.finish_s.is_some());
    if fact.held.is_none() && looked {
        let ours = "never, in one cast at least".to_owned();
        return Fact {
            ours,
            held: Some(false),
            ..fact
        };
    }
    fact
}

fn gigabit(report: &GossipReport) -> Vec<Fact> {
    let value = |name| report.one(simulated::GIGABIT).and_then(|it| it.value(name));
    let speed = value("speed_bytes_per_s").map(|speed| format!(" (at {:.0} GB/s)", speed / 1e9));
    vec![
        at_most(
            "8 nodes, 1 Gbit/s, 1 GB: time / plain copy",
            1.10,
            over_plain(report, simulated::GIGABIT),
            "",
        ),
        at_most(
            "the same: cores that coding keeps busy at the busiest node",
            1.0,
            value("busy_share"),
            &speed.unwrap_or_default(),
        ),
    ]
}
