//! Latency hints.

use tidegate_cgroup::sched::{HintSetting, SLICES_SINCE, compile};

use super::{Facts, Mechanism, Now};

pub(super) fn latency(facts: &Facts) -> Mechanism {
    let name = "latency hints";
    let change = Some(format!("a kernel of {SLICES_SINCE} or newer"));
    match &facts.slices {
        Err(why) => Mechanism {
            name,
            now: Now::No,
            engine: "",
            how: format!("the kernel refuses sched_setattr even on a thread of one's own: {why}"),
            change: Some("a container that allows sched_setattr".to_owned()),
        },
        Ok(support) if !support.slices => Mechanism {
            name,
            now: Now::Partly,
            engine: "cgroup",
            how: "the kernel gives tasks no slices (tried): hints above 0 become SCHED_BATCH, those below 0 are refused"
                .to_owned(),
            change,
        },
        Ok(support) => {
            let ms = |hint| match compile(hint, support) {
                Some(HintSetting::SliceNs(slice_ns)) => slice_ns as f64 / 1e6,
                _ => support.base_ns as f64 / 1e6,
            };
            Mechanism {
                name,
                now: Now::Yes,
                engine: "cgroup",
                how: format!(
                    "a slice of each task's own: {:.1} ms at -20, {:.1} ms at 0, {:.0} ms at 19; shares stay, the run \
                     quantum changes as well; inherited by fork, and what enters a group has it within a second",
                    ms(-20),
                    ms(0),
                    ms(19)
                ),
                change: None,
            }
        }
    }
}
