//! Who has what, and who lives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outpour_core::Time;

use crate::{Layout, SourceId};

#[derive(Debug)]
struct Object {
    layout: Layout,
    holders: BTreeSet<SourceId>,
}

/// Objects and their sources.
#[derive(Debug)]
pub(super) struct Registry {
    sources_max: usize,
    objects_max: usize,
    objects: BTreeMap<String, Object>,
    /// When each source that lives was last heard.
    heard: BTreeMap<SourceId, Time>,
}

impl Registry {
    pub(super) fn new(sources_max: usize, objects_max: usize) -> Self {
        Self {
            sources_max,
            objects_max,
            objects: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    /// A source has an object. Says whether it is one more that can push it: not if it cuts the object
    /// differently from the one that announced it first, and not beyond the bounds.
    pub(super) fn announce(
        &mut self,
        now: Time,
        source: SourceId,
        uri: &str,
        layout: &Layout,
    ) -> bool {
        if !self.heard.contains_key(&source) {
            if self.heard.len() >= self.sources_max {
                return false;
            }
            self.heard.insert(source, now);
        }
        self.hear(now, source);
        if !self.objects.contains_key(uri) {
            if self.objects.len() >= self.objects_max {
                return false;
            }
            let object = Object {
                layout: *layout,
                holders: BTreeSet::new(),
            };
            self.objects.insert(uri.to_owned(), object);
        }
        debug_assert!(self.objects.len() <= self.objects_max);
        debug_assert!(self.heard.len() <= self.sources_max);
        match self.objects.get_mut(uri) {
            Some(object) if object.layout == *layout => object.holders.insert(source),
            _ => false,
        }
    }

    /// A source lives, if it is known.
    pub(super) fn hear(&mut self, now: Time, source: SourceId) {
        if let Some(heard) = self.heard.get_mut(&source) {
            *heard = now;
        }
    }

    /// The sources that have gone silent since the last time; they hold nothing any more.
    pub(super) fn sweep(&mut self, now: Time, silence: Duration) -> Vec<SourceId> {
        let is_gone = |it: &(&SourceId, &Time)| *it.1 + silence <= now;
        let gone: Vec<SourceId> = self.heard.iter().filter(is_gone).map(|it| *it.0).collect();
        for source in &gone {
            self.heard.remove(source);
            for object in self.objects.values_mut() {
                object.holders.remove(source);
            }
        }
        debug_assert!(
            self.objects
                .values()
                .flat_map(|it| &it.holders)
                .all(|it| self.heard.contains_key(it)),
            "a holder that does not live"
        );
        gone
    }

    /// How an object is cut, if anybody ever had it.
    pub(super) fn layout(&self, uri: &str) -> Option<Layout> {
        self.objects.get(uri).map(|it| it.layout)
    }

    /// The sources that have an object and live.
    pub(super) fn holders(&self, uri: &str) -> impl Iterator<Item = SourceId> {
        self.objects
            .get(uri)
            .into_iter()
            .flat_map(|it| it.holders.iter().copied())
    }
}
