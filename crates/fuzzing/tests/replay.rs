//! Replays what fuzzers found worth keeping, as it is and turned, in bounded memory and time.
//!
//! Each file is turned three times, or as often as `OUTPOUR_TURNS` says.

use std::alloc::System;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cap::Cap;
use outpour_fuzzing::{TARGETS, Target};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// No input makes a target hold so much.
const MEMORY_MAX: usize = 256 << 20;
/// None takes so long, even without optimisation beside other tests.
const TIME_MAX: Duration = Duration::from_secs(20);
/// How large corpora may be, bytes.
const CORPUS_MAX: u64 = 200 << 10;
const CORPORA_MAX: u64 = 2 << 20;
/// How often each file is turned, unless the environment says something else.
const TURNS: usize = 3;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn corpus(target: &Target) -> Vec<PathBuf> {
    let dir = fuzz().join("corpus").join(target.name);
    let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<_> = files.map(|it| it.expect("a directory").path()).collect();
    files.sort();
    files
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Hands a target the input; an error says what it did with it.
fn run(target: &Target, bytes: &[u8]) -> Result<(), String> {
    let before = ALLOCATOR.allocated();
    ALLOCATOR
        .set_limit(before + MEMORY_MAX)
        .expect("more than is used");
    let start = Instant::now();
    let borne = std::panic::catch_unwind(|| (target.run)(bytes));
    let took = start.elapsed();
    ALLOCATOR.set_limit(usize::MAX).expect("no limit");
    match borne {
        Err(_) => Err(format!("{} does not bear {bytes:?}", target.name)),
        Ok(()) if took > TIME_MAX => Err(format!("{} took {took:?}: {bytes:?}", target.name)),
        Ok(()) => Ok(()),
    }
}

/// All of its files, and each of them turned so often.
fn replay(target: &Target, turns: usize, random: &mut Pcg64Mcg) -> Result<usize, String> {
    let files: Vec<_> = corpus(target).iter().map(|path| read(path)).collect();
    for bytes in &files {
        run(target, bytes)?;
        for _ in 0..turns {
            run(target, &turned(bytes, &files, random))?;
        }
    }
    Ok(files.len() * (1 + turns))
}

/// One test for all targets, as memory is counted for the whole process.
#[test]
fn what_fuzzers_found_worth_keeping_is_borne_as_it_is_and_turned() {
    let turns = std::env::var("OUTPOUR_TURNS").ok();
    let turns: usize = turns.map_or(TURNS, |turns| turns.parse().expect("a number"));
    let mut random = Pcg64Mcg::seed_from_u64(turns as u64);
    let mut failed = Vec::new();
    for target in TARGETS {
        let start = Instant::now();
        match replay(target, turns, &mut random) {
            Ok(runs) => println!("{}: {runs} in {:.1?}", target.name, start.elapsed()),
            Err(error) => failed.push(error),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Some bytes of it changed, its end cut off, or that of another file behind it.
fn turned(bytes: &[u8], files: &[Vec<u8>], random: &mut Pcg64Mcg) -> Vec<u8> {
    let mut draw = |n: usize| random.next_u32() as usize % n.max(1);
    let mut bytes = bytes.to_vec();
    match draw(4) {
        0 => bytes.truncate(draw(bytes.len())),
        1 => bytes.extend(&files[draw(files.len())]),
        _ => {}
    }
    for _ in 0..draw(4) {
        if !bytes.is_empty() {
            let at = draw(bytes.len());
            bytes[at] = draw(256) as u8;
        }
    }
    bytes
}

#[test]
fn every_target_has_a_fuzzer_and_a_corpus_of_its_own_that_is_small() {
    let names: BTreeSet<String> = TARGETS.iter().map(|it| it.name.to_owned()).collect();
    assert_eq!(names.len(), TARGETS.len(), "two targets of one name");
    let listed = |dir: &str| -> BTreeSet<String> {
        let files = fs::read_dir(fuzz().join(dir)).expect("a directory");
        let names = files.map(|it| it.expect("a directory").path());
        let names = names.filter_map(|it| Some(it.file_stem()?.to_str()?.to_owned()));
        names.collect()
    };
    assert_eq!(listed("fuzz_targets"), names);
    assert_eq!(listed("corpus"), names);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("the fuzzers' manifest");
    let mut all = 0;
    for target in TARGETS {
        let name = target.name;
        let bin = format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&bin), "{name} is not built");
        let source = fuzz().join(format!("fuzz_targets/{name}.rs"));
        let source = fs::read_to_string(source).expect("the source of a fuzzer");
        assert!(
            source.contains(&format!("run(\"{name}\", ")),
            "{name} runs another"
        );
        let files = corpus(target);
        assert!(files.len() >= 5, "{name}: {} files", files.len());
        let sizes = files
            .iter()
            .map(|it| fs::metadata(it).expect("a file").len());
        let sum: u64 = sizes.sum();
        assert!(sum <= CORPUS_MAX, "{name}: {sum} bytes");
        all += sum;
    }
    assert!(all <= CORPORA_MAX, "{all} bytes");
}
