//! A run and those who watch it: each transfer has its own judge, and all of them see one run.
//!
//! Of two transfers it makes no difference which leads, so one run shows what each of them does. A judge is a future that waits for the next event; the judge with the
//! earliest deadline decides how far the run goes on.

use std::cell::{Cell, Ref, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use outpour_core::Time;

use crate::check;
use crate::fault::Fault;
use crate::world::World;

/// A world that several may watch.
pub(super) struct Stage<'w> {
    world: RefCell<&'w mut World>,
}

/// One who watches, and what it waits for.
pub(super) struct Watcher<'s, 'w> {
    stage: &'s Stage<'w>,
    /// It looks at the transfer beside.
    beside: bool,
    /// It lets the run go on by itself.
    alone: bool,
    until: Cell<Time>,
    /// Whether something happened until then, once that is known.
    news: Cell<Option<bool>>,
}

impl<'w> Stage<'w> {
    pub(super) const fn new(world: &'w mut World) -> Self {
        Self {
            world: RefCell::new(world),
        }
    }

    fn watcher(&self, beside: bool, alone: bool) -> Watcher<'_, 'w> {
        Watcher {
            stage: self,
            beside,
            alone,
            until: Cell::new(Time::ZERO),
            news: Cell::new(None),
        }
    }

    /// Has one judge the transfer that leads.
    ///
    /// # Errors
    /// The judge's.
    pub(super) fn judge<T>(
        &self,
        judge: impl AsyncFnOnce(&Watcher<'_, 'w>) -> Result<T, String>,
    ) -> Result<T, String> {
        let watcher = self.watcher(false, true);
        let mut verdict = pin!(judge(&watcher));
        loop {
            if let Poll::Ready(verdict) = verdict.as_mut().poll(&mut context()) {
                return verdict;
            }
        }
    }

    /// Has each of two transfers judged by one of these.
    ///
    /// # Errors
    /// That of the first judge, or if it has none that of the second.
    pub(super) fn judge_both<T>(
        &self,
        one: impl AsyncFnOnce(&Watcher<'_, 'w>) -> Result<T, String>,
        other: impl AsyncFnOnce(&Watcher<'_, 'w>) -> Result<T, String>,
    ) -> Result<(T, T), String> {
        let watchers = [self.watcher(false, false), self.watcher(true, false)];
        let mut one = pin!(one(&watchers[0]));
        let mut other = pin!(other(&watchers[1]));
        let mut verdicts = (None, None);
        loop {
            if verdicts.0.is_none()
                && let Poll::Ready(verdict) = one.as_mut().poll(&mut context())
            {
                verdicts.0 = Some(verdict?);
            }
            if verdicts.1.is_none()
                && let Poll::Ready(verdict) = other.as_mut().poll(&mut context())
            {
                verdicts.1 = Some(verdict);
            }
            let waiting = match verdicts {
                (Some(one), Some(other)) => return Ok((one, other?)),
                (Some(_), None) => &watchers[1..],
                (None, Some(_)) => &watchers[..1],
                (None, None) => &watchers[..],
            };
            self.go_on(waiting);
        }
    }

    /// Lets the next event happen, and tells those that waited for it or for its not happening.
    fn go_on(&self, waiting: &[Watcher<'_, 'w>]) {
        let until = waiting.iter().map(|watcher| watcher.until.get()).min();
        let until = until.unwrap_or_default();
        let happened = self.world.borrow_mut().step(until);
        for watcher in waiting {
            if happened || watcher.until.get() == until {
                watcher.news.set(Some(happened));
            }
        }
    }
}

const fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Watcher<'_, '_> {
    /// The transfer it watches. The world that leads has what both share; other methods show that.
    pub(super) fn world(&self) -> Ref<'_, World> {
        Ref::map(self.stage.world.borrow(), |world| {
            let beside = world.beside().filter(|_| self.beside);
            beside.unwrap_or(world)
        })
    }

    pub(super) fn now(&self) -> Time {
        self.stage.world.borrow().now()
    }

    /// How many events there were, in both transfers.
    pub(super) fn events(&self) -> u64 {
        self.stage.world.borrow().totals().events
    }

    /// Whether any block is under way, in either transfer.
    pub(super) fn is_sending(&self) -> bool {
        self.stage.world.borrow().is_sending()
    }

    /// No contract was broken by the transfer it watches, and no capacity exceeded by both.
    ///
    /// # Errors
    /// Says what happened first.
    pub(super) fn contracts(&self) -> Result<(), String> {
        check::contracts(&self.world())?;
        check::capacities(&self.stage.world.borrow())
    }

    /// A fault strikes the transfer that leads, now.
    pub(super) fn strike(&self, fault: Fault) {
        self.stage.world.borrow_mut().strike(fault);
    }

    /// Waits for the next event, unless that is after `until`; whether it came.
    pub(super) async fn step(&self, until: Time) -> bool {
        if self.alone {
            return self.stage.world.borrow_mut().step(until);
        }
        self.until.set(until);
        poll_fn(|_| self.news.take().map_or(Poll::Pending, Poll::Ready)).await
    }
}
