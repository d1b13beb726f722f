//! Ways of placing side work beside main: the arms of several experiments.

use tidegate_sim::engines::cgroup::Sensing;

use crate::experiment::Arm;
use crate::runners::sim;
use crate::scene::{Group, Keeper, Law, Scene};

/// What the experiments ask to keep idle, percent of the machine.
pub const HEADROOM_PCT: u32 = 30;
/// What side work may always have, of the machine.
pub const TOLERANCE: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placing {
    NoSide,
    AsStarted,
    OwnGroup,
    /// In a group of the least weight, as in the cpu.headroom patches (2019).
    WeightOne,
    /// In the idle class: the strongest simple alternative.
    CpuIdle,
    /// A headroom of 0 is none: what `tidegate run` does by itself.
    Tidegate(u32, Option<Sensing>, bool),
    Law(Law),
}

impl Placing {
    pub const fn tidegate(headroom_pct: u32) -> Self {
        Placing::Tidegate(headroom_pct, None, false)
    }

    pub fn arm(self) -> Arm {
        let sensed = |sense: Option<Sensing>| match sense {
            None => ("", ""),
            Some(Sensing::Bpf) => ("_bpf", ", BPF sensing"),
            Some(Sensing::Usage) => ("_usage", ", usage files"),
        };
        match self {
            Placing::NoSide => Arm::new("no_side", "no side work"),
            Placing::AsStarted => Arm::new("as_started", "as people start it"),
            Placing::OwnGroup => Arm::new("own_group", "own group"),
            Placing::WeightOne => Arm::new("weight_1", "weight 1"),
            Placing::CpuIdle => Arm::new("cpu_idle", "cpu.idle"),
            Placing::Tidegate(0, ..) => Arm::new("tidegate", "Tidegate"),
            Placing::Tidegate(pct, sense, whole_cores) => {
                let (key, label) = match whole_cores {
                    false => ("tidegate", "Tidegate"),
                    true => ("tidegate_cores", "Tidegate on whole cores"),
                };
                let (by, sensing) = sensed(sense);
                Arm::new(
                    format!("{key}_{pct}{by}"),
                    format!("{label} {pct} %{sensing}"),
                )
            }
            Placing::Law(Law::Sideloader) => Arm::new("sideloader", "sideloader's law"),
            Placing::Law(Law::Koordlet) => Arm::new("koordlet", "koordlet's law"),
            Placing::Law(Law::Katalyst) => Arm::new("katalyst", "Katalyst's law"),
        }
    }

    /// The part of the machine that it keeps idle.
    pub fn headroom(self) -> f64 {
        match self {
            Placing::Tidegate(pct, ..) => f64::from(pct) / 100.0,
            _ => 0.0,
        }
    }

    /// The part of the machine that side work should get while main takes this one.
    pub fn allowance(self, cpus: u32, busy: f64) -> f64 {
        match self {
            Placing::Law(law) => sim::allowance(law, cpus, busy),
            _ => (1.0 - self.headroom() - busy).max(TOLERANCE),
        }
    }

    /// Adds main's group and side's. A published law starts in its steady state beside a main that
    /// takes this part of the machine, and more where siblings are busy.
    pub fn groups(self, scene: &mut Scene, busy: f64) -> (usize, usize) {
        let mut terms = vec!["class=main".into()];
        match self {
            Placing::Tidegate(0, ..) => terms.clear(),
            Placing::Tidegate(pct, ..) => terms.push(format!("headroom={pct}%")),
            _ => {}
        }
        let main = scene.group(Group {
            terms,
            ..Group::new("main")
        });
        if self == Placing::AsStarted {
            return (main, main);
        }
        let light = matches!(self, Placing::WeightOne | Placing::Tidegate(_, _, true));
        let side = scene.group(Group {
            idle: !light && self != Placing::OwnGroup,
            weight: u32::from(light),
            terms: vec!["class=side".into()],
            ..Group::new("side")
        });
        scene.keeper = match self {
            Placing::Tidegate(_, sense, whole_cores) => Keeper::Tidegate { sense, whole_cores },
            Placing::Law(law) => {
                let sibling_ppm = scene.model.contention.sibling_ppm;
                let speed = (1.0 - f64::from(sibling_ppm) / 1e6).max(0.1);
                Keeper::Law(law, ((busy / speed).min(0.99) * 1e6) as u64)
            }
            _ => Keeper::Nobody,
        };
        (main, side)
    }
}
