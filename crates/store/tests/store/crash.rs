//! Interruptions: nothing that was said to be here is lost, nothing wrong is believed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use outpour_store::{Destination, DestinationOptions, Error};

use crate::support::*;

/// The environment variable that makes this binary the process to be killed.
pub(crate) const CHILD: &str = "OUTPOUR_STORE_TEST_CHILD";

/// The environment variable that says to where, if not beside the source.
pub(crate) const TO: &str = "OUTPOUR_STORE_TEST_TO";

/// The environment variable that says after how many bytes that process syncs.
pub(crate) const SYNC_BYTES: &str = "OUTPOUR_STORE_TEST_SYNC_BYTES";

/// What a process may lose when it is killed: what is not in the journal yet.
const LOST_BYTES_MAX: u64 = 16 << 20;

/// Not a test of its own: what the process does that is killed.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else {
        return;
    };
    let dir = Path::new(&dir);
    let (manifest, source) = build_small(&dir.join("from"));
    let mut options = DestinationOptions::default();
    if let Ok(bytes) = std::env::var(SYNC_BYTES) {
        options.sync_bytes = bytes.parse().unwrap();
    }
    let to = std::env::var_os(TO).map_or_else(|| dir.join("to"), PathBuf::from);
    let destination = Destination::open(to, manifest.clone(), options).unwrap();
    let have = destination.have();
    println!("had {}", have.count());
    let mut buf = Vec::new();
    for block in (0..manifest.blocks()).filter(|block| !have.contains(*block)) {
        source.read(block, &mut buf).unwrap();
        destination.write(block, &buf).unwrap();
        println!("wrote {block}");
    }
    println!("finish");
    destination.finish().unwrap();
    println!("finished");
}

/// Runs [`child`] and kills it at the first line for which `when` holds. Returns how many blocks
/// it had at first and how many it wrote.
fn kill(dir: &Path, mut when: impl FnMut(&str, u32) -> bool) -> (u32, u32) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut had, mut wrote) = (0, 0);
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(count) = line.strip_prefix("had ") {
            had = count.parse().unwrap();
        }
        wrote += u32::from(line.starts_with("wrote "));
        if when(&line, wrote) {
            break;
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
    (had, wrote)
}

#[test]
fn a_killed_process_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let from = scratch.path("from");
    let dir = from.parent().unwrap().to_path_buf();
    put(&from, "large", &bytes(1, 60 << 20));
    for index in 0..300 {
        put(&from, format!("small/{index}"), &bytes(index, 3000));
    }
    let (manifest, _) = build_small(&from);
    let lost_max = (LOST_BYTES_MAX / u64::from(manifest.block_bytes())) as u32;
    let total = manifest.blocks();
    assert!(total > 3 * lost_max);
    let mut here = 0;
    for quarter in 1..4 {
        let (had, wrote) = kill(&dir, |_, wrote| wrote >= total / 4);
        assert!(
            had + lost_max >= here,
            "{had} left of {here} after kill {quarter}"
        );
        assert!(had > 0 || quarter == 1);
        here = had + wrote;
    }
    let (had, _) = kill(&dir, |line, _| line == "finish");
    assert!(had > total / 2);
    let (had, _) = kill(&dir, |line, _| line == "finished");
    assert!(had + lost_max >= total);
    assert_eq!(describe(&dir.join("to")), describe(&from));
}

/// Leaves a destination as a crash would, after all blocks but those of `skip` were written and,
/// if `synced`, synced.
fn interrupted(dir: &Path, synced: bool) -> (PathBuf, PathBuf) {
    let (from, to) = (dir.join("from"), dir.join("to"));
    put(&from, "large", &bytes(1, 200_000));
    put(&from, "partial", &bytes(2, 200_000));
    put(&from, "small/1", b"one");
    put(&from, "small/2", b"two");
    put(&from, "small/3", &bytes(3, 16 << 10));
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    let mut buf = Vec::new();
    let last_of_partial = first_block(&manifest, "partial") + 12;
    for block in (0..manifest.blocks()).filter(|block| *block != last_of_partial) {
        source.read(block, &mut buf).unwrap();
        destination.write(block, &buf).unwrap();
    }
    if synced {
        destination.sync().unwrap();
    }
    (from, to)
}

/// Without one journal for all names, a cut may lose that of one file of a block, and leave at that of another what
/// was there before, even of the same size and time.
#[test]
fn a_block_of_which_a_file_is_lost_is_not_trusted_in_the_others() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    put(&from, "a", &bytes(1, 3000));
    put(&from, "b", &bytes(2, 3000));
    put(&from, "zz", &bytes(3, 16 << 10));
    let (manifest, source) = build_small(&from);
    let block = first_block(&manifest, "a");
    assert_eq!(block, first_block(&manifest, "b"));
    let mut buf = Vec::new();
    source.read(block, &mut buf).unwrap();
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    destination.write(block, &buf).unwrap();
    destination.sync().unwrap();
    drop(destination);

    let when = fs::metadata(to.join("b")).unwrap().modified().unwrap();
    put(&to, "b", &bytes(4, 3000));
    let file = fs::File::options().append(true).open(to.join("b")).unwrap();
    file.set_modified(when).unwrap();
    fs::remove_file(to.join("a")).unwrap();
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    assert!(destination.have().is_empty());
    destination.write(block, &buf).unwrap();
    let mut here = Vec::new();
    destination.read(block, &mut here).unwrap();
    assert_eq!(here, buf, "what counts as here is here");
    fill(&source, &destination);
    destination.finish().unwrap();
    assert_eq!(describe(&to), describe(&from));
}

fn state(to: &Path) -> PathBuf {
    let mut states = fs::read_dir(to.join(".outpour")).unwrap();
    states.next().unwrap().unwrap().path()
}

#[test]
fn a_torn_journal_costs_blocks_and_never_truth() {
    for synced in [false, true] {
        let scratch = Scratch::new();
        let dir = scratch.path("");
        let (from, to) = interrupted(&dir, synced);
        let (manifest, source) = build_small(&from);
        let saved = scratch.path("saved");
        copy_dir(&to, &saved);
        let journal = state(&to).join("journal");
        let whole = fs::read(&journal).unwrap();
        let all_staged = manifest.blocks() - 1;
        assert_eq!(named(&whole).len(), all_staged as usize);
        for len in 0..=whole.len() {
            fs::remove_dir_all(&to).unwrap();
            copy_dir(&saved, &to);
            fs::write(&journal, &whole[..len]).unwrap();
            let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
            let have = destination.have();
            let mut buf = Vec::new();
            for block in have.iter() {
                destination.read(block, &mut buf).unwrap();
                assert!(manifest.verify(block, &buf), "{len} bytes of journal");
            }
            // Of a file that the journal names in part the rest is not looked for; how many records
            // there are is a matter of timing.
            let named = named(&whole[..len]);
            let lost: Vec<_> = named
                .iter()
                .filter(|block| !have.contains(**block))
                .collect();
            assert!(lost.is_empty(), "{len} bytes of journal: {lost:?}");
            if named.is_empty() || len == whole.len() {
                assert_eq!(have.count(), all_staged, "{len} bytes of journal");
            }
            if len % 16 == 0 {
                fill(&source, &destination);
                destination.finish().unwrap();
                assert_eq!(describe(&to), describe(&from));
            }
        }
    }
}

/// The blocks that the whole records of a journal name.
fn named(journal: &[u8]) -> BTreeSet<u32> {
    const SIGNATURE_BYTES: usize = 8;
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let mut named = BTreeSet::new();
    let mut rest = journal.get(SIGNATURE_BYTES..).unwrap_or_default();
    // Length, checksum, mark, and runs of first block and count.
    while let Some((len, after)) = rest.split_at_checked(4)
        && let Some((record, after)) = after.split_at_checked(4 + number(len) as usize)
    {
        for run in record[5..].chunks(8) {
            let first = number(&run[..4]);
            named.extend(first..first + number(&run[4..]));
        }
        rest = after;
    }
    named
}

fn copy_dir(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn damage_to_what_was_not_synced_is_found() {
    let scratch = Scratch::new();
    let (from, to) = interrupted(&scratch.path(""), false);
    let (manifest, source) = build_small(&from);
    let data = state(&to).join("data");
    let mut damaged = 0;
    for entry in fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        let mut content = fs::read(&path).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        fs::write(&path, content).unwrap();
        damaged += 1;
    }
    assert_eq!(damaged, 5);
    let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
    // One block of each large file, the one that was missing, and both packs.
    assert_eq!(destination.have().missing(), 2 + 1 + 2);
    fill(&source, &destination);
    destination.finish().unwrap();
    assert_eq!(describe(&to), describe(&from));
}

#[test]
fn staged_files_that_vanish_or_shrink_are_not_believed() {
    for synced in [false, true] {
        let scratch = Scratch::new();
        let (from, to) = interrupted(&scratch.path(""), synced);
        let (manifest, source) = build_small(&from);
        let data = state(&to).join("data");
        for (index, entry) in fs::read_dir(&data).unwrap().enumerate() {
            let path = entry.unwrap().path();
            if index % 2 == 0 {
                fs::remove_file(path).unwrap();
            } else {
                let len = fs::metadata(&path).unwrap().len();
                fs::File::options()
                    .write(true)
                    .open(path)
                    .unwrap()
                    .set_len(len / 2)
                    .unwrap();
            }
        }
        let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
        let mut buf = Vec::new();
        for block in destination.have().iter() {
            destination.read(block, &mut buf).unwrap();
            assert!(manifest.verify(block, &buf));
        }
        fill(&source, &destination);
        destination.finish().unwrap();
        assert_eq!(describe(&to), describe(&from));
    }
}

#[test]
fn a_file_that_was_put_in_place_and_then_changed_is_not_believed() {
    let scratch = Scratch::new();
    let (from, to) = interrupted(&scratch.path(""), true);
    let (manifest, _) = build_small(&from);
    assert!(to.join("large").exists() && to.join("small/3").exists());
    fs::write(to.join("large"), bytes(9, 200_000)).unwrap();
    fs::write(to.join("small/3"), bytes(9, 16 << 10)).unwrap();
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    assert_eq!(destination.have().missing(), 13 + 1 + 1);
}

#[test]
fn what_was_synced_is_not_read_again() {
    let scratch = Scratch::new();
    let (from, to) = interrupted(&scratch.path(""), true);
    let (manifest, _) = build_small(&from);
    // Damage that only reading could find shows that the journal was trusted.
    let data = fs::read_dir(state(&to).join("data"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut content = fs::read(&data).unwrap();
    content[0] ^= 1;
    fs::write(&data, content).unwrap();
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    assert_eq!(destination.have().missing(), 1);
}

#[test]
fn a_destination_has_one_owner_at_a_time() {
    let scratch = Scratch::new();
    let (from, to) = interrupted(&scratch.path(""), false);
    let (manifest, source) = build_small(&from);
    let first = Destination::open(&to, manifest.clone(), manual()).unwrap();
    let second = Destination::open(&to, manifest.clone(), manual()).unwrap_err();
    assert!(second.is_locked(), "{second}");
    assert!(matches!(second, Error::Locked { .. }));
    drop(first);
    let third = Destination::open(&to, manifest.clone(), manual()).unwrap();
    fill(&source, &third);
    third.finish().unwrap();
    // It is done with its state, although it still serves blocks.
    Destination::open(&to, manifest, manual()).unwrap();
}

#[test]
fn what_was_never_begun_leaves_nothing() {
    let scratch = Scratch::new();
    let from = put(&scratch.path("from"), "file", &bytes(1, 100_000));
    let (manifest, _) = build_small(&from);
    let to = scratch.path("to");
    drop(Destination::open(to.join("file"), manifest.clone(), manual()).unwrap());
    assert!(!to.exists());
    fs::create_dir(&to).unwrap();
    drop(Destination::open(to.join("file"), manifest, manual()).unwrap());
    assert!(describe(&to).is_empty());
}

#[test]
fn an_interrupted_start_leaves_nothing_trusted_that_was_not_looked_at() {
    let scratch = Scratch::new();
    let (from, to) = interrupted(&scratch.path(""), true);
    let (manifest, _) = build_small(&from);
    // The start fails after it has begun to arrange files.
    fs::create_dir(to.join("partial")).unwrap();
    Destination::open(&to, manifest.clone(), manual()).unwrap_err();
    fs::remove_dir(to.join("partial")).unwrap();
    let data = fs::read_dir(state(&to).join("data")).unwrap().next();
    let data = data.unwrap().unwrap().path();
    let mut content = fs::read(&data).unwrap();
    content[0] ^= 1;
    fs::write(&data, content).unwrap();
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    assert_eq!(
        destination.have().missing(),
        2,
        "the missing block and the damaged one"
    );
}
