//! The types of terms that are not plain amounts.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::units::{Share, TimeSpan};

/// A type that a term can have. `parse` of what `Display` writes gives the same value back.
pub trait Value: Sized + fmt::Display {
    /// Reads text without spaces around it.
    fn parse(text: &str) -> Result<Self, Refusal>;
}

impl Value for Share {
    fn parse(text: &str) -> Result<Share, Refusal> {
        Share::parse(text)
    }
}

impl Value for TimeSpan {
    fn parse(text: &str) -> Result<TimeSpan, Refusal> {
        TimeSpan::parse(text)
    }
}

/// An enum whose values are words: their names, and how a text is read and shown.
macro_rules! words {
    ($Type:ident, $refusal:literal: $($Variant:ident = $word:literal),+) => {
        impl $Type {
            pub const fn name(self) -> &'static str {
                match self {
                    $($Type::$Variant => $word),+
                }
            }

            pub fn from_name(name: &str) -> Option<$Type> {
                match name {
                    $($word => Some($Type::$Variant),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::values::Value for $Type {
            fn parse(text: &str) -> Result<$Type, $crate::refusal::Refusal> {
                $Type::from_name(text).ok_or_else(|| $crate::refusal::Refusal::new($refusal))
            }
        }
    };
}
pub(crate) use words;

/// How an enum is shown whose values are words, and values of other types.
macro_rules! shown {
    ($Type:ident: $($Word:ident = $word:literal),+; $($Of:ident),+) => {
        impl std::fmt::Display for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $($Type::$Word => f.write_str($word),)+
                    $($Type::$Of(value) => value.fmt(f),)+
                }
            }
        }
    };
}
pub(crate) use shown;

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Main,
    Side,
    /// The rest; counts as main's demand when headroom is computed.
    #[default]
    Neutral,
}

words!(Class, "is not a class": Main = "main", Side = "side", Neutral = "neutral");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headroom {
    /// Not asked for: the machine's `default_headroom` holds where no gate names one.
    #[default]
    None,
    Of(Share),
}

impl Headroom {
    pub const fn ppm(self) -> Option<u32> {
        match self {
            Headroom::None => None,
            Headroom::Of(share) => Some(share.ppm()),
        }
    }
}

shown!(Headroom: None = "none"; Of);

impl Value for Headroom {
    fn parse(text: &str) -> Result<Headroom, Refusal> {
        match text {
            "none" => Ok(Headroom::None),
            _ => Share::parse(text).map(Headroom::Of),
        }
    }
}

/// A floor for side work. Zero means starvation whenever main takes all, so it has a word of its
/// own, `none`, that nobody writes by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tolerance(Share);

impl Tolerance {
    /// The default: 1 ms in each 100 ms of every CPU (seed 000).
    pub const ONE_PERCENT: Tolerance = Tolerance(Share::ONE_PERCENT);
    pub const NONE: Tolerance = Tolerance(Share::ZERO);

    pub const fn ppm(self) -> u32 {
        self.0.ppm()
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Share::ZERO {
            f.write_str("none")
        } else {
            self.0.fmt(f)
        }
    }
}

impl Value for Tolerance {
    fn parse(text: &str) -> Result<Tolerance, Refusal> {
        if text == "none" {
            return Ok(Tolerance::NONE);
        }
        let share = Share::parse(text)?;
        if share == Share::ZERO {
            return Err(Refusal::new("would let side work starve"));
        }
        Ok(Tolerance(share))
    }
}

/// Share among gates of the same class, as cgroup v2 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// 1 to 10000.
    Of(u32),
    /// Runs only when nothing else in its class wants the CPU.
    Idle,
}

shown!(Weight: Idle = "idle"; Of);

impl Value for Weight {
    fn parse(text: &str) -> Result<Weight, Refusal> {
        if text == "idle" {
            return Ok(Weight::Idle);
        }
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Refusal::new("is not a whole number"));
        }
        match text.parse::<u32>() {
            Ok(0) => Err(Refusal::new("is below 1")),
            Ok(weight @ 1..=10_000) => Ok(Weight::Of(weight)),
            // All digits: the only error left is overflow.
            Ok(_) | Err(_) => Err(Refusal::new("is above 10000")),
        }
    }
}

/// What a limited target goes to when the agent is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallback {
    Floor,
    /// The values that stood before Tidegate.
    Restore,
    /// The last limit stays for this long, then the values that stood before.
    Hold(TimeSpan),
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fallback::Floor => f.write_str("floor"),
            Fallback::Restore => f.write_str("restore"),
            Fallback::Hold(span) => write!(f, "hold:{span}"),
        }
    }
}

impl Value for Fallback {
    fn parse(text: &str) -> Result<Fallback, Refusal> {
        match text.split_once(':') {
            None if text == "floor" => Ok(Fallback::Floor),
            None if text == "restore" => Ok(Fallback::Restore),
            None if text == "hold" => Err(Refusal::new("lacks a time")),
            Some(("hold", time)) => {
                let span = TimeSpan::parse(time)?;
                span.within(TimeSpan::from_secs(1), TimeSpan::from_secs(3600))?;
                Ok(Fallback::Hold(span))
            }
            _ => Err(Refusal::new("is not a fallback")),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CpusetMode {
    /// On machines where it was found to help.
    #[default]
    Auto,
    On,
    Off,
}

words!(CpusetMode, "is neither auto nor on nor off": Auto = "auto", On = "on", Off = "off");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sense {
    /// BPF where it works, else usage.
    #[default]
    Auto,
    Bpf,
    Usage,
}

words!(Sense, "is not a way of sensing": Auto = "auto", Bpf = "bpf", Usage = "usage");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    #[default]
    Auto,
    Cgroup,
    /// A scheduler of our own, with kernel files for what holds when it is off.
    SchedExt,
}

words!(Engine, "is not an engine": Auto = "auto", Cgroup = "cgroup", SchedExt = "sched_ext");

/// Where the API can be read over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ApiListen {
    /// Nowhere; the agent's socket has it.
    #[default]
    Off,
    At(SocketAddr),
}

shown!(ApiListen: Off = "off"; At);

impl Value for ApiListen {
    fn parse(text: &str) -> Result<ApiListen, Refusal> {
        if text == "off" {
            return Ok(ApiListen::Off);
        }
        let address = text.parse::<SocketAddr>();
        let address = address.map_err(|_| Refusal::new("is no address with a port"))?;
        match address.ip().is_loopback() {
            true => Ok(ApiListen::At(address)),
            false => Err(Refusal::new("is not an address of this machine alone")),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoopPeriod {
    #[default]
    Auto,
    Every(TimeSpan),
}

shown!(LoopPeriod: Auto = "auto"; Every);

/// A whole number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(u32);

impl Count {
    /// This many, at least one.
    pub(crate) const fn new(count: u32) -> Count {
        Count(if count == 0 { 1 } else { count })
    }

    pub fn get(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn at_most(&self, most: u32) -> Result<(), Refusal> {
        match self.0 <= most {
            true => Ok(()),
            false => Err(Refusal::new(format!("is above {most}"))),
        }
    }
}

impl Default for Count {
    fn default() -> Count {
        Count(1)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Value for Count {
    fn parse(text: &str) -> Result<Count, Refusal> {
        match text.parse() {
            Ok(0) | Err(_) => Err(Refusal::new("is not a whole number from 1")),
            Ok(count) => Ok(Count(count)),
        }
    }
}

impl Value for LoopPeriod {
    fn parse(text: &str) -> Result<LoopPeriod, Refusal> {
        if text == "auto" {
            return Ok(LoopPeriod::Auto);
        }
        TimeSpan::parse(text).map(LoopPeriod::Every)
    }
}
