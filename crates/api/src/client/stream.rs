//! Server-sent events, read one at a time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{ApiError, ApiResult, EVENT_STREAM, ErrorKind, EventView, GapView, StatusView};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::http::{ANSWER_BYTES_MAX, begin, internal, patiently, refusal, request, whole};
use super::{CALL_PATIENCE, Client};

/// How long an agent may say nothing, in polls: three of its heartbeats.
const STREAM_PATIENCE: (Duration, u32) = (Duration::from_secs(1), 45);

#[derive(Clone, Debug)]
pub enum Message {
    Event(EventView),
    Gap(GapView),
    Status(Box<StatusView>),
}

pub struct EventStream<'a> {
    client: &'a Client,
    path: String,
    agent_pid: i32,
    body: Incoming,
    parser: Parser,
    driver: JoinHandle<hyper::Result<()>>,
}

impl Drop for EventStream<'_> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl<'a> EventStream<'a> {
    pub(crate) fn open(client: &'a Client, path: &str) -> ApiResult<Self> {
        let request = request(Method::GET, path, EVENT_STREAM, Vec::new())?;
        let opened = patiently(begin(&client.socket, request), CALL_PATIENCE);
        let waited_s = (CALL_PATIENCE.0 * CALL_PATIENCE.1).as_secs();
        let opened = client.runtime.block_on(opened);
        let opened = opened.ok_or_else(|| client.silence(path, waited_s))?;
        let (response, driver) = opened.map_err(|why| {
            ApiError::new(ErrorKind::Unreachable, format!("agent: {path}: {why}"))
        })?;
        if !response.status().is_success() {
            let status = response.status();
            let bytes = client.runtime.block_on(whole(response.into_body()));
            let bytes = bytes.unwrap_or_default();
            return Err(refusal(path, status, &bytes));
        }
        Ok(Self {
            client,
            path: path.to_owned(),
            agent_pid: agent_pid(&response),
            body: response.into_body(),
            parser: Parser::default(),
            driver,
        })
    }

    /// The agent's process: another one counts events from 1 again.
    pub fn agent_pid(&self) -> i32 {
        self.agent_pid
    }

    /// The next message, which is waited for; `None` where the agent has ended the stream, or is
    /// gone.
    pub fn next_message(&mut self) -> ApiResult<Option<Message>> {
        loop {
            if let Some(block) = self.parser.blocks.pop_front() {
                return self.message(&block).map(Some);
            }
            let frame = async { patiently(self.body.frame(), STREAM_PATIENCE).await };
            let frame = self.client.runtime.block_on(frame);
            let waited_s = (STREAM_PATIENCE.0 * STREAM_PATIENCE.1).as_secs();
            let frame = frame.ok_or_else(|| self.client.silence(&self.path, waited_s))?;
            let Some(Ok(frame)) = frame else {
                return Ok(None);
            };
            if let Some(bytes) = frame.data_ref() {
                self.parser.take(bytes);
            }
            if self.parser.begun_bytes() > ANSWER_BYTES_MAX {
                let what = format!("a message of more than {ANSWER_BYTES_MAX} bytes");
                return Err(internal(&self.path, &what));
            }
        }
    }

    fn message(&self, block: &Block) -> ApiResult<Message> {
        let data = &block.data;
        match block.event.as_str() {
            "gap" => self.read(data).map(Message::Gap),
            "status" => self.read(data).map(Message::Status),
            _ => self.read(data).map(Message::Event),
        }
    }

    fn read<T: DeserializeOwned>(&self, data: &str) -> ApiResult<T> {
        serde_json::from_str(data).map_err(|error| internal(&self.path, &error.to_string()))
    }
}

fn agent_pid(response: &Response<Incoming>) -> i32 {
    let header = response.headers().get("tidegate-agent-pid");
    let text = header.and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    event: String,
    data: String,
}

/// Takes bytes as they come, and gives whole messages.
#[derive(Default)]
struct Parser {
    line: Vec<u8>,
    block: Block,
    blocks: VecDeque<Block>,
}

impl Parser {
    /// Of the message that is not whole yet.
    fn begun_bytes(&self) -> usize {
        self.line.len() + self.block.event.len() + self.block.data.len()
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                byte => self.line.push(*byte),
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            let block = std::mem::take(&mut self.block);
            if !block.data.is_empty() {
                self.blocks.push_back(block);
            }
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.block.event = value.to_owned(),
            "data" => self.block.data += value,
            // The number is in the data; a comment has no name.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_however_their_bytes_come() {
        let text = "retry: 1000\n\nid: 7\nevent: gate.ended\ndata: {\"seq\":7}\n\n: still here\n\nevent: gap\r\ndata:{}\r\n\r\nevent: x\n";
        for size in [1, 3, 7, text.len()] {
            let mut parser = Parser::default();
            text.as_bytes()
                .chunks(size)
                .for_each(|bytes| parser.take(bytes));
            let found: Vec<(&str, &str)> = parser
                .blocks
                .iter()
                .map(|block| (block.event.as_str(), block.data.as_str()))
                .collect();
            assert_eq!(
                found,
                [("gate.ended", "{\"seq\":7}"), ("gap", "{}")],
                "{size}"
            );
        }
    }
}
