//! How much more headroom main's run delay asks for (`law/delay.h`, `law/delay.md`).

use std::mem::MaybeUninit;

use crate::ffi;

pub use ffi::{
    tg_delay as Delay, tg_delay_config as Config, tg_delay_evidence as Evidence,
    tg_delay_state as State,
};

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

impl Evidence {
    /// The same evidence, vouched for or not. [`Default`] is not: fill the fields, then call this.
    pub fn vouched(self, valid: bool) -> Self {
        Self {
            valid: u32::from(valid),
            ..self
        }
    }
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

impl Delay {
    /// `share_ppm` of main's runs may be late (p99: 10,000); `home_ppm` of extra headroom stands
    /// while nothing is known.
    pub fn new(cfg: Config, share_ppm: u32, home_ppm: u32) -> Self {
        let mut delay = MaybeUninit::zeroed();
        // SAFETY: the pointers are valid for the call, and zeros are a value of the struct.
        unsafe {
            ffi::tg_delay_init(delay.as_mut_ptr(), &cfg, share_ppm, home_ppm);
            delay.assume_init()
        }
    }

    /// Another objective: judged from its own start, the extra headroom stays.
    pub fn set_objective(&mut self, share_ppm: u32) {
        // SAFETY: as in `new`.
        unsafe { ffi::tg_delay_objective(self, share_ppm) }
    }

    /// One window of evidence in, the extra headroom for the next out.
    pub fn step(&mut self, evidence: &Evidence) -> u32 {
        // SAFETY: as in `new`.
        unsafe { ffi::tg_delay_step(self, evidence) }
    }

    /// What the last step gave, of the domain.
    pub fn extra_ppm(&self) -> u32 {
        // SAFETY: as in `new`; it only reads.
        unsafe { ffi::tg_delay_extra_ppm(self) }
    }

    pub fn state(&self) -> State {
        self.state
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
