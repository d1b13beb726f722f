use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::events::EventKind;
use crate::server::connection::{Connections, STREAMS, converse};
use crate::tests::{Bed, Kind};

fn read(query: &str) -> ApiResult<Asked> {
    Asked::read(query, &HeaderMap::new())
}

fn agent() -> (Bed, Arc<Agent>) {
    let bed = Bed::new(Kind::V2);
    let agent = Arc::new(bed.agent().unwrap());
    (bed, agent)
}

fn reader(agent: &Arc<Agent>, query: &str) -> Reader {
    let place = Connections::new(&STREAMS).admit(None).unwrap();
    Reader::new(Arc::clone(agent), None, &read(query).unwrap(), place)
}

fn tell(agent: &Agent, count: usize) {
    for _ in 0..count {
        let events = &agent.runtime.events;
        events.tell(EventKind::GateCreated, Some("g"), "side work");
    }
}

fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .collect()
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(test);
}

#[test]
fn what_is_asked_for_is_read_or_refused() {
    let events = Asked {
        events: true,
        ..Asked::default()
    };
    assert_eq!(read("").unwrap(), events);
    let both = read("topics=status,events&period_seconds=5&since=7").unwrap();
    assert_eq!(both.status, Some(Duration::from_secs(5)));
    assert_eq!((both.events, both.since), (true, Some(7)));
    for wrong in [
        "topics=",
        "topics=events,all",
        "period_seconds=0",
        "period_seconds=3601",
        "since=x",
    ] {
        assert_eq!(read(wrong).unwrap_err().kind, ErrorKind::Usage, "{wrong}");
    }
    let mut headers = HeaderMap::new();
    headers.insert("last-event-id", "9".parse().unwrap());
    let resumed = Asked::read("since=7", &headers).unwrap();
    assert_eq!(resumed.since, Some(9));
    headers.insert("last-event-id", "x".parse().unwrap());
    assert!(Asked::read("", &headers).is_err());
}

#[test]
fn a_reader_gets_what_is_new_or_resumes() {
    let (_bed, agent) = agent();
    tell(&agent, 3);
    block_on(async {
        let mut new = reader(&agent, "");
        let mut resumed = reader(&agent, "since=1");
        assert_eq!(new.next().await.unwrap(), "retry: 1000\n\n");
        resumed.next().await.unwrap();
        assert_eq!(values(&resumed.next().await.unwrap(), "id"), ["2", "3"]);
        tell(&agent, 1);
        let text = new.next().await.unwrap();
        assert_eq!(values(&text, "id"), ["4"]);
        assert_eq!(values(&text, "event"), ["gate.created"]);
        let event: tidegate_api::EventView =
            serde_json::from_str(values(&text, "data")[0]).unwrap();
        assert_eq!((event.seq, event.gate.as_deref()), (4, Some("g")));
        assert_eq!(values(&resumed.next().await.unwrap(), "id"), ["4"]);
    });
}

#[test]
fn a_reader_that_falls_behind_is_told_of_the_gap_and_goes_on() {
    let (_bed, agent) = agent();
    block_on(async {
        let mut slow = reader(&agent, "");
        slow.next().await.unwrap();
        // The ring keeps ten thousand.
        tell(&agent, 10_005);
        let text = slow.next().await.unwrap();
        assert!(text.starts_with("event: gap\ndata: {\"lost\":5,\"next_seq\":6}\n\n"));
        assert_eq!(values(&text, "id").len(), EVENTS_MAX);
        assert_eq!(values(&text, "id")[0], "6");
        let mut later = reader(&agent, "since=99999");
        let text = later.next().await.unwrap();
        assert!(text.contains("event: gap\ndata: {\"lost\":null,\"next_seq\":1}"));
    });
}

#[test]
fn a_status_comes_each_period_and_a_comment_where_nothing_happens() {
    let (_bed, agent) = agent();
    block_on(async {
        let mut both = reader(&agent, "topics=events,status&period_seconds=10");
        both.next().await.unwrap();
        let began = Instant::now();
        for nth in 0..3 {
            let text = both.next().await.unwrap();
            assert_eq!(values(&text, "event"), ["status"]);
            assert!(values(&text, "id").is_empty());
            let waited_s = began.elapsed().as_secs();
            assert_eq!(waited_s, 10 * nth, "status {nth}");
        }
        let mut quiet = reader(&agent, "");
        quiet.next().await.unwrap();
        let began = Instant::now();
        assert_eq!(quiet.next().await.unwrap(), ": still here\n\n");
        assert_eq!(began.elapsed().as_secs(), HEARTBEAT.as_secs());
    });
}

/// A connection with a stream on it, the caller's end, and its request written.
async fn open(agent: &Arc<Agent>) -> (UnixStream, tokio::task::JoinHandle<()>) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let agent = Arc::clone(agent);
    let stream = async move || {
        let place = Connections::new(&STREAMS).admit(None).unwrap();
        answer(agent, None, &read("topics=events&since=0").unwrap(), place)
    };
    let calls = Router::new().route("/v1/stream", get(stream));
    let served = tokio::spawn(converse(theirs, calls, (), ()));
    let request = b"GET /v1/stream HTTP/1.1\r\nhost: tidegate\r\n\r\n";
    ours.write_all(request).await.unwrap();
    (ours, served)
}

#[test]
fn a_reader_that_does_not_read_is_cut_off_and_one_that_reads_is_not() {
    let (_bed, agent) = agent();
    // More than the socket's buffers take.
    tell(&agent, 10_000);
    block_on(async {
        let (_deaf, served) = open(&agent).await;
        served.await.unwrap();
        let (mut ours, served) = open(&agent).await;
        let mut text = String::new();
        while !text.contains("id: 10000\n") {
            let mut bytes = [0; 4096];
            let count = ours.read(&mut bytes).await.unwrap();
            assert!(count > 0, "it was cut off");
            text += &String::from_utf8_lossy(&bytes[..count]);
        }
        // Much longer than a call may take.
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(!served.is_finished());
        drop(ours);
        served.await.unwrap();
    });
}
