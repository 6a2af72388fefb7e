//! The events of a cast as data, for displays, files and other programs.

use std::time::Duration;

use outpour_agent::view::{CastReport, CastView, HostState, HostView, Phase};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// An event of a cast. In JSON, the field `event` names its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// The present state; up to ten times a second.
    Progress(Progress),
    /// The cast is over, with the result of every host. The last event.
    Done(CastReport),
    /// The cast did not take place. The last event.
    Failed {
        /// Why, in one line.
        error: String,
    },
}

/// A cast at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Seconds since it was started.
    pub elapsed_s: f64,
    /// The present phase.
    pub phase: Phase,
    /// Bytes of the source that were hashed; meaningful while hashing.
    pub hashed_bytes: u64,
    /// Size of the object; 0 until known.
    pub size_bytes: u64,
    /// The protocol; empty until chosen.
    pub protocol: String,
    /// The least time that the limits allow, in seconds; `None` without limits.
    pub limit_s: Option<f64>,
    /// Every host, in the order in which they were named.
    pub hosts: Vec<HostProgress>,
    /// New notices since the last event: a peer that sent wrong bytes, a connection that failed.
    pub notices: Vec<String>,
}

/// A host at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostProgress {
    /// As it was named.
    pub host: String,
    /// Its state.
    pub state: HostState,
    /// Verified bytes of the object that it has.
    pub have_bytes: u64,
    /// Bytes of the object that it had when it joined.
    pub resumed_bytes: u64,
    /// Bytes of blocks and packets that it received, duplicates included.
    pub received_bytes: u64,
    /// Bytes per second over the last seconds.
    pub rate_bytes_per_s: f64,
    /// Seconds in which it sent no message, or received nothing while it lacked blocks.
    pub idle_s: f64,
    /// Why it failed, in one line.
    pub error: Option<String>,
}

impl Progress {
    /// The state of `view`; the follower knows the first `told` of its notices.
    fn of(view: &CastView, told: usize) -> Self {
        Self {
            elapsed_s: view.elapsed.as_secs_f64(),
            phase: view.phase,
            hashed_bytes: view.hashed_bytes,
            size_bytes: view.size_bytes,
            protocol: view.protocol.clone(),
            limit_s: view.limit_s,
            hosts: view.hosts.iter().map(HostProgress::of).collect(),
            notices: view.notices.get(told..).unwrap_or_default().to_vec(),
        }
    }

    /// Whether anything but the time differs from `before`: a phase, a host's state or bytes, or a new
    /// notice.
    pub fn is_news(&self, before: &Self) -> bool {
        let same = |(one, other): (&HostProgress, &HostProgress)| {
            one.state == other.state
                && one.have_bytes == other.have_bytes
                && one.received_bytes == other.received_bytes
        };
        self.phase != before.phase
            || !self.notices.is_empty()
            || self.hosts.len() != before.hosts.len()
            || !self.hosts.iter().zip(&before.hosts).all(same)
    }
}

impl HostProgress {
    fn of(host: &HostView) -> Self {
        Self {
            host: host.name.clone(),
            state: host.state,
            have_bytes: host.have_bytes,
            resumed_bytes: host.resumed_bytes,
            received_bytes: host.received_bytes,
            rate_bytes_per_s: host.rate_bytes_per_s,
            idle_s: host.idle.as_secs_f64(),
            error: host.error.clone(),
        }
    }
}

/// How a cast ended, for its followers.
pub(crate) type Ending = Result<CastReport, String>;

/// The events of a cast, for one follower.
///
/// Nothing is queued: a slow follower misses intermediate states, but no notice and not the end.
#[derive(Clone, Debug)]
pub struct Events {
    view: watch::Receiver<CastView>,
    ending: watch::Receiver<Option<Ending>>,
    /// How many notices were told.
    told: usize,
    stage: Stage,
}

/// What the next event may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// How it stands now.
    First,
    /// How it stands when that has changed.
    Running,
    /// How it ended.
    Ending,
    /// None.
    Over,
}

impl Events {
    pub(crate) const fn new(
        view: watch::Receiver<CastView>,
        ending: watch::Receiver<Option<Ending>>,
    ) -> Self {
        Self {
            view,
            ending,
            told: 0,
            stage: Stage::First,
        }
    }

    /// The next event, as soon as there is one; nothing after the last. It may be given up waiting
    /// for, and nothing is lost.
    pub async fn next(&mut self) -> Option<Event> {
        if self.stage == Stage::Running && self.view.changed().await.is_err() {
            self.stage = Stage::Ending;
        }
        match self.stage {
            Stage::First | Stage::Running => {
                self.stage = Stage::Running;
                let view = self.view.borrow_and_update();
                let progress = Progress::of(&view, self.told);
                self.told = view.notices.len();
                Some(Event::Progress(progress))
            }
            Stage::Ending => {
                let ending = self.ending.wait_for(Option::is_some).await;
                let ending = ending.ok().and_then(|ending| ending.clone());
                self.stage = Stage::Over;
                Some(match ending {
                    Some(Ok(report)) => Event::Done(report),
                    Some(Err(error)) => Event::Failed { error },
                    None => Event::Failed {
                        error: crate::Error::Stopped.to_string(),
                    },
                })
            }
            Stage::Over => None,
        }
    }
}

/// What is known before anything is.
pub(crate) fn first_view(hosts: impl Iterator<Item = String>) -> CastView {
    let host = |name| HostView {
        name,
        state: HostState::Starting,
        have_bytes: 0,
        resumed_bytes: 0,
        received_bytes: 0,
        rate_bytes_per_s: 0.0,
        idle: Duration::ZERO,
        error: None,
    };
    CastView {
        phase: Phase::Hashing,
        hashed_bytes: 0,
        size_bytes: 0,
        protocol: String::new(),
        why: String::new(),
        elapsed: Duration::ZERO,
        limit_s: None,
        hosts: hosts.map(host).collect(),
        notices: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn view(elapsed: u64, notices: &[&str]) -> CastView {
        CastView {
            elapsed: Duration::from_secs(elapsed),
            notices: notices.iter().map(ToString::to_string).collect(),
            ..first_view(["a".to_owned()].into_iter())
        }
    }

    fn progress(event: Option<Event>) -> Progress {
        match event {
            Some(Event::Progress(progress)) => progress,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn who_is_slow_misses_no_notice_and_not_the_end() {
        let (views, seen) = watch::channel(view(0, &[]));
        let (ends, ending) = watch::channel(None);
        let mut events = Events::new(seen, ending);
        assert!(progress(events.next().await).notices.is_empty());
        views.send_replace(view(1, &["x"]));
        views.send_replace(view(2, &["x", "y"]));
        let second = progress(events.next().await);
        assert_eq!((second.elapsed_s, second.notices.len()), (2.0, 2));
        views.send_replace(view(3, &["x", "y", "z"]));
        drop(views);
        ends.send_replace(Some(Err("no".to_owned())));
        assert_eq!(progress(events.next().await).notices, ["z"]);
        let error = "no".to_owned();
        assert_eq!(events.next().await, Some(Event::Failed { error }));
        assert_eq!(events.next().await, None);
    }

    #[test]
    fn time_alone_is_no_news() {
        let before = Progress::of(&view(1, &["x"]), 1);
        assert!(!Progress::of(&view(2, &["x"]), 1).is_news(&before));
        assert!(Progress::of(&view(2, &["x"]), 0).is_news(&before));
        let mut moved = Progress::of(&view(1, &["x"]), 1);
        moved.hosts[0].have_bytes = 1;
        assert!(moved.is_news(&before));
    }

    #[test]
    fn events_come_back_from_json_as_they_were() {
        let event = Event::Progress(Progress::of(&view(1, &["x"]), 0));
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.starts_with(r#"{"event":"progress","elapsed_s":1.0,"phase":"hashing""#));
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}
