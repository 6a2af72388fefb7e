//! `outpour protocols`: what there is to move an object by.

use outpour_protocols::registry::{ENTRIES, Entry, PlanFrom};
use serde::Serialize;

use crate::args::ProtocolsArgs;
use crate::out;
use crate::report::table;

/// A protocol, as JSON has it.
#[derive(Serialize)]
struct Document {
    name: &'static str,
    about: &'static str,
    /// Whether it is there for others to be compared with.
    baseline: bool,
    /// Whether it sends combinations of blocks.
    coded: bool,
    /// Where the plan that it executes comes from.
    plan: Option<&'static str>,
}

impl From<&Entry> for Document {
    fn from(entry: &Entry) -> Self {
        Self {
            name: entry.name,
            about: entry.about,
            baseline: entry.baseline,
            coded: entry.coding.is_some(),
            plan: match entry.plan {
                PlanFrom::Nowhere => None,
                PlanFrom::Method(_) | PlanFrom::Network { .. } => Some("network"),
                PlanFrom::User => Some("file"),
            },
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &ProtocolsArgs) {
    let all: Vec<Document> = ENTRIES.iter().map(Document::from).collect();
    if args.output.json {
        out::json(&all);
    } else if !args.output.quiet {
        out::result(for_people(&all));
    }
}

fn for_people(all: &[Document]) -> String {
    let rows = |baseline: bool| {
        let chosen = all.iter().filter(move |it| it.baseline == baseline);
        chosen.map(|it| {
            let needs = match it.plan {
                Some("file") => "a plan (--plan)",
                Some(_) => "a network (--network)",
                None => "",
            };
            [it.name, it.about, needs].map(str::to_owned)
        })
    };
    let mut lines = vec![["PROTOCOL", "HOW BLOCKS TRAVEL", "NEEDS"].map(str::to_owned)];
    lines.extend(rows(false));
    lines.push([const { String::new() }; 3]);
    lines.push(["BASELINE", "", ""].map(str::to_owned));
    lines.extend(rows(true));
    format!(
        "{}\n\n`auto` chooses among the first by what is known, and says why. The baselines are there \
         to be compared with.",
        table(&lines)
    )
}
