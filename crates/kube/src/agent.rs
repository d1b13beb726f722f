//! The agent's socket. Its client blocks, so each call has a thread of the runtime's pool.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_api::client::Client;
use tidegate_api::{
    ApiError, ErrorKind, ExplainView, GateView, SetRequest, StatusView, UnsetRequest,
};

use crate::gates::Change;

/// A step of the node is a second: an agent that takes longer has missed it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A gate's note about a limit that holds begins with this.
const BINDS: &str = "binds: ";

#[derive(Clone, Debug)]
pub struct Agent {
    socket: PathBuf,
}

impl Agent {
    pub fn at(socket: PathBuf) -> Self {
        Agent { socket }
    }

    /// The node at a glance, without gates: cheap, however many there are.
    pub async fn status(&self) -> Result<StatusView, ApiError> {
        self.call(Client::status_without_gates).await
    }

    pub async fn gates(&self) -> Result<Vec<GateView>, ApiError> {
        Ok(self.call(Client::status).await?.gates)
    }

    /// The agent's own figures as Prometheus text.
    pub async fn metrics(&self) -> Result<String, ApiError> {
        self.call(|client| client.metrics("text/plain")).await
    }

    pub async fn explain(&self, target: String) -> Result<ExplainView, ApiError> {
        self.call(move |client| client.explain(&target)).await
    }

    /// Makes a change, and returns which limits of others hold instead of the terms.
    pub async fn apply(&self, change: Change) -> Result<Vec<String>, ApiError> {
        match change {
            Change::Set { target, terms } => {
                let request = SetRequest {
                    target,
                    terms,
                    only: false,
                };
                let gate = self.call(move |client| client.set(&request)).await?;
                let bound = |note: &String| Some(note.strip_prefix(BINDS)?.to_owned());
                Ok(gate.notes.iter().filter_map(bound).collect())
            }
            Change::Unset { target, terms } => {
                let request = UnsetRequest { target, terms };
                self.call(move |client| client.unset(&request).map(|_| Vec::new()))
                    .await
            }
        }
    }

    async fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&Client) -> Result<R, ApiError> + Send + 'static,
    ) -> Result<R, ApiError> {
        let socket = self.socket.clone();
        let answer = tokio::task::spawn_blocking(move || call(&Client::at(socket)?));
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panicked)) => Err(ApiError::new(
                ErrorKind::Internal,
                format!("agent: {panicked}"),
            )),
            Err(_) => {
                let detail = format!(
                    "agent: {}: no answer within {PATIENCE:?}",
                    self.socket.display()
                );
                Err(ApiError::new(ErrorKind::NoAnswer, detail))
            }
        }
    }
}
