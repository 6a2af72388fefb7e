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
    /// The sources that live.
    lives: BTreeMap<SourceId, Life>,
}

/// Of a source, from its start to its end.
#[derive(Clone, Copy, Debug)]
struct Life {
    incarnation: u64,
    /// When it was last heard.
    heard: Time,
}

/// What the controller learns from a source's saying which life it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It is the one that is known, or not known at all.
    Usual,
    /// The source was started again: of the life before nothing is left.
    Reborn,
    /// A later life was heard: this was under way for long.
    Outdated,
}

impl Registry {
    pub(super) fn new(sources_max: usize, objects_max: usize) -> Self {
        Self {
            sources_max,
            objects_max,
            objects: BTreeMap::new(),
            lives: BTreeMap::new(),
        }
    }

    /// A source that is known and is in this life was heard.
    pub(super) fn hear(&mut self, now: Time, source: SourceId, incarnation: u64) -> Met {
        let Some(life) = self.lives.get_mut(&source) else {
            return Met::Usual;
        };
        if incarnation < life.incarnation {
            return Met::Outdated;
        }
        life.heard = now;
        if incarnation == life.incarnation {
            return Met::Usual;
        }
        life.incarnation = incarnation;
        for object in self.objects.values_mut() {
            object.holders.remove(&source);
        }
        Met::Reborn
    }

    /// Which life a source is in, if it is known.
    pub(super) fn incarnation(&self, source: SourceId) -> Option<u64> {
        self.lives.get(&source).map(|it| it.incarnation)
    }

    /// A source that was [heard](Self::hear) has an object. Says whether it is one more that can push it: not if it cuts the object
    /// differently from the one that announced it first, and not beyond the bounds.
    pub(super) fn announce(
        &mut self,
        now: Time,
        source: SourceId,
        incarnation: u64,
        uri: &str,
        layout: &Layout,
    ) -> bool {
        if !self.lives.contains_key(&source) {
            if self.lives.len() >= self.sources_max {
                return false;
            }
            let heard = now;
            self.lives.insert(source, Life { incarnation, heard });
        }
        debug_assert_eq!(self.incarnation(source), Some(incarnation));
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
        debug_assert!(self.lives.len() <= self.sources_max);
        match self.objects.get_mut(uri) {
            Some(object) if object.layout == *layout => object.holders.insert(source),
            _ => false,
        }
    }

    /// The sources that have gone silent since the last time; they hold nothing any more.
    pub(super) fn sweep(&mut self, now: Time, silence: Duration) -> Vec<SourceId> {
        let is_gone = |it: &(&SourceId, &Life)| it.1.heard + silence <= now;
        let gone: Vec<SourceId> = self.lives.iter().filter(is_gone).map(|it| *it.0).collect();
        for source in &gone {
            self.lives.remove(source);
            for object in self.objects.values_mut() {
                object.holders.remove(source);
            }
        }
        debug_assert!(
            self.objects
                .values()
                .flat_map(|it| &it.holders)
                .all(|it| self.lives.contains_key(it)),
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
