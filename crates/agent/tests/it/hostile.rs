//! A command that gives an agent a manifest which must not be followed: the agent refuses it
//! before anything is written.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Greeting, ManifestOffer, read_frame, write_frame,
};
use outpour_agent::session::{SessionOptions, serve};
use outpour_core::blocks::Want;
use outpour_core::manifest::Manifest;
use outpour_core::{NodeId, Priority};
use outpour_net::SessionId;
use outpour_protocols::coordinator::{Contact, Order, Report};
use outpour_protocols::{direct, gossip};
use outpour_store::Roots;
use outpour_terms::{Coding, Terms};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::player::{Kept, MANIFEST, Player, endpoint};
use crate::support::{DEADLINE, LOOPBACK, TRANSFER, members, order};

const BLOCK: usize = 16 << 10;

/// A manifest as it is encoded, but with nothing checked.
#[derive(Serialize)]
enum Kind {
    #[allow(dead_code)]
    File,
    Tree {
        mode: u16,
    },
}

#[derive(Clone, Serialize)]
struct Entry {
    leave: u16,
    name: Vec<u8>,
    mtime_ns: i64,
    content: Content,
}

#[derive(Clone, Serialize)]
enum Content {
    File { mode: u16, size: u64 },
    Directory { mode: u16 },
    Symlink { target: Vec<u8> },
}

fn entry(name: &[u8], content: Content) -> Entry {
    Entry {
        leave: 0,
        name: name.to_vec(),
        mtime_ns: 0,
        content,
    }
}

fn file(name: &[u8], size: u64) -> Entry {
    entry(name, Content::File { mode: 0o644, size })
}

fn directory(name: &[u8]) -> Entry {
    entry(name, Content::Directory { mode: 0o755 })
}

fn link(name: &[u8], target: &[u8]) -> Entry {
    let target = target.to_vec();
    entry(name, Content::Symlink { target })
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    // One hash for each small file; where sizes are absurd, the sizes are refused first.
    let sizes = entries.iter().map(|entry| match entry.content {
        Content::File { size, .. } => size,
        _ => 0,
    });
    encode_with(entries, 16, sizes.filter(|size| *size > 0).count())
}

/// With blocks of two to so many bytes, and so many hashes.
fn encode_with(entries: &[Entry], block_log2: u8, hashes: usize) -> Vec<u8> {
    let mut bytes = b"outpour\0\x02".to_vec();
    let header = (
        Kind::Tree { mode: 0o755 },
        block_log2,
        entries.len() as u32,
        false,
    );
    bytes = postcard::to_extend(&header, bytes).unwrap();
    for entry in entries {
        bytes = postcard::to_extend(entry, bytes).unwrap();
    }
    bytes.resize(bytes.len() + 32 * hashes, 7);
    bytes
}

/// The command's end of one cast to one agent.
struct Command<R, W> {
    reader: R,
    writer: W,
}

impl<R: AsyncRead + Send + Unpin + 'static, W: AsyncWrite + Unpin> Command<R, W> {
    /// Casts a manifest and returns the agent's last word.
    async fn cast(
        mut self,
        encoded: &[u8],
        path: &std::path::Path,
        coding: Option<Coding>,
    ) -> Report {
        let protocol = match coding {
            Some(_) => &gossip::CODED,
            None => &direct::ENTRY,
        };
        let greeting: Greeting = read_frame(&mut self.reader).await.unwrap();
        let cast = SessionId::random().unwrap();
        let chunks = encoded.chunks(BLOCK);
        let admission = Admission {
            cast: cast.0,
            transfer: TRANSFER,
            epoch: 1,
            node: NodeId(1),
            priority: Priority::default(),
            path: path.as_os_str().as_bytes().to_vec(),
            file_name: None,
            label: "it".to_owned(),
            verify_after: false,
            want: Want::All,
            terms: Terms {
                coding,
                ..Terms::new(protocol.by_default(), members(2), 1)
            },
            manifest: ManifestOffer {
                len: encoded.len() as u32,
                block_bytes: BLOCK as u32,
                hashes: chunks
                    .map(|chunk| *blake3::hash(chunk).as_bytes())
                    .collect(),
                id: *blake3::hash(encoded).as_bytes(),
                inline: None,
            },
            signature: None,
        };
        self.say(CommandSays::Admit(Box::new(admission))).await;
        let AgentSays::Joined { addrs } = read_frame(&mut self.reader).await.unwrap() else {
            panic!("joins first");
        };
        let (mut player, mut events) = Player::start(NodeId(0), cast, endpoint(), protocol.name, 2);
        let kept = Kept::whole(encoded, BLOCK);
        player.session.open(MANIFEST, kept.clone());
        let agent = Contact {
            addrs,
            key: greeting.key,
        };
        let contacts = [(NodeId(0), player.contact()), (NodeId(1), agent)];
        for (node, contact) in contacts.clone() {
            player.meet(node, contact);
        }
        self.say(order(
            1,
            Order::Begin {
                contacts: contacts.into_iter().collect(),
            },
        ))
        .await;
        player.begin(MANIFEST, BLOCK as u32, kept.have(), None);
        let mut reader = self.reader;
        let mut last = tokio::spawn(async move {
            loop {
                let said = read_frame(&mut reader).await.unwrap();
                if let AgentSays::Report(
                    report @ (Report::Prepared { .. } | Report::Failed { .. }),
                ) = said
                {
                    return report;
                }
            }
        });
        loop {
            tokio::select! {
                Some(event) = events.recv() => player.on_event(event),
                () = tokio::time::sleep(player.rest()) => {}
                last = &mut last => {
                    let finish = order(2, Order::Finish);
                    write_frame(&mut self.writer, &finish).await.unwrap();
                    player.session.shutdown().await;
                    return last.unwrap();
                }
            }
            player.fire();
        }
    }

    async fn say(&mut self, says: CommandSays) {
        write_frame(&mut self.writer, &says).await.unwrap();
    }
}

/// What an agent says to a manifest; whatever it says, nothing may have changed.
async fn say_to(encoded: &[u8]) -> Report {
    say_to_coded(encoded, None).await
}

/// The same where the object is to be coded.
async fn say_to_coded(encoded: &[u8], coding: Option<Coding>) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let (near, far) = tokio::io::duplex(1 << 16);
    let (far_reader, far_writer) = tokio::io::split(far);
    let options = SessionOptions {
        roots: Some(Arc::new(Roots::open(std::slice::from_ref(&root)).unwrap())),
        endpoint: None,
        listen: LOOPBACK,
        wrap: None,
        epochs: Arc::default(),
        signers: Arc::default(),
        caller: None,
    };
    let agent = tokio::spawn(serve(far_reader, far_writer, options));
    let (reader, writer) = tokio::io::split(near);
    let cast = Command { reader, writer };
    let copy = root.join("copy");
    let last = tokio::time::timeout(DEADLINE, cast.cast(encoded, &copy, coding))
        .await
        .expect("an answer in time");
    agent.await.unwrap().unwrap();
    if matches!(last, Report::Failed { .. }) {
        let names = |dir| fs::read_dir(dir).unwrap().count();
        assert_eq!((names(dir.path()), names(&root)), (1, 0));
    }
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_without_fault_is_accepted() {
    // Else the others below are refused for another reason than theirs.
    let entries = [
        directory(b"d"),
        file(b"f", 3),
        Entry {
            leave: 1,
            ..file(b"g", 5)
        },
        link(b"l", b"d/f"),
    ];
    let encoded = encode(&entries);
    Manifest::decode(&encoded).unwrap();
    assert_eq!(say_to(&encoded).await, Report::Prepared { have_bytes: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_could_do_harm_is_refused() {
    let long = vec![b'a'; 256];
    let deep: Vec<Entry> = (0..30).map(|_| directory(&[b'a'; 200])).collect();
    let setuid = entry(
        b"su",
        Content::File {
            mode: 0o4755,
            size: 1,
        },
    );
    let evil = [
        (vec![directory(b".."), file(b"f", 1)], "not allowed"),
        (vec![file(b"..", 1)], "not allowed"),
        (vec![file(b"../f", 1)], "slash"),
        (vec![file(b"/etc/passwd", 1)], "slash"),
        (vec![file(b"a\0b", 1)], "control bytes"),
        (vec![file(b"", 1)], "empty name"),
        (vec![file(b"\x1b[2J", 1)], "control bytes"),
        (vec![directory(b".outpour")], "reserved"),
        (vec![file(&long, 1)], "255"),
        (deep, "long"),
        (vec![file(b"f", 1), file(b"f", 1)], "twice"),
        (vec![file(b"f", 1), directory(b"f")], "twice"),
        (vec![link(b"f", b"d"), directory(b"f")], "twice"),
        (vec![file(b"f", u64::MAX)], "too many"),
        (
            vec![file(b"f", u64::MAX / 2), file(b"g", u64::MAX / 2)],
            "too many",
        ),
        (vec![link(b"l", b"/etc")], "target"),
        (vec![link(b"l", b"../x")], "target"),
        (vec![setuid], "0777"),
    ];
    for (entries, sign) in evil {
        let Report::Failed { error } = say_to(&encode(&entries)).await else {
            panic!("accepted, but for: {sign}");
        };
        assert!(error.starts_with("the manifest is rejected: "), "{error}");
        assert!(error.contains(sign), "{error} has no {sign:?}");
        assert!(
            !error.contains('\x1b') && error.lines().count() == 1,
            "{error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn coding_that_cannot_work_is_refused() {
    const MIB: u64 = 1 << 20;
    const LARGE: u64 = 600;
    let small = encode(&[file(b"f", 3)]);
    let large = encode_with(&[file(b"f", LARGE * MIB)], 20, LARGE as usize);
    Manifest::decode(&large).unwrap();
    let coding = |batch_blocks, encoders| Coding {
        batch_blocks,
        encoders,
    };
    let fine = say_to_coded(&small, Some(coding(64, 1))).await;
    assert_eq!(fine, Report::Prepared { have_bytes: 0 });
    for (manifest, coding, sign) in [
        (
            &small,
            coding(0, 1),
            "batches of 0 blocks: a batch has 1 to 256",
        ),
        (
            &small,
            coding(257, 1),
            "batches of 257 blocks: a batch has 1 to 256",
        ),
        (&small, coding(64, 0), "0 encoders: expected 1 to 16"),
        (&small, coding(64, 17), "17 encoders: expected 1 to 16"),
        (&large, coding(256, 1), "of memory at every node, more than"),
    ] {
        let Report::Failed { error } = say_to_coded(manifest, Some(coding)).await else {
            panic!("accepted, but for: {sign}");
        };
        assert!(error.contains(sign), "{error} has no {sign:?}");
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
}
