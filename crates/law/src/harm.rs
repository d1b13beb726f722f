//! How much longer main's work takes because side work runs (`law/harm.h`, `law/harm.md`).

/// Tuning; `law/harm.md` gives the reasons.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Harm that is accepted: 50,000 is 5 %.
    pub aim_ppm: u32,
    /// Bounds, in hundredths of a standard error.
    pub z_pct: u32,
    /// A level is held for this long in a pair.
    pub block_us: u32,
    /// After a switch nothing counts for this long.
    pub guard_us: u32,
    /// Pairs before a verdict; harm is looked for at 1, 2, 4, .. of it.
    pub pairs_min: u32,
    /// With fewer turns in all, [`Verdict::None`] is not said.
    pub turns_min: u32,
    /// Half-life of evidence while it learns.
    pub half_us: u32,
    /// Learning ends, whatever is known.
    pub learn_us: u32,
    /// Mean time between probes.
    pub probe_us: u32,
    /// Probes that are off by this, in hundredths of a standard error, start learning again.
    pub suspect_pct: u32,
    /// From giving up until it learns again.
    pub retry_us: u32,
    /// A longer window is void.
    pub window_max_us: u32,
    /// Share of main's turns that may begin late because of side work, in millionths; 0: the tail does not count.
    pub tail_ppm: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            aim_ppm: 50_000,
            z_pct: 290,
            block_us: 500_000,
            guard_us: 50_000,
            pairs_min: 13,
            turns_min: 200,
            half_us: 60_000_000,
            learn_us: 300_000_000,
            probe_us: 30_000_000,
            suspect_pct: 300,
            retry_us: 3_600_000_000,
            window_max_us: 2_000_000,
            tail_ppm: 7_500,
        }
    }
}

/// A level of side work's allowance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The lower one.
    #[default]
    Low,
    /// The higher one.
    High,
}

/// What main and side work did in one window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Wall time.
    pub length_ns: u64,
    /// Times that a task of main began to run.
    pub turns: u64,
    /// Sum of what those had waited.
    pub delay_ns: u64,
    /// Main's CPU time.
    pub cpu_ns: u64,
    /// Of the turns, those that began after a longer wait than the caller's threshold. It must be the same in all that is compared.
    pub late: u64,
    /// The level in force. Set by [`Self::at`].
    pub arm: u32,
    /// 0: void. Set by [`Self::at`].
    pub valid: u32,
}

impl Window {
    /// The same window, in all of which this level was in force. [`Default`] is void: fill the fields, then call this.
    pub fn at(self, arm: Arm) -> Self {
        Self {
            arm: u32::from(arm == Arm::High),
            valid: 1,
            ..self
        }
    }

    /// The same window, in which no one level was in force all the time, or which the sensor does not vouch for.
    pub fn void(self) -> Self {
        Self { valid: 0, ..self }
    }
}

/// Why harm is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The interval is too wide.
    TooLittle,
    /// The signals of a main with arrivals of its own and of one with a closed set of callers disagree.
    Contradicting,
    /// Main, or the effect, changes faster than it is compared.
    Drift,
    /// More time was void than was of use.
    Void,
}

impl Reason {
    /// A few lower-case words, for status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLittle => "too little data",
            Self::Contradicting => "contradicting signals",
            Self::Drift => "drift",
            Self::Void => "void windows",
        }
    }
}

/// Does side work harm main?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Not known.
    Unknown(Reason),
    /// No: at most the aim.
    None,
    /// Yes: the lower bound is above no harm.
    Found,
}

/// What the headroom should do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wish {
    /// Stay.
    #[default]
    Hold,
    /// Rise: the lower bound is above the aim.
    Raise,
    /// Fall: the upper bound is below the aim.
    Lower,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Answer {
    arm: u32,
    verdict: u32,
    reason: u32,
    wish: u32,
    ratio_ppm: u32,
    lower_ppm: u32,
    upper_ppm: u32,
    closed: u32,
    tail_ppm: i32,
    tail_lower_ppm: i32,
    tail_upper_ppm: i32,
    by_tail: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Block {
    used_us: u64,
    cpu_ns: u64,
    delay_ns: u64,
    turns: u64,
    late: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Sums {
    diff: i64,
    sum: u64,
    diff_square: u64,
    level: u64,
    noise: u64,
}

/// The measurement of one pair of levels. Step it once a window.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Harm {
    cfg: Config,
    answer: Answer,
    random: u64,
    phase: u32,
    held: u32,
    place: u32,
    in_guard: u32,
    pairs: u32,
    learns: u32,
    phase_us: u64,
    gap_us: u64,
    age_us: u64,
    void_us: u64,
    used_us: u64,
    turns: u64,
    since_pair_us: u64,
    block: [Block; 2],
    sums: [Sums; 5],
    trend: i64,
    known_20: [i64; 2],
    watch: [i64; 2],
    why: u32,
    look: u32,
}

unsafe extern "C" {
    fn tg_native_harm_init(h: *mut Harm, cfg: *const Config, seed: u64);
    fn tg_native_harm_restart(h: *mut Harm);
    fn tg_native_harm_step(h: *mut Harm, w: *const Window) -> u32;
    #[cfg(test)]
    fn tg_native_harm_size(which: u32) -> u64;
}

impl Harm {
    /// The same seed gives the same levels for the same windows.
    pub fn new(cfg: Config, seed: u64) -> Self {
        let mut harm = Self {
            cfg,
            answer: Answer::default(),
            random: 0,
            phase: 0,
            held: 0,
            place: 0,
            in_guard: 0,
            pairs: 0,
            learns: 0,
            phase_us: 0,
            gap_us: 0,
            age_us: 0,
            void_us: 0,
            used_us: 0,
            turns: 0,
            since_pair_us: 0,
            block: [Block::default(); 2],
            sums: [Sums::default(); 5],
            trend: 0,
            known_20: [0; 2],
            watch: [0; 2],
            why: 0,
            look: 0,
        };
        // SAFETY: both pointers are valid for the call, and the types mirror the C structs (sizes are tested).
        unsafe { tg_native_harm_init(&mut harm, &cfg, seed) };
        harm
    }

    /// Other levels: what was learnt is forgotten.
    pub fn restart(&mut self) {
        // SAFETY: as in `new`.
        unsafe { tg_native_harm_restart(self) }
    }

    /// One window in; the level to hold for the next.
    pub fn step(&mut self, window: &Window) -> Arm {
        // SAFETY: as in `new`.
        unsafe { tg_native_harm_step(self, window) };
        self.arm()
    }

    /// The level to hold now.
    pub fn arm(&self) -> Arm {
        if self.answer.arm == 0 {
            Arm::Low
        } else {
            Arm::High
        }
    }

    /// Does side work harm main?
    pub fn verdict(&self) -> Verdict {
        match (self.answer.verdict, self.answer.reason) {
            (1, _) => Verdict::None,
            (2, _) => Verdict::Found,
            (_, 2) => Verdict::Unknown(Reason::Contradicting),
            (_, 3) => Verdict::Unknown(Reason::Drift),
            (_, 4) => Verdict::Unknown(Reason::Void),
            _ => Verdict::Unknown(Reason::TooLittle),
        }
    }

    /// What the headroom should do.
    pub fn wish(&self) -> Wish {
        match self.answer.wish {
            1 => Wish::Raise,
            2 => Wish::Lower,
            _ => Wish::Hold,
        }
    }

    /// Time that main's work takes at [`Arm::High`], of that at [`Arm::Low`]: 1,000,000 is no harm.
    pub fn ratio_ppm(&self) -> u32 {
        self.answer.ratio_ppm
    }

    /// The lower bound of [`Self::ratio_ppm`].
    pub fn lower_ppm(&self) -> u32 {
        self.answer.lower_ppm
    }

    /// The upper bound of [`Self::ratio_ppm`].
    pub fn upper_ppm(&self) -> u32 {
        self.answer.upper_ppm
    }

    /// Is the ratio that of a closed set of callers, from runnable time per CPU time?
    pub fn closed(&self) -> bool {
        self.answer.closed != 0
    }

    /// Share of main's turns that begin late at [`Arm::High`], less that at [`Arm::Low`], in millionths: estimate and bounds.
    pub fn tail_ppm(&self) -> [i32; 3] {
        let a = &self.answer;
        [a.tail_ppm, a.tail_lower_ppm, a.tail_upper_ppm]
    }

    /// Is the verdict, or the wish, that of the tail alone?
    pub fn by_tail(&self) -> bool {
        self.answer.by_tail != 0
    }

    /// Does it switch evenly (and not only probe)?
    pub fn learning(&self) -> bool {
        self.phase == 0
    }

    /// The level that is held between probes.
    pub fn held(&self) -> Arm {
        if self.held == 0 { Arm::Low } else { Arm::High }
    }

    /// Times that learning began.
    pub fn learns(&self) -> u32 {
        self.learns
    }

    /// Pairs since learning began.
    pub fn pairs(&self) -> u32 {
        self.pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_have_the_sizes_of_the_originals() {
        let ours = [size_of::<Config>(), size_of::<Window>(), size_of::<Harm>()];
        for (which, size) in (0u32..).zip(ours) {
            // SAFETY: takes and returns integers only.
            assert_eq!(
                unsafe { tg_native_harm_size(which) },
                size as u64,
                "{which}"
            );
        }
    }
}
