//! Other people's laws settle where their sources say.

use tidegate_sim::policies::{
    Fixed, Katalyst, Koordlet, PerfIso, Policy, Published, Setting, Sideloader, SmartHarvest,
};

use super::bed::{Bed, SECOND};

#[test]
fn each_law_settles_at_its_own_allowance() {
    const MAIN_PPM: u64 = 390_000;
    let laws: [fn() -> Box<dyn Policy>; 4] = [
        || Box::new(Sideloader::new(32, 300_000)),
        || Box::new(Koordlet::new(32)),
        || Box::new(Koordlet::by_cpuset(32)),
        || Box::new(Katalyst::new(32, 1)),
    ];
    for make in laws {
        let want = make().allowance_ppm(MAIN_PPM);
        let (mut bed, sides) = Bed::bare(32, 300_000);
        let law = Published::new(make(), sides, 0);
        let name = make().name();
        bed.simulation.controllers.push(Box::new(law));
        bed.fill(|_| MAIN_PPM);
        bed.run_until(60 * SECOND);
        let (main, side, idle) = bed.shares(5 * SECOND);
        println!("{name}: main {main} side {side} (law: {want}) idle {idle}");
        // In a pool that main may use too, side work gets what main leaves of it.
        let least = if name == "koordlet's law by cpuset" {
            want / 3
        } else {
            want - 15_000
        };
        assert!(
            (least..=want + 15_000).contains(&side),
            "{name}: {side}, not {want}"
        );
    }
}

/// Main has a thread on each CPU, and so a wish for all of them now and then: what these laws keep is told by their floor.
#[test]
fn laws_that_look_at_cpus_leave_main_its_work() {
    let laws: [fn() -> Box<dyn Policy>; 2] = [
        || Box::new(PerfIso::new(32)),
        || Box::new(SmartHarvest::new(32)),
    ];
    for make in laws {
        let (mut bed, sides) = Bed::bare(32, 300_000);
        let law = Published::new(make(), sides, 0);
        let name = make().name();
        bed.simulation.controllers.push(Box::new(law));
        bed.fill(|_| 100_000);
        bed.run_until(20 * SECOND);
        let (main, side, idle) = bed.shares(5 * SECOND);
        println!("{name}: main {main} side {side} idle {idle}");
        assert!((95_000..=105_000).contains(&main), "{name}: main {main}");
        assert!((300_000..=860_000).contains(&side), "{name}: side {side}");
    }
}

#[test]
fn settings_do_what_they_say() {
    for (setting, want) in [
        (Setting::Idle, 600_000),
        (Setting::LeastWeight, 600_000),
        (
            Setting::Max {
                ppm: 200_000,
                period_us: 100_000,
            },
            200_000,
        ),
    ] {
        let (mut bed, mut sides) = Bed::bare(8, 300_000);
        sides.idle_class = false;
        bed.simulation
            .controllers
            .push(Box::new(Fixed::new(setting, sides)));
        bed.fill(|_| 400_000);
        bed.run_until(SECOND);
        let (main, side, _) = bed.shares(5 * SECOND);
        println!("{setting:?}: main {main} side {side}");
        // Without a controller, balance decides how much of what main leaves is found.
        let least = if want == 200_000 {
            185_000
        } else {
            want * 3 / 4
        };
        assert!(
            (least..=want + 15_000).contains(&side),
            "{setting:?}: {side}"
        );
    }
}
