//! What the operators of a service share: places for what it does for them, and memory for what they
//! send. Each operator has a part of the places of every sort, so none keeps out the others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpour_core::Bytes;
use outpour_net::SESSIONS_MAX;
use outpour_net::trust::LIST_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::budget::{Budget, Memory, NoRoom};
use crate::control::CommandSays;

/// How many casts a service takes part in at a time, looks and measurements included. Each has a session.
pub const CASTS_MAX: usize = SESSIONS_MAX;
/// How many of them are one operator's at most.
pub const OPERATOR_CASTS_MAX: usize = CASTS_MAX / 4 * 3;
/// How many connections may be open that have not said what they are for. A command calls before it reads
/// the source, so an operator may have as many as there are casts.
const UNHEARD_MAX: usize = 2 * CASTS_MAX;
/// How many renewals, and lists of revoked operators, are taken at a time. No cast has their places.
const KEEPING_MAX: usize = 32;
/// How many operators are told at a time why they are turned away; more are cut off.
const FAREWELLS_MAX: usize = 64;
/// What there is of memory for casts unless a service says otherwise, beside the buffers of its data plane.
pub const MEMORY: Bytes = Bytes(256 << 20);
/// A frame of so many bytes needs no memory of that: a list of revoked operators always gets through.
const FREE_BYTES: usize = LIST_BYTES_MAX + (64 << 10);
/// See the module.
pub struct Places {
    unheard: Arc<Pool>,
    casts: Arc<Pool>,
    keeping: Arc<Pool>,
    farewells: Arc<Semaphore>,
    memory: Arc<Budget>,
}

impl Default for Places {
    fn default() -> Self {
        Self::with(Budget::new(MEMORY))
    }
}

impl Places {
    /// Places, and so much memory for the casts that have them.
    pub fn new(memory: Bytes) -> Self {
        Self::with(Budget::new(memory))
    }

    fn with(memory: Arc<Budget>) -> Self {
        let pool = |most, each| {
            Arc::new(Pool {
                most,
                each,
                taken: Mutex::default(),
            })
        };
        Self {
            unheard: pool(UNHEARD_MAX, UNHEARD_MAX / 2),
            casts: pool(CASTS_MAX, OPERATOR_CASTS_MAX),
            keeping: pool(KEEPING_MAX, KEEPING_MAX / 4),
            farewells: Arc::new(Semaphore::new(FAREWELLS_MAX)),
            memory,
        }
    }

    /// A place for a connection of an operator that has said nothing yet.
    pub(super) fn wait(&self, operator: &str) -> Result<Place, Full> {
        let place = self.unheard.enter(operator);
        place.map_err(|(whose, most)| Full {
            whose,
            what: "connections here that wait for their casts",
            most,
        })
    }

    /// A place for what an operator asks for first.
    pub(super) fn enter(&self, operator: &str, first: &CommandSays) -> Result<Place, Full> {
        let (pool, what) = match first {
            CommandSays::Renew | CommandSays::Revoked { .. } => {
                (&self.keeping, "renewals or revocations here")
            }
            _ => (&self.casts, "casts here"),
        };
        let place = pool.enter(operator);
        place.map_err(|(whose, most)| Full { whose, what, most })
    }

    /// A place to be told why nothing is done; `None` if there is none.
    pub(super) fn farewell(&self) -> Option<OwnedSemaphorePermit> {
        self.farewells.clone().try_acquire_owned().ok()
    }

    /// Memory for a frame of so many bytes of an operator; waits for it for a while.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) async fn frame(&self, operator: &str, len: usize) -> Result<Memory, NoRoom> {
        match len {
            ..=FREE_BYTES => Ok(Memory::default()),
            len => self.memory(operator, len as u64).await,
        }
    }

    /// So many bytes of memory for an operator; waits for them for a while.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) async fn memory(&self, operator: &str, bytes: u64) -> Result<Memory, NoRoom> {
        self.memory.take(operator, bytes).await
    }
}

/// Places of a sort.
struct Pool {
    most: usize,
    /// How many of them one operator may have.
    each: usize,
    taken: Mutex<BTreeMap<String, usize>>,
}

impl Pool {
    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place; or who has how many, which is the most.
    fn enter(self: &Arc<Self>, operator: &str) -> Result<Place, (Option<String>, usize)> {
        let mut taken = self.taken();
        let own = taken.get(operator).copied().unwrap_or_default();
        if own >= self.each {
            return Err((Some(operator.to_owned()), self.each));
        }
        if taken.values().sum::<usize>() >= self.most {
            return Err((None, self.most));
        }
        taken.insert(operator.to_owned(), own + 1);
        Ok(Place {
            pool: self.clone(),
            operator: operator.to_owned(),
        })
    }
}

/// A place of an operator; it is free again when this is dropped.
pub struct Place {
    pool: Arc<Pool>,
    operator: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.pool.taken();
        let left = taken.get(&self.operator).map_or(0, |own| own - 1);
        match left {
            0 => drop(taken.remove(&self.operator)),
            left => drop(taken.insert(self.operator.clone(), left)),
        }
    }
}

/// There is no place.
#[derive(Debug)]
pub(super) struct Full {
    /// Who has all of them; `None` if several do.
    whose: Option<String>,
    what: &'static str,
    most: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.whose {
            Some(operator) => write!(f, "operator {operator} has ")?,
            None => f.write_str("operators have ")?,
        }
        let Self { what, most, .. } = self;
        write!(
            f,
            "{most} {what} already, which is the most; try again later"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    #[test]
    fn no_operator_has_all_places_and_casts_have_none_of_the_others() {
        let places = Places::default();
        let survey = CommandSays::Survey {
            path: Vec::new(),
            archive: false,
        };
        let enter = |operator: &str| places.enter(operator, &survey);
        let mut ana: Vec<_> = (0..OPERATOR_CASTS_MAX)
            .map(|_| enter("ana").unwrap())
            .collect();
        let refused = enter("ana").err().unwrap().to_string();
        assert_eq!(
            refused,
            "operator ana has 48 casts here already, which is the most; try again later"
        );
        let bob: Vec<_> = (OPERATOR_CASTS_MAX..CASTS_MAX)
            .map(|_| enter("bob").unwrap())
            .collect();
        let refused = enter("eve").err().unwrap().to_string();
        assert!(refused.starts_with("operators have 64 casts"), "{refused}");
        for kept in [CommandSays::Renew, CommandSays::Revoked { list: vec![] }] {
            assert!(places.enter("ana", &kept).is_ok());
        }
        ana.pop();
        assert!(enter("eve").is_ok());
        drop((ana, bob));
        assert!(places.casts.taken().is_empty());
    }

    #[tokio::test]
    async fn memory_is_bounded_and_revocations_wait_for_nobody() {
        let places = Places::with(Budget::with_patience(Bytes(32 << 20), Duration::ZERO));
        let all = places.memory("ana", 24 << 20).await.unwrap();
        assert!(places.memory("ana", 1).await.is_err());
        assert!(places.frame("bob", 16 << 20).await.is_err());
        assert!(places.frame("bob", LIST_BYTES_MAX + 16).await.is_ok());
        drop(all);
        assert!(places.frame("bob", 16 << 20).await.is_ok());
    }
}
