//! A case while it is played: its record, and how far it is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outpour_core::manifest::BlockSize;
use outpour_core::{NodeId, Time};
use outpour_protocols::promise::Promise;
use outpour_protocols::registry::{CodingTraits, Configured, EncodedOptions, Entry, PlanFrom};
use outpour_protocols::{Action, Member, Role, Setup};

use crate::record::{Line, Record, What};
use crate::script::Scripted;
use crate::{BATCH_BLOCKS, Case};

/// The protocol of every case, without coding and with.
const ENTRY: Entry = Entry {
    name: "scripted",
    about: "does what a test says",
    baseline: true,
    plan: PlanFrom::Nowhere,
    selective: false,
    coding: None,
    block_size: |_| BlockSize::Usual,
    takes: |options| options.read::<u64>().is_some(),
    promise: Promise::NEVER,
    build,
};
static PLAIN: Entry = ENTRY;
static CODED: Entry = Entry {
    name: "scripted-coded",
    coding: Some(CodingTraits {
        live_batches: 4,
        batch_blocks: |_| BATCH_BLOCKS,
    }),
    ..ENTRY
};

/// Plays under way. A protocol is built by its entry, which has no state: its options name the play.
static PLAYS: Mutex<BTreeMap<u64, Arc<Inner>>> = Mutex::new(BTreeMap::new());
static PLAYED: AtomicU64 = AtomicU64::new(0);

fn plays() -> MutexGuard<'static, BTreeMap<u64, Arc<Inner>>> {
    PLAYS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn build(setup: Setup, options: &EncodedOptions) -> Box<dyn outpour_protocols::Protocol> {
    let play = options
        .read::<u64>()
        .and_then(|id| plays().get(&id).cloned());
    Box::new(Scripted::new(setup.me, play))
}

/// Something that the script wants done to a node from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// All others are told that this node has left.
    Expel(NodeId),
}

/// A case that is being played.
pub struct Play {
    id: u64,
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) case: &'static Case,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    wishes: VecDeque<Wish>,
    over: bool,
}

impl Play {
    pub(crate) fn new(case: &'static Case) -> Self {
        let inner = Arc::new(Inner {
            case,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let id = PLAYED.fetch_add(1, Ordering::Relaxed);
        plays().insert(id, inner.clone());
        Self { id, inner }
    }

    /// What is played.
    pub fn case(&self) -> &'static Case {
        self.inner.case
    }

    /// The protocol that the nodes are to have.
    ///
    /// # Panics
    /// Never: the protocol takes the number of a play.
    pub fn protocol(&self) -> Configured {
        let entry = if self.case().coded { &CODED } else { &PLAIN };
        let protocol = entry.with(EncodedOptions::of(&self.id));
        protocol.expect("a number is what it takes")
    }

    /// The nodes as members, all in one cluster.
    pub fn members(&self) -> Vec<Member> {
        let member = |part: &crate::Part| Member {
            cluster: 0,
            role: Role::source_if(part.has_all()),
        };
        self.case().parts.iter().map(member).collect()
    }

    /// Whether the script has come to its end.
    pub fn is_over(&self) -> bool {
        self.inner.state().over
    }

    /// What the script wishes for next; `None` if that is nothing now.
    pub fn next_wish(&self) -> Option<Wish> {
        self.inner.state().wishes.pop_front()
    }

    /// Waits until the script wishes for something or comes to its end, for so long at most.
    pub fn wait(&self, patience: Duration) {
        let idle = |state: &mut State| !state.over && state.wishes.is_empty();
        let state = self.inner.state();
        let waited = self.inner.changed.wait_timeout_while(state, patience, idle);
        drop(waited);
    }

    /// Ends it, however far it is; what happened.
    pub(crate) fn end(&self) -> Record {
        plays().remove(&self.id);
        let mut state = self.inner.state();
        state.over = true;
        Record {
            case: self.inner.case,
            lines: state.lines.clone(),
            accusations: Vec::new(),
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something on record; false once the play is over.
    pub(crate) fn note(&self, node: NodeId, at: Time, what: What) -> bool {
        let mut state = self.state();
        if !state.over {
            state.lines.push(Line { node, at, what });
        }
        !state.over
    }

    pub(crate) fn note_action(&self, node: NodeId, at: Time, action: &Action) {
        self.note(node, at, What::Did(action.clone()));
    }

    pub(crate) fn wish(&self, wish: Wish) {
        self.state().wishes.push_back(wish);
        self.changed.notify_all();
    }

    pub(crate) fn finish(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }
}
