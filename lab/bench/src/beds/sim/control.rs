//! Who keeps the headroom in the simulated experiments.

use tidegate_sim::engines::knobs::{Knobs, KnobsConfig, Sensing, Yields, compile};
use tidegate_sim::policies::{
    Katalyst, Koordlet, PerfIso, Policy, Published, Sideloader, Sides, SmartHarvest,
};
use tidegate_sim::{Controller, EevdfConfig, GroupId, GroupSpec, MachineConfig};

use crate::beds::{HEADROOM_PCT, TOLERANCE_PCT};

/// Groups get their numbers in the order in which they are added; 0 is the root.
pub const MAIN: GroupId = GroupId(1);
/// Side's.
pub const SIDE: GroupId = GroupId(2);

const HEADROOM_PPM: u64 = 300_000;

/// A way of holding side work back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// There is no side work.
    NoSide,
    /// A group of its own at default weight: as a service or a container starts.
    OwnGroup,
    /// cpu.weight 1 and nothing else, as the cpu.headroom patches' side work.
    WeightOne,
    /// cpu.idle and nothing else.
    CpuIdle,
    /// Tidegate's engine on kernel files, BPF sensing.
    KnobsBpf,
    /// ... with side work of weight 1 in place of cpu.idle.
    KnobsWeight,
    /// ... with cpu.idle, and side work confined to whole cores.
    KnobsCoresIdle,
    /// ... with weight 1, and side work confined to whole cores: what the agent does where `space` is on.
    KnobsCores,
    /// ... sensing by usage files.
    KnobsUsage,
    /// Tidegate's engine on sched_ext.
    Ext,
    /// cpu.idle and a quota that stands, 30 % of the machine: the cpu.headroom patches' example.
    StaticMax,
    /// The law of resctl-demo's sideloader.
    Sideloader,
    /// koordlet's.
    Koordlet,
    /// Katalyst's.
    Katalyst,
    /// PerfIso's.
    PerfIso,
    /// SmartHarvest's.
    SmartHarvest,
}

impl Control {
    /// Period of the standing quota.
    pub const STANDING_PERIOD_US: u64 = 100_000;
    const STANDING_PCT: u64 = 30;

    /// In JSON and CSV, and in tables.
    fn names(self) -> [&'static str; 2] {
        match self {
            Control::NoSide => ["no_side", "no side work"],
            Control::OwnGroup => ["own_group", "own group"],
            Control::WeightOne => ["weight_1", "weight 1"],
            Control::CpuIdle => ["cpu_idle", "cpu.idle"],
            Control::KnobsBpf => ["knobs", "Tidegate knobs"],
            Control::KnobsWeight => ["knobs_weight", "knobs, weight 1"],
            Control::KnobsCoresIdle => ["knobs_cores_idle", "knobs on whole cores, cpu.idle"],
            Control::KnobsCores => ["knobs_cores", "Tidegate knobs on whole cores"],
            Control::KnobsUsage => ["knobs_usage", "Tidegate knobs, usage files"],
            Control::Ext => ["ext", "Tidegate ext"],
            Control::StaticMax => ["static_max", "static cpu.max, 30 %"],
            Control::Sideloader => ["sideloader", "sideloader's law"],
            Control::Koordlet => ["koordlet", "koordlet's law"],
            Control::Katalyst => ["katalyst", "Katalyst's law"],
            Control::PerfIso => ["perfiso", "PerfIso's law"],
            Control::SmartHarvest => ["smartharvest", "SmartHarvest's law"],
        }
    }

    /// In tables.
    pub fn label(self) -> &'static str {
        self.names()[1]
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        self.names()[0]
    }

    /// Whether it is ours.
    pub fn is_tidegate(self) -> bool {
        self.is_knobs() || self == Control::Ext
    }

    /// Whether it is the engine on kernel files.
    pub fn is_knobs(self) -> bool {
        matches!(
            self,
            Control::KnobsBpf
                | Control::KnobsWeight
                | Control::KnobsCoresIdle
                | Control::KnobsCores
                | Control::KnobsUsage
        )
    }

    /// Whether side work has the least weight, not the idle class.
    pub fn is_light(self) -> bool {
        matches!(
            self,
            Control::WeightOne | Control::KnobsWeight | Control::KnobsCores
        )
    }

    /// Whether side work is in the idle class.
    pub fn is_idle(self) -> bool {
        !self.is_light() && self != Control::OwnGroup
    }

    /// The quota that stands from the beginning.
    pub fn standing_quota_us(self, cpus: u32) -> Option<u64> {
        (self == Control::StaticMax)
            .then(|| Self::STANDING_PERIOD_US * u64::from(cpus) * Self::STANDING_PCT / 100)
    }
}

/// What side should get while main uses this much, by each controller's own law.
pub fn allowance_pct(control: Control, cpus: u32, busy_pct: f64) -> f64 {
    let of = |policy: &dyn Policy| policy.allowance_ppm((busy_pct * 1e4) as u64) as f64 / 1e4;
    match control {
        Control::Sideloader => of(&Sideloader::new(cpus, HEADROOM_PPM)),
        Control::Koordlet => of(&Koordlet::new(cpus)),
        Control::Katalyst => of(&Katalyst::new(cpus, 1)),
        Control::PerfIso => of(&PerfIso::new(cpus)),
        Control::SmartHarvest => of(&SmartHarvest::new(cpus)),
        _ => (100.0 - HEADROOM_PCT - busy_pct).max(TOLERANCE_PCT),
    }
}

/// The engines beside a machine whose first group is main's and whose second is side's. `specs` are
/// these groups, not added yet: what is said once is written into them.
pub fn controllers(
    config: &MachineConfig,
    control: Control,
    specs: &mut [GroupSpec; 2],
    busy_pct: f64,
) -> Vec<Box<dyn Controller>> {
    let cpus = config.topology.cpus();
    let sensing = match control {
        Control::KnobsUsage => Sensing::Usage,
        knobs if knobs.is_knobs() => Sensing::Bpf,
        _ => {
            return published(control, cpus, config, busy_pct)
                .into_iter()
                .collect();
        }
    };
    let base_slice_ns = EevdfConfig::for_cpus(cpus).base_slice_ns;
    let compiled = compile(specs, &mut [], base_slice_ns, config.tick_ns);
    let knobs = KnobsConfig {
        seed: config.seed,
        yields: if control.is_light() {
            Yields::LeastWeight
        } else {
            Yields::Idle
        },
        whole_cores: matches!(control, Control::KnobsCores | Control::KnobsCoresIdle),
        ..KnobsConfig::new(sensing)
    };
    vec![Box::new(Knobs::new(knobs, &compiled))]
}

fn published(
    control: Control,
    cpus: u32,
    config: &MachineConfig,
    busy_pct: f64,
) -> Option<Box<dyn Controller>> {
    let law: Box<dyn Policy> = match control {
        Control::Sideloader => Box::new(Sideloader::new(cpus, HEADROOM_PPM)),
        Control::Koordlet => Box::new(Koordlet::new(cpus)),
        Control::Katalyst => Box::new(Katalyst::new(cpus, config.topology.threads_per_core())),
        Control::PerfIso => Box::new(PerfIso::new(cpus)),
        Control::SmartHarvest => Box::new(SmartHarvest::new(cpus)),
        _ => return None,
    };
    let sides = Sides {
        side: vec![SIDE],
        main: vec![MAIN],
        idle_class: true,
    };
    let published = Published::new(law, sides, 0).primed((busy_pct * 1e4) as u64);
    Some(Box::new(published))
}
