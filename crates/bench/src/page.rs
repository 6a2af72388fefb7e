//! The table of docs/benchmarks.md: written by the program that measured it, one row at a time.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

use crate::result::{Results, Row};
use crate::rows::ROWS;

const BEGIN: &str = "<!-- begin: written by outpour-bench -->";
const END: &str = "<!-- end -->";

const HEADING: &str = "\
| row | what | baseline | Outpour | ratio | required | met | date |
|---|---|---|---|---|---|---|---|";

/// The lines of one row: in the table, and below it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lines {
    table: String,
    below: String,
}

/// The section as it stands in the page, of these results alone.
pub(crate) fn render(results: &Results) -> String {
    section(results, BTreeMap::new())
}

/// Replaces the rows that were measured in the page at `path`; the others stay as they are.
///
/// # Errors
/// If the page cannot be read or written, or has no markers.
pub(crate) fn update(path: &Path, results: &Results) -> anyhow::Result<()> {
    let shown = path.display();
    let page = std::fs::read_to_string(path).with_context(|| shown.to_string())?;
    let page = replaced(&page, results)
        .with_context(|| format!("{shown}: expected the lines `{BEGIN}` and `{END}`"))?;
    std::fs::write(path, page).with_context(|| shown.to_string())
}

fn replaced(page: &str, results: &Results) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (old, after) = rest.split_once(END)?;
    let new = section(results, known(old));
    Some(format!("{before}{BEGIN}\n\n{new}\n\n{END}{after}"))
}

/// The lines of each row in a section written earlier.
fn known(section: &str) -> BTreeMap<String, Lines> {
    let named = |prefix: &str| -> BTreeMap<String, String> {
        let lines = section.lines().filter_map(|line| {
            let (name, _) = line.strip_prefix(prefix)?.split_once('`')?;
            Some((name.to_owned(), line.to_owned()))
        });
        lines.collect()
    };
    let mut below = named("- `");
    let pairs = named("| `").into_iter().map(|(name, table)| {
        let below = below.remove(&name).unwrap_or_default();
        (name, Lines { table, below })
    });
    pairs.collect()
}

fn section(results: &Results, mut lines: BTreeMap<String, Lines>) -> String {
    for row in &results.rows {
        lines.insert(row.name.to_owned(), written(row, &results.machine.date));
    }
    let ordered: Vec<Lines> = ROWS
        .iter()
        .filter_map(|spec| lines.remove(spec.name))
        .collect();
    let mut text = format!("Machine: {}.\n\n{HEADING}\n", results.machine);
    for row in &ordered {
        text.push_str(&row.table);
        text.push('\n');
    }
    for row in &ordered {
        text.push('\n');
        text.push_str(&row.below);
    }
    text
}

fn written(row: &Row, date: &str) -> Lines {
    let Row {
        name,
        what,
        baseline,
        ours,
        required,
        command,
        ..
    } = row;
    let ratio = row
        .ratio
        .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
    let verdict = row.verdict();
    let cells = [what, baseline.as_str(), ours.as_str()].map(|cell| cell.replace('|', "\\|"));
    let [what, baseline, ours] = cells;
    let remark = row.error.as_deref().unwrap_or(&row.detail);
    let remark = remark.split_whitespace().collect::<Vec<_>>().join(" ");
    Lines {
        table: format!(
            "| `{name}` | {what} | {baseline} | {ours} | {ratio} | {required} | {verdict} | {date} |"
        ),
        below: format!("- `{name}`: {remark}. Measured: `{command}`"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::machine::Machine;
    use crate::result::Measured;

    fn results(index: usize, ratio: f64) -> Results {
        let measured = Measured {
            baseline: "10 s".to_owned(),
            ours: "a|b".to_owned(),
            ratio,
            detail: "two\nlines".to_owned(),
            command: "outpour x".to_owned(),
        };
        Results {
            machine: Machine::here(Path::new("/")).unwrap(),
            rows: vec![Row::measured(&ROWS[index], measured)],
        }
    }

    #[test]
    fn measured_rows_are_replaced_and_the_others_stay() {
        let page = format!("# Title\n\n{BEGIN}\n{END}\nnotes\n");
        let second = replaced(&page, &results(1, 2.0)).unwrap();
        let both = replaced(&second, &results(0, 1.0)).unwrap();
        let again = replaced(&both, &results(1, 3.0)).unwrap();
        let line = |page: &str, index: usize| {
            let prefix = format!("| `{}` |", ROWS[index].name);
            page.lines()
                .find(|line| line.starts_with(&prefix))
                .unwrap()
                .to_owned()
        };
        assert_eq!(line(&both, 1), line(&second, 1));
        assert!(line(&again, 1).contains("| 3.000 |") && line(&again, 1).contains("a\\|b"));
        assert_eq!(line(&again, 0), line(&both, 0));
        assert!(again.find(ROWS[0].name) < again.find(ROWS[1].name));
        assert!(again.contains(&format!(
            "- `{}`: two lines. Measured: `outpour x`",
            ROWS[0].name
        )));
        assert!(again.starts_with("# Title\n") && again.ends_with("\nnotes\n"));
        assert!(replaced("no markers", &results(0, 1.0)).is_none());
    }
}
