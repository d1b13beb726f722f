//! The last second for the history of the machine, of figures that the control loop has anyway.

use tidegate_engine::clock::since_1970;
use tidegate_engine::control::Control;

use crate::history::Sample;
use crate::runtime::Runtime;

/// `late_steps` is how many the loop had at the last sample.
pub(crate) fn sample_second(runtime: &Runtime, late_steps: &mut u64) {
    let period_ns = runtime.control_loop.period_ns;
    let mut sample = sample(&runtime.control(), period_ns, late_steps);
    sample.unix_s = since_1970().as_secs();
    sample.allowance_cpus = runtime.decision().allowance_cpus as f32;
    runtime.history.add(sample);
}

/// Called with the loop's state locked: numbers are copied, nothing is read.
fn sample(control: &Control, period_ns: u64, late_before: &mut u64) -> Sample {
    let second = control.meter.second();
    let capacity_cpus = second.cpus(second.capacity_ns) as f32;
    let idle_cpus = second.cpus(second.idle_ns()) as f32;
    let late = &control.late_ever;
    let late_steps = late.total() - late.at_most(period_ns);
    let before = std::mem::replace(late_before, late_steps);
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
