//! What a job asks for, in numbers: its members, who of them are alike, and who has to get blocks.

use std::ops::Range;

use outpour_core::NodeId;

use super::holders::Holders;

/// Who has to get every block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The members it is about.
    pub(crate) members: Range<u32>,
    /// Whether each of those that want blocks has to get them all; otherwise one copy is enough,
    /// wherever among them it lies.
    pub(crate) each: bool,
}

/// The members of a job and what is known about them.
///
/// Members are numbered in the order of their nodes, so that those of a cluster follow each other.
/// Members of one *unit* are interchangeable as far as routing is concerned: a unit is a single node
/// where there are few, and a site's servers where there are many.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) members: Vec<NodeId>,
    /// The members of each unit.
    pub(crate) units: Vec<Range<u32>>,
    pub(crate) unit_of: Vec<u32>,
    pub(crate) targets: Vec<Target>,
    /// The target that a member belongs to, if it is to get blocks.
    pub(crate) target_of: Vec<Option<u32>>,
    /// Whether a member is there and is not known to have lied: only then it may send, and only
    /// then what it has counts as a copy of its site.
    pub(crate) gives: Vec<bool>,
    /// Whether what a member has counts as a copy of its site.
    pub(crate) counts: Vec<bool>,
    /// Whether a member is there and may be sent blocks.
    pub(crate) takes: Vec<bool>,
    /// Whether a member passes blocks on and needs none itself: it may be brought what its site lacks, and
    /// what other sites lack.
    pub(crate) relays: Vec<bool>,
}

/// Which units have blocks, and which targets lack them; the key of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Signature {
    /// Units with a member that has the blocks and may send them, in order.
    pub(crate) units: Vec<u32>,
    /// Targets that lack the blocks, in order.
    pub(crate) lacking: Vec<u32>,
}

impl Signature {
    /// The least signature with a unit: all those before it have none.
    pub(crate) fn some_unit() -> Self {
        Self {
            units: vec![0],
            lacking: Vec::new(),
        }
    }
}

impl Shape {
    /// How many members there are.
    pub(crate) fn count(&self) -> u32 {
        self.members.len() as u32
    }

    /// The number of a node among the members.
    pub(crate) fn member(&self, node: NodeId) -> Option<u32> {
        let place = self.members.binary_search(&node).ok()?;
        Some(place as u32)
    }

    /// How many members may send blocks that these have.
    pub(crate) fn rarity(&self, holders: &Holders) -> u32 {
        let usable = |member: &u32| self.gives[*member as usize];
        holders.iter().filter(usable).count() as u32
    }

    /// Whether a target has a copy of a block that these have.
    fn has_copy(&self, target: u32, holders: &Holders) -> bool {
        let members = &self.targets[target as usize].members;
        let mut had = holders.within(members.start, members.end);
        had.any(|member| self.gives[member as usize] && self.counts[member as usize])
    }

    /// How many copies of a block a target still has to get that `holders` have and `spurners` do not
    /// want.
    pub(crate) fn copies(&self, target: u32, holders: &Holders, spurners: &Holders) -> u32 {
        let index = target;
        let target = &self.targets[target as usize];
        let mut members = target.members.clone();
        let wants = |member: u32| {
            let takes = self.takes[member as usize] && self.target_of[member as usize].is_some();
            takes && !spurners.contains(member)
        };
        if !target.each {
            return u32::from(!self.has_copy(index, holders) && members.any(wants));
        }
        let (first, end) = (members.start, members.end);
        let all = members.filter(|member| wants(*member)).count();
        let had = holders
            .within(first, end)
            .filter(|member| wants(*member))
            .count();
        debug_assert!(had <= all, "holders are members");
        (all - had) as u32
    }

    /// Whether a member may be brought a block for its target that `spurners` do not want.
    pub(crate) fn may_get(&self, member: u32, spurners: &Holders) -> bool {
        let place = member as usize;
        let helps = self.relays[place] && self.target_of[place].is_some();
        debug_assert!(self.counts[place] || !helps, "a source is no relay");
        self.takes[place] && (helps || !spurners.contains(member))
    }

    /// Whether a relay may be brought a block for the sake of others: not if its own site has it.
    pub(crate) fn may_relay(&self, member: u32, holders: &Holders) -> bool {
        let place = member as usize;
        let own = self.target_of[place];
        self.relays[place] && !own.is_some_and(|target| self.has_copy(target, holders))
    }

    /// See [`Signature`].
    pub(crate) fn signature(&self, holders: &Holders, spurners: &Holders) -> Signature {
        let mut units: Vec<u32> = Vec::new();
        for member in holders.iter().filter(|member| self.gives[*member as usize]) {
            let unit = self.unit_of[member as usize];
            if units.last() != Some(&unit) {
                units.push(unit);
            }
        }
        debug_assert!(
            units.is_sorted_by(|a, b| a < b),
            "units are runs of members"
        );
        let targets = 0..self.targets.len() as u32;
        let lacking = targets.filter(|target| self.copies(*target, holders, spurners) > 0);
        Signature {
            units,
            lacking: lacking.collect(),
        }
    }
}
