//! What a script does to a run under a controller, and how the controller learns of it.
//!
//! What joins sites is watched by a network monitor [BDS §5.1]: the controller hears of new rates of
//! links at the end of a cycle, and at the beginning of each of the latency-sensitive traffic there is,
//! so that what is too much by then is taken back at once. What hosts carry is not watched: less shows
//! in what servers achieve. That a server is lost is heard at the end of the cycle, from those that
//! were to send to it or read from it [BDS §5.3]. A controller that comes back is another one: it knows
//! the jobs, and all servers report to it whole.

use outpour_controller::{Controller, Input, JobId};
use outpour_core::network::{Change, Resource};
use outpour_core::{Rate, Time};

use super::{MEASURED, ReplicateError, Run, Submitted};

impl Run {
    /// Has happen what is to have happened by now.
    pub(super) fn happen(&mut self) -> Result<(), ReplicateError> {
        while let Some(changes) = self.day.take(self.now) {
            for change in changes {
                self.change(change)?;
            }
            self.servers.share();
            self.idle = 0;
        }
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), ReplicateError> {
        match change {
            Change::Foreground { from, to, rate } => {
                let rate = rate.bytes_per_s();
                self.servers.foreground.insert((from, to), rate);
                self.watch.foreground((from, to), rate);
            }
            Change::Server { node, there: false } => {
                if self.servers.absent.contains(&node) {
                    return Ok(());
                }
                self.servers.lose(node);
                self.news.push(Input::Left { node });
            }
            Change::Server { node, there: true } => {
                if !self.servers.absent.contains(&node) {
                    return Ok(());
                }
                self.servers.restore(node);
                self.news.push(Input::Came { node });
                self.asks.push(node);
            }
            Change::Controller { there: false } => self.away = true,
            Change::Controller { there: true } => {
                if self.away {
                    self.begin_again()?;
                }
            }
            change => {
                self.servers.network.apply(&change);
                if is_watched(&change) {
                    self.news.push(Input::Network(change));
                }
            }
        }
        Ok(())
    }

    /// The controller is back, as the next one.
    fn begin_again(&mut self) -> Result<(), ReplicateError> {
        self.away = false;
        let network = self.controller.network().clone();
        let mut config = self.controller.config().clone();
        config.epoch += 1;
        self.servers.follow(config.epoch);
        self.controller = Controller::new(network, config)?;
        let news = std::mem::take(&mut self.news);
        for change in news
            .into_iter()
            .filter(|it| matches!(it, Input::Network(_)))
        {
            self.controller.handle(change)?;
        }
        self.asks.clear();
        for node in self.config.network.nodes() {
            if !self.servers.absent.contains(&node) {
                self.controller.handle(Input::Came { node })?;
                self.asks.push(node);
            }
        }
        for (id, Submitted { place, job }) in &self.submitted {
            self.controller.number_from(*id);
            let again = self.controller.submit(self.now, job.clone());
            let again = again.map_err(|why| ReplicateError::Job {
                name: self.config.jobs[*place].name.clone(),
                why,
            })?;
            debug_assert_eq!(again.job, *id, "jobs are counted as before");
        }
        let all = (self.submitted.len() + self.finishes.len()) as u32;
        self.controller.number_from(JobId(all));
        self.submit()?;
        self.measure()
    }

    /// Whether what was decided by the controller of that epoch comes to nobody.
    pub(super) fn is_cut_off(&self, epoch: u64) -> bool {
        self.away || self.controller.config().epoch != epoch
    }

    /// One cycle without a controller; false if there is nothing more to do.
    pub(super) fn alone(&mut self) -> Result<bool, ReplicateError> {
        let moved = self.advance(self.now + self.config.controller.cycle)?;
        self.watch.cycle += 1;
        if self.waiting.is_empty() && self.servers.is_complete() {
            return Ok(false);
        }
        self.go_on(moved)
    }

    /// Tells the controller what happened in the cycle.
    pub(super) fn tell(&mut self) -> Result<(), ReplicateError> {
        for news in std::mem::take(&mut self.news) {
            self.controller.handle(news)?;
        }
        if self.day.is_scripted() {
            let least = self.config.controller.cycle.as_secs_f64() * MEASURED;
            for achieved in self.servers.achieved(least) {
                self.controller.handle(achieved)?;
            }
        }
        Ok(())
    }

    /// Tells the controller what latency-sensitive traffic there is.
    pub(super) fn measure(&mut self) -> Result<(), ReplicateError> {
        for ((from, to), now, peak) in self.watch.measured() {
            let as_rate = |rate: f64| Rate::from_bytes_per_s(rate).unwrap_or(Rate::UNLIMITED);
            self.controller.handle(Input::Foreground {
                resource: Resource::Link(from, to),
                rate: as_rate(now),
                peak: as_rate(peak),
            })?;
        }
        Ok(())
    }

    /// Notes what a step brought, if anything is to be seen of it.
    pub(super) fn note(&mut self, from: Time, until: Time, blocks: u64) {
        if !self.day.is_scripted() {
            return;
        }
        let seconds = until.since(from).as_secs_f64();
        let (bulk, rule) = (self.servers.used(), self.config.controller.separation);
        let network = &self.servers.network;
        self.watch
            .note(until, seconds, blocks, &bulk, network, rule);
    }
}

/// Whether a monitor of what joins sites sees it.
fn is_watched(change: &Change) -> bool {
    match change {
        Change::Capacity { resource, .. } => match resource {
            Resource::Link(from, to) => from != to,
            Resource::ClusterOut(_) | Resource::ClusterIn(_) => true,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests;
