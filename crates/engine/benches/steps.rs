//! What one step costs: the control step with 1 and 200 gates, and the planner alone. `make bench`
//! runs it; `make bench BASE=REVISION` compares two revisions.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::{Apply, ApplyError, Control, Demand, QuotaTarget};
use tidegate_engine::quota_planner::{QuotaPlanner, WriteBudget};
use tidegate_engine::sense::{Counters, Group, SenseError, Sensor};
use tidegate_law::HeadroomDecision;

const STEP_NS: u64 = 5_000_000;
const CPUS: u32 = 16;
const TICK_NS: u64 = 4_000_000;

/// Main uses a tenth of the machine for a second, then half of it.
struct Machine {
    counters: Counters,
}

impl Sensor for Machine {
    fn sample(&mut self, out: &mut Counters) -> Result<(), SenseError> {
        let counters = &mut self.counters;
        let capacity_ns = STEP_NS * u64::from(CPUS);
        let main_percent = if (counters.now_ns / 1_000_000_000).is_multiple_of(2) {
            10
        } else {
            50
        };
        let main_ns = capacity_ns * main_percent / 100;
        counters.now_ns += STEP_NS;
        counters.capacity_ns += capacity_ns;
        counters.main_ns += main_ns;
        counters.side_ns += capacity_ns / 10;
        counters.busy_ns += main_ns + capacity_ns / 10;
        *out = *counters;
        Ok(())
    }

    fn set_groups(&mut self, _side: &[Group], _main: &[Group]) -> Result<(), SenseError> {
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "bpf"
    }

    fn min_window_ns(&self) -> u64 {
        STEP_NS
    }

    fn online_cpus(&self) -> u32 {
        CPUS
    }
}

/// Takes every write.
struct Files;

impl Apply for Files {
    fn set_quota(
        &mut self,
        _group: &GroupPath,
        _from: Option<Bandwidth>,
        to: Bandwidth,
    ) -> Result<(), ApplyError> {
        black_box(to);
        Ok(())
    }

    fn set_yielding(&mut self, _group: &GroupPath, _yielding: bool) -> Result<(), ApplyError> {
        Ok(())
    }

    fn set_background(&mut self, _group: &GroupPath, _background: bool) -> Result<(), ApplyError> {
        Ok(())
    }
}

fn control(gates: usize) -> Control {
    let counters = Counters {
        online_cpus: CPUS,
        valid: true,
        ..Counters::default()
    };
    let demand = Demand {
        headroom_ppm: 300_000,
        tolerance_ppm: 10_000,
        ..Demand::default()
    };
    let mut control = Control::new(Box::new(Machine { counters }), demand);
    let targets = (0..gates).map(|gate| QuotaTarget {
        group: GroupPath::parse(&format!("/side/gate-{gate}")).expect("a path"),
        weight: 100,
        first_weight: 100,
        unequal: false,
        cap_ucpu: u64::MAX,
        own: None,
    });
    control.quotas.set(targets.collect(), TICK_NS);
    control
}

fn control_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("control_step");
    for gates in [1, 200] {
        group.bench_function(BenchmarkId::from_parameter(gates), |bencher| {
            let mut control = control(gates);
            let mut now_ns = 0;
            bencher.iter(|| {
                now_ns += STEP_NS;
                control.step(now_ns, 0, &mut Files);
            });
        });
    }
    group.finish();
}

fn planner(criterion: &mut Criterion) {
    criterion.bench_function("planner", |bencher| {
        let mut budget = WriteBudget::default();
        let mut planner = QuotaPlanner::new(TICK_NS);
        let mut now_ns = 0;
        bencher.iter(|| {
            now_ns += STEP_NS;
            // The allowance moves by a tenth of the machine every second.
            let tenths = 2 + now_ns / 1_000_000_000 % 5;
            let decision = HeadroomDecision {
                capacity_ucpu: 16_000_000,
                floor_ucpu: 160_000,
                allowance_ucpu: 1_600_000 * tenths,
                ..HeadroomDecision::default()
            };
            black_box(planner.step(now_ns, &decision, CPUS, &mut budget))
        });
    });
}

criterion_group!(benches, control_step, planner);
criterion_main!(benches);
