//! `outpour hash`: the hashes of a file or tree, and its manifest.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use outpour_core::manifest::{BlockSize, Content, Entry, Kind, Manifest};
use outpour_core::text::escape;
use outpour_store::BuildOptions;
use serde::Serialize;

use crate::args::HashArgs;
use crate::out::{self, Failure};

/// What the command found, as JSON has it.
#[derive(Serialize)]
struct Document {
    object: String,
    size_bytes: u64,
    block_bytes: u32,
    blocks: u32,
    files: Vec<Hashed>,
}

#[derive(Serialize)]
struct Hashed {
    path: String,
    size_bytes: u64,
    hash: String,
}

/// Runs the command.
///
/// # Errors
/// If something cannot be read, or the manifest cannot be written.
pub(super) fn run(args: &HashArgs) -> Result<(), Failure> {
    let options = BuildOptions {
        block: args.block.map_or(BlockSize::Usual, BlockSize::Given),
        ..BuildOptions::default()
    };
    let built = outpour_store::build(&args.path, &options, &|_| {});
    let (manifest, _) = built.map_err(|error| Failure::from_error(&error))?;
    if let Some(file) = &args.output {
        write(file, &manifest.encode())?;
    }
    if args.show.json {
        out::json(&document(&manifest));
    } else if !args.show.quiet {
        print(&args.path, &manifest);
    }
    Ok(())
}

/// Writes the manifest, all of it or nothing.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut part = path.to_owned().into_os_string();
    part.push(format!(".{}.part", std::process::id()));
    let part = Path::new(&part);
    let written = File::create_new(part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(part, path)
    });
    written.map_err(|error| {
        // It may not even be there.
        let _ = fs::remove_file(part);
        let path = path.display().to_string();
        Failure::Failed(format!(
            "{}: cannot write the manifest: {error}",
            escape(&path)
        ))
    })
}

/// The files of an object: where each is beneath the path given, its size and its hash.
fn files(manifest: &Manifest) -> impl Iterator<Item = (Vec<u8>, u64, String)> + '_ {
    let file = |entry: Entry<'_>| {
        let Content::File { size, .. } = entry.content else {
            return None;
        };
        let hash = manifest.file_hash(entry.id)?;
        Some((manifest.path(entry.id), size.0, hash.to_string()))
    };
    manifest.entries().filter_map(file)
}

fn document(manifest: &Manifest) -> Document {
    let file = |(path, size_bytes, hash): (Vec<u8>, u64, String)| Hashed {
        path: String::from_utf8_lossy(&path).into_owned(),
        size_bytes,
        hash,
    };
    Document {
        object: manifest.id().to_string(),
        size_bytes: manifest.size().0,
        block_bytes: manifest.block_bytes(),
        blocks: manifest.blocks(),
        files: files(manifest).map(file).collect(),
    }
}

/// Prints a line per file as `b3sum` does, so that `b3sum --check` reads them, and the object.
fn print(path: &Path, manifest: &Manifest) {
    let mut lines = String::new();
    for (inside, _, hash) in files(manifest) {
        let mut path = path.display().to_string();
        if let Kind::Tree { .. } = manifest.kind() {
            path = format!(
                "{}/{}",
                path.trim_end_matches('/'),
                String::from_utf8_lossy(&inside)
            );
        }
        // A line with an escaped name begins with a backslash, as there.
        let shown = escape(&path);
        let mark = if shown == path { "" } else { "\\" };
        lines.push_str(&format!("{mark}{hash}  {shown}\n"));
    }
    let object = manifest.id();
    out::result(format!(
        "{lines}object {object}: {} files, {}",
        manifest.files(),
        manifest.size()
    ));
}
