//! Commands that offer what no object can be: agents believe neither them nor what follows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Greeting, ManifestOffer, read_frame, write_frame,
};
use outpour_agent::session::{SessionOptions, serve};
use outpour_core::blocks::Want;
use outpour_core::manifest::{BlockSize, Builder, Content, Kind, Manifest};
use outpour_core::{BlockSet, Bytes, NodeId, Priority};
use outpour_net::{Events, SessionId};
use outpour_protocols::coordinator::{Contact, Order, Report};
use outpour_protocols::direct;
use outpour_terms::Terms;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use crate::player::{Kept, OBJECT, Player, endpoint};
use crate::support::{DEADLINE, LOOPBACK, TRANSFER, members, order};

const AGENT: NodeId = NodeId(1);
const BLOCK: u32 = 64 << 10;

/// A command with a source of its own and one agent, the one that ships.
pub(crate) struct Command {
    reader: ReadHalf<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    pub(crate) player: Player,
    events: Events,
    agent: JoinHandle<()>,
}

impl Command {
    /// Admits an agent, and gives it the order to begin.
    async fn start(encoded: &[u8], path: &Path) -> Self {
        Self::start_wanting(encoded, path, Want::All).await
    }

    /// The same with an agent that is to get this.
    pub(crate) async fn start_wanting(encoded: &[u8], path: &Path, want: Want) -> Self {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let options = SessionOptions {
            roots: None,
            endpoint: None,
            listen: LOOPBACK,
            wrap: None,
            epochs: Arc::default(),
            signers: Arc::default(),
            caller: None,
        };
        let agent = tokio::spawn(async move { serve(reader, writer, options).await.unwrap() });
        let (mut reader, mut writer) = tokio::io::split(near);
        let greeting: Greeting = read_frame(&mut reader).await.unwrap();
        let cast = SessionId::random().unwrap();
        let (player, events) = Player::start(NodeId(0), cast, endpoint(), "direct", 2);
        let admission = Admission {
            want,
            ..admission(cast, encoded, path)
        };
        let said = CommandSays::Admit(Box::new(admission));
        write_frame(&mut writer, &said).await.unwrap();
        let joined = read_frame(&mut reader).await.unwrap();
        let AgentSays::Joined { addrs } = joined else {
            panic!("{joined:?}");
        };
        let contact = Contact {
            addrs,
            key: greeting.key,
        };
        let contacts = [(NodeId(0), player.contact()), (AGENT, contact)];
        for (node, contact) in contacts.clone() {
            player.meet(node, contact);
        }
        let contacts = contacts.into_iter().collect();
        let begin = order(1, Order::Begin { contacts });
        write_frame(&mut writer, &begin).await.unwrap();
        Self {
            reader,
            writer,
            player,
            events,
            agent,
        }
    }

    /// Serves the agent until it has said something that decides; returns that.
    pub(crate) async fn hear(self) -> Report {
        let Self {
            mut reader,
            mut writer,
            mut player,
            mut events,
            agent,
        } = self;
        let mut hearing = tokio::spawn(async move {
            loop {
                match read_frame(&mut reader).await.unwrap() {
                    AgentSays::Report(
                        Report::Preparing
                        | Report::Prepared { .. }
                        | Report::Progress { .. }
                        | Report::Finishing
                        | Report::Acted(_),
                    ) => {}
                    AgentSays::Report(report) => return (report, reader),
                    other => panic!("{other:?}"),
                }
            }
        });
        let (report, _reader) = tokio::time::timeout(DEADLINE, async {
            loop {
                tokio::select! {
                    heard = &mut hearing => return heard.unwrap(),
                    Some(event) = events.recv() => player.on_event(event),
                    () = tokio::time::sleep(player.rest()) => {}
                }
                player.fire();
            }
        })
        .await
        .expect("the agent says something");
        let finish = order(2, Order::Finish);
        write_frame(&mut writer, &finish).await.unwrap();
        agent.await.unwrap();
        player.session.shutdown().await;
        report
    }
}

fn admission(cast: SessionId, encoded: &[u8], path: &Path) -> Admission {
    let id = *blake3::hash(encoded).as_bytes();
    Admission {
        cast: cast.0,
        transfer: TRANSFER,
        epoch: 1,
        node: AGENT,
        priority: Priority::default(),
        path: path.to_str().unwrap().as_bytes().to_vec(),
        file_name: None,
        label: "it".to_owned(),
        verify_after: false,
        want: Want::All,
        terms: Terms::new(direct::ENTRY.by_default(), members(2), 1),
        manifest: ManifestOffer {
            len: encoded.len() as u32,
            block_bytes: encoded.len() as u32,
            hashes: vec![id],
            id,
            inline: Some(encoded.to_vec()),
        },
        signature: None,
    }
}

fn file(size: u64) -> Content<'static> {
    Content::File {
        mode: 0o644,
        size: Bytes(size),
    }
}

/// A tree with files on both sides of the size of a block; every hash is zero.
fn zeros() -> Manifest {
    let mut builder = Builder::new(Kind::Tree { mode: 0o755 }).unwrap();
    builder.add(b"large", 0, file(300_000)).unwrap();
    builder.add(b"small", 0, file(1000)).unwrap();
    let layout = builder.finish(BlockSize::Given(BLOCK)).unwrap();
    let hashes = vec![[0; 32]; layout.hashes()];
    Manifest::new(layout, hashes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_verified_against_hashes_of_zeros() {
    let manifest = zeros();
    // A source that has all of it, one that has the block of small files alone, and one that has a
    // block of the large file alone.
    let blocks = manifest.blocks();
    for missing in [0..0, 1..blocks, 0..blocks - 1] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copy");
        let mut command = Command::start(&manifest.encode(), &path).await;
        let lied = Arc::new(AtomicU64::new(0));
        let lens = (0..manifest.blocks()).map(|block| manifest.block_len(block));
        let object = Kept::new(lens, Some(lied.clone()));
        let mut have = BlockSet::full(manifest.blocks());
        have.remove_range(missing);
        command.player.session.open(OBJECT, object);
        command.player.begin(OBJECT, BLOCK, have, None);
        let report = command.hear().await;
        let Report::Accuse { peer, offence } = report else {
            panic!("{report:?}");
        };
        assert_eq!(peer, NodeId(0));
        assert!(
            offence.starts_with("sent wrong bytes for block "),
            "{offence}"
        );
        assert!(lied.load(Ordering::Relaxed) > 0);
        assert!(!path.join("large").exists() && !path.join("small").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_way_out_of_the_tree_is_refused_below_directories_too() {
    let mut builder = Builder::new(Kind::Tree { mode: 0o755 }).unwrap();
    let directory = Content::Directory { mode: 0o755 };
    for name in [b"d", b"e"] {
        builder.add(name, 0, directory).unwrap();
    }
    for name in [b"<1", b"<2", b"<3"] {
        builder.add(name, 0, directory).unwrap();
    }
    builder.add(b"file", 0, file(0)).unwrap();
    let layout = builder.finish(BlockSize::Given(BLOCK)).unwrap();
    let mut encoded = Manifest::new(layout, Vec::new()).unwrap().encode();
    for at in 0..encoded.len() - 1 {
        if encoded[at] == b'<' {
            encoded[at..at + 2].copy_from_slice(b"..");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy");
    let report = Command::start(&encoded, &path).await.hear().await;
    let error = "the manifest is rejected: \"d/e/..\": names \".\" and \"..\" are not allowed";
    let error = error.to_owned();
    assert_eq!(report, Report::Failed { error });
    // Not even the place was made.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
