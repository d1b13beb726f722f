//! Published tables that the experiments are compared with:
//! - headroom: cover letter of the cpu.headroom patches, Song Liu, 2019;
//! - latency hints: *Latency hints for CFS task*, Vincent Guittot, Linux Plumbers Conference 2022;
//! - burst: cover letter of *Burstable CFS bandwidth controller*, Huaixin Chang, 2021;
//! - slices: commit de53fd7aedb1 of Linux, Dave Chiluk, 2019;
//! - rate caps: cover letter of *CPU rate caps*, Peter Williams, 2006.

/// One row of the second table: percent of the machine, with cpu.headroom at 30 %.
pub struct LawRow {
    /// Main's CPU load.
    pub main_pct: u32,
    /// What side gets; `None` is "minimal", the tolerance.
    pub side_pct: Option<u32>,
    /// What stays idle.
    pub idle_pct: u32,
}

const fn law(main_pct: u32, side_pct: Option<u32>, idle_pct: u32) -> LawRow {
    LawRow {
        main_pct,
        side_pct,
        idle_pct,
    }
}

/// What the controller must give side work for a headroom of 30 %.
pub const LAW: [LawRow; 6] = [
    law(30, Some(40), 30),
    law(40, Some(30), 30),
    law(50, Some(20), 30),
    law(60, Some(10), 30),
    law(70, None, 30),
    law(80, None, 20),
];

/// One row of the third table: main's average latency, normalised to no side work at load 1.0; side
/// is ffmpeg at cpu.weight 1. `None`: not measured, because latency was too high.
pub struct LatencyRow {
    /// Normalised load of main.
    pub load: f64,
    /// No side work.
    pub alone: f64,
    /// Side work, no headroom.
    pub weight_one: Option<f64>,
    /// Headroom of 30 %.
    pub headroom_30: Option<f64>,
    /// Headroom of 20 %.
    pub headroom_20: Option<f64>,
}

const fn latency(
    load: f64,
    alone: f64,
    weight_one: Option<f64>,
    headroom_30: Option<f64>,
    headroom_20: Option<f64>,
) -> LatencyRow {
    LatencyRow {
        load,
        alone,
        weight_one,
        headroom_30,
        headroom_20,
    }
}

/// The effect of side work on main's average latency.
pub const LATENCY: [LatencyRow; 7] = [
    latency(1.0, 1.00, Some(1.82), Some(1.26), Some(1.14)),
    latency(1.1, 1.10, Some(2.74), Some(1.26), Some(1.32)),
    latency(1.2, 1.10, None, Some(1.29), Some(1.38)),
    latency(1.3, 1.10, None, Some(1.32), Some(1.49)),
    latency(1.4, 1.15, None, Some(1.29), Some(1.85)),
    latency(1.5, 1.24, None, Some(1.32), None),
    latency(1.6, 1.74, None, Some(1.50), None),
];

impl LatencyRow {
    /// The cpu.headroom patches' ratio to no side work at this load, for the arm with this key.
    pub fn ratio(&self, arm_key: &str) -> Option<f64> {
        let value = match arm_key {
            "no_side" => Some(self.alone),
            "weight_1" => self.weight_one,
            "tidegate_30" | "ext_30" => self.headroom_30,
            "tidegate_20" => self.headroom_20,
            _ => None,
        };
        value.map(|v| v / self.alone)
    }
}

/// The row of a load, if it was published.
pub fn at_load(load: f64) -> Option<&'static LatencyRow> {
    LATENCY.iter().find(|r| (r.load - load).abs() < 0.01)
}

/// One row of cyclictest's histogram beside `hackbench -l 10000 -g 16`, microseconds, in two runs:
/// (latency 0, latency −20) of the first and of the second.
pub struct CyclictestRow {
    /// Which statistic.
    pub stat: &'static str,
    /// The first run. 20001 stands for "more than 20000", the histogram's end.
    pub a: (u32, u32),
    /// The second.
    pub b: (u32, u32),
}

const fn cyclictest(stat: &'static str, a: (u32, u32), b: (u32, u32)) -> CyclictestRow {
    CyclictestRow { stat, a, b }
}

/// cyclictest with and without a latency hint.
pub const CYCLICTEST: [CyclictestRow; 9] = [
    cyclictest("min", (63, 63), (60, 61)),
    cyclictest("avg", (1459, 214), (1077, 86)),
    cyclictest("max", (58274, 82358), (87311, 444)),
    cyclictest("p50", (164, 87), (92, 85)),
    cyclictest("p75", (848, 91), (554, 90)),
    cyclictest("p85", (1246, 94), (1019, 93)),
    cyclictest("p90", (2149, 96), (1346, 96)),
    cyclictest("p95", (8463, 99), (5400, 100)),
    cyclictest("p99", (20001, 120), (19044, 110)),
];

/// One row of `hackbench -p -l (2560/group) -g group`, seconds.
pub struct HackbenchRow {
    /// Groups.
    pub groups: u32,
    /// Without hints.
    pub without_s: f64,
    /// With hints.
    pub with_s: f64,
    /// Gain in percent, as published.
    pub gain_pct: f64,
}

const fn hackbench(groups: u32, without_s: f64, with_s: f64, gain_pct: f64) -> HackbenchRow {
    HackbenchRow {
        groups,
        without_s,
        with_s,
        gain_pct,
    }
}

/// hackbench with and without hints.
pub const HACKBENCH: [HackbenchRow; 4] = [
    hackbench(1, 1.768, 0.805, 54.0),
    hackbench(4, 1.634, 0.765, 53.0),
    hackbench(8, 1.305, 0.745, 43.0),
    hackbench(16, 0.786, 0.705, 10.0),
];

/// One row of schbench's wakeup latencies, microseconds: quota 700 ms in 100 ms, use about 500 %.
pub struct BurstRow {
    /// Which statistic.
    pub stat: &'static str,
    /// Burst 0.
    pub without_us: f64,
    /// Burst 400 ms.
    pub with_us: f64,
}

const fn burst(stat: &'static str, without_us: f64, with_us: f64) -> BurstRow {
    BurstRow {
        stat,
        without_us,
        with_us,
    }
}

/// schbench without and with burst.
pub const BURST: [BurstRow; 8] = [
    burst("p50", 7.0, 7.0),
    burst("p75", 8.0, 8.0),
    burst("p90", 9.0, 9.0),
    burst("p95", 10.0, 9.0),
    burst("p99", 933.0, 12.0),
    burst("p99.5", 981.0, 13.0),
    burst("p99.9", 3068.0, 19.0),
    burst("max", 20054.0, 406.0),
];

/// fibtest, 10 ms in 100 ms on 80 CPUs: throughput of slices that do not expire over ones that do.
pub const SLICES_SPEEDUP: f64 = 30.0;
/// What a CPU's silo may hold over at most, typically.
pub const SLICES_EXCESS_MS_PER_CPU: f64 = 1.0;

/// kernbench -j 8 on two CPUs, seconds: without the patches, with them unused, with a soft cap of 0.
pub const KERNBENCH_ELAPSED_S: [f64; 3] = [1056.1, 1048.2, 1064.1];
/// ... context switches.
pub const KERNBENCH_SWITCHES: [f64; 3] = [49253.6, 48881.4, 92490.8];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_law_adds_up() {
        for r in &LAW {
            let side = r.side_pct.unwrap_or(0);
            assert_eq!(r.main_pct + side + r.idle_pct, 100);
        }
    }

    #[test]
    fn the_ratios_are_the_published_ones() {
        let ratios: Vec<f64> = LATENCY
            .iter()
            .filter_map(|r| r.ratio("tidegate_30"))
            .collect();
        let want = [1.26, 1.15, 1.17, 1.20, 1.12, 1.06, 0.86];
        assert!(
            ratios.iter().zip(want).all(|(a, b)| (a - b).abs() < 0.006),
            "{ratios:?}"
        );
        assert_eq!(at_load(1.3).map(|r| r.alone), Some(1.10));
        assert!(at_load(2.0).is_none());
    }

    #[test]
    fn what_the_sources_say_of_their_tables_holds_of_ours() {
        let p99 = CYCLICTEST.iter().find(|r| r.stat == "p99").map(|r| r.b);
        assert_eq!(p99.map(|(without, with)| without / with), Some(173));
        for r in &HACKBENCH {
            let gain = 100.0 * (1.0 - r.with_s / r.without_s);
            assert!((gain - r.gain_pct).abs() < 1.0, "{}: {gain}", r.groups);
        }
        let p99 = BURST.iter().find(|r| r.stat == "p99");
        assert!(p99.is_some_and(|r| (r.without_us / r.with_us - 78.0).abs() < 0.5));
        let soft = 100.0 * (KERNBENCH_ELAPSED_S[2] / KERNBENCH_ELAPSED_S[0] - 1.0);
        assert!((soft - 0.8).abs() < 0.1);
    }
}
