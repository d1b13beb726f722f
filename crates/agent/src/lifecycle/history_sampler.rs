//! The last second for the history of the machine, of figures that the control loop has anyway.

use tidegate_engine::clock::since_1970;
use tidegate_engine::control::Control;

use crate::history::Sample;
use crate::runtime::Runtime;

#[derive(Default)]
pub(crate) struct HistorySampler {
    late_steps: u64,
}

impl HistorySampler {
    pub(crate) fn poll(&mut self, runtime: &Runtime) {
        let period_ns = runtime.control_loop.period_ns;
        let mut sample = self.sample(&runtime.control(), period_ns);
        sample.unix_s = since_1970().as_secs();
        sample.allowance_cpus = runtime.decision().allowance_cpus as f32;
        runtime.history.add(sample);
    }

    /// Called with the loop's state locked: numbers are copied, nothing is read.
    fn sample(&mut self, control: &Control, period_ns: u64) -> Sample {
        let second = control.meter.second();
        let capacity_cpus = second.cpus(second.capacity_ns) as f32;
        let idle_cpus = second.cpus(second.idle_ns()) as f32;
        let late = &control.late_ever;
        let late_steps = late.total() - late.at_most(period_ns);
        let before = std::mem::replace(&mut self.late_steps, late_steps);
        Sample {
            unix_s: 0,
            capacity_cpus,
            main_cpus: second.cpus(second.busy_ns.saturating_sub(second.side_ns)) as f32,
            side_cpus: second.cpus(second.side_ns) as f32,
            idle_cpus,
            allowance_cpus: 0.0,
            headroom_ratio: control.headroom_ppm() as f32 / 1e6,
            idle_kept_ratio: match capacity_cpus > 0.0 {
                true => idle_cpus / capacity_cpus,
                false => 0.0,
            },
            late_steps: u32::try_from(late_steps.saturating_sub(before)).unwrap_or(u32::MAX),
        }
    }
}
