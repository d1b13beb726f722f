//! What is simulated: ways of placing side work, how much CPUs that share a core slow each other, and the machine of both.

use tidegate_sim::{Contention, MachineConfig};

use super::report::{Placing, Run, Slowdown};
use crate::LabError;
use crate::beds::sim::control::Control;
use crate::beds::sim::server;

/// A way of placing side work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Who keeps the headroom.
    pub control: Control,
    /// Which part of the machine, percent, where the control takes it.
    pub headroom_pct: u32,
}

/// This control at this headroom.
pub const fn arm(control: Control, headroom_pct: u32) -> Arm {
    Arm {
        control,
        headroom_pct,
    }
}

impl Arm {
    /// Every arm, in the tables' order.
    pub const ALL: [Arm; 12] = [
        Arm::NO_SIDE,
        arm(Control::WeightOne, 0),
        Arm::CPU_IDLE,
        arm(Control::KnobsBpf, 30),
        arm(Control::KnobsBpf, 20),
        arm(Control::KnobsCores, 30),
        arm(Control::KnobsCoresIdle, 30),
        arm(Control::KnobsWeight, 30),
        arm(Control::StaticMax, 30),
        arm(Control::Sideloader, 30),
        arm(Control::Koordlet, 35),
        arm(Control::Katalyst, 0),
    ];
    /// Those over the range of the contention coefficients.
    pub const SWEPT: [Arm; 4] = [
        Arm::NO_SIDE,
        Arm::CPU_IDLE,
        arm(Control::KnobsBpf, 30),
        arm(Control::KnobsCores, 30),
    ];

    /// Whether the targets are meant for it: the product's engine at 30 %.
    pub fn has_target(self) -> bool {
        self.headroom_pct == 30 && matches!(self.control, Control::KnobsBpf | Control::KnobsCores)
    }

    /// In tables.
    pub fn label(self) -> String {
        match self.control {
            ours if ours.is_tidegate() => {
                format!("{}, {} %", self.control.label(), self.headroom_pct)
            }
            other => other.label().into(),
        }
    }

    /// The cpu.headroom patches' arm that this one stands for.
    pub fn published_key(self) -> String {
        match self.control {
            ours if ours.is_tidegate() => {
                format!("tidegate_{}", self.headroom_pct)
            }
            other => other.key().into(),
        }
    }
}

impl Slowdown {
    /// In tables.
    pub fn label(self) -> String {
        match self {
            Slowdown::Shipped => "as shipped".into(),
            Slowdown::Scaled(pct) => format!("{pct} %"),
            Slowdown::Low => "least plausible".into(),
            Slowdown::High => "most plausible".into(),
        }
    }

    fn of(self, shipped: Contention) -> Result<Contention, LabError> {
        let scale =
            |ppm: u32, pct: u32| (u64::from(ppm) * u64::from(pct) / 100).min(1_000_000) as u32;
        match self {
            Slowdown::Shipped => Ok(shipped),
            Slowdown::Scaled(pct) => Ok(Contention {
                sibling_ppm: scale(shipped.sibling_ppm, pct),
                llc_ppm: scale(shipped.llc_ppm, pct),
                machine_ppm: scale(shipped.machine_ppm, pct),
                ..shipped
            }),
            Slowdown::Low | Slowdown::High => Contention::shipped_sweep()
                .map(|sweep| {
                    if self == Slowdown::Low {
                        sweep.low
                    } else {
                        sweep.high
                    }
                })
                .map_err(|e| LabError::simulation("the shipped range", e.to_string())),
        }
    }
}

impl Placing for Arm {
    const NO_SIDE: Arm = arm(Control::NoSide, 0);
    const CPU_IDLE: Arm = arm(Control::CpuIdle, 0);

    fn key(self) -> String {
        match self.control {
            ours if ours.is_tidegate() => format!("{}_{}", ours.key(), self.headroom_pct),
            other => other.key().into(),
        }
    }

    fn kept_pct(self) -> f64 {
        match self.control.is_tidegate() {
            true => f64::from(self.headroom_pct),
            false => 0.0,
        }
    }
}

/// One simulation.
pub type Cell = Run<Arm>;

/// The machine of a cell.
pub fn config(c: Cell, seed: u64) -> Result<MachineConfig, LabError> {
    let mut config = server(c.cpus, seed)?;
    config.contention = c.slowdown.of(config.contention)?;
    // Millions of events each; the experiment's quick form and the tests check.
    config.check = false;
    Ok(config)
}
