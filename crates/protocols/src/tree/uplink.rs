//! A node's parents: one for each tree, and the node it turns to when that one fails.
//!
//! A tree is taken from the parent that the plan names, or else from the nearest ancestor that
//! answers, and again from the parent when that has come back. Only ancestors are asked, so nodes
//! never wait for each other in a ring; what no ancestor has any more is a matter for the mender.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outpour_core::{BlockId, BlockSet, NodeId, Plan, Time};

use super::Message;
use super::share::Share;
use crate::{Action, Actions};

/// A server that says nothing for this long is bypassed ...
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// ... and after this long if it never said anything: it answers an attachment at once.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How long a server has to come up before the next one is tried.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long a server that failed is not tried again while there are others ...
const SUSPECT: Duration = Duration::from_secs(10);
/// ... twice as long each time it failed again, this often at most. A server that has blocks for us and gives
/// none for the [first patience](crate::patience), or as much longer as it failed before, is bypassed; longer
/// if blocks are known to take longer.
const SUSPECT_DOUBLED_MAX: u32 = 5;
/// A tree without a server is mended after this long, unless blocks are known to take longer ...
const STALL_MIN: Duration = Duration::from_secs(3);
/// ... and this long if there is a server, which may wait itself, and mend what it waits for.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// How many times the usual gap between blocks is long.
const GAPS_LONG: f64 = 4.0;

/// A server that gave before has at least so long: it may just have been held up, or its link become slow.
const DRY_MIN: Duration = Duration::from_secs(10);
/// The first block may take so many times as long as those after it.
const FIRST_GAPS: f64 = 8.0;

/// None: of a root's parents.
const NOBODY: NodeId = NodeId(u32::MAX);

/// All trees as seen by a node that receives them.
#[derive(Debug)]
pub(super) struct Uplink {
    me: NodeId,
    branches: Vec<Branch>,
    feeds: BTreeMap<NodeId, Feed>,
    suspects: BTreeMap<NodeId, Suspect>,
    /// How long a server may give nothing before it is known what blocks take.
    patience: Duration,
}

/// One tree above this node.
#[derive(Debug)]
struct Branch {
    /// By the plan.
    parent: NodeId,
    /// The node that it comes from, or is to come from.
    server: NodeId,
    missing: u32,
    /// When the wait for blocks began, how many came, and when the last one.
    since: Time,
    came: u32,
    last: Time,
    /// Seconds from one block to the next, by the plan.
    gap_s: f64,
}

/// A node that serves trees.
#[derive(Debug)]
struct Feed {
    trees: BTreeSet<u32>,
    attached: bool,
    /// When it said something last; at first, when the wait for it began.
    heard: Time,
    /// Whether it has answered.
    answered: bool,
    /// Whether it ever gave something since it was attached to.
    has_given: bool,
    /// When it gave something last.
    gave: Time,
    /// How many blocks it said it has for us.
    owed: u32,
}

#[derive(Debug)]
struct Suspect {
    until: Time,
    times: u32,
}

impl Uplink {
    pub(super) fn new(me: NodeId, plan: &Plan, share: &Share, have: &BlockSet, block: u32) -> Self {
        let mut missing = share.counts(plan.trees.len());
        have.iter()
            .for_each(|block| missing[share.tree(block)] -= 1);
        let branch = |(tree, missing): (&outpour_core::plan::Tree, u32)| Branch {
            parent: parent(tree, me),
            server: NOBODY,
            missing,
            since: Time::ZERO,
            came: 0,
            last: Time::ZERO,
            gap_s: f64::from(block) / tree.rate.bytes_per_s(),
        };
        Self {
            me,
            branches: plan.trees.iter().zip(missing).map(branch).collect(),
            feeds: BTreeMap::new(),
            suspects: BTreeMap::new(),
            patience: crate::patience::at_first(block),
        }
    }

    /// What holds after every event.
    pub(super) fn check(&self, now: Time, state: State<'_>) {
        if !cfg!(debug_assertions) {
            return;
        }
        let missing: u32 = self.branches.iter().map(|branch| branch.missing).sum();
        debug_assert_eq!(missing, state.have.missing());
        debug_assert!(
            missing > 0 || self.feeds.is_empty(),
            "nothing is to be served"
        );
        for (tree, branch) in (0..).zip(&self.branches) {
            debug_assert!(branch.since <= branch.last);
            debug_assert!(branch.last <= now);
            let feed = self.feeds.get(&branch.server);
            let is_fed = feed.is_some_and(|feed| feed.trees.contains(&tree));
            debug_assert!(branch.missing == 0 || branch.server == NOBODY || is_fed);
        }
        for (server, feed) in &self.feeds {
            debug_assert!(*server != self.me);
            debug_assert!(*server != NOBODY);
            debug_assert!(!feed.trees.is_empty());
            debug_assert!(!feed.attached || state.up[server.index()]);
            debug_assert!(feed.gave <= feed.heard);
            debug_assert!(feed.heard <= now);
            let is_theirs = |tree: &u32| self.branches[*tree as usize].server == *server;
            debug_assert!(feed.trees.iter().all(is_theirs), "{server} serves strays");
        }
    }

    /// Looks for the servers of all trees.
    pub(super) fn start(&mut self, now: Time, plan: &Plan, state: State<'_>, out: &mut Actions) {
        self.branches
            .iter_mut()
            .for_each(|branch| (branch.since, branch.last) = (now, now));
        let all: Vec<u32> = (0..self.branches.len() as u32).collect();
        self.seek(now, &all, plan, state, out);
    }

    /// Goes for each tree to the nearest ancestor that is not under suspicion, or else to the one
    /// whose suspicion ends first.
    fn seek(&mut self, now: Time, trees: &[u32], plan: &Plan, state: State<'_>, out: &mut Actions) {
        let mut groups: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for tree in trees {
            let index = *tree as usize;
            self.branches[index].server = NOBODY;
            if self.branches[index].missing == 0 {
                continue;
            }
            if let Some(server) = self.best(now, index, plan, state) {
                groups.entry(server).or_default().push(*tree);
            }
        }
        for (server, trees) in groups {
            self.go_to(now, server, &trees, state, out);
        }
    }

    fn best(&self, now: Time, index: usize, plan: &Plan, state: State<'_>) -> Option<NodeId> {
        let until = |node: NodeId| {
            let suspect = self
                .suspects
                .get(&node)
                .filter(|suspect| suspect.until > now);
            suspect.map_or(Time::ZERO, |suspect| suspect.until)
        };
        let parent = self.branches[index].parent;
        if parent == NOBODY || (!state.gone[parent.index()] && until(parent) == Time::ZERO) {
            return (parent != NOBODY).then_some(parent);
        }
        let ancestors = ancestors(plan, index, self.me);
        debug_assert!(!ancestors.contains(&self.me));
        debug_assert_eq!(ancestors.first(), Some(&parent));
        let living = ancestors
            .into_iter()
            .filter(|node| !state.gone[node.index()]);
        living.min_by_key(|node| until(*node))
    }

    fn go_to(
        &mut self,
        now: Time,
        server: NodeId,
        trees: &[u32],
        state: State<'_>,
        out: &mut Actions,
    ) {
        debug_assert!(!state.gone[server.index()], "{server} will never serve");
        for tree in trees {
            debug_assert!(self.branches[*tree as usize].missing > 0);
            self.branches[*tree as usize].server = server;
        }
        let feed = self.feeds.entry(server).or_insert_with(|| Feed {
            trees: BTreeSet::new(),
            attached: false,
            heard: now,
            answered: false,
            has_given: false,
            gave: now,
            owed: 0,
        });
        feed.trees.extend(trees);
        if !state.up[server.index()] {
            out.push(Action::Connect(server));
            return;
        }
        let trees = if feed.attached {
            trees.to_vec()
        } else {
            feed.trees.iter().copied().collect()
        };
        if !feed.attached {
            (feed.answered, feed.has_given) = (false, false);
        }
        (feed.attached, feed.heard, feed.gave) = (true, now, now);
        out.send(
            server,
            &Message::Attach {
                trees,
                have: state.have.to_wire(),
            },
        );
    }

    /// The server will not do: another has to be found for its trees.
    fn leave(
        &mut self,
        now: Time,
        server: NodeId,
        plan: &Plan,
        state: State<'_>,
        out: &mut Actions,
    ) {
        let Some(feed) = self.feeds.remove(&server) else {
            return;
        };
        debug_assert!(
            !state.have.is_full(),
            "a node that lacks nothing seeks no server"
        );
        if feed.attached && state.up[server.index()] {
            out.send(server, &Message::Detach { trees: None });
        }
        let suspect = self.suspects.entry(server).or_insert(Suspect {
            until: now,
            times: 0,
        });
        suspect.until = now + SUSPECT * (1 << suspect.times.min(SUSPECT_DOUBLED_MAX));
        suspect.times += 1;
        let trees: Vec<u32> = feed.trees.into_iter().collect();
        self.seek(now, &trees, plan, state, out);
    }

    pub(super) fn on_up(&mut self, now: Time, peer: NodeId, state: State<'_>, out: &mut Actions) {
        if let Some(suspect) = self.suspects.get_mut(&peer) {
            suspect.until = Time::ZERO;
        }
        if let Some(feed) = self.feeds.get(&peer)
            && !feed.attached
        {
            self.go_to(now, peer, &[], state, out);
        }
        self.go_home(now, peer, state, out);
    }

    /// Takes the trees whose parent this is from it again.
    fn go_home(&mut self, now: Time, peer: NodeId, state: State<'_>, out: &mut Actions) {
        let mut strays: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for (tree, branch) in (0..).zip(&self.branches) {
            if branch.parent == peer && branch.server != peer && branch.missing > 0 {
                strays.entry(branch.server).or_default().push(tree);
            }
        }
        for (server, trees) in strays {
            if let Some(feed) = self.feeds.get_mut(&server) {
                feed.trees.retain(|tree| !trees.contains(tree));
                let empty = feed.trees.is_empty();
                if feed.attached {
                    out.send(
                        server,
                        &Message::Detach {
                            trees: (!empty).then(|| trees.clone()),
                        },
                    );
                }
                if empty {
                    self.feeds.remove(&server);
                }
            }
            self.go_to(now, peer, &trees, state, out);
        }
    }

    pub(super) fn on_down(
        &mut self,
        now: Time,
        peer: NodeId,
        plan: &Plan,
        state: State<'_>,
        out: &mut Actions,
    ) {
        if let Some(feed) = self.feeds.get_mut(&peer) {
            feed.attached = false;
            self.leave(now, peer, plan, state, out);
        }
    }

    pub(super) fn on_alive(&mut self, now: Time, from: NodeId, owed: u32) {
        if let Some(feed) = self.feeds.get_mut(&from) {
            (feed.heard, feed.answered) = (now, true);
            if feed.owed == 0 {
                feed.gave = now;
            }
            feed.owed = owed;
        }
    }

    /// A block has come.
    pub(super) fn on_block(
        &mut self,
        now: Time,
        from: NodeId,
        (tree, block): (usize, BlockId),
        fresh: bool,
        out: &mut Actions,
    ) {
        let branch = &mut self.branches[tree];
        debug_assert!(!fresh || branch.missing > 0);
        branch.missing -= u32::from(fresh);
        if branch.server == from {
            branch.came += 1;
            branch.last = now;
        } else if fresh
            && self
                .feeds
                .get(&branch.server)
                .is_some_and(|feed| feed.attached)
        {
            out.send(branch.server, &Message::Skip { block });
        }
        if let Some(feed) = self.feeds.get_mut(&from) {
            (feed.heard, feed.gave) = (now, now);
            (feed.answered, feed.has_given) = (true, true);
            feed.owed = feed.owed.saturating_sub(1);
        }
    }

    /// Everything has come.
    pub(super) fn finish(&mut self, out: &mut Actions) {
        for (server, feed) in std::mem::take(&mut self.feeds) {
            if feed.attached {
                out.send(server, &Message::Detach { trees: None });
            }
        }
    }

    /// The node did not run for so long: no peer is to blame for the silence.
    pub(super) fn excuse(&mut self, now: Time, late: Duration) {
        for feed in self.feeds.values_mut() {
            (feed.heard, feed.gave) = (now, now);
        }
        for branch in &mut self.branches {
            (branch.since, branch.last) = (branch.since + late, now);
            debug_assert!(branch.since <= now);
        }
    }

    pub(super) fn on_tick(&mut self, now: Time, plan: &Plan, state: State<'_>, out: &mut Actions) {
        let failed: Vec<NodeId> = self
            .feeds
            .iter()
            .filter(|(server, feed)| self.has_failed(now, **server, feed))
            .map(|(server, _)| *server)
            .collect();
        for server in failed {
            self.leave(now, server, plan, state, out);
        }
        // Whose time of suspicion is over is given another try; if it is not up, once it is.
        let cleared: Vec<NodeId> = self
            .suspects
            .iter()
            .filter(|(_, suspect)| suspect.until > Time::ZERO && suspect.until <= now)
            .map(|(node, _)| *node)
            .collect();
        for node in cleared {
            if let Some(suspect) = self.suspects.get_mut(&node) {
                suspect.until = Time::ZERO;
            }
            if state.gone[node.index()] {
                continue;
            }
            if state.up[node.index()] {
                self.go_home(now, node, state, out);
            } else {
                out.push(Action::Connect(node));
            }
        }
        // All ancestors were gone or there was none: there may be one now.
        let orphans: Vec<u32> = (0..)
            .zip(&self.branches)
            .filter(|(_, it)| it.missing > 0 && it.server == NOBODY && it.parent != NOBODY)
            .map(|(tree, _)| tree)
            .collect();
        self.seek(now, &orphans, plan, state, out);
    }

    fn has_failed(&self, now: Time, server: NodeId, feed: &Feed) -> bool {
        if !feed.attached {
            return now.since(feed.heard) >= CONNECT_MAX;
        }
        let gap = feed
            .trees
            .iter()
            .map(|tree| self.branches[*tree as usize].gap());
        let times = self.suspects.get(&server).map_or(0, |it| it.times);
        let patience = match feed.has_given {
            true => DRY_MIN,
            false => self.patience,
        };
        let patience = patience * (1 << times.min(SUSPECT_DOUBLED_MAX));
        let gap = gap.fold(f64::INFINITY, f64::min);
        // Where blocks are rare by plan, a first one that is late is no sign yet.
        let gaps = if feed.has_given { 1.0 } else { FIRST_GAPS };
        let dry = long(patience, gap * gaps);
        let silence = if feed.answered {
            SILENCE_MAX
        } else {
            ANSWER_MAX
        };
        now.since(feed.heard) >= silence || feed.owed > 0 && now.since(feed.gave) >= dry
    }

    /// The trees that have brought nothing for too long, or will bring nothing.
    pub(super) fn stalled(&self, now: Time) -> Option<Vec<bool>> {
        let is_stalled = |branch: &Branch| {
            if branch.missing == 0 {
                return false;
            }
            if branch.server == NOBODY {
                // All above this node are out for good.
                return true;
            }
            let feed = self.feeds.get(&branch.server);
            let is_served = feed.is_some_and(|feed| feed.attached);
            let patience = if is_served { WAIT_MAX } else { STALL_MIN };
            now.since(branch.last) >= long(patience, branch.gap())
        };
        // Most of the time none is.
        self.branches
            .iter()
            .any(is_stalled)
            .then(|| self.branches.iter().map(is_stalled).collect())
    }

    /// Seconds between blocks of the slowest tree that still brings some.
    pub(super) fn gap(&self) -> f64 {
        let busy = self.branches.iter().filter(|branch| branch.missing > 0);
        busy.map(|branch| branch.gap()).fold(0.0, f64::max)
    }
}

impl Branch {
    /// Seconds from one block to the next, by the plan or as seen, whichever is longer.
    fn gap(&self) -> f64 {
        let seen = self.last.since(self.since).as_secs_f64() / f64::from(self.came.max(1));
        self.gap_s.max(seen)
    }
}

/// What the uplink has to know of its node.
#[derive(Clone, Copy)]
pub(super) struct State<'a> {
    pub(super) up: &'a [bool],
    pub(super) gone: &'a [bool],
    pub(super) have: &'a BlockSet,
}

/// At least `least`, longer where blocks usually take so many seconds.
fn long(least: Duration, gap_s: f64) -> Duration {
    least.max(Duration::from_secs_f64((GAPS_LONG * gap_s).min(1e9)))
}

/// The node that forwards a tree to `node`.
fn parent(tree: &outpour_core::plan::Tree, node: NodeId) -> NodeId {
    debug_assert!(tree.edges.iter().filter(|(_, to)| *to == node).count() <= 1);
    let edge = tree.edges.iter().find(|(_, to)| *to == node);
    edge.map_or(NOBODY, |(from, _)| *from)
}

/// From the parent up to the root, and then the other roots; edges come in the tree's order, so one
/// pass suffices.
fn ancestors(plan: &Plan, tree: usize, node: NodeId) -> Vec<NodeId> {
    let mut below = node;
    let mut ancestors = Vec::new();
    for (from, to) in plan.trees[tree].edges.iter().rev() {
        if *to == below {
            ancestors.push(*from);
            below = *from;
        }
    }
    let others = plan.roots.iter().filter(|root| **root != below);
    ancestors.extend(others);
    ancestors
}
