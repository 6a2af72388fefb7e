//! Bytes that change on disk after they were verified: they are never called right, it is said
//! whose doing it was, and the destination recovers.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outpour_store::{Damage, Destination, DestinationOptions, Error, Source, WriteError};

use crate::support::*;

/// A tree, its parts in path order: `large`, then small files.
fn tree(scratch: &Scratch) -> PathBuf {
    let from = scratch.path("from");
    put(&from, "large", &bytes(1, 400_000));
    put(&from, "small/1", &bytes(2, 3000));
    put(&from, "small/2", &bytes(3, 4000));
    from
}

/// The staged file of this size.
fn staged(to: &Path, len: u64) -> PathBuf {
    let states = fs::read_dir(to.join(".outpour")).unwrap();
    let data = states.filter_map(|state| fs::read_dir(state.unwrap().path().join("data")).ok());
    let mut files = data.flatten().map(|file| file.unwrap().path());
    files
        .find(|file| fs::metadata(file).unwrap().len() == len)
        .unwrap()
}

/// Flips a byte and leaves no trace in size or mtime.
fn flip(path: &Path, at: u64) {
    flip_in(
        &File::options().read(true).write(true).open(path).unwrap(),
        at,
    );
}

fn flip_in(file: &File, at: u64) {
    let time = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.set_modified(time).unwrap();
}

#[track_caller]
fn assert_damaged(error: &Error, file: &str, expected: Damage) {
    let Error::Damaged { path, damage } = error else {
        panic!("{error}");
    };
    assert!(path.ends_with(file), "{error}");
    assert_eq!(*damage, expected, "{error}");
    assert!(error.may_pass());
}

/// Recovers, gets what is missing and finishes.
#[track_caller]
fn recover(destination: &Destination, source: &Source, error: &Error, from: &Path, to: &Path) {
    destination.recover(error).unwrap();
    assert!(fill(source, destination) > 0, "what was damaged is missing");
    destination.finish().unwrap();
    assert_eq!(describe(to), describe(from));
}

/// Between two writes, which themselves change the times of the file.
#[test]
fn a_large_file_that_grows() {
    for opened_only in [true, false] {
        let scratch = Scratch::new();
        let (from, to) = (tree(&scratch), scratch.path("to"));
        let (manifest, source) = build_small(&from);
        let destination =
            Destination::open(&to, manifest.clone(), DestinationOptions::default()).unwrap();
        let mut buf = Vec::new();
        for block in 0..manifest.blocks() {
            source.read(block, &mut buf).unwrap();
            destination.write(block, &buf).unwrap();
            if block == 10 {
                let path = staged(&to, 400_000);
                match opened_only {
                    true => drop(File::open(path).unwrap()),
                    false => flip(&path, 5000),
                }
            }
        }
        if opened_only {
            destination.finish().unwrap();
            assert_eq!(describe(&to), describe(&from));
            continue;
        }
        let error = destination.finish().unwrap_err();
        assert_damaged(&error, "large", Damage::Changed);
        assert!(!to.join("large").exists());
        recover(&destination, &source, &error, &from, &to);
    }
}

/// Another process has the staged file open, so there can be no lease, and writes to it while it is
/// read before its rename.
#[test]
fn a_large_file_that_is_read_before_it_gets_its_name() {
    const LEN: usize = 32 << 20;
    let scratch = Scratch::new();
    let from = scratch.path("from");
    put(&from, "large", &bytes(1, LEN));
    let (manifest, source) = outpour_store::build(&from, &Default::default(), &|_| {}).unwrap();
    let manifest = Arc::new(manifest);
    // The write may come too late, after the last look: then try again.
    let in_time = (0..20).any(|attempt| {
        let to = scratch.path(&format!("to{attempt}"));
        let options = manual();
        let work = options.work.clone();
        let destination = Destination::open(&to, manifest.clone(), options).unwrap();
        fill(&source, &destination);
        let path = staged(&to, LEN as u64);
        let file = File::options().read(true).write(true).open(path).unwrap();
        let before = work.done();
        let (finished, in_time) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // By then the first byte has been read, and most has not.
                while work.done() < before + (12 << 20) {
                    std::hint::spin_loop();
                }
                flip_in(&file, 0);
                to.join(".outpour").exists()
            });
            (destination.finish(), writer.join().unwrap())
        });
        if in_time {
            assert_damaged(&finished.unwrap_err(), "large", Damage::Changed);
        }
        in_time
    });
    assert!(in_time);
}

#[test]
fn a_small_file_that_waits_for_its_name() {
    let scratch = Scratch::new();
    let (from, to) = (tree(&scratch), scratch.path("to"));
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    fill(&source, &destination);
    flip(&staged(&to, 4000), 17);
    let error = destination.sync().unwrap_err();
    let WriteError::Failed(error) = error else {
        panic!("{error}");
    };
    assert_damaged(&error, "small/2", Damage::Changed);
    assert!(!to.join("small/2").exists());
    recover(&destination, &source, &error, &from, &to);
}

#[test]
fn files_in_place() {
    for (file, at) in [("large", 300_000), ("small/1", 0)] {
        let scratch = Scratch::new();
        let (from, to) = (tree(&scratch), scratch.path("to"));
        let (manifest, source) = build_small(&from);
        let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
        fill(&source, &destination);
        destination.sync().unwrap();
        flip(&to.join(file), at);
        // A reader that asks for it is not given it.
        let mut buf = Vec::new();
        let damaged: Vec<Error> = (0..manifest.blocks())
            .filter_map(|block| destination.read(block, &mut buf).err())
            .collect();
        assert_eq!(damaged.len(), 1);
        assert_damaged(&damaged[0], file, Damage::Changed);
        let error = destination.finish().unwrap_err();
        assert_damaged(&error, file, Damage::Changed);
        recover(&destination, &source, &error, &from, &to);
    }
}

/// What was there before is believed because it was read, and only as long as it stays.
#[test]
fn files_that_were_there_before() {
    let scratch = Scratch::new();
    let (from, to) = (tree(&scratch), scratch.path("to"));
    cast(&from, &to).unwrap();
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    assert_eq!(destination.have().missing(), 0);
    flip(&to.join("large"), 1);
    let error = destination.finish().unwrap_err();
    assert_damaged(&error, "large", Damage::Changed);
    recover(&destination, &source, &error, &from, &to);
}

#[test]
fn files_that_somebody_removes_or_cuts_off() {
    for remove in [true, false] {
        let scratch = Scratch::new();
        let (from, to) = (tree(&scratch), scratch.path("to"));
        let (manifest, source) = build_small(&from);
        let destination = Destination::open(&to, manifest.clone(), manual()).unwrap();
        fill(&source, &destination);
        destination.sync().unwrap();
        let large = to.join("large");
        if remove {
            fs::remove_file(large).unwrap();
        } else {
            let file = File::options().write(true).open(large).unwrap();
            file.set_len(100_000).unwrap();
        }
        let mut buf = Vec::new();
        let cut_off = first_block(&manifest, "large") + 10;
        let error = destination.read(cut_off, &mut buf).unwrap_err();
        assert_damaged(&error, "large", Damage::Changed);
        recover(&destination, &source, &error, &from, &to);
    }
}

/// Flips a bit in the one place where these bytes are.
fn rot(disk: &Disk, bytes: &[u8]) {
    let image = fs::read(disk.image()).unwrap();
    let mut places = image.windows(bytes.len()).enumerate();
    let (at, _) = places.find(|(_, window)| *window == bytes).unwrap();
    let file = File::options().write(true).open(disk.image()).unwrap();
    file.write_all_at(&[bytes[0] ^ 4], at as u64).unwrap();
}

#[test]
fn a_disk_that_rots_is_told_from_somebody_who_writes() {
    let scratch = Scratch::new();
    let from = tree(&scratch);
    let Some(disk) = Disk::ext4(&scratch, &[]) else {
        return;
    };
    let to = disk.at().join("to");
    let (manifest, source) = build_small(&from);
    let options = DestinationOptions {
        verify_after: true,
        ..manual()
    };
    let rotten = first_block(&manifest, "large") + 100_000 / (16 << 10);
    let destination = Destination::open(&to, manifest, options).unwrap();
    fill(&source, &destination);
    destination.sync().unwrap();
    rot(&disk, &bytes(1, 400_000)[100_000..100_064]);
    // The page cache still has what was written.
    let mut buf = Vec::new();
    destination.read(rotten, &mut buf).unwrap();
    let error = destination.finish().unwrap_err();
    assert_damaged(&error, "large", Damage::Disk);
    assert!(
        error
            .to_string()
            .ends_with("the disk returned other bytes than before")
    );
    // Without it, what the disk has shows when it is read from there.
    let open = File::open(to.join("large")).unwrap();
    rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let error = destination.read(rotten, &mut buf).unwrap_err();
    assert_damaged(&error, "large", Damage::Disk);
    recover(&destination, &source, &error, &from, &to);
}

/// A file that was written just now may be changed without a trace in its times.
fn wait_for_a_mark(path: &Path) {
    let written = fs::metadata(path).unwrap().modified().unwrap();
    while written.elapsed().unwrap() < Duration::from_millis(200) {
        std::thread::yield_now();
    }
}

#[test]
fn a_source_on_a_disk_that_rots_sends_nothing_wrong() {
    let scratch = Scratch::new();
    let Some(disk) = Disk::ext4(&scratch, &[]) else {
        return;
    };
    let from = put(disk.at(), "large", &bytes(1, 400_000));
    let file = File::open(&from).unwrap();
    file.sync_all().unwrap();
    wait_for_a_mark(&from);
    let (manifest, source) = build_small(&from);
    rot(&disk, &bytes(1, 400_000)[100_000..100_064]);
    let mut buf = Vec::new();
    let rotten = 100_000 / (16 << 10);
    // What was hashed is in memory still.
    source.read(rotten, &mut buf).unwrap();
    assert!(manifest.verify(rotten, &buf));
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    for block in 0..manifest.blocks() {
        match source.read(block, &mut buf) {
            Ok(()) => assert!(manifest.verify(block, &buf)),
            Err(error) => {
                assert_eq!(block, rotten);
                assert_damaged(&error, "large", Damage::Disk);
            }
        }
    }
    source.read(rotten, &mut buf).unwrap_err();
}

#[test]
fn what_one_thread_has_from_a_disk_that_rots_another_does_not_take_for_hashed() {
    let scratch = Scratch::new();
    let Some(disk) = Disk::ext4(&scratch, &[]) else {
        return;
    };
    let from = put(disk.at(), "large", &bytes(1, 400_000));
    let file = File::open(&from).unwrap();
    file.sync_all().unwrap();
    wait_for_a_mark(&from);
    let sources: Vec<_> = (0..50).map(|_| build_small(&from)).collect();
    rot(&disk, &bytes(1, 400_000)[100_000..100_064]);
    let rotten = 100_000 / (16 << 10);
    for (manifest, source) in &sources {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut buf = Vec::new();
                    let read = source.read(rotten, &mut buf);
                    assert!(read.is_err(), "right: {}", manifest.verify(rotten, &buf));
                });
            }
        });
    }
}

/// A block that was read for another reader, and was not right, is not forgotten.
#[test]
fn what_was_found_to_be_rotten_is_not_complete() {
    let scratch = Scratch::new();
    let from = tree(&scratch);
    let Some(disk) = Disk::ext4(&scratch, &[]) else {
        return;
    };
    let to = disk.at().join("to");
    let (manifest, source) = build_small(&from);
    let rotten = first_block(&manifest, "large") + 100_000 / (16 << 10);
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    fill(&source, &destination);
    destination.sync().unwrap();
    rot(&disk, &bytes(1, 400_000)[100_000..100_064]);
    let open = File::open(to.join("large")).unwrap();
    rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut buf = Vec::new();
    let error = destination.read(rotten, &mut buf).unwrap_err();
    assert_damaged(&error, "large", Damage::Disk);
    let error = destination.finish().unwrap_err();
    assert_damaged(&error, "large", Damage::Disk);
    recover(&destination, &source, &error, &from, &to);
}

/// What is changed when all is done and the state is gone can only be said.
#[test]
fn what_changes_after_the_end_does_not_pass() {
    let scratch = Scratch::new();
    let (from, to) = (tree(&scratch), scratch.path("to"));
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    fill(&source, &destination);
    destination.finish().unwrap();
    flip(&to.join("large"), 17);
    let error = destination.finish().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("another process changed the file"),
        "{error}"
    );
    assert!(!error.may_pass(), "{error}");
}

/// Descriptors go along with a directory that is moved: what is whole there is not where the path
/// leads.
#[test]
fn a_root_that_was_moved_or_replaced_is_never_called_right() {
    for (file, replaced, verify_after) in [
        (false, true, false),
        (false, true, true),
        (false, false, false),
        (true, true, false),
    ] {
        let scratch = Scratch::new();
        let (from, dir) = (tree(&scratch), scratch.path("dir"));
        let (from, to) = match file {
            true => (from.join("large"), dir.join("copy")),
            false => (from, dir.clone()),
        };
        let (manifest, source) = build_small(&from);
        let options = DestinationOptions {
            verify_after,
            ..manual()
        };
        let destination = Destination::open(&to, manifest, options).unwrap();
        fill(&source, &destination);
        fs::rename(&dir, scratch.path("aside")).unwrap();
        if replaced {
            put(&dir, if file { "copy" } else { "large" }, b"evil");
        }
        let error = destination.finish().unwrap_err();
        assert!(
            matches!(&error, Error::Moved { path } if *path == dir),
            "{error}"
        );
        assert!(!error.may_pass(), "no retry makes it right");
    }
}

/// A directory that moves after the last block was put in place, when nothing can be mended.
#[test]
fn a_root_that_is_replaced_after_the_end_shows_at_another_look() {
    let scratch = Scratch::new();
    let (from, to) = (tree(&scratch), scratch.path("to"));
    let (manifest, source) = build_small(&from);
    let destination = Destination::open(&to, manifest, manual()).unwrap();
    fill(&source, &destination);
    destination.finish().unwrap();
    fs::rename(&to, scratch.path("aside")).unwrap();
    fs::create_dir(&to).unwrap();
    let error = destination.finish().unwrap_err();
    assert!(
        matches!(&error, Error::TooLate(error) if matches!(**error, Error::Moved { .. })),
        "{error}"
    );
}
