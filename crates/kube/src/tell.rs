//! What is told of a pod: its events, and a line of the log.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use tracing::{info, warn};

/// A call to the API server that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The API server takes 1 kB.
const NOTE_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// What is written for the pod does not hold.
    TermsIgnored,
    TermsRefused,
    /// A limit of kubelet's, or of a group above, is lower.
    TermsBounded,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Reason::TermsIgnored => "TidegateTermsIgnored",
            Reason::TermsRefused => "TidegateTermsRefused",
            Reason::TermsBounded => "TidegateTermsBounded",
        }
    }
}

pub struct Teller {
    client: Client,
    reporter: Reporter,
    recorder: Recorder,
    /// The last note of a kind, by the pod's UID.
    told: HashMap<String, HashMap<Reason, String>>,
}

impl Teller {
    pub fn new(client: Client, node: &str) -> Self {
        let reporter = Reporter {
            controller: "tidegate-kube".into(),
            instance: Some(node.to_owned()),
        };
        Teller {
            recorder: Recorder::new(client.clone(), reporter.clone()),
            client,
            reporter,
            told: HashMap::new(),
        }
    }

    /// A fault of a pod's terms; once, until it is another. An empty note ends it.
    pub fn fault(&mut self, pod: &Pod, reason: Reason, note: String) {
        let told = self.told.entry(pod.uid().unwrap_or_default()).or_default();
        if told.get(&reason).map_or("", String::as_str) == note {
            return;
        }
        told.insert(reason, note.clone());
        if note.is_empty() {
            return;
        }
        warn!("{}: {note}", shown(pod));
        // A recorder takes two events that differ in the note alone for one.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        publish(recorder, pod, reason.name(), "Gate", note);
    }

    /// A side pod stands at its tolerance; `action` is what comes of it. Said again and again, it
    /// stays one event.
    pub fn starved(&self, pod: &Pod, action: &str, note: String) {
        info!("{}: {note}", shown(pod));
        publish(self.recorder.clone(), pod, "TidegateStarved", action, note);
    }

    pub fn keep(&mut self, pods: &[Arc<Pod>]) {
        let there: HashSet<String> = pods.iter().filter_map(|pod| pod.uid()).collect();
        self.told.retain(|uid, _| there.contains(uid));
    }
}

pub fn shown(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn publish(recorder: Recorder, pod: &Pod, reason: &str, action: &str, note: String) {
    let event = Event {
        type_: EventType::Warning,
        reason: reason.into(),
        note: Some(note.chars().take(NOTE_MAX).collect()),
        action: action.into(),
        secondary: None,
    };
    let about = pod.object_ref(&());
    tokio::spawn(async move {
        let published = tokio::time::timeout(PATIENCE, recorder.publish(&event, &about)).await;
        if let Ok(Err(error)) = published {
            warn!("event of {}: {error}", about.name.unwrap_or_default());
        }
    });
}
