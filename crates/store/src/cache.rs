//! A bounded cache of open files.

use std::sync::{Arc, Mutex, PoisonError};

/// Keeps the values that were used last, at most as many as it is made for.
///
/// Lookup is a scan: at the few dozen descriptors a process should hold, that beats a hash map.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    slots: Mutex<Slots<V>>,
    max: usize,
}

#[derive(Debug)]
struct Slots<V> {
    clock: u64,
    used: Vec<(u32, u64, Arc<V>)>,
}

impl<V> Slots<V> {
    fn check(&self, max: usize) {
        debug_assert!(self.used.len() <= max);
        for (index, (key, used, _)) in self.used.iter().enumerate() {
            debug_assert!(*used <= self.clock);
            let others = &self.used[index + 1..];
            debug_assert!(others.iter().all(|(other, ..)| other != key));
            debug_assert!(others.iter().all(|(_, other, _)| other != used));
        }
    }
}

impl<V> Cache<V> {
    pub(crate) fn new(max: usize) -> Self {
        debug_assert!(max > 0, "it would keep nothing");
        let slots = Slots {
            clock: 0,
            used: Vec::with_capacity(max),
        };
        Self {
            slots: Mutex::new(slots),
            max,
        }
    }

    /// The value of `key`, made by `open` if it is not here. Two threads may make it at once.
    pub(crate) fn get<E>(
        &self,
        key: u32,
        open: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        if let Some(value) = self.lookup(key) {
            return Ok(value);
        }
        let value = Arc::new(open()?);
        let mut slots = self.lock();
        slots.clock += 1;
        let slot = (key, slots.clock, value.clone());
        slots.used.retain(|(other, ..)| *other != key);
        if slots.used.len() < self.max {
            slots.used.push(slot);
        } else if let Some(oldest) = slots.used.iter_mut().min_by_key(|(_, used, _)| *used) {
            *oldest = slot;
        }
        slots.check(self.max);
        Ok(value)
    }

    /// The values that are here, with their keys.
    pub(crate) fn all(&self) -> Vec<(u32, Arc<V>)> {
        let slots = self.lock();
        let values = slots.used.iter();
        values
            .map(|(key, _, value)| (*key, value.clone()))
            .collect()
    }

    /// Forgets a value, and returns it if it was here.
    pub(crate) fn remove(&self, key: u32) -> Option<Arc<V>> {
        let mut slots = self.lock();
        let at = slots.used.iter().position(|(other, ..)| *other == key)?;
        let value = slots.used.swap_remove(at).2;
        debug_assert!(slots.used.iter().all(|(other, ..)| *other != key));
        Some(value)
    }

    /// Forgets all values.
    pub(crate) fn clear(&self) {
        self.lock().used.clear();
    }

    /// The value of `key`, if it is here.
    pub(crate) fn find(&self, key: u32) -> Option<Arc<V>> {
        self.lookup(key)
    }

    fn lookup(&self, key: u32) -> Option<Arc<V>> {
        let mut slots = self.lock();
        slots.clock += 1;
        let clock = slots.clock;
        let (_, used, value) = slots.used.iter_mut().find(|(other, ..)| *other == key)?;
        debug_assert!(*used < clock, "used at a time to come");
        *used = clock;
        Some(value.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slots<V>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(feature = "simulated")))]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = Cache::new(2);
        let get = |key: u32| {
            let mut made = false;
            let make = || {
                made = true;
                Ok::<_, ()>(key)
            };
            assert_eq!(cache.get(key, make).as_deref(), Ok(&key));
            made
        };
        assert!(get(1) && get(2));
        assert!(!get(1));
        assert!(get(3), "and 2 goes");
        assert!(!get(1) && !get(3));
        assert!(get(2));
        cache.clear();
        assert!(get(3) && get(2));
        assert_eq!(cache.get(9, || Err("no")), Err("no"));
    }
}
