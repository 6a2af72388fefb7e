//! A queue between a control channel and the task that writes to it or reads from it: bounded by the
//! number of subjects, and nothing that matters is dropped, however slow the other end is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpour_protocols::coordinator::backlog::{Backlog, Message};
use tokio::sync::mpsc;

type Waiting<T> = Arc<Mutex<Backlog<T>>>;

/// The end that puts messages in.
pub(crate) struct Sender<T> {
    waiting: Waiting<T>,
    wake: mpsc::Sender<()>,
}

/// The end that takes them out.
pub(crate) struct Receiver<T> {
    waiting: Waiting<T>,
    wake: mpsc::Receiver<()>,
}

/// An empty queue.
pub(crate) fn mailbox<T: Message>() -> (Sender<T>, Receiver<T>) {
    let (wake, woken) = mpsc::channel(1);
    let waiting = Waiting::default();
    let receiver = Receiver {
        waiting: waiting.clone(),
        wake: woken,
    };
    (Sender { waiting, wake }, receiver)
}

fn lock<T>(waiting: &Waiting<T>) -> MutexGuard<'_, Backlog<T>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Message> Sender<T> {
    /// Adds a message. It is lost if the other end is gone.
    pub(crate) fn send(&self, message: T) {
        lock(&self.waiting).push(message);
        // If it is full the other end has yet to look.
        let _ = self.wake.try_send(());
    }
}

impl<T: Message> Receiver<T> {
    /// The message that has waited longest; `None` once there is none and the other end is gone.
    /// Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        loop {
            if let Some(message) = self.try_recv() {
                return Some(message);
            }
            if self.wake.recv().await.is_none() {
                return self.try_recv();
            }
        }
    }

    /// A message, if one waits.
    pub(crate) fn try_recv(&mut self) -> Option<T> {
        lock(&self.waiting).pop()
    }
}

#[cfg(test)]
mod tests {
    use outpour_core::NodeId;
    use outpour_protocols::coordinator::Order;

    use super::*;

    #[tokio::test]
    async fn what_was_said_is_heard_though_its_speaker_is_gone() {
        let (sender, mut receiver) = mailbox();
        for node in 0..5000 {
            let node = NodeId(node);
            sender.send(Order::Dial { node });
        }
        drop(sender);
        for node in 0..5000 {
            let node = NodeId(node);
            assert_eq!(receiver.recv().await, Some(Order::Dial { node }));
        }
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let (sender, mut receiver) = mailbox();
        let hearing = tokio::spawn(async move { receiver.recv().await });
        tokio::task::yield_now().await;
        sender.send(Order::Census);
        assert_eq!(hearing.await.ok().flatten(), Some(Order::Census));
    }
}
