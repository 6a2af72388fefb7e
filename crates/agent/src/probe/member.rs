//! The control channel to one node: launch, admission, then orders one way and reports the other.

use std::future::Future;
use std::sync::Arc;

use outpour_core::NodeId;
use outpour_net::SessionId;
use outpour_probe::message::{Contact, ProbeOrder, ProbeReport};
use tokio::sync::mpsc;

use crate::bounds::hear;
use crate::cast::{in_time, reachable};
use crate::control::{
    AgentSays, CommandSays, ControlError, Greeting, ProbeAdmission, read_frame, write_frame,
};
use crate::launch::{ControlStream, LaunchError};

/// What every node is told.
pub(super) struct Terms {
    pub(super) group: SessionId,
    pub(super) members: usize,
    pub(super) connections: Option<u8>,
}

/// What came from a node.
pub(super) struct Heard {
    pub(super) node: NodeId,
    pub(super) what: What,
}

pub(super) enum What {
    Joined(Contact),
    Report(ProbeReport),
    Lost(String),
}

/// The channel to one node.
pub(super) struct Member {
    pub(super) node: NodeId,
    pub(super) terms: Arc<Terms>,
    pub(super) heard: mpsc::Sender<Heard>,
    pub(super) orders: mpsc::Receiver<ProbeOrder>,
}

impl Member {
    /// Runs the channel from launch to end; how it ended is the last thing heard.
    pub(super) async fn run(
        mut self,
        launch: impl Future<Output = Result<ControlStream, LaunchError>>,
    ) {
        let error = match launch.await {
            Ok(stream) => match self.talk(stream).await {
                Ok(()) => return,
                Err(error) => error,
            },
            Err(error) => error.to_string(),
        };
        self.say(What::Lost(error)).await;
    }

    async fn say(&self, what: What) {
        let node = self.node;
        let _ = self.heard.send(Heard { node, what }).await;
    }

    /// Admits the node and passes orders and reports on until the orders end.
    async fn talk(&mut self, stream: ControlStream) -> Result<(), String> {
        let ControlStream {
            mut reader,
            mut writer,
            host_addrs,
            guard,
            ..
        } = stream;
        let greeting: Greeting = in_time(read_frame(&mut reader))
            .await
            .map_err(|error| error.to_string())?;
        greeting.check().map_err(|error| error.to_string())?;
        let (admission, key) = (self.admission(), greeting.key);
        let joining = async {
            let says = CommandSays::Probe(Box::new(admission));
            write_frame(&mut writer, &says).await?;
            hear(&mut reader).await
        };
        let AgentSays::Joined { addrs } =
            in_time(joining).await.map_err(|error| error.to_string())?
        else {
            return Err(ControlError::NotOutpour.to_string());
        };
        let addrs = reachable(&host_addrs, addrs);
        self.say(What::Joined(Contact { addrs, key })).await;
        let (heard, node) = (self.heard.clone(), self.node);
        let mut hearing = tokio::spawn(async move {
            loop {
                match hear(&mut reader).await {
                    Ok(AgentSays::Measured(report)) => {
                        let what = What::Report(report);
                        let _ = heard.send(Heard { node, what }).await;
                    }
                    Ok(_) => break ControlError::NotOutpour,
                    Err(error) => break error,
                }
            }
        });
        let ended = loop {
            tokio::select! {
                order = self.orders.recv() => {
                    let Some(order) = order else { break None };
                    let last = order == ProbeOrder::Finish;
                    let says = CommandSays::Measure(order);
                    if let Err(error) = write_frame(&mut writer, &says).await {
                        break Some(error);
                    }
                    if last {
                        break None;
                    }
                }
                ended = &mut hearing => break Some(ended.unwrap_or(ControlError::Closed)),
            }
        };
        if ended.is_none() {
            // The agent leaves by itself.
            drop(writer);
            let _ = hearing.await;
        } else {
            hearing.abort();
        }
        drop(guard);
        match ended {
            None => Ok(()),
            Some(ControlError::Closed) => Err("its agent ended too early".to_owned()),
            Some(error) => Err(format!("the connection to its agent broke: {error}")),
        }
    }

    fn admission(&self) -> ProbeAdmission {
        ProbeAdmission {
            cast: self.terms.group.0,
            node: self.node,
            members: self.terms.members as u32,
            connections: self.terms.connections,
        }
    }
}
