//! How much more headroom main's run delay asks for (`law/delay.h`, `law/delay.md`).

/// Tuning; `law/delay.md` gives the reasons.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Late runs beyond the objective's share that are no chance.
    pub alarm: u32,
    /// Least raise, of the domain.
    pub step_ppm: u32,
    /// Bound of the extra headroom, of the domain.
    pub most_ppm: u32,
    /// From a raise until the next is judged.
    pub settle_us: u32,
    /// From an alarm until a release.
    pub hold_us: u32,
    /// Slope of releases, of the domain.
    pub release_ppm_per_s: u32,
    /// Where side work uses less than this above its floor, it is no cause.
    pub side_ppm: u32,
    /// At the bound for this long before it is judged.
    pub vain_us: u32,
    /// After a raise in vain.
    pub rest_us: u32,
    /// A longer window is stale.
    pub dt_max_us: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            alarm: 16,
            step_ppm: 50_000,
            most_ppm: 600_000,
            settle_us: 300_000,
            hold_us: 5_000_000,
            release_ppm_per_s: 10_000,
            side_ppm: 20_000,
            vain_us: 3_000_000,
            rest_us: 60_000_000,
            dt_max_us: 1_000_000,
        }
    }
}

/// What was seen in one window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Wall time of the window.
    pub dt_ns: u64,
    /// Times that a task of main began to run.
    pub runs: u64,
    /// Of those, after a longer wait than the objective names.
    pub late: u64,
    /// Used by side work.
    pub side_ns: u64,
    /// CPU time there was.
    pub capacity_ns: u64,
    /// What side work has in any case: the tolerance.
    pub floor_ppm: u32,
    /// 0: the sensor does not vouch for it. Set by [`Self::vouched`].
    pub valid: u32,
}

impl Evidence {
    /// The same evidence, vouched for or not. [`Default`] is not: fill the fields, then call this.
    pub fn vouched(self, valid: bool) -> Self {
        Self {
            valid: u32::from(valid),
            ..self
        }
    }
}

/// Where the law stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The objective is met, or there is nothing to go by.
    #[default]
    Fine,
    /// Raised, and not long ago.
    Raised,
    /// Going back.
    Release,
    /// At the bound.
    Bound,
    /// A raise was in vain: it was given back, and nothing is tried for a while.
    Rest,
}

impl State {
    /// One lower-case word, for status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Raised => "raised",
            Self::Release => "release",
            Self::Bound => "bound",
            Self::Rest => "rest",
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Count {
    runs: u64,
    late: u64,
}

/// The extra headroom of one domain. Step it once a window.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delay {
    cfg: Config,
    share_ppm: u32,
    state: u32,
    extra_ppb: u64,
    home_ppb: u64,
    score_ppm: u64,
    side_ppm: u64,
    quiet_us: u64,
    top_us: u64,
    rest_us: u64,
    open: Count,
    before: Count,
    top: Count,
    quiet: Count,
    raises: u32,
    vain: u32,
}

unsafe extern "C" {
    fn tg_native_delay_init(d: *mut Delay, cfg: *const Config, share_ppm: u32, home_ppm: u32);
    fn tg_native_delay_objective(d: *mut Delay, share_ppm: u32);
    fn tg_native_delay_step(d: *mut Delay, e: *const Evidence) -> u32;
    fn tg_native_delay_extra_ppm(d: *const Delay) -> u32;
    #[cfg(test)]
    fn tg_native_delay_size(which: u32) -> u64;
}

impl Delay {
    /// `share_ppm` of main's runs may be late (p99: 10,000); `home_ppm` of extra headroom stands while nothing is known.
    pub fn new(cfg: Config, share_ppm: u32, home_ppm: u32) -> Self {
        let mut delay = Self {
            cfg,
            share_ppm,
            state: 0,
            extra_ppb: 0,
            home_ppb: 0,
            score_ppm: 0,
            side_ppm: 0,
            quiet_us: 0,
            top_us: 0,
            rest_us: 0,
            open: Count::default(),
            before: Count::default(),
            top: Count::default(),
            quiet: Count::default(),
            raises: 0,
            vain: 0,
        };
        // SAFETY: both pointers are valid for the call, and the types mirror the C structs (sizes are tested).
        unsafe { tg_native_delay_init(&mut delay, &cfg, share_ppm, home_ppm) };
        delay
    }

    /// Another objective: judged from its own start, the extra headroom stays.
    pub fn set_objective(&mut self, share_ppm: u32) {
        // SAFETY: as in `new`.
        unsafe { tg_native_delay_objective(self, share_ppm) }
    }

    /// One window of evidence in, the extra headroom for the next out.
    pub fn step(&mut self, evidence: &Evidence) -> u32 {
        // SAFETY: as in `new`.
        unsafe { tg_native_delay_step(self, evidence) }
    }

    /// What the last step gave, of the domain.
    pub fn extra_ppm(&self) -> u32 {
        // SAFETY: as in `new`; it only reads.
        unsafe { tg_native_delay_extra_ppm(self) }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match self.state {
            1 => State::Raised,
            2 => State::Release,
            3 => State::Bound,
            4 => State::Rest,
            _ => State::Fine,
        }
    }

    /// Raises since the start.
    pub fn raises(&self) -> u32 {
        self.raises
    }

    /// Of those that reached the bound, how many were given back for they did not help.
    pub fn vain(&self) -> u32 {
        self.vain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_have_the_sizes_of_the_originals() {
        let ours = [
            size_of::<Config>(),
            size_of::<Evidence>(),
            size_of::<Delay>(),
        ];
        for (which, size) in (0u32..).zip(ours) {
            // SAFETY: takes and returns integers only.
            assert_eq!(
                unsafe { tg_native_delay_size(which) },
                size as u64,
                "{which}"
            );
        }
    }
}
