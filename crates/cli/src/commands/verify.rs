//! `outpour verify`: a file or tree against its manifest.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use outpour_core::manifest::{MANIFEST_BYTES_MAX, Manifest, escape};
use outpour_core::text;
use outpour_store::VerifyReport;
use serde::Serialize;

use crate::args::VerifyArgs;
use crate::out::{self, Failure};

/// What the command found, as JSON has it.
#[derive(Serialize)]
struct Document {
    object: String,
    size_bytes: u64,
    verified: bool,
    right: usize,
    faults: Vec<Fault>,
}

#[derive(Serialize)]
struct Fault {
    path: String,
    problem: String,
}

/// Runs the command.
///
/// # Errors
/// If the manifest or the tree cannot be read, or something differs.
pub(super) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let manifest = manifest(&args.manifest)?;
    let report = outpour_store::verify_tree(&args.path, &manifest, None, &|_| {})
        .map_err(|error| Failure::from_error(&error))?;
    if args.output.json {
        out::json(&document(&manifest, &report));
    } else if !args.output.quiet {
        out::result(for_people(&manifest, &report));
    }
    if report.is_clean() {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}

/// Reads a manifest, which is not trusted.
fn manifest(path: &Path) -> Result<Manifest, Failure> {
    let shown = path.display().to_string();
    let fail = |why: String| {
        let shown = text::escape(&shown);
        Failure::Failed(format!("{shown}: cannot read the manifest: {why}"))
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| {
            file.take(MANIFEST_BYTES_MAX as u64 + 1)
                .read_to_end(&mut bytes)
        })
        .map_err(|error| fail(error.to_string()))?;
    Manifest::decode(&bytes).map_err(|error| fail(text::chain(&error)))
}

fn document(manifest: &Manifest, report: &VerifyReport) -> Document {
    let fault = |fault: &outpour_store::Fault| Fault {
        path: String::from_utf8_lossy(&fault.path).into_owned(),
        problem: fault.problem.to_string(),
    };
    Document {
        object: manifest.id().to_string(),
        size_bytes: manifest.size().0,
        verified: report.is_clean(),
        right: report.right,
        faults: report.faults.iter().map(fault).collect(),
    }
}

fn for_people(manifest: &Manifest, report: &VerifyReport) -> String {
    let mut lines: String = report
        .faults
        .iter()
        .map(|fault| format!("{}: {}\n", escape(&fault.path), fault.problem))
        .collect();
    let wrong = report.faults.len();
    lines.push_str(&match wrong {
        0 => format!("verified: {} files, {}", manifest.files(), manifest.size()),
        1 => format!("not verified: 1 entry differs, {} are right", report.right),
        _ => format!(
            "not verified: {wrong} entries differ, {} are right",
            report.right
        ),
    });
    lines
}
