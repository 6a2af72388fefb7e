//! The script at work: what happens when, and the most that the network could carry meanwhile.

use outpour_core::Time;
use outpour_core::network::{Change, Network, Resource};
use outpour_core::script::Timeline;

use super::{ReplicateConfig, ReplicateError};

pub(super) struct Day {
    timeline: Option<Timeline>,
    next: Option<(Time, Vec<Change>)>,
    /// The network with each capacity at its most so far: no method can rely on more.
    most: Network,
}

impl Day {
    /// The script of a configuration, and the network after what it changes before anything moves.
    ///
    /// # Errors
    /// If the script does not fit the network.
    pub(super) fn new(config: &ReplicateConfig) -> Result<(Self, Network), ReplicateError> {
        let script = config.script.as_ref();
        let timeline = script.map(|script| script.timeline_of_sites(&config.network));
        let mut timeline = timeline.transpose()?;
        let next = timeline.as_mut().and_then(Timeline::next);
        let mut network = config.network.clone();
        let first = next.iter().filter(|(at, _)| *at == Time::ZERO);
        for change in first.flat_map(|(_, changes)| changes) {
            network.apply(change);
        }
        let day = Self {
            timeline,
            next,
            most: network.clone(),
        };
        Ok((day, network))
    }

    /// When something happens next.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.next.as_ref().map(|(at, _)| *at)
    }

    /// What happens next, if that is not after `now`.
    pub(super) fn take(&mut self, now: Time) -> Option<Vec<Change>> {
        let (_, changes) = self.next.take_if(|(at, _)| *at <= now)?;
        self.next = self.timeline.as_mut().and_then(Timeline::next);
        for change in &changes {
            if let Change::Capacity { resource, rate } = change {
                let known = match *resource {
                    // What is inside a site.
                    Resource::Link(a, b) if a == b => self.most.clusters()[a.index()].local,
                    resource => self.most.capacity(resource),
                };
                if *rate > known {
                    self.most.apply(change);
                }
            }
        }
        Some(changes)
    }

    /// Whether anything was to happen.
    pub(super) const fn is_scripted(&self) -> bool {
        self.timeline.is_some()
    }

    /// See [`Day::most`].
    pub(super) fn into_most(self) -> Network {
        self.most
    }
}
