//! Latency hints.

use tidegate_cgroup::sched::{HintSetting, SLICES_SINCE, compile};

use super::{Facts, Mechanism, Now};

pub(super) fn latency(facts: &Facts) -> Mechanism {
    let name = "latency hints";
    let change = Some(format!("a kernel of {SLICES_SINCE} or newer"));
    match &facts.slices {
        Err(why) => Mechanism::new(
            name,
            Now::No,
            format!("the kernel refuses sched_setattr even on a thread of one's own: {why}"),
            Some("a container that allows sched_setattr".to_owned()),
        ),
        Ok(support) if !support.slices => Mechanism::new(
            name,
            Now::Partly,
            "the kernel gives tasks no slices (tried): hints above 0 become SCHED_BATCH, those below 0 are refused",
            change,
        ),
        Ok(support) => {
            let ms = |hint| match compile(hint, support) {
                Some(HintSetting::SliceNs(slice_ns)) => slice_ns as f64 / 1e6,
                _ => support.base_ns as f64 / 1e6,
            };
            Mechanism::new(
                name,
                Now::Yes,
                format!(
                    "a slice of each task's own: {:.1} ms at -20, {:.1} ms at 0, {:.0} ms at 19; shares stay, the run \
                     quantum changes as well; inherited by fork, and what enters a group has it within a second",
                    ms(-20),
                    ms(0),
                    ms(19)
                ),
                None,
            )
        }
    }
}
