//! An agent that is to get some blocks of an object keeps those and places no file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outpour_core::BlockSet;
use outpour_core::blocks::Want;
use outpour_core::manifest::BlockSize;
use outpour_protocols::coordinator::Report;
use outpour_store::BuildOptions;

use crate::forged::Command;
use crate::player::{Kept, OBJECT};
use crate::support::noise;

const BLOCK: u32 = 16 << 10;
const BLOCKS: u32 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn some_blocks_are_kept_and_no_file_is_placed() {
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (dir.path().join("source"), dir.path().join("copy"));
    let bytes = noise(1, (BLOCK * BLOCKS) as usize);
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("object"), &bytes).unwrap();
    let options = BuildOptions {
        block: BlockSize::Given(BLOCK),
        ..BuildOptions::default()
    };
    let (manifest, _) = outpour_store::build(&source, &options, &|_| {}).unwrap();
    let mut wanted = BlockSet::full(BLOCKS);
    wanted.remove_range(0..20);
    wanted.remove_range(50..BLOCKS);
    let get = async |object: Arc<Kept>| {
        let want = Want::Blocks(wanted.to_wire());
        let mut command = Command::start_wanting(&manifest.encode(), &copy, want).await;
        command.player.session.open(OBJECT, object);
        let have = BlockSet::full(BLOCKS);
        command.player.begin(OBJECT, BLOCK, have, None);
        match command.hear().await {
            Report::Complete { received_bytes } => received_bytes,
            report => panic!("{report:?}"),
        }
    };
    let received = get(Kept::whole(&bytes, BLOCK as usize)).await;
    assert_eq!(received, u64::from(30 * BLOCK));
    assert!(!copy.join("object").exists());
    // It has them on disk: nothing is asked of a source that would lie.
    let lied = Arc::new(AtomicU64::new(0));
    let lens = std::iter::repeat_n(BLOCK, BLOCKS as usize);
    assert_eq!(get(Kept::new(lens, Some(lied.clone()))).await, 0);
    assert_eq!(lied.load(Ordering::Relaxed), 0);
}
