//! What people do without a controller: set something once.

use super::{ALL_PPM, Sides, quota_us};
use crate::controller::Controller;
use crate::machine::Machine;
use crate::{Bandwidth, Ns, SimError};

/// One setting of the side groups, made at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Nothing at all: side work is main's equal.
    Nothing,
    Idle,
    /// cpu.weight 1.
    LeastWeight,
    /// cpu.max of this part of the machine, with this period.
    Max {
        ppm: u64,
        period_us: u64,
    },
}

/// A setting and whom it is for.
pub struct Fixed {
    setting: Setting,
    sides: Sides,
    refusal: Option<SimError>,
}

impl Fixed {
    /// Sets it at time 0, and is never heard of again.
    pub fn new(setting: Setting, sides: Sides) -> Self {
        Self {
            setting,
            sides,
            refusal: None,
        }
    }

    /// What the machine refused, if anything.
    pub fn refusal(&self) -> Option<&SimError> {
        self.refusal.as_ref()
    }

    fn apply(&self, machine: &mut Machine) -> Result<(), SimError> {
        for group in &self.sides.side {
            if self.sides.idle_class || self.setting == Setting::Idle {
                machine.set_idle(*group, true)?;
            }
            match self.setting {
                Setting::Nothing | Setting::Idle => {}
                Setting::LeastWeight => machine.set_weight(*group, 1)?,
                Setting::Max { ppm, period_us } => {
                    let quota = quota_us(ppm.min(ALL_PPM), machine.cpus(), period_us);
                    let bandwidth = Bandwidth {
                        quota_us: Some(quota),
                        period_us,
                        burst_us: 0,
                    };
                    machine.set_bandwidth(*group, bandwidth)?;
                }
            }
        }
        Ok(())
    }
}

impl Controller for Fixed {
    fn first_ns(&self) -> Ns {
        0
    }

    fn step(&mut self, machine: &mut Machine) -> Ns {
        self.refusal = self.apply(machine).err();
        Ns::MAX
    }

    fn refusal(&self) -> Option<String> {
        self.refusal.as_ref().map(ToString::to_string)
    }

    fn name(&self) -> &str {
        match self.setting {
            Setting::Nothing => "nothing",
            Setting::Idle => "cpu.idle",
            Setting::LeastWeight => "cpu.weight 1",
            Setting::Max { .. } => "static cpu.max",
        }
    }
}
