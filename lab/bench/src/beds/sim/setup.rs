//! Main and side work on one simulated machine, and who keeps the headroom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_sim::workloads::{Common, Hog, Kind};
use tidegate_sim::{
    Bandwidth, Class, Event, ExtConfig, GroupId, GroupSpec, Machine, MachineConfig, Ns, Scheduler,
    Simulation, Tracer,
};

use super::control::{Control, MAIN, SIDE, controllers};
use super::{advance, built};
use crate::LabError;
use crate::beds::host::samplers::Snapshot;

/// The machine, its engines and both groups.
pub struct Setup {
    /// Machine and engines.
    pub sim: Simulation,
    /// Main's group.
    pub main: GroupId,
    /// Side's; the one that every quota is on.
    pub side: GroupId,
    writes: Arc<AtomicU64>,
}

/// Counts what is written to side's limit.
struct CountWrites(Arc<AtomicU64>);

impl Tracer for CountWrites {
    fn event(&mut self, _: Ns, event: &Event) {
        if matches!(event, Event::Write { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Setup {
    /// Two groups on a machine; `busy_pct` is what main will take at first, from which the published
    /// laws start in their steady state.
    pub fn new(
        mut config: MachineConfig,
        control: Control,
        headroom_pct: f64,
        busy_pct: f64,
    ) -> Result<Self, LabError> {
        if control == Control::Ext {
            config.scheduler = Scheduler::Ext(ExtConfig::for_cpus(config.topology.cpus()));
        }
        let cpus = config.topology.cpus();
        let headroom_ppm = if control.is_tidegate() {
            (headroom_pct * 1e4) as u32
        } else {
            0
        };
        let mut specs = [
            GroupSpec {
                class: Class::Main,
                headroom_ppm,
                ..GroupSpec::new("main", GroupId::ROOT)
            },
            GroupSpec {
                class: Class::Side,
                idle: control.is_idle(),
                weight: if control.is_light() { 1 } else { 100 },
                bandwidth: control.standing_quota_us(cpus).map(|quota_us| Bandwidth {
                    quota_us: Some(quota_us),
                    period_us: Control::STANDING_PERIOD_US,
                    burst_us: 0,
                }),
                ..GroupSpec::new("side", GroupId::ROOT)
            },
        ];
        let controllers = controllers(&config, control, &mut specs, busy_pct);
        let mut m = built(Machine::new(config))?;
        for (spec, id) in specs.into_iter().zip([MAIN, SIDE]) {
            let added = built(m.add_group(spec))?;
            debug_assert_eq!(added, id, "groups are numbered in order");
        }
        Ok(Setup {
            sim: Simulation::new(m, controllers),
            main: MAIN,
            side: SIDE,
            writes: Arc::default(),
        })
    }

    /// From now on writes are counted.
    pub fn count_writes(&mut self) {
        let counter = CountWrites(Arc::clone(&self.writes));
        self.sim.machine.set_tracer(Box::new(counter));
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Side work that always wants more.
    pub fn start_hogs(&mut self, tasks: u32, seed: u64) -> Result<(), LabError> {
        let common = Common {
            seed,
            ..Common::new("side", self.side)
        };
        let hogs = Kind::Hog(Hog { tasks, busy: None });
        built(hogs.build(&common, &mut self.sim.machine)).map(|_| ())
    }

    /// Runs to a time.
    pub fn advance(&mut self, to_ns: Ns) -> Result<(), LabError> {
        advance(&mut self.sim, to_ns)
    }

    /// Who has had how much, in the host samplers' form.
    pub fn snapshot(&self) -> Snapshot {
        let m = &self.sim.machine;
        Snapshot {
            wall_ns: m.now_ns(),
            main_ns: m.usage_ns(self.main),
            side_ns: m.usage_ns(self.side),
            ..Snapshot::default()
        }
    }
}
