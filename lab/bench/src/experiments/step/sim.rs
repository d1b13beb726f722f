//! Simulated: each step is a simulation of its own.

use std::sync::Arc;

use tidegate_sim::workloads::Common;
use tidegate_sim::{MachineConfig, Prng};

use super::report::{Step, Who, bins, report, sample};
use super::{HIGH_PCT, LOW_PCT};
use crate::LabError;
use crate::beds::HEADROOM_PCT;
use crate::beds::sim::constant::{self, Orders};
use crate::beds::sim::control::{Control, allowance_pct};
use crate::beds::sim::setup::Setup;
use crate::beds::sim::{MS, S, Stage, derive, plain};
use crate::experiments::settle::{Point, Trace};
use crate::options::{LabOptions, Sense};
use crate::report::{Report, Sample};

/// Sizes of the full run.
const SIZES: [u32; 2] = [16, 64];
/// Side is looked at this often.
const LOOK_NS: u64 = MS;
/// Before the step, so that who starts at the tolerance has ramped up.
const SETTLE_NS: u64 = 3 * S;

const NOTE: &str = "Settled: the least t for which side's mean rate over [t, t + 20 ms] and over [t, t + 200 ms] is \
         within 5 points of its new allowance by that controller's own law. Reaction: side's CPU above the new \
         allowance over the first second, over the drop. The published laws start in their steady state. \
         Mechanism: when each controller looks, what it decides and writes, and what cpu.max makes of the write. \
         The model's: the step itself (every CPU's thread within 2 ms), exact counters for the published laws \
         (kinder than the ticks that they read), and no contention.";

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Size of the machine.
    pub cpus: u32,
    /// Who keeps the headroom.
    pub control: Control,
    /// From 0.
    pub number: u32,
}

/// Runs the experiment.
pub fn run(options: &LabOptions) -> Result<Report, LabError> {
    let stage = Stage::new(options);
    let sizes = stage.sizes(stage.quick_or(&SIZES[..1], &SIZES[..]));
    let mut cells = Vec::new();
    for &cpus in &sizes {
        let each = options.rounds;
        let each = each.unwrap_or(stage.quick_or(4, if cpus <= 16 { 20 } else { 8 }));
        for control in controls(options) {
            // A published law's steps are ten times as long, and spread over seconds anyway.
            let steps = if control.is_tidegate() {
                each
            } else {
                each / 4
            };
            cells.extend((0..steps.max(1)).map(|number| Cell {
                cpus,
                control,
                number,
            }));
        }
    }
    let steps = stage.cells(
        &cells,
        |c| {
            let (high_ns, back_ns) = lengths(c.control);
            (SETTLE_NS + high_ns + back_ns) / MS * u64::from(c.cpus) / 500
        },
        label,
        |c| simulate(*c, options.seed),
    )?;
    {
        let example = config(sizes[0], options.seed);
        let bed = stage.bed(&sizes, &example, "EEVDF; ext for its own steps");
        let mut report = report(bed, steps, None, |m| usize::from(m < 10.0))?;
        report.notes.push(NOTE.into());
        Ok(report)
    }
}

fn controls(options: &LabOptions) -> Vec<Control> {
    let ours = match options.sense {
        Some(Sense::Bpf) => vec![Control::KnobsBpf],
        Some(Sense::Usage) => vec![Control::KnobsUsage],
        None => vec![Control::KnobsBpf, Control::KnobsUsage],
    };
    let theirs = [Control::Sideloader, Control::Koordlet, Control::Katalyst];
    ours.into_iter().chain(theirs).collect()
}

/// How long main stays high, and how long it is watched after: long enough for that control.
fn lengths(control: Control) -> (u64, u64) {
    match control {
        Control::Sideloader | Control::Koordlet => (5 * S, 12 * S),
        Control::Katalyst => (30 * S, S),
        _ => (2 * S, 3 * S),
    }
}

fn label(c: &Cell) -> String {
    format!(
        "{} CPUs, {}, step {}",
        c.cpus,
        c.control.label(),
        c.number + 1
    )
}

/// The machine of a cell.
pub fn config(cpus: u32, seed: u64) -> MachineConfig {
    MachineConfig {
        check: false,
        ..plain(cpus, seed)
    }
}

fn simulate(c: Cell, seed: u64) -> Result<Sample<Step>, LabError> {
    // The same moments for every control.
    let seed = derive(seed, &[u64::from(c.cpus), u64::from(c.number)]);
    let mut setup = Setup::new(config(c.cpus, seed), c.control, HEADROOM_PCT, LOW_PCT)?;
    let (high_ns, back_ns) = lengths(c.control);
    let up_ns = SETTLE_NS + Prng::new(seed).below(S);
    let down_ns = up_ns + high_ns;
    let ppm = |pct: f64| (pct * 1e4) as u32;
    let orders: Orders = Arc::from([
        (0, ppm(LOW_PCT)),
        (up_ns, ppm(HIGH_PCT)),
        (down_ns, ppm(LOW_PCT)),
    ]);
    let common = Common {
        seed,
        ..Common::new("main", setup.main)
    };
    constant::start(&mut setup.sim.machine, &common, &orders)?;
    setup.start_hogs(c.cpus, seed)?;
    let mut points = Vec::new();
    let mut at_ns = up_ns - S;
    while at_ns <= down_ns + back_ns {
        setup.advance(at_ns)?;
        points.push(Point {
            at_ns,
            cpu_ns: setup.sim.machine.usage_ns(setup.side),
        });
        at_ns += LOOK_NS;
    }
    let trace = Trace {
        points: &points,
        cpus: f64::from(c.cpus),
    };
    let low = allowance_pct(c.control, c.cpus, LOW_PCT);
    let new = allowance_pct(c.control, c.cpus, HIGH_PCT);
    let down = trace
        .step_down(up_ns, new, down_ns)
        .ok_or_else(|| LabError::simulation("step", "the trace is too short to judge it"))?;
    let key = Step {
        who: who(c.control),
        cpus: Some(c.cpus),
        valid: (down.old_pct - low).abs() <= 10.0,
        // From 200 ms before the step to 1.5 s after it.
        trace: bins(&trace, up_ns, 0..170),
    };
    let give_back_ms = trace.give_back_ms(down_ns, low);
    Ok(sample(key, &down, Some(give_back_ms), new)
        .with("cpus", c.cpus)
        .with("step", c.number + 1))
}

fn who(control: Control) -> Who {
    Who {
        key: control.key(),
        label: control.label(),
        target_ms: match control {
            Control::KnobsBpf => Some(20.0),
            Control::KnobsUsage => Some(60.0),
            _ => None,
        },
    }
}
