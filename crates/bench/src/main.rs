//! Measures the figures of Outpour on real processes.
//!
//! Every figure is a ratio of two measurements made in the same run on the same machine, so that
//! it says something about Outpour rather than about the machine. `make bench` runs all rows;
//! docs/benchmarks.md holds the results and says what each row measures.

mod cleanup;
mod context;
mod data;
mod fleet;
mod machine;
mod page;
mod plain;
mod process;
mod result;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser;

use crate::context::Context;
use crate::machine::Machine;
use crate::result::{Results, Row};
use crate::rows::{ROWS, Spec};

/// Measure the figures of docs/benchmarks.md on this machine
#[derive(Debug, Parser)]
#[command(name = "outpour-bench", version, max_term_width = 100)]
struct Args {
    /// Run these rows only, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,

    /// List the rows and what they need
    #[arg(long)]
    list: bool,

    /// Also write the results to this file as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Replace the rows measured in the tables of this page
    #[arg(long, value_name = "PAGE")]
    write: Option<PathBuf>,

    /// Where to put the data [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// The program to measure [default: the `outpour` beside this one]
    #[arg(long, value_name = "FILE")]
    outpour: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        for spec in ROWS {
            println!("{:<12} {}", spec.name, spec.about);
        }
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("outpour-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the rows asked for; whether all were measured and none misses what is required.
fn run(args: &Args) -> anyhow::Result<bool> {
    let specs = chosen(&args.only)?;
    cleanup::install()?;
    let outpour = match &args.outpour {
        Some(path) => path.clone(),
        None => beside()?,
    };
    ensure!(
        outpour.is_file(),
        "{}: not there; run `cargo build --release --bin outpour`",
        outpour.display()
    );
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let context = Context::new(outpour, &base)?;
    let mut results = Results {
        machine: Machine::here(&base)?,
        rows: Vec::new(),
    };
    eprintln!("{}", results.machine);
    if let Some(doubt) = results.machine.doubt() {
        eprintln!("outpour-bench: {doubt}");
    }
    for spec in specs {
        results.rows.push(measure(spec, &context));
    }
    drop(context);

    let missed = results.rows.iter().filter(|row| !row.pass).count();
    if args.json.as_deref() != Some("-".as_ref()) {
        println!("\n{}", page::render(&results));
    }
    if let Some(path) = &args.json {
        let mut text = serde_json::to_string_pretty(&results)?;
        text.push('\n');
        if path.as_os_str() == "-" {
            print!("{text}");
        } else {
            std::fs::write(path, text).with_context(|| path.display().to_string())?;
        }
    }
    if let Some(path) = &args.write {
        page::update(path, &results)?;
        eprintln!("{} is up to date", path.display());
    }
    if missed > 0 {
        let all = results.rows.len();
        eprintln!("{missed} of {all} rows miss what is required or could not be measured");
    }
    Ok(missed == 0)
}

/// Runs one row; what goes wrong becomes a row that says so, and the others still run.
fn measure(spec: &Spec, context: &Context) -> Row {
    eprintln!("\n{}: {}", spec.name, spec.about);
    let measured = context
        .room_for(spec.disk)
        .and_then(|()| (spec.run)(context));
    let row = match measured {
        Ok(measured) => Row::measured(spec, measured),
        Err(error) => Row::failed(spec, &error),
    };
    eprintln!("{row}");
    row
}

/// The rows of those names in their order, or all.
fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Spec>> {
    for name in only {
        let names: Vec<&str> = ROWS.iter().map(|spec| spec.name).collect();
        ensure!(
            names.contains(&name.as_str()),
            "there is no row `{name}`, only {}",
            names.join(", ")
        );
    }
    let wanted = |spec: &&Spec| only.is_empty() || only.iter().any(|name| name == spec.name);
    Ok(ROWS.iter().filter(wanted).collect())
}

/// The program as cargo builds it into the directory of this one.
fn beside() -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe().context("this program does not know where it is")?;
    Ok(me.with_file_name("outpour"))
}
