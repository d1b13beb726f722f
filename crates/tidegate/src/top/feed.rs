//! What the agent says, from threads of its own: the screen never waits for the agent.

use std::sync::mpsc::{Receiver, Sender, TryIter, channel};
use std::thread;
use std::time::Duration;

use tidegate_api::client::{Client, Message};
use tidegate_api::{
    ApiError, EventView, ExplainView, HistoryPointView, SetRequest, StatusView, UnsetRequest,
};

use super::screen::{Note, PLOT_S};
use crate::connect;
use tidegate_api::cli::Failure;

/// An agent that is gone is looked for so often.
const AGAIN: Duration = Duration::from_millis(500);

pub enum News {
    History(Vec<HistoryPointView>),
    Status(Box<StatusView>),
    Events(Vec<EventView>),
    /// Another agent, whose events begin from the first.
    NewAgent,
    Lost(String),
    Explained(String, Box<Result<ExplainView, String>>),
    Answer(Note),
}

/// The other end of those threads. They end after it.
pub struct Feed {
    sender: Sender<News>,
    receiver: Receiver<News>,
}

enum Stop {
    Closed,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<ApiError> for Stop {
    fn from(error: ApiError) -> Self {
        Stop::Failed(error.into())
    }
}

impl Feed {
    pub fn start(period_s: u64) -> Self {
        let (sender, receiver) = channel();
        let to = sender.clone();
        thread::spawn(move || {
            loop {
                let why = match follow(&to, period_s) {
                    Ok(()) => "the agent has ended".to_owned(),
                    Err(Stop::Failed(failure)) => failure.message,
                    Err(Stop::Closed) => return,
                };
                if to.send(News::Lost(why)).is_err() {
                    return;
                }
                thread::sleep(AGAIN);
            }
        });
        Self { sender, receiver }
    }

    pub fn news(&self) -> TryIter<'_, News> {
        self.receiver.try_iter()
    }

    pub fn explain(&self, gate: String) {
        self.call(move |agent| {
            let answer = agent.explain(&format!("gate:{gate}"));
            News::Explained(gate, Box::new(answer.map_err(|error| error.to_string())))
        });
    }

    pub fn set(&self, request: SetRequest) {
        self.call(move |agent| {
            let answer = agent.set(&request);
            let said = answer.map(|gate| format!("gate {} has its terms", gate.name));
            News::Answer(note(said))
        });
    }

    pub fn unset(&self, request: UnsetRequest) {
        self.call(move |agent| News::Answer(note(agent.unset(&request).map(|done| done.message))));
    }

    fn call(&self, ask: impl FnOnce(&Client) -> News + Send + 'static) {
        let to = self.sender.clone();
        thread::spawn(move || {
            let news = match connect::to_agent() {
                Ok(agent) => ask(&agent),
                Err(failure) => News::Answer(Note::Error(failure.message)),
            };
            // Nobody listens after the end.
            let _ = to.send(news);
        });
    }
}

fn note(answer: Result<String, ApiError>) -> Note {
    match answer {
        Ok(said) => Note::Done(said),
        Err(error) => Note::Error(error.to_string()),
    }
}

pub fn first_look(agent: &Client) -> Result<Vec<News>, ApiError> {
    let history = agent.history(PLOT_S)?;
    let status = agent.status()?;
    Ok(vec![
        News::History(history.points),
        News::Status(Box::new(status)),
    ])
}

fn follow(to: &Sender<News>, period_s: u64) -> Result<(), Stop> {
    let send = |news| to.send(news).map_err(|_| Stop::Closed);
    let agent = connect::to_agent()?;
    let events = past_events(&agent)?;
    let last_seq = events.last().map_or(0, |event| event.seq);
    send(News::NewAgent)?;
    send(News::Events(events))?;
    for one in first_look(&agent)? {
        send(one)?;
    }
    let mut stream = agent.stream_all(last_seq, period_s)?;
    while let Some(message) = stream.next_message()? {
        match message {
            Message::Status(status) => send(News::Status(status))?,
            Message::Event(event) => send(News::Events(vec![event]))?,
            // The agent remembers more events than the screen does.
            Message::Gap(_) => {}
        }
    }
    Ok(())
}

fn past_events(agent: &Client) -> Result<Vec<EventView>, ApiError> {
    let mut events = Vec::new();
    let mut since = 0;
    loop {
        let found = agent.events(since)?;
        if found.events.is_empty() {
            return Ok(events);
        }
        since = found.last_seq;
        events.extend(found.events);
    }
}
