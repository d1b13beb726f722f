//! The tables of terms and of machine settings: one row is the one definition of a term.

use crate::error::{TermError, remedy_for_unknown};
use crate::limits::{Burst, Cap, CapScope, Latency, Quota, Switch};
use crate::objective::Objective;
use crate::refusal::Refusal;
use crate::room::Room;
use crate::source::{Overridden, RawTerm, Resolved, Source, View};
use crate::units::{Share, TimeSpan};
use crate::values::{
    ApiListen, Class, Count, CpusetMode, Engine, Fallback, Headroom, LoopPeriod, Sense, Tolerance,
    Value, Weight,
};

/// The period where a gate names none.
pub(crate) const PERIOD_DEFAULT: TimeSpan = TimeSpan::from_millis(100);

const ALL_CLASSES: &[Class] = &[Class::Main, Class::Side, Class::Neutral];
const MAIN_AND_SIDE: &[Class] = &[Class::Main, Class::Side];

/// Makes the enum of names and the struct of resolved values from rows, so that neither can miss
/// one.
macro_rules! table {
    (
        $(#[$enum_meta:meta])* enum $Enum:ident;
        $(#[$struct_meta:meta])* struct $Struct:ident;
        $($Variant:ident $field:ident: $Type:ty {
            default: $default:expr, range: $range:literal, example: $example:literal, value: $value:literal,
            classes: $classes:expr, doc: $doc:literal
            $(, unsaid: $unsaid:literal)? $(, alias: $alias:literal)? $(, within: $within:expr)? $(,)?
        })+
    ) => {
        $(#[$enum_meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Enum {
            $(#[doc = $doc] $Variant,)+
        }

        impl $Enum {
            /// Every one, in the order that they are shown.
            pub const ALL: &'static [$Enum] = &[$($Enum::$Variant),+];

            /// The name, as files and flags write it.
            pub fn name(self) -> &'static str {
                match self { $($Enum::$Variant => stringify!($field)),+ }
            }

            pub fn range(self) -> &'static str {
                match self { $($Enum::$Variant => $range),+ }
            }

            pub fn doc(self) -> &'static str {
                match self { $($Enum::$Variant => $doc),+ }
            }

            /// A value that could be written.
            pub fn example(self) -> &'static str {
                match self { $($Enum::$Variant => $example),+ }
            }

            /// What stands for the value in help, as in `--headroom PERCENT`.
            pub fn value_name(self) -> &'static str {
                match self { $($Enum::$Variant => $value),+ }
            }

            /// The classes of gates that take it; of a setting, the section that it is in, or none
            /// for the top of the file.
            pub fn classes(self) -> &'static [Class] {
                match self { $($Enum::$Variant => $classes),+ }
            }

            /// The default, as a user would write it.
            pub fn default_text(self) -> String {
                match self { $($Enum::$Variant => { let v: $Type = $default; v.to_string() }),+ }
            }

            /// What holds when nobody says anything, in words.
            pub fn unsaid(self) -> String {
                match self {
                    $($Enum::$Variant => {
                        let words: &[&str] = &[$($unsaid)?];
                        words.first().map_or_else(|| self.default_text(), |words| (*words).to_owned())
                    })+
                }
            }

            /// A shorter or older name that is accepted as well.
            pub fn alias(self) -> Option<&'static str> {
                match self {
                    $($Enum::$Variant => {
                        let alias: &[&'static str] = &[$($alias)?];
                        alias.first().copied()
                    })+
                }
            }

            /// The one of this name; dashes count as underscores.
            pub fn from_name(name: &str) -> Option<$Enum> {
                let name = name.replace('-', "_");
                let is = |one: &$Enum| one.name() == name || one.alias() == Some(name.as_str());
                $Enum::ALL.iter().copied().find(is)
            }

            pub fn names() -> Vec<&'static str> {
                $Enum::ALL.iter().map(|one| one.name()).collect()
            }

            /// Refuses text that is no value.
            pub fn check(self, raw: &RawTerm) -> Result<(), TermError> {
                match self { $($Enum::$Variant => self.read(raw, $Struct::$field).map(drop)),+ }
            }

            fn read<T>(
                self,
                raw: &RawTerm,
                parse: impl Fn(&str) -> Result<T, Refusal>,
            ) -> Result<T, TermError> {
                parse(raw.text.trim()).map_err(|why| TermError::Value {
                    name: self.name(),
                    source_place: raw.source.clone(),
                    input: raw.text.clone(),
                    why: why.tried(|text| parse(text).is_ok()),
                    range: self.range(),
                })
            }
        }

        $(#[$struct_meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $Struct {
            $(#[doc = $doc] pub $field: Resolved<$Type>,)+
        }

        impl $Struct {
            $(fn $field(text: &str) -> Result<$Type, Refusal> {
                let value = <$Type as Value>::parse(text)?;
                $(let check: fn(&$Type) -> Result<(), Refusal> = $within; check(&value)?;)?
                Ok(value)
            })+

            /// From candidates for each row, weakest first; every candidate is checked, also those
            /// that lose.
            pub(crate) fn from_candidates<'r>(
                candidates: impl Fn($Enum) -> Vec<&'r RawTerm>,
            ) -> Result<$Struct, TermError> {
                Ok($Struct {
                    $($field: {
                        let one = $Enum::$Variant;
                        let mut resolved: Resolved<$Type> =
                            Resolved { value: $default, source: Source::Default, overrode: Vec::new() };
                        for raw in candidates(one) {
                            let value = one.read(raw, $Struct::$field)?;
                            resolved.replace(value, raw.source.clone());
                        }
                        resolved
                    },)+
                })
            }

            /// Every row's value for display, in the table's order.
            pub fn views(&self) -> Vec<View> {
                vec![$(View {
                    name: $Enum::$Variant.name(),
                    value: self.$field.value.to_string(),
                    source: self.$field.source.clone(),
                    overrode: self.$field.overrode.clone(),
                }),+]
            }
        }
    };
}

impl<T: std::fmt::Display> Resolved<T> {
    fn replace(&mut self, value: T, source: Source) {
        let weaker = std::mem::replace(&mut self.value, value);
        let weaker_source = std::mem::replace(&mut self.source, source);
        self.overrode.push(Overridden {
            value: weaker.to_string(),
            source: weaker_source,
        });
    }
}

table! {
    enum Term;
    /// The terms of one gate, resolved: the only form that anything past this crate sees.
    struct Terms;

    Class class: Class {
        default: Class::Neutral, range: "main, side or neutral", example: "side", value: "CLASS", classes: ALL_CLASSES,
        doc: "Priority: side work uses the CPU that main work leaves",
    }
    Headroom headroom: Headroom {
        default: Headroom::None, range: "0% to 100% of the machine, as in 30% or 0.3, or none",
        example: "30%", value: "PERCENT", classes: MAIN_AND_SIDE,
        doc: "Idle to keep for main's bursts while side work runs; the largest of all gates counts; none leaves it to default_headroom",
    }
    Tolerance tolerance: Tolerance {
        default: Tolerance::ONE_PERCENT,
        range: "more than 0% and up to 100% of the machine, as in 1% or 0.01, or none to let side work starve",
        example: "1%", value: "PERCENT", classes: MAIN_AND_SIDE,
        doc: "What side work gets even when main takes all",
    }
    Objective objective: Objective {
        default: Objective::None,
        range: "pNN<TIME from p50 to p99.99 and 50us to 1s, as in p99<5ms; reported<TIME up to 60s; or none",
        example: "p99<5ms", value: "PNN<TIME", classes: MAIN_AND_SIDE,
        doc: "How long main may wait to run, or the latency that is reported for it; headroom is then found on top of what is asked",
    }
    Weight weight: Weight {
        default: Weight::Of(100), range: "a whole number from 1 to 10000, or idle", example: "200", value: "WEIGHT",
        classes: ALL_CLASSES,
        doc: "Share among gates of the same class",
    }
    Quota quota: Quota {
        default: Quota::None,
        range: "a time of at least 1ms in each period, as in 50ms, an amount of CPU, as in 1.5cpu, 1500m or 150%cpu, or none",
        example: "50ms", value: "TIME|CPUS", classes: ALL_CLASSES,
        doc: "CPU that the gate may use in each period (cpu.max)",
    }
    Period period: TimeSpan {
        default: PERIOD_DEFAULT, range: "a time from 1ms to 1s, as in 100ms", example: "100ms", value: "TIME",
        classes: ALL_CLASSES,
        doc: "How long the quota is for",
        within: |span| span.within(TimeSpan::from_millis(1), TimeSpan::from_secs(1)),
    }
    Burst burst: Burst {
        default: Burst::NONE, range: "a time up to the quota, as in 20ms, or max", example: "max", value: "TIME",
        classes: ALL_CLASSES,
        doc: "Unused quota that may be carried over; max is the quota, or as much as the groups above leave; without a quota it applies to limits that other programs set on the group and its children",
    }
    CapHard cap_hard: Cap {
        default: Cap::None,
        range: "0.001cpu or more, as in 0.2cpu, 200m or 20%cpu, or none",
        example: "0.2cpu", value: "CPUS", classes: ALL_CLASSES,
        doc: "The most CPU at any time",
        alias: "cap",
        within: Cap::at_least_one,
    }
    CapSoft cap_soft: Cap {
        default: Cap::None, range: "0cpu or more, as in 0, 0.2cpu, 200m or 20%cpu, or none", example: "0",
        value: "CPUS", classes: ALL_CLASSES,
        doc: "Above this, only CPU that no other task wants; 0 is background",
    }
    CapScope cap_scope: CapScope {
        default: CapScope::Group, range: "task, process or group", example: "task", value: "SCOPE", classes: ALL_CLASSES,
        doc: "What one cap covers: each task, each process, or the whole gate",
    }
    Latency latency: Latency {
        default: Latency::default(), range: "a whole number from -20 (the most urgent) to 19", example: "-10",
        value: "HINT", classes: ALL_CLASSES,
        doc: "How soon it runs once it wakes up; its share of the CPU stays",
    }
    LatencyInherit latency_inherit: Switch {
        default: Switch(true), range: "yes or no", example: "no", value: "YES|NO", classes: ALL_CLASSES,
        doc: "Whether forked tasks get the same latency hint",
    }
    MemoryHigh memory_high: Room {
        default: Room::from_mib(0), range: "off, or a size of at least 4MiB, as in 512MiB or 8GiB", example: "8GiB",
        value: "SIZE", classes: &[Class::Side],
        doc: "Memory above which the kernel takes the gate's pages back first (memory.high), so that it pushes no other work out",
        within: |room| match room.bytes() >> 20 {
            1..4 => Err(Refusal::new("is less than 4MiB")),
            _ => Ok(()),
        },
    }
    Fallback fallback: Fallback {
        default: Fallback::Floor,
        range: "floor, restore, or hold:TIME with a time from 1s to 1h, as in hold:10s",
        example: "restore", value: "FALLBACK", classes: ALL_CLASSES,
        doc: "What a limited process or group that was not started by run goes to when Tidegate dies",
    }
    Jobserver jobserver: Switch {
        default: Switch(false), range: "yes or no", example: "yes", value: "YES|NO", classes: &[Class::Side],
        doc: "Whether run gives the command a GNU make jobserver, which starts as many jobs as side work may use CPUs; make -jN overrides it",
    }
}

table! {
    /// A machine setting's name.
    enum Setting;
    /// The machine's settings, resolved.
    struct Settings;

    DefaultHeadroom default_headroom: Headroom {
        default: Headroom::None, range: "0% to 100% of the machine, as in 20% or 0.2, or none",
        example: "20%", value: "PERCENT", classes: &[Class::Side],
        doc: "Headroom where no gate names one, in the section side; none leaves side work to the idle class, without a quota, or on whole cores to 20%",
    }
    Engine engine: Engine {
        default: Engine::Auto, range: "auto, cgroup or sched_ext", example: "sched_ext", value: "ENGINE", classes: &[],
        doc: "What enforces the terms: kernel files (cgroup, and auto), or a scheduler in the kernel (sched_ext, Linux 6.12 and later)",
    }
    Lease lease: TimeSpan {
        default: TimeSpan::from_secs(2), range: "a time from 1s to 1min, as in 2s", example: "2s", value: "TIME",
        classes: &[],
        doc: "How long the agent may be silent before its guardian writes the fallback",
        within: |span| span.within(TimeSpan::from_secs(1), TimeSpan::from_secs(60)),
    }
    Sense sense: Sense {
        default: Sense::Auto, range: "auto, bpf or usage", example: "auto", value: "HOW", classes: &[],
        doc: "How use is measured: BPF where it works, else group usage",
    }
    Cpuset cpuset: CpusetMode {
        default: CpusetMode::Auto, range: "auto, on or off", example: "on", value: "WHEN", classes: &[],
        doc: "Confine side work to whole cores by a cpuset, with a quota for the rest; auto is from 32 CPUs that share cores",
    }
    LockBoost lock_boost: Switch {
        default: Switch(true), range: "yes or no", example: "no", value: "YES|NO", classes: &[],
        doc: "Whether side work that holds a file lock goes first for a few milliseconds while main waits for it",
    }
    LoopPeriod loop_period: LoopPeriod {
        default: LoopPeriod::Auto, range: "auto or a time from 1ms to 1s, as in 10ms", example: "auto", value: "TIME",
        classes: &[],
        doc: "Least time between steps of the control loop; auto is 5ms with BPF sensing and 50ms without",
        within: |period| match period {
            LoopPeriod::Auto => Ok(()),
            LoopPeriod::Every(span) => span.within(TimeSpan::from_millis(1), TimeSpan::from_secs(1)),
        },
    }
    ApiListen api_listen: ApiListen {
        default: ApiListen::Off, range: "off or a loopback address with a port, as in 127.0.0.1:9469", example: "127.0.0.1:9469",
        value: "ADDRESS", classes: &[],
        doc: "Where programs of this machine can read the API and /metrics over TCP, without command lines",
    }
    Recording recording: Room {
        default: Room::from_mib(256), range: "off, or a size from 4MiB to 64GiB, as in 256MiB", example: "1GiB", value: "SIZE",
        classes: &[],
        doc: "Room for the recordings of the last seven days; of an agent that was started on demand at most 16MiB",
        within: |room| room.check(),
    }
    Xattrs xattrs: Switch {
        default: Switch(false), range: "yes or no", example: "yes", value: "YES|NO", classes: &[],
        doc: "Whether attributes user.tidegate.TERM of groups give them terms, as far as the group's owner may",
    }
    GatesPerUser gates_per_user: Count {
        default: Count::new(64), range: "a whole number from 1 to 4096", example: "200", value: "N", classes: &[],
        doc: "Gates that one user other than root may have",
        within: |count| count.at_most(4096),
    }
    GatesMax gates_max: Count {
        default: Count::new(4096), range: "a whole number from 1 to 65536", example: "10000", value: "N", classes: &[],
        doc: "Gates in all; the last sixteenth is for root",
        within: |count| count.at_most(65_536),
    }
}

/// On whole cores, main's wakeups find a free core only where some are kept free.
const ON_WHOLE_CORES: Headroom = Headroom::Of(Share::TWENTY_PERCENT);

impl Settings {
    /// The settings of a machine that confines side work to whole cores: a headroom that no file
    /// names is 20 % there.
    #[must_use]
    pub fn on_whole_cores(mut self) -> Self {
        if self.default_headroom.value == Headroom::None {
            self.default_headroom
                .replace(ON_WHOLE_CORES, Source::WholeCores);
        }
        self
    }
}

impl Setting {
    /// Whether files write it in the section of this class.
    pub(crate) fn is_under(self, class: Class) -> bool {
        self.classes().contains(&class)
    }

    pub(crate) fn unknown(name: &str, source: Source) -> TermError {
        let at_the_top = Setting::ALL.iter().filter(|one| one.classes().is_empty());
        let mut known: Vec<&str> = at_the_top.map(|one| one.name()).collect();
        known.extend(ALL_CLASSES.iter().map(|class| class.name()));
        known.push("rule");
        let remedy = match (Term::from_name(name), Setting::from_name(name)) {
            (Some(term), _) => format!(
                "{} is a term of gates: put it under [main], [side] or [neutral]",
                term.name()
            ),
            (None, Some(setting)) => format!("put {} under [side]", setting.name()),
            (None, None) => remedy_for_unknown(name, &known),
        };
        TermError::Unknown {
            name: name.to_owned(),
            source_place: source,
            kind: "setting",
            remedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_accepts_its_default_and_its_example() {
        for term in Term::ALL {
            for text in [term.default_text(), term.example().to_owned()] {
                let raw = RawTerm {
                    text,
                    source: Source::Default,
                };
                // Only a headroom of 0 has the same text as a refused tolerance; nothing is exempt
                // here.
                term.check(&raw).unwrap();
            }
            assert!(!term.doc().is_empty() && !term.classes().is_empty());
            assert_eq!(Term::from_name(term.name()), Some(*term));
        }
        for setting in Setting::ALL {
            for text in [setting.default_text(), setting.example().to_owned()] {
                setting
                    .check(&RawTerm {
                        text,
                        source: Source::Default,
                    })
                    .unwrap();
            }
        }
    }

    #[test]
    fn ranges_of_settings_hold() {
        let check = |setting: Setting, text: &str| {
            setting.check(&RawTerm {
                text: text.to_owned(),
                source: Source::Set,
            })
        };
        assert!(check(Setting::Lease, "1s").is_ok());
        assert!(check(Setting::Lease, "999ms").is_err());
        assert!(check(Setting::Lease, "61s").is_err());
        assert!(check(Setting::LoopPeriod, "999us").is_err());
        assert!(check(Setting::LoopPeriod, "10ms").is_ok());
        assert!(check(Setting::GatesPerUser, "4096").is_ok());
        for wrong in ["0", "4097", "-1", "many"] {
            assert!(check(Setting::GatesPerUser, wrong).is_err(), "{wrong}");
        }
    }
}
