//! The thread that plays the script, and the words it waits for.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use outpour_core::Network;
use outpour_core::script::{Player, Script, Step};
use outpour_system::emulation as sys;

use crate::EmuError;
use crate::mover::Handle;

/// Before ordinary threads, after the one that moves packets.
const PRIORITY: i32 = 40;

/// What became of a word that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The script heard it.
    Heard,
    /// The script will hear it when it comes to where it waits for it.
    Remembered,
    /// The script never waits for it, or there is no script.
    Ignored,
}

/// What the director and its clients share.
#[derive(Default)]
struct Shared {
    stage: Mutex<Stage>,
    moved: Condvar,
}

#[derive(Default)]
struct Stage {
    network: Option<Network>,
    /// Words the script may wait for yet.
    awaited: BTreeSet<String>,
    /// Words that were said and not heard yet, each once.
    pending: BTreeSet<String>,
    /// Words that were said at any time.
    told: BTreeSet<String>,
    waiting_for: Option<String>,
    over: bool,
}

/// The director of an emulation.
#[derive(Clone)]
pub(crate) struct Director {
    shared: Arc<Shared>,
}

impl Director {
    /// Starts playing; `say` is handed the words the script tells.
    pub(crate) fn start(
        network: Network,
        script: Option<&Script>,
        player: Option<Player>,
        mover: Handle,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, EmuError> {
        let shared = Arc::new(Shared::default());
        let director = Self { shared };
        {
            let mut stage = director.stage();
            stage.network = Some(network);
            if let Some(script) = script {
                stage.awaited = script.words().map(str::to_owned).collect();
            }
        }
        if let Some(player) = player {
            let playing = director.clone();
            thread::Builder::new()
                .name("script".to_owned())
                .spawn(move || playing.play(player, &mover, &say))
                .map_err(EmuError::system("start a thread"))?;
        }
        Ok(director)
    }

    /// Ends the playing.
    pub(crate) fn stop(&self) {
        self.stage().over = true;
        self.shared.moved.notify_all();
    }

    /// Says a word. With `patience` it is waited that long for the script to hear it.
    pub(crate) fn tell(&self, word: &str, patience: Duration) -> Told {
        let mut stage = self.stage();
        if !stage.awaited.contains(word) {
            return Told::Ignored;
        }
        stage.told.insert(word.to_owned());
        stage.pending.insert(word.to_owned());
        self.shared.moved.notify_all();
        let until = Instant::now() + patience;
        while stage.pending.contains(word) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || stage.over {
                return Told::Remembered;
            }
            stage = self.wait(stage, left);
        }
        Told::Heard
    }

    /// The word the script waits for.
    pub(crate) fn waiting_for(&self) -> Option<String> {
        self.stage().waiting_for.clone()
    }

    /// The word the script waits for although it was never sent.
    pub(crate) fn unheard(&self) -> Option<String> {
        let stage = self.stage();
        let word = stage.waiting_for.clone()?;
        (!stage.told.contains(&word)).then_some(word)
    }

    /// The network as it is now, as TOML.
    pub(crate) fn network_now(&self) -> String {
        let stage = self.stage();
        stage
            .network
            .as_ref()
            .map(Network::to_toml)
            .unwrap_or_default()
    }

    fn play(&self, mut player: Player, mover: &Handle, say: &impl Fn(&str)) {
        // Without it changes come a little late where programs keep the machine busy.
        let _ = sys::take_priority(PRIORITY);
        let mut changes = Vec::new();
        // Times add up from the start or the last word, so that lateness does not.
        let mut clock = Instant::now();
        loop {
            let step = player.next();
            if let Step::Change(change) = step {
                changes.push(change);
                continue;
            }
            {
                let mut stage = self.stage();
                if let Some(network) = stage.network.as_mut() {
                    changes.iter().for_each(|change| network.apply(change));
                }
                if stage.over {
                    return;
                }
            }
            mover.change(changes.drain(..));
            match step {
                Step::Sleep(time) => {
                    clock += time;
                    if !self.sleep_until(clock) {
                        return;
                    }
                }
                Step::Hear(word) => {
                    if !self.hear(&word) {
                        return;
                    }
                    clock = Instant::now();
                }
                Step::Tell(word) => say(&word),
                Step::Change(_) | Step::End => {
                    self.stage().awaited.clear();
                    return;
                }
            }
        }
    }

    /// Waits for a time; `false` if the emulation is over before.
    fn sleep_until(&self, time: Instant) -> bool {
        let mut stage = self.stage();
        while !stage.over {
            let left = time.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            stage = self.wait(stage, left);
        }
        false
    }

    /// Waits for a word; `false` if the emulation is over before.
    fn hear(&self, word: &str) -> bool {
        let mut stage = self.stage();
        stage.waiting_for = Some(word.to_owned());
        while !stage.over {
            if stage.pending.remove(word) {
                stage.waiting_for = None;
                self.shared.moved.notify_all();
                return true;
            }
            stage = self.wait(stage, Duration::from_secs(3600));
        }
        false
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        // A thread that panicked left nothing half done that matters here.
        let locked = self.shared.stage.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, stage: MutexGuard<'a, Stage>, time: Duration) -> MutexGuard<'a, Stage> {
        let waited = self.shared.moved.wait_timeout(stage, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
