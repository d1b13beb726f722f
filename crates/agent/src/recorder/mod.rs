//! The recorder writes down each second of the machine, its gates and its other groups ([`works`])
//! into a directory of bounded size, and, some seconds after an event that needs a look, the last
//! ten minutes with every step of the loop into a file of their own.

mod dump;
mod seconds;
mod works;

use std::path::Path;

use tidegate_api::RecordingView;
use tidegate_cgroup::RealFs;
use tidegate_cgroup::topology::Topology;
use tidegate_engine::sync::lock;
use tidegate_recording::store::{Limits, Store};
use tidegate_recording::{Event, Machine};
use tracing::{info, warn};

use crate::agent::Agent;
use crate::recorder::dump::Dumps;
use crate::recorder::seconds::Seconds;
use crate::recorder::works::Works;
use crate::runtime::Runtime;
use crate::runtime::scheduler_view::engine;

const KEEP_MS: u64 = 7 * 24 * 3_600 * 1_000;

pub(crate) struct Recorder {
    store: Store,
    bytes_max: u64,
    seconds: Seconds,
    works: Works,
    dumps: Dumps,
    last_seq: u64,
    was_failing: bool,
}

impl Recorder {
    pub(crate) fn begin(agent: &Agent) -> Option<Self> {
        let runtime = &agent.runtime;
        if let Some(why) = runtime.recorder.no_room() {
            warn!("{why}");
            lock(&runtime.alerts).insert(why.to_owned());
        }
        let (dir, bytes_max) = runtime.recorder.place()?;
        match Self::open(agent, dir, bytes_max) {
            Ok(recorder) => {
                info!("recorder: {}, at most {bytes_max} bytes", dir.display());
                Some(recorder)
            }
            Err(error) => {
                let why = format!(
                    "recorder: {}: {error}; nothing is recorded (recording = \"off\" in the configuration ends this)",
                    dir.display()
                );
                warn!("{why}");
                lock(&runtime.alerts).insert(why);
                None
            }
        }
    }

    fn open(agent: &Agent, dir: &Path, bytes_max: u64) -> std::io::Result<Self> {
        // Dumps have a part of the room of their own.
        let limits = Limits {
            bytes_max: bytes_max - bytes_max / 4,
            keep_ms: KEEP_MS,
        };
        Ok(Self {
            store: Store::open(dir, limits, machine(&agent.runtime))?,
            bytes_max,
            seconds: Seconds::default(),
            works: Works::default(),
            dumps: Dumps::new(dir, bytes_max / 4),
            last_seq: 0,
            was_failing: false,
        })
    }

    pub(crate) fn poll(&mut self, agent: &Agent) {
        let runtime = &agent.runtime;
        let mut second = self.seconds.poll(runtime);
        second.works = self.works.poll(&agent.gates, runtime);
        self.works
            .take_changed()
            .for_each(|id| self.store.forget(id));
        let mut written = self.store.add(&second, self.works.known());
        for event in runtime.events.after(self.last_seq).events {
            self.last_seq = event.seq;
            self.dumps.take(&event, second.unix_ms);
            let event = Event {
                unix_ms: (event.time_unix_seconds * 1e3) as u64,
                kind: event.kind,
                gate: event.gate,
                message: event.message,
            };
            written = written.and(self.store.add_event(&event));
        }
        self.tell_of_failure(written.err());
        let flight = runtime.recorder.flight();
        self.dumps
            .write_when_due(flight, &self.store, second.unix_ms);
        runtime.recorder.tell(RecordingView {
            directory: self.store.dir().display().to_string(),
            bytes: self.store.bytes() + self.dumps.bytes(),
            bytes_max: self.bytes_max,
            lost: self.store.lost(),
        });
    }

    fn tell_of_failure(&mut self, error: Option<std::io::Error>) {
        let is_failing = error.is_some();
        if let Some(error) = error.filter(|_| !self.was_failing) {
            let dir = self.store.dir().display();
            warn!("recorder: {dir}: {error}; seconds are lost until it can be written");
        }
        self.was_failing = is_failing;
    }
}

fn machine(runtime: &Runtime) -> Machine {
    let topology = Topology::read(&RealFs::new()).unwrap_or_default();
    let threads = topology.cores().iter().map(|core| core.cpus.len()).max();
    let kernel = rustix::system::uname();
    let control = runtime.control();
    Machine {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel.release().to_string_lossy().into_owned(),
        cpus: control.online_cpus(),
        threads_per_core: threads.unwrap_or(1) as u32,
        engine: engine(&runtime.sched_ext).to_owned(),
        sensing: control.sensing().to_owned(),
    }
}
