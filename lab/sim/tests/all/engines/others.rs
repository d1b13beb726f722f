//! Other people's laws settle where their sources say.

use tidegate_sim::policies::{Katalyst, Koordlet, Policy, PolicyController, Sideloader};

use super::bed::Bed;
use crate::support::SECOND;

/// Side work's share on 16 CPUs where main takes 11, 39 and 80 %. Katalyst's main has 1.25 · 1.76 +
/// 4 = 7 CPUs, 1.25 · 6.24 + 4 = 12, and 1.25 · 12.8 + 4 = 20, of which it may have 12.
#[test]
fn each_law_settles_at_its_own_allowance() {
    type Made = fn() -> Box<dyn Policy>;
    let laws: [(Made, [u64; 3]); 3] = [
        (
            || Box::new(Sideloader::new(16, 300_000)),
            [590_000, 310_000, 50_000],
        ),
        (|| Box::new(Koordlet::new(16)), [540_000, 260_000, 1_250]),
        (
            || Box::new(Katalyst::new(16, 1)),
            [562_500, 250_000, 250_000],
        ),
    ];
    for (make, wanted) in laws {
        for (main_ppm, want) in [110_000, 390_000, 800_000].into_iter().zip(wanted) {
            let (mut bed, sides) = Bed::bare(16, 300_000);
            let name = make().name();
            assert_eq!(make().allowance_ppm(main_ppm), want, "{name}");
            let law = PolicyController::new(make(), sides);
            bed.simulation.controllers.push(Box::new(law));
            bed.fill(main_ppm);
            bed.run_until(60 * SECOND);
            let (main, side, idle) = bed.shares(5 * SECOND);
            println!("{name}: main {main} side {side} (law: {want}) idle {idle}");
            assert!(side.abs_diff(want) <= 15_000, "{name}: {side}, not {want}");
        }
    }
}
