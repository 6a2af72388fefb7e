//! The agent's end of measuring a network.

use std::net::IpAddr;
use std::sync::Arc;

use outpour_net::{Connections, Endpoint, SessionConfig, SessionId};
use outpour_probe::message::{ProbeOrder, ProbeReport};
use outpour_probe::node::{self, NodeConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::NODES_MAX;
use crate::control::{AgentSays, CommandSays, ProbeAdmission, read_frame, write_frame};
use crate::launch::ControlStream;
use crate::session::{CHANNEL, SessionError, SessionOptions, own_addrs, serve};

/// How much of the control channel within this process is buffered.
const PIPE_BYTES: usize = 64 << 10;

/// Measures what it is ordered to until the command says that it is over.
pub(crate) async fn measure<R, W>(
    mut reader: R,
    mut writer: W,
    admission: ProbeAdmission,
    endpoint: &Endpoint,
) -> Result<(), SessionError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let members = admission.members as usize;
    if admission.node.index() >= members || members > NODES_MAX {
        let line = "admitted as a node that does not exist".to_owned();
        return Err(SessionError::Admission(line));
    }
    let connections = admission.connections;
    let config = SessionConfig {
        connections: connections.map_or(Connections::Auto, Connections::Fixed),
        ..SessionConfig::new(SessionId(admission.cast), admission.node)
    };
    let (session, events) = endpoint.session(&config)?;
    let local = endpoint.local_addr();
    let addrs = own_addrs(local);
    write_frame(&mut writer, &AgentSays::Joined { addrs }).await?;

    let (order_tx, order_rx) = mpsc::channel::<ProbeOrder>(CHANNEL);
    let (report_tx, mut report_rx) = mpsc::channel::<ProbeReport>(CHANNEL);
    // What is left of them ends with this function, whichever way that goes: a connection is closed when
    // both have ended.
    let (mut hearing, mut speaking) = (JoinSet::new(), JoinSet::new());
    hearing.spawn(async move {
        while let Ok(CommandSays::Measure(order)) = read_frame(&mut reader).await {
            if order_tx.send(order).await.is_err() {
                break;
            }
        }
    });
    speaking.spawn(async move {
        while let Some(report) = report_rx.recv().await {
            let says = AgentSays::Measured(report);
            if write_frame(&mut writer, &says).await.is_err() {
                break;
            }
        }
    });
    let config = NodeConfig {
        me: admission.node,
        members,
        listen: local.ip(),
    };
    let ended = node::run(session, events, config, order_rx, report_tx).await;
    hearing.abort_all();
    while speaking.join_next().await.is_some() {}
    ended.map_err(|error| SessionError::Admission(format!("cannot listen for packets: {error}")))
}

/// An agent within this process.
pub(super) fn here(listen: IpAddr) -> ControlStream {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let options = SessionOptions {
        // It is here to measure; there is nowhere it may write.
        roots: Some(Arc::default()),
        endpoint: None,
        listen,
        wrap: None,
        epochs: Arc::default(),
        signers: Arc::default(),
        caller: None,
    };
    let (reader, writer) = tokio::io::split(far);
    let serving = tokio::spawn(async move {
        if let Err(error) = serve(reader, writer, options).await {
            tracing::debug!(%error, "the agent within this process ended");
        }
    });
    let (reader, writer) = tokio::io::split(near);
    ControlStream {
        reader: Box::new(reader),
        writer: Box::new(writer),
        host_addrs: Vec::new(),
        seen_from: None,
        guard: Box::new(AbortOnDrop(serving)),
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
