//! Other people's laws settle where their sources say.

use tidegate_sim::policies::{Katalyst, Koordlet, Policy, PolicyController, Sideloader};

use super::bed::Bed;
use crate::support::SECOND;

#[test]
fn each_law_settles_at_its_own_allowance() {
    const MAIN_PPM: u64 = 390_000;
    let laws: [fn() -> Box<dyn Policy>; 3] = [
        || Box::new(Sideloader::new(32, 300_000)),
        || Box::new(Koordlet::new(32)),
        || Box::new(Katalyst::new(32, 1)),
    ];
    for make in laws {
        let want = make().allowance_ppm(MAIN_PPM);
        let (mut bed, sides) = Bed::bare(32, 300_000);
        let law = PolicyController::new(make(), sides);
        let name = make().name();
        bed.simulation.controllers.push(Box::new(law));
        bed.fill(MAIN_PPM);
        bed.run_until(60 * SECOND);
        let (main, side, idle) = bed.shares(5 * SECOND);
        println!("{name}: main {main} side {side} (law: {want}) idle {idle}");
        assert!(
            (want - 15_000..=want + 15_000).contains(&side),
            "{name}: {side}, not {want}"
        );
    }
}
