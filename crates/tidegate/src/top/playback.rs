//! A recording in the place of an agent: what it would have said at a moment.

use std::collections::HashMap;

use tidegate_api::{
    Decision, EventView, ExplainView, GateView, HeldView, HistoryPointView, Limit, StatusView,
    SumLineView, TermView,
};
use tidegate_recording::{Recording, Second, Work, WorkSecond};

use super::feed::News;
use super::screen::PLOT_S;
use crate::render::cpus_or_unknown;

/// Seconds of the recording for each second.
const SPEEDS: [u64; 7] = [1, 2, 5, 10, 30, 60, 300];

pub struct Playback {
    recording: Recording,
    /// Where each work was throttled, and for how long by then, in microseconds.
    throttled: HashMap<u32, Vec<(usize, u64)>>,
    at: usize,
    pub is_playing: bool,
    speed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Play,
    By(i64),
    /// To a time of the day, as seconds of it.
    To(u64),
    Speed(isize),
}

impl Playback {
    pub fn new(recording: Recording) -> Self {
        Self {
            at: recording.seconds.len().saturating_sub(1),
            throttled: throttled(&recording),
            recording,
            is_playing: false,
            speed: 0,
        }
    }

    fn speed(&self) -> u64 {
        SPEEDS[self.speed]
    }

    pub fn label(&self) -> String {
        let state = match self.is_playing {
            true => format!("plays {}x", self.speed()),
            false => "paused".to_owned(),
        };
        let last = self.recording.seconds.len();
        let damage = match self.recording.damaged_bytes {
            0 => String::new(),
            bytes => format!("; {bytes} damaged bytes are left out"),
        };
        let when = zoned(self.unix_s()).strftime("%d %b %H:%M:%S");
        format!(
            "recording: {when}, second {} of {last}, {state}{damage}",
            self.at + 1
        )
    }

    pub fn unix_s(&self) -> u64 {
        self.second().unix_ms / 1_000
    }

    fn second(&self) -> &Second {
        // A recording that was loaded has one.
        &self.recording.seconds[self.at]
    }

    /// A second has passed; whether the screen has something new.
    pub fn tick(&mut self) -> bool {
        if self.is_playing {
            self.by(self.speed() as i64);
            self.is_playing = self.at + 1 < self.recording.seconds.len();
        }
        self.is_playing
    }

    pub fn go(&mut self, to: Move) -> Result<(), String> {
        match to {
            Move::Play => {
                self.is_playing = !self.is_playing;
                if self.is_playing && self.at + 1 == self.recording.seconds.len() {
                    self.at = 0;
                }
            }
            Move::By(seconds) => self.by(seconds),
            Move::Speed(step) => {
                let last = SPEEDS.len() - 1;
                self.speed = self.speed.saturating_add_signed(step).min(last);
            }
            Move::To(second_of_day) => self.to(second_of_day)?,
        }
        Ok(())
    }

    fn by(&mut self, seconds: i64) {
        let to_ms = self.second().unix_ms.saturating_add_signed(seconds * 1_000);
        let seconds_there = &self.recording.seconds;
        let at = seconds_there.partition_point(|second| second.unix_ms < to_ms);
        let at = at.min(seconds_there.len() - 1);
        // A pause in the recording is one step.
        self.at = match seconds.signum() {
            1 => at.max((self.at + 1).min(seconds_there.len() - 1)),
            -1 => at.min(self.at.saturating_sub(1)),
            _ => self.at,
        };
    }

    fn to(&mut self, second_of_day: u64) -> Result<(), String> {
        let found = self
            .recording
            .seconds
            .iter()
            .position(|second| second_of_the_day(second.unix_ms / 1_000) == second_of_day);
        let (first, last) = self.recording.span_ms().unwrap_or_default();
        let clock = |unix_ms| clock(unix_ms / 1_000);
        self.at = found.ok_or_else(|| {
            format!(
                "nothing was recorded then; write a time from {} to {}",
                clock(first),
                clock(last)
            )
        })?;
        Ok(())
    }

    pub fn news(&self) -> Vec<News> {
        let now_ms = self.second().unix_ms;
        let since_ms = now_ms.saturating_sub(PLOT_S * 1_000);
        let seconds = &self.recording.seconds[..=self.at];
        let from = seconds.partition_point(|second| second.unix_ms < since_ms);
        let points = seconds[from..self.at].iter().map(point).collect();
        let events = self.recording.events.iter();
        let events = events.take_while(|event| event.unix_ms <= now_ms);
        let events = events.enumerate().map(|(nth, event)| EventView {
            seq: nth as u64 + 1,
            time_unix_seconds: event.unix_ms as f64 / 1e3,
            kind: event.kind.clone(),
            gate: event.gate.clone(),
            message: event.message.clone(),
        });
        vec![
            News::NewAgent,
            News::Events(events.collect()),
            News::History(points),
            News::Status(Box::new(self.status())),
        ]
    }

    fn status(&self) -> StatusView {
        let second = self.second();
        let machine = &self.recording.machine;
        let gates = second.works.iter().filter_map(|work| self.gate(work));
        StatusView {
            version: machine.version.clone(),
            mode: self.label(),
            engine: machine.engine.clone(),
            sensing: machine.sensing.clone(),
            cpus: machine.cpus,
            capacity_cpus: second.capacity_cpus.into(),
            main_cpus: second.main_cpus.into(),
            side_cpus: second.side_cpus.into(),
            idle_cpus: second.idle_cpus.into(),
            headroom_ratio: f64::from(second.headroom_pct) / 100.0,
            tolerance_ratio: f64::from(second.tolerance_pct) / 100.0,
            headroom_from: "as it was then".to_owned(),
            idle_kept_ratio: match second.capacity_cpus > 0.0 {
                true => f64::from(second.idle_cpus / second.capacity_cpus),
                false => 0.0,
            },
            decision: decision(second),
            gates: gates.collect(),
            alerts: second.alerts.clone(),
            ..StatusView::default()
        }
    }

    fn gate(&self, used: &WorkSecond) -> Option<GateView> {
        let work = self.recording.works.get(&used.id)?;
        let throttled = self.throttled.get(&used.id).map_or(&[][..], Vec::as_slice);
        let by_now = throttled.partition_point(|(nth, _)| *nth <= self.at);
        let throttled_us = by_now.checked_sub(1).map_or(0, |last| throttled[last].1);
        let allowance_cpus = used.allowance_cpus.map(f64::from);
        let used_cpus = f64::from(used.used_cpus);
        Some(GateView {
            name: work.name.clone(),
            target: work.cgroup.clone(),
            class: match work.is_gate {
                true => work.class.clone(),
                false => "no gate".to_owned(),
            },
            cgroup: work.cgroup.clone(),
            uid: work.uid,
            parent: work.parent.clone(),
            rule: work.rule.clone(),
            processes: used.processes.into(),
            usage_cpus: Some(used_cpus),
            allowance_cpus,
            throttled_seconds: throttled_us as f64 / 1e6,
            held: HeldView {
                limit: used.limit,
                meaning: used.limit.meaning().to_owned(),
                ..HeldView::default()
            },
            terms: terms(work),
            ..GateView::default()
        })
    }

    pub fn explain(&self, name: &str) -> Result<ExplainView, String> {
        let status = self.status();
        let gate = status.gates.iter().find(|gate| gate.name == name);
        let gate = gate.cloned().ok_or_else(|| {
            format!("{name} used no CPU in this second, so nothing is recorded of it")
        })?;
        let headroom_cpus = status.headroom_ratio * status.capacity_cpus;
        let sum = vec![
            SumLineView::new(
                "capacity",
                status.capacity_cpus,
                "less what the hypervisor took",
            ),
            SumLineView::new("- headroom", headroom_cpus, "in force then"),
            SumLineView::new("- main and the rest", status.main_cpus, "used"),
            SumLineView::new(
                "= side work may use",
                status.decision.allowance_cpus,
                "as the law had it",
            ),
            SumLineView::new("  side work used", status.side_cpus, ""),
        ];
        let summary = format!(
            "{name} used {} CPUs{}",
            cpus_or_unknown(gate.usage_cpus),
            match gate.allowance_cpus {
                Some(cpus) => format!(" of the {cpus:.2} that it was given"),
                None => String::new(),
            }
        );
        Ok(ExplainView {
            arithmetic: sum.iter().map(ToString::to_string).collect(),
            summary,
            sum,
            gate,
            status,
            ..ExplainView::default()
        })
    }
}

fn throttled(recording: &Recording) -> HashMap<u32, Vec<(usize, u64)>> {
    let mut sums: HashMap<u32, Vec<(usize, u64)>> = HashMap::new();
    for (nth, second) in recording.seconds.iter().enumerate() {
        for work in second.works.iter().filter(|work| work.throttled_us > 0) {
            let of_work = sums.entry(work.id).or_default();
            let before_us = of_work.last().map_or(0, |(_, us)| *us);
            of_work.push((nth, before_us + u64::from(work.throttled_us)));
        }
    }
    sums
}

fn terms(work: &Work) -> Vec<TermView> {
    let terms = work.terms.iter().map(|(name, value, source)| TermView {
        name: name.clone(),
        value: value.clone(),
        source: source.clone(),
        overrode: Vec::new(),
    });
    terms.collect()
}

/// What the loop decided then; its sentence is what main waited.
fn decision(second: &Second) -> Decision {
    let is_limited = second
        .works
        .iter()
        .any(|work| work.allowance_cpus.is_some());
    Decision {
        sentence: waits(second),
        limit: match (is_limited, second.is_at_tolerance) {
            (false, _) => Limit::IdleClass,
            (true, true) => Limit::Tolerance,
            (true, false) => Limit::Headroom,
        },
        allowance_cpus: second.allowance_cpus.into(),
        ..Decision::default()
    }
}

fn waits(second: &Second) -> String {
    match second.main_turns {
        0 => "how long main waited to run was not recorded".to_owned(),
        turns => format!(
            "main's tasks ran {turns} times and waited {} us in the mean, 99 of 100 no longer than {} us",
            second.main_wait_us / u64::from(turns),
            second.main_wait_p99_us
        ),
    }
}

fn point(second: &Second) -> HistoryPointView {
    HistoryPointView {
        time_unix_seconds: second.unix_ms / 1_000,
        samples: 1,
        capacity_cpus: second.capacity_cpus.into(),
        main_cpus: second.main_cpus.into(),
        side_cpus: second.side_cpus.into(),
        idle_cpus: second.idle_cpus.into(),
        allowance_cpus: second.allowance_cpus.into(),
        headroom_ratio: f64::from(second.headroom_pct) / 100.0,
        ..HistoryPointView::default()
    }
}

fn zoned(unix_s: u64) -> jiff::Zoned {
    let at = jiff::Timestamp::from_second(unix_s as i64).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::system())
}

fn second_of_the_day(unix_s: u64) -> u64 {
    let at = zoned(unix_s);
    (at.hour() as u64 * 60 + at.minute() as u64) * 60 + at.second() as u64
}

fn clock(unix_s: u64) -> String {
    zoned(unix_s).strftime("%H:%M:%S").to_string()
}

/// `14:03` or `14:03:20` as seconds of the day.
pub fn time_of_day(text: &str) -> Option<u64> {
    let parts: Vec<u64> = text
        .trim()
        .split(':')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let (hour, minute, second) = match parts[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    (hour < 24 && minute < 60 && second < 60).then_some((hour * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests;
