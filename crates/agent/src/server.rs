//! The socket: its connections. The calls are in [`calls`], what they do is in [`crate::api`].

mod calls;
mod connection;
mod query;
mod stream;
mod tcp;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_terms::ApiListen;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

pub(crate) use self::calls::parse;
use crate::agent::Agent;
use crate::peer::Peer;
use crate::server::calls::{Connection, routes};
use crate::server::connection::{CONNECTIONS_MAX, Connections, converse, refuse};

/// How long a call that is under way when the agent leaves may take to be answered: the next agent
/// is waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until the agent leaves; calls under way then are answered first. What has asked for
/// nothing by then is not waited for.
pub async fn serve(listener: UnixListener, agent: Arc<Agent>) -> std::io::Result<()> {
    let routes = routes();
    let mut calls = JoinSet::new();
    let mut connections = Connections::new(&connection::CALLS);
    let streams = Arc::new(Mutex::new(Connections::new(&connection::STREAMS)));
    if let ApiListen::At(address) = agent.runtime.settings.api_listen.value {
        tokio::spawn(tcp::serve(
            address,
            Arc::clone(&agent),
            Arc::clone(&streams),
        ));
    }
    loop {
        tokio::select! {
            () = agent.left() => break,
            Some(_) = calls.join_next() => {}
            accepted = listener.accept(), if calls.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    let peer = Peer::of(stream.as_fd()).ok();
                    match connections.admit(peer.as_ref()) {
                        Ok(token) => {
                            let agent = Arc::clone(&agent);
                            let streams = Arc::clone(&streams);
                            let call = Connection { agent, peer, streams };
                            calls.spawn(converse(stream, routes.clone(), call, token));
                        }
                        Err(error) => refuse(&stream, &error),
                    }
                }
                // Out of descriptors, or a caller that left at once: neither ends the agent.
                Err(error) => {
                    tracing::warn!("socket: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    let answered = async { while calls.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
    Ok(())
}
