//! The seed's tables (cover letter of the cpu.headroom patches, Song Liu, 2019), as published.

/// One row of the second table: percent of the machine, with cpu.headroom at 30 %.
pub struct LawRow {
    /// Main's CPU load.
    pub main_pct: u32,
    /// What side gets; `None` is "minimal", the tolerance.
    pub side_pct: Option<u32>,
    /// What stays idle.
    pub idle_pct: u32,
}

/// What the controller must give side work for a headroom of 30 %.
pub const LAW: [LawRow; 6] = [
    LawRow {
        main_pct: 30,
        side_pct: Some(40),
        idle_pct: 30,
    },
    LawRow {
        main_pct: 40,
        side_pct: Some(30),
        idle_pct: 30,
    },
    LawRow {
        main_pct: 50,
        side_pct: Some(20),
        idle_pct: 30,
    },
    LawRow {
        main_pct: 60,
        side_pct: Some(10),
        idle_pct: 30,
    },
    LawRow {
        main_pct: 70,
        side_pct: None,
        idle_pct: 30,
    },
    LawRow {
        main_pct: 80,
        side_pct: None,
        idle_pct: 20,
    },
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
    /// The seed's ratio to no side work at this load, for the arm with this key.
    pub fn ratio(&self, arm_key: &str) -> Option<f64> {
        let value = match arm_key {
            "no_side" => Some(self.alone),
            "weight_1" => self.weight_one,
            "tidegate_30" => self.headroom_30,
            "tidegate_20" => self.headroom_20,
            _ => None,
        };
        value.map(|v| v / self.alone)
    }
}

/// The row of a load, if the seed has it.
pub fn at_load(load: f64) -> Option<&'static LatencyRow> {
    LATENCY.iter().find(|r| (r.load - load).abs() < 0.01)
}

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
}
