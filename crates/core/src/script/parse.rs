//! Reading a script line by line.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use super::error::{ScriptError, ScriptProblem};
use super::names::check_pattern;
use super::{
    COMMANDS_MAX, Command, Defined, Line, ROUND_MIN, Script, Setting, Side, TEXT_BYTES_MAX,
    WORD_BYTES_MAX,
};
use crate::network::{Backlog, burst_fits};
use crate::text::escape;
use crate::units::parse_duration;

/// Each command with how it is written.
const USAGES: &[(&str, &str)] = &[
    ("defineCluster", "defineCluster NODE... CLUSTER"),
    ("setAllCapacityIn", "setAllCapacityIn RATE"),
    ("setAllCapacityOut", "setAllCapacityOut RATE"),
    ("setCapacityIn", "setCapacityIn NAMES RATE"),
    ("setCapacityOut", "setCapacityOut NAMES RATE"),
    ("setDelay", "setDelay CLUSTERS CLUSTERS TIME"),
    ("setBandwidth", "setBandwidth CLUSTERS CLUSTERS RATE"),
    ("setQueue", "setQueue CLUSTERS CLUSTERS AMOUNT"),
    ("setEcn", "setEcn CLUSTERS CLUSTERS AMOUNT"),
    (
        "setLoss",
        "setLoss CLUSTERS CLUSTERS SHARE [PACKETS-IN-A-ROW]",
    ),
    ("setForeground", "setForeground CLUSTERS CLUSTERS RATE"),
    ("lose", "lose NODES"),
    ("restore", "restore NODES"),
    ("loseController", "loseController"),
    ("restoreController", "restoreController"),
    ("forever", "forever"),
    ("sleep", "sleep TIME"),
    ("hear", "hear WORD"),
    ("tell", "tell WORD"),
];

/// Reads `text`; `file` is its name in messages.
pub(super) fn parse(text: &str, file: &str) -> Result<Script, ScriptError> {
    if text.len() > TEXT_BYTES_MAX {
        let problem = ScriptProblem::TooLong(text.len());
        return Err(ScriptError::new(file, 1, problem));
    }
    let mut script = Script {
        file: file.to_owned(),
        clusters: Vec::new(),
        lines: Vec::new(),
        repeat_from: None,
    };
    let mut forever_at = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = without_comment(line);
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else {
            continue;
        };
        let words: Vec<&str> = words.collect();
        read_line(&mut script, &mut forever_at, number, name, &words)
            .map_err(|problem| ScriptError::new(file, number, problem))?;
    }
    match (forever_at, script.repeat_from) {
        (Some(line), Some(from)) if spins(script.lines.get(from..).unwrap_or_default()) => {
            Err(ScriptError::new(file, line, ScriptProblem::Spins))
        }
        _ => Ok(script),
    }
}

/// A `#` that begins a word begins a comment; inside a name it is part of the name.
fn without_comment(line: &str) -> &str {
    let begins = |(at, _): &(usize, &str)| {
        let before = line[..*at].chars().next_back();
        before.is_none_or(char::is_whitespace)
    };
    match line.match_indices('#').find(begins) {
        Some((at, _)) => &line[..at],
        None => line,
    }
}

/// Whether a round of these would pass without a pause.
fn spins(round: &[Line]) -> bool {
    let mut slept = std::time::Duration::ZERO;
    for line in round {
        match &line.command {
            Command::Hear(_) => return false,
            Command::Sleep(time) => slept = slept.saturating_add(*time),
            _ => {}
        }
    }
    slept < ROUND_MIN
}

fn read_line(
    script: &mut Script,
    forever_at: &mut Option<usize>,
    number: usize,
    name: &str,
    words: &[&str],
) -> Result<(), ScriptProblem> {
    if script.lines.len().saturating_add(script.clusters.len()) >= COMMANDS_MAX {
        return Err(ScriptProblem::TooManyCommands);
    }
    match name {
        "defineCluster" => {
            let [nodes @ .., cluster] = words else {
                return usage(name);
            };
            if nodes.is_empty() {
                return usage(name);
            }
            if forever_at.is_some() {
                return Err(ScriptProblem::LateCluster);
            }
            script.clusters.push(Defined {
                line: number,
                name: (*cluster).to_owned(),
                nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            });
        }
        "forever" => {
            if !words.is_empty() {
                return usage(name);
            }
            if let Some(first) = *forever_at {
                return Err(ScriptProblem::SecondForever { first });
            }
            *forever_at = Some(number);
            script.repeat_from = Some(script.lines.len());
        }
        _ => {
            let command = read_command(name, words)?;
            script.lines.push(Line { number, command });
        }
    }
    Ok(())
}

fn read_command(name: &str, words: &[&str]) -> Result<Command, ScriptProblem> {
    Ok(match (name, words) {
        ("setAllCapacityIn", rate) if !rate.is_empty() => {
            Command::AllCapacity(Side::In, rate.join(" ").parse()?)
        }
        ("setAllCapacityOut", rate) if !rate.is_empty() => {
            Command::AllCapacity(Side::Out, rate.join(" ").parse()?)
        }
        ("setCapacityIn", [names, rate @ ..]) if !rate.is_empty() => {
            Command::Capacity(Side::In, pattern(names)?, rate.join(" ").parse()?)
        }
        ("setCapacityOut", [names, rate @ ..]) if !rate.is_empty() => {
            Command::Capacity(Side::Out, pattern(names)?, rate.join(" ").parse()?)
        }
        (_, [from, to, rest @ ..]) if !rest.is_empty() && is_about_pairs(name) => {
            let setting = read_setting(name, rest)?;
            Command::Pair(pattern(from)?, pattern(to)?, setting)
        }
        ("lose", [nodes]) => Command::Servers(pattern(nodes)?, false),
        ("restore", [nodes]) => Command::Servers(pattern(nodes)?, true),
        ("loseController", []) => Command::Controller(false),
        ("restoreController", []) => Command::Controller(true),
        ("sleep", [_, ..]) => Command::Sleep(duration(words)?),
        ("hear", [word]) => Command::Hear(visible(word)?),
        ("tell", [word]) => Command::Tell(visible(word)?),
        _ => return usage(name),
    })
}

fn is_about_pairs(name: &str) -> bool {
    [
        "setDelay",
        "setBandwidth",
        "setQueue",
        "setEcn",
        "setLoss",
        "setForeground",
    ]
    .contains(&name)
}

fn read_setting(name: &str, words: &[&str]) -> Result<Setting, ScriptProblem> {
    let backlog = || {
        let backlog: Backlog = words.join(" ").parse()?;
        if backlog.is_empty() {
            return Err(ScriptProblem::EmptyBacklog);
        }
        Ok(backlog)
    };
    Ok(match name {
        "setDelay" => Setting::Delay(duration(words)?),
        "setForeground" => Setting::Foreground(words.join(" ").parse()?),
        "setBandwidth" => Setting::Rate(words.join(" ").parse()?),
        "setQueue" => Setting::Queue(backlog()?),
        "setEcn" => Setting::Ecn(backlog()?),
        _ => loss(words)?,
    })
}

/// `0.01`, `1 %` or `1%`, and perhaps how many are lost in a row.
fn loss(words: &[&str]) -> Result<Setting, ScriptProblem> {
    let (number, percent, rest) = match words {
        [number, "%", rest @ ..] => (*number, true, rest),
        [share, rest @ ..] => match share.strip_suffix('%') {
            Some(number) => (number, true, rest),
            None => (*share, false, rest),
        },
        [] => return usage("setLoss"),
    };
    let scale = if percent { 0.01 } else { 1.0 };
    let share = (number.parse::<f64>().ok())
        .map(|share| share * scale)
        .filter(|share| (0.0..1.0).contains(share))
        .ok_or_else(|| ScriptProblem::BadLoss(words.join(" ")))?;
    let burst = match rest {
        [] => 1.0,
        [burst] => (burst.parse::<f64>().ok())
            .filter(|burst| burst.is_finite() && *burst >= 1.0 && burst_fits(share, *burst))
            .ok_or_else(|| ScriptProblem::BadBurst((*burst).to_owned()))?,
        _ => return usage("setLoss"),
    };
    // Adding zero turns the negative zero, which is within the range, into the plain one.
    let share = share + 0.0;
    Ok(Setting::Loss { share, burst })
}

/// As everywhere, and the `sec` that scripts are written with.
fn duration(words: &[&str]) -> Result<std::time::Duration, ScriptProblem> {
    let as_everywhere = |word: &&str| match word.strip_suffix("sec") {
        Some(number) if number.chars().all(|c| c.is_ascii_digit() || c == '.') => {
            format!("{number}s")
        }
        _ => (*word).to_owned(),
    };
    let words: Vec<String> = words.iter().map(as_everywhere).collect();
    Ok(parse_duration(&words.join(" "))?)
}

fn pattern(word: &str) -> Result<String, ScriptProblem> {
    let word = short(word, word.len() <= WORD_BYTES_MAX)?;
    check_pattern(&word)?;
    Ok(word)
}

fn visible(word: &str) -> Result<String, ScriptProblem> {
    short(word, word.len() <= WORD_BYTES_MAX && escape(word) == word)
}

fn short(word: &str, fits: bool) -> Result<String, ScriptProblem> {
    let word = word.to_owned();
    if fits {
        Ok(word)
    } else {
        Err(ScriptProblem::BadWord(word))
    }
}

/// How the command is written, or that there is none of that name.
fn usage<T>(name: &str) -> Result<T, ScriptProblem> {
    match USAGES.iter().find(|(known, _)| *known == name) {
        Some((_, usage)) => Err(ScriptProblem::Usage { usage }),
        None => {
            let known: Vec<_> = USAGES
                .iter()
                .map(|(known, _)| format!("`{known}`"))
                .collect();
            Err(ScriptProblem::UnknownCommand {
                found: name.to_owned(),
                known: known.join(", "),
            })
        }
    }
}
