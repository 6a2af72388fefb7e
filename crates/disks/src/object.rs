//! Objects to be cast, and trees to find at a destination.

use std::sync::Arc;

use outpour_core::manifest::{BlockSize, Builder, Content, EntryId, Kind, Manifest};
use outpour_core::{BlockId, Bytes};

use crate::simulated::dice::Dice;

/// Bytes of a block.
pub(crate) const BLOCK: u32 = 1 << 10;
/// So many small files are synced together where that can be done.
const MANY: u64 = 40;

/// A file, directory or link.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: Vec<u8>,
    pub(crate) mtime: i64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    File { mode: u16, data: Vec<u8> },
    Dir { mode: u16, items: Vec<Item> },
    Link { target: Vec<u8> },
}

/// An object, and its blocks.
pub struct Object {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) blocks: Vec<Vec<u8>>,
    /// By entry, without what is in directories.
    pub(crate) entries: Vec<Item>,
    pub(crate) items: Vec<Item>,
}

impl Object {
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        if dice.once_in(8) {
            let item = file(b"file".to_vec(), dice);
            return Self::of(Kind::File, vec![item]);
        }
        let items = match dice.once_in(24) {
            true => many(dice),
            false => items(dice, 2),
        };
        Self::tree(items)
    }

    /// One that has blocks.
    pub fn with_blocks(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        loop {
            let object = Self::draw(&mut dice);
            if object.blocks() > 0 {
                return object;
            }
        }
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u32 {
        self.manifest.blocks()
    }

    /// Bytes of a block, but for those that are shorter.
    pub const fn block_bytes(&self) -> u32 {
        BLOCK
    }

    pub(crate) fn tree(items: Vec<Item>) -> Self {
        Self::of(Kind::Tree { mode: 0o755 }, items)
    }

    /// Another version of it.
    pub(crate) fn other(&self, dice: &mut Dice) -> Self {
        let mut items = vary(&self.items, dice);
        if self.is_tree() {
            return Self::tree(items);
        }
        // Of a file that there was always something.
        items.truncate(1);
        if !matches!(
            items.first().map(|item| &item.what),
            Some(What::File { .. })
        ) {
            items = vec![file(b"file".to_vec(), dice)];
        }
        Self::of(Kind::File, items)
    }

    fn of(kind: Kind, items: Vec<Item>) -> Self {
        let mut builder = Builder::new(kind).expect("a sound mode");
        let mut entries = Vec::new();
        add(&mut builder, &items, &mut entries);
        let layout = builder
            .finish(BlockSize::Given(BLOCK))
            .expect("a sound object");
        let mut hashes = vec![[0; 32]; layout.hashes()];
        let mut blocks = Vec::new();
        for block in 0..layout.blocks() {
            let mut bytes = Vec::new();
            for extent in layout.extents(block) {
                let What::File { data, .. } = &entries[extent.file.index()].what else {
                    unreachable!("only files have bytes");
                };
                let start = extent.offset as usize;
                bytes.extend(&data[start..start + extent.len as usize]);
            }
            layout.hash_block(block, &bytes, |number, hash| hashes[number] = hash);
            blocks.push(bytes);
        }
        let manifest = Manifest::new(layout, hashes).expect("a short manifest");
        Self {
            manifest: Arc::new(manifest),
            blocks,
            entries,
            items,
        }
    }

    pub(crate) fn is_tree(&self) -> bool {
        self.manifest.kind() != Kind::File
    }

    pub(crate) fn block(&self, block: BlockId) -> &[u8] {
        &self.blocks[block as usize]
    }

    /// The path of an entry beneath the destination's, with a slash before it; nothing for a file.
    pub(crate) fn path(&self, entry: usize) -> Vec<u8> {
        match self.is_tree() {
            true => [b"/", &self.manifest.path(EntryId(entry as u32))[..]].concat(),
            false => Vec::new(),
        }
    }
}

fn add(builder: &mut Builder, items: &[Item], entries: &mut Vec<Item>) {
    for item in items {
        let content = match &item.what {
            What::File { mode, data } => Content::File {
                mode: *mode,
                size: Bytes(data.len() as u64),
            },
            What::Dir { mode, .. } => Content::Directory { mode: *mode },
            What::Link { target } => Content::Symlink { target },
        };
        builder
            .add(&item.name, item.mtime, content)
            .expect("a sound entry");
        let what = match &item.what {
            What::Dir { mode, .. } => What::Dir {
                mode: *mode,
                items: Vec::new(),
            },
            other => other.clone(),
        };
        entries.push(Item {
            what,
            ..item.clone()
        });
        if let What::Dir { items, .. } = &item.what {
            add(builder, items, entries);
            builder.leave().expect("it was entered");
        }
    }
}

fn items(dice: &mut Dice, depth: u32) -> Vec<Item> {
    let count = dice.between(u64::from(depth > 1), 5);
    (0..count).map(|nth| item(nth as u8, dice, depth)).collect()
}

fn item(nth: u8, dice: &mut Dice, depth: u32) -> Item {
    let name = vec![b'a' + nth];
    let mtime = mtime(dice);
    let what = match dice.below(8) {
        0 | 1 if depth > 0 => What::Dir {
            mode: *dice.one(&[0o755, 0o755, 0o700, 0o555, 0o300]),
            items: items(dice, depth - 1),
        },
        2 => What::Link {
            target: dice.one(&[&b"a"[..], b"nowhere", b"b"]).to_vec(),
        },
        _ => return file(name, dice),
    };
    Item { name, mtime, what }
}

fn file(name: Vec<u8>, dice: &mut Dice) -> Item {
    let size = match dice.below(10) {
        0 => 0,
        1..4 => dice.between(1, 200),
        4 | 5 => dice.between(201, 1024),
        6 => 1024,
        7 | 8 => dice.between(1025, 5000),
        _ => dice.between(4000, 14_000),
    };
    file_of(name, size, dice)
}

fn file_of(name: Vec<u8>, size: u64, dice: &mut Dice) -> Item {
    let mut data = vec![0; size as usize];
    dice.fill(&mut data);
    let mode = *dice.one(&[0o644, 0o644, 0o644, 0o600, 0o755, 0o400, 0o444, 0o200, 0]);
    let mtime = mtime(dice);
    Item {
        name,
        mtime,
        what: What::File { mode, data },
    }
}

/// Nanoseconds since 1970, of a time long ago.
fn mtime(dice: &mut Dice) -> i64 {
    dice.below(1_600_000_000_000_000_000) as i64
}

/// Many small files, and rarely more than lie in one directory while they are staged.
fn many(dice: &mut Dice) -> Vec<Item> {
    let count = match dice.once_in(8) {
        true => 280,
        false => dice.between(MANY, 2 * MANY),
    };
    let name = |nth| format!("{nth:03}").into_bytes();
    (0..count)
        .map(|nth| {
            let size = dice.between(1, 60);
            file_of(name(nth), size, dice)
        })
        .collect()
}

fn vary(items: &[Item], dice: &mut Dice) -> Vec<Item> {
    let mut other = Vec::new();
    for item in items {
        if dice.once_in(6) {
            continue;
        }
        let mut item = item.clone();
        match &mut item.what {
            What::File { data, .. } if !data.is_empty() && dice.once_in(2) => {
                let at = dice.below(data.len() as u64) as usize;
                data[at] ^= 1;
                if dice.once_in(3) {
                    data.truncate(at);
                }
                if dice.once_in(2) {
                    item.mtime += 1;
                }
            }
            What::File { .. } if dice.once_in(8) => {
                item.what = What::Link {
                    target: b"a".to_vec(),
                };
            }
            What::Link { .. } if dice.once_in(2) => {
                item.what = What::Link {
                    target: b"elsewhere".to_vec(),
                };
            }
            What::Dir { mode, items } => {
                *mode = *dice.one(&[0o755, 0o700, 0o500]);
                *items = vary(items, dice);
            }
            _ => {}
        }
        other.push(item);
    }
    other
}
