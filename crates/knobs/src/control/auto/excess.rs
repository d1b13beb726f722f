//! By how much main is worse off beside side work at one level: of the level that harms, and of the highest, which is not counted.

use tidegate_law::harm::Harm;

const NO_HARM_PPM: u32 = 1_000_000;

/// By the estimates, and none where side work does good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Excess {
    /// Main's work takes longer by this.
    pub ratio_ppm: u32,
    /// So many more of main's turns wait long.
    pub tail_ppm: u32,
}

impl Excess {
    /// What was found of the level that is measured.
    pub fn of(law: &Harm) -> Self {
        let [tail_ppm, ..] = law.tail_ppm();
        Self {
            ratio_ppm: law.ratio_ppm().saturating_sub(NO_HARM_PPM),
            tail_ppm: tail_ppm.max(0).unsigned_abs(),
        }
    }
}
