//! Headroom that is found, by harm or for an objective: what the loop is told of it and what it tells, and the use that it last saw.

use super::auto::MOST_PPM;
use super::{Control, Found, Protection, Use};
use crate::sense::WaitHistogram;

impl Control {
    /// Who used what between the last two samples.
    pub fn window(&self) -> &Use {
        &self.window
    }

    /// A latency of main, reported from outside.
    pub fn report(&mut self, latency_ns: u64) {
        self.protect.report(latency_ns);
    }

    /// What main's run delay asked for on top of the headroom, if it has an objective.
    pub fn protection(&self) -> Option<Protection> {
        self.protect.protection(self.sensor.as_ref())
    }

    /// How long neutral tasks and main's waited to run since the sensor was opened; `None` where it cannot tell.
    pub fn waits_by_class(&self) -> Option<[WaitHistogram; 2]> {
        self.sensor.waits_by_class()
    }

    /// The headroom that was found, if it is to be.
    pub fn found(&self) -> Option<Found> {
        self.auto.found()
    }

    /// An earlier loop found this headroom, in percent: its search begins there.
    pub fn begin_headroom_at(&mut self, level_pct: u32) {
        self.auto.begin_at(level_pct);
        self.law.set_terms(self.machine_terms());
    }

    /// The headroom that is known to keep harm within the aim, in percent.
    pub fn known_headroom_pct(&self) -> Option<u32> {
        self.auto.known_pct()
    }

    /// The headroom that is kept for the moment, to compare main.
    pub fn compared_ppm(&self) -> Option<u32> {
        self.auto.is_low().then_some(MOST_PPM)
    }
}
