//! Measures the store alone: `hash PATH` builds a manifest, `copy FROM TO` moves an object through
//! memory to another place, `open PATH_OF_SOURCE TO` looks at what is there already.
//!
//! Prints seconds, rates, and the most memory the process had.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use outpour_core::manifest::Manifest;
use outpour_store::{BuildOptions, Destination, DestinationOptions, Source, build};

const THREADS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    match &args[1..] {
        [what, path] if what == "hash" => drop(hash(Path::new(path))?),
        [what, from, to] if what == "copy" => {
            let (manifest, source) = hash(Path::new(from))?;
            copy(&manifest, &source, Path::new(to))?;
        }
        [what, from, to] if what == "open" => {
            let (manifest, _) = hash(Path::new(from))?;
            let start = Instant::now();
            let destination =
                Destination::open(to, Arc::new(manifest), DestinationOptions::default())?;
            let have = destination.have();
            println!(
                "open: {:.3} s, {} blocks",
                start.elapsed().as_secs_f64(),
                have.count()
            );
        }
        _ => return Err("usage: measure hash PATH | copy FROM TO | open FROM TO".into()),
    }
    println!("most memory: {} MiB", most_memory()? >> 10);
    Ok(())
}

fn hash(path: &Path) -> Result<(Manifest, Source), Box<dyn Error>> {
    let start = Instant::now();
    let (manifest, source) = build(path, &BuildOptions::default(), &|_| {})?;
    let took = start.elapsed().as_secs_f64();
    let (size, files) = (manifest.size().0, manifest.files());
    let (blocks, block_bytes) = (manifest.blocks(), manifest.block_bytes());
    println!(
        "hash: {took:.3} s, {:.2} GB/s, {files} files",
        size as f64 / took / 1e9
    );
    println!(
        "{blocks} blocks of {block_bytes}; memory so far: {} MiB",
        most_memory()? >> 10
    );
    Ok((manifest, source))
}

fn copy(manifest: &Manifest, source: &Source, to: &Path) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let destination = Destination::open(
        to,
        Arc::new(manifest.clone()),
        DestinationOptions::default(),
    )?;
    let had = destination.have();
    let opened = start.elapsed().as_secs_f64();
    let next = AtomicU32::new(0);
    let work = || -> Result<(), String> {
        let mut buf = Vec::new();
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= manifest.blocks() {
                return Ok(());
            }
            if !had.contains(block) {
                source
                    .read(block, &mut buf)
                    .map_err(|error| error.to_string())?;
                destination
                    .write(block, &buf)
                    .map_err(|error| error.to_string())?;
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let mut results = threads.into_iter().map(|thread| thread.join());
        results.try_for_each(|result| result.map_err(|_| "a thread panicked".to_owned())?)
    })?;
    let written = start.elapsed().as_secs_f64();
    destination.finish()?;
    let took = start.elapsed().as_secs_f64();
    let rate = manifest.size().0 as f64 / took / 1e9;
    println!("copy: open {opened:.3} s, written {written:.3} s, all {took:.3} s, {rate:.2} GB/s");
    Ok(())
}

/// In KiB, as the kernel counts it.
fn most_memory() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no VmHWM")?.parse()?)
}
