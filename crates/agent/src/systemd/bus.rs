//! The few calls to systemd that Tidegate makes: for root to the machine's manager, for other users
//! to their own. Each opens its own connection and ends with it: they are rare (a target named, a
//! unit restarted, terms taken back), and an agent that holds none has none to lose.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::target::UnitName;
use tidegate_engine::clock::monotonic_ns;
use zbus::connection::Builder;
use zbus::{DynamicType, OwnedObjectPath, OwnedVariant, Variant};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// There when, and only when, systemd is the first process (sd_booted(3)).
pub const BOOTED: &str = "/run/systemd/system";
/// A busy machine answers within it; a systemd that hangs must not hold up the agent for long.
const PATIENCE: Duration = Duration::from_secs(3);
/// A user's bus is started by the first call, beside all that freezes the machine.
const PATIENCE_OWN: Duration = Duration::from_secs(10);

/// After a call without an answer, none is made for so long: what waits for one (the gates' lock,
/// the row `units`) waits once.
const RETRY: Duration = Duration::from_secs(30);
static SILENCE: Silence = Silence(AtomicU64::new(0));

struct Silence(AtomicU64);

impl Silence {
    fn begin(&self, now_ns: u64) {
        self.0.store(now_ns.max(1), Ordering::Relaxed);
    }

    fn is_on(&self, now_ns: u64) -> bool {
        let since_ns = self.0.load(Ordering::Relaxed);
        since_ns > 0 && now_ns.saturating_sub(since_ns) < RETRY.as_nanos() as u64
    }
}

/// What systemd says for "no value".
pub const NONE: u64 = u64::MAX;
/// `CPUWeight=idle`.
const WEIGHT_IDLE: u64 = 0;
/// What comes next to it, before systemd 252.
const WEIGHT_LEAST: u64 = 1;
const PERCENT_US_PER_S: u64 = 10_000;
const PERIOD_DEFAULT_US: u64 = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    #[error("systemd is not this machine's first process; name the group instead: cgroup:/PATH")]
    NoSystemd,
    #[error(
        "systemd's bus: {why}; see `systemctl status dbus`, or name the group instead: cgroup:/PATH"
    )]
    NoBus { why: String },
    #[error("unit {unit}: systemd: {why}; look with: systemctl status {unit}")]
    Refused { unit: String, why: String },
    #[error("unit {unit}: systemd knows no such unit; look with: systemctl list-units")]
    NoUnit { unit: String },
    #[error(
        "unit {unit}: it is {active}, so it has no group; start it first: systemctl start {unit}"
    )]
    NotRunning {
        unit: String,
        /// `inactive`, `failed`, ...
        active: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitState {
    /// `loaded`, `not-found`, ...
    pub load: String,
    /// `active`, `inactive`, ...
    pub active: String,
    /// Its group, from the tree's top; empty when it has none.
    pub group: String,
}

impl UnitState {
    pub fn is_known(&self) -> bool {
        self.load != "not-found"
    }
}

/// The values that systemd writes for a unit whenever it writes them. `u64::MAX` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuValues {
    /// `CPUQuotaPerSecUSec`.
    pub quota_us_per_s: u64,
    pub period_us: u64,
    /// `CPUWeight`; 0 is idle.
    pub weight: u64,
}

impl CpuValues {
    /// The idle class, with that limit, in whole percent of a CPU: systemd keeps no more in its
    /// files, from which it reads it again at a daemon-reload, and less than one percent would be
    /// none.
    pub fn yielding(limit: Bandwidth) -> Self {
        let quota_us_per_s = limit.quota_us.map_or(NONE, |quota_us| {
            quota_us
                .saturating_mul(1_000_000)
                .div_ceil(limit.period_us.max(1))
                .div_ceil(PERCENT_US_PER_S)
                .saturating_mul(PERCENT_US_PER_S)
        });
        Self {
            quota_us_per_s,
            period_us: limit.period_us,
            weight: WEIGHT_IDLE,
        }
    }

    /// Whether systemd may hold these since it was told `told`: it has no idle before 252, and
    /// whole percents in its files.
    pub fn comes_of(&self, told: &CpuValues) -> bool {
        let as_weight = self.weight == told.weight
            || (told.weight == WEIGHT_IDLE && self.weight == WEIGHT_LEAST);
        let rounded = told.quota_us_per_s != NONE
            && self.quota_us_per_s.is_multiple_of(PERCENT_US_PER_S)
            && self.quota_us_per_s.abs_diff(told.quota_us_per_s) < PERCENT_US_PER_S;
        let as_quota = self.quota_us_per_s == told.quota_us_per_s || rounded;
        as_weight && as_quota && self.period_us == told.period_us
    }

    pub fn bandwidth(&self) -> Bandwidth {
        let period_us = match self.period_us {
            NONE => PERIOD_DEFAULT_US,
            period_us => period_us,
        };
        let quota_us = (self.quota_us_per_s != NONE)
            .then(|| self.quota_us_per_s.saturating_mul(period_us) / 1_000_000);
        Bandwidth {
            quota_us,
            period_us,
            burst_us: 0,
        }
    }
}

pub fn is_booted() -> bool {
    Path::new(BOOTED).is_dir()
}

/// systemd's version, by the bus: that both are there and answer.
pub fn version() -> Result<String, BusError> {
    of_manager("Version")
}

/// The group of the manager that this user's calls go to.
pub fn managers_group() -> Result<String, BusError> {
    of_manager("ControlGroup")
}

fn of_manager(name: &str) -> Result<String, BusError> {
    let manager = zbus::ObjectPath::try_from(MANAGER_PATH).map_err(|error| BusError::NoBus {
        why: error.to_string(),
    })?;
    on_bus(async |bus| get::<String>(&bus, &manager, MANAGER, name, "systemd").await)
}

pub fn state(unit: &UnitName) -> Result<UnitState, BusError> {
    on_bus(async |bus| {
        let path = load(&bus, unit).await?;
        let group = get(&bus, &path, &interface(unit), "ControlGroup", unit.as_str()).await;
        Ok(UnitState {
            load: get(&bus, &path, UNIT, "LoadState", unit.as_str()).await?,
            active: get(&bus, &path, UNIT, "ActiveState", unit.as_str()).await?,
            group: group.unwrap_or_default(),
        })
    })
}

pub fn cpu_values(unit: &UnitName) -> Result<CpuValues, BusError> {
    on_bus(async |bus| {
        let path = load(&bus, unit).await?;
        let of_kind = interface(unit);
        let value = async |name| get::<u64>(&bus, &path, &of_kind, name, unit.as_str()).await;
        Ok(CpuValues {
            quota_us_per_s: value("CPUQuotaPerSecUSec").await?,
            // Since systemd 242.
            period_us: value("CPUQuotaPeriodUSec").await.unwrap_or(NONE),
            weight: value("CPUWeight").await?,
        })
    })
}

/// Has systemd write these from now on, until the next boot.
pub fn set_cpu_values(unit: &UnitName, values: &CpuValues) -> Result<(), BusError> {
    let set = |weight: u64| {
        on_bus(async |bus| {
            let properties: Vec<(&str, Variant<'_>)> = vec![
                ("CPUQuotaPerSecUSec", values.quota_us_per_s.into()),
                ("CPUQuotaPeriodUSec", values.period_us.into()),
                ("CPUWeight", weight.into()),
            ];
            let body = (unit.as_str(), true, properties);
            let set = ask_manager(&bus, "SetUnitProperties", &body, unit.as_str());
            set.await.map(drop)
        })
    };
    match set(values.weight) {
        // Before systemd 252 there is no idle: the least weight is next to it.
        Err(BusError::Refused { .. }) if values.weight == WEIGHT_IDLE => set(WEIGHT_LEAST),
        done => done,
    }
}

pub(super) fn refused(unit: &str) -> impl Fn(zbus::Error) -> BusError + use<> {
    let unit = unit.to_owned();
    move |error| BusError::Refused {
        unit: unit.clone(),
        why: error.to_string(),
    }
}

/// `nginx.service` has its group's properties at `org.freedesktop.systemd1.Service`.
fn interface(unit: &UnitName) -> String {
    let kind = unit.kind();
    format!("{SYSTEMD}.{}{}", kind[..1].to_ascii_uppercase(), &kind[1..])
}

/// The unit's object; systemd reads its file if it has not.
async fn load(bus: &zbus::Connection, unit: &UnitName) -> Result<OwnedObjectPath, BusError> {
    let reply = ask_manager(bus, "LoadUnit", &(unit.as_str(),), unit.as_str()).await?;
    reply.body().deserialize().map_err(refused(unit.as_str()))
}

/// Calls a method of the manager's, for `unit`.
pub(super) async fn ask_manager(
    bus: &zbus::Connection,
    method: &str,
    body: &(impl Serialize + DynamicType),
    unit: &str,
) -> Result<zbus::Message, BusError> {
    let call = bus.call_method(Some(SYSTEMD), MANAGER_PATH, Some(MANAGER), method, body);
    call.await.map_err(refused(unit))
}

async fn get<T>(
    bus: &zbus::Connection,
    path: &zbus::ObjectPath<'_>,
    interface: &str,
    name: &str,
    unit: &str,
) -> Result<T, BusError>
where
    T: TryFrom<OwnedVariant>,
    T::Error: Into<zbus::Error>,
{
    let body = (interface, name);
    let call = bus.call_method(Some(SYSTEMD), path, Some(PROPERTIES), "Get", &body);
    let reply = call.await.map_err(refused(unit))?;
    let value: OwnedVariant = reply.body().deserialize().map_err(refused(unit))?;
    T::try_from(value).map_err(|error| refused(unit)(error.into()))
}

/// The bus is asked again, however silent it was: an agent that leaves has one try.
pub(crate) fn forget_silence() {
    SILENCE.0.store(0, Ordering::Relaxed);
}

/// Runs calls, unless the bus was silent lately.
pub(super) fn on_bus<T: Send>(
    calls: impl AsyncFnOnce(zbus::Connection) -> Result<T, BusError> + Send,
) -> Result<T, BusError> {
    if SILENCE.is_on(monotonic_ns()) {
        return Err(BusError::NoBus {
            why: format!(
                "it did not answer lately; asked again after {} s",
                RETRY.as_secs()
            ),
        });
    }
    if rustix::process::geteuid().is_root() {
        return ask(Builder::system, PATIENCE, calls);
    }
    // The socket `systemd/private` of the user's manager needs no bus, and its answers name a
    // sender that zbus refuses.
    let no_bus = || BusError::NoBus {
        why: "XDG_RUNTIME_DIR is not set".to_owned(),
    };
    let dir = std::env::var_os("XDG_RUNTIME_DIR").ok_or_else(no_bus)?;
    let address = format!("unix:path={}", Path::new(&dir).join("bus").display());
    ask(|| Builder::address(address.as_str()), PATIENCE_OWN, calls)
}

/// Runs calls on a connection of their own, in a thread of their own: the caller may be inside
/// another runtime.
fn ask<T: Send>(
    builder: impl FnOnce() -> Builder<'static> + Send,
    patience: Duration,
    calls: impl AsyncFnOnce(zbus::Connection) -> Result<T, BusError> + Send,
) -> Result<T, BusError> {
    if !is_booted() {
        return Err(BusError::NoSystemd);
    }
    let no_bus = |why: String| BusError::NoBus { why };
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| no_bus(error.to_string()))?;
        runtime.block_on(async {
            let all = async {
                let bus = builder()
                    .method_timeout(patience)
                    .build()
                    .await
                    .map_err(|error| no_bus(error.to_string()))?;
                calls(bus).await
            };
            let late = |_| {
                SILENCE.begin(monotonic_ns());
                no_bus(format!("no answer within {} s", patience.as_secs()))
            };
            tokio::time::timeout(patience, all).await.map_err(late)?
        })
    };
    let ended = |_| Err(no_bus("the call's thread ended".to_owned()));
    std::thread::scope(|scope| {
        // A fork bomb leaves no room for a thread: that is an answer, and no reason to panic.
        match std::thread::Builder::new().spawn_scoped(scope, run) {
            Ok(thread) => thread.join().unwrap_or_else(ended),
            Err(error) => Err(no_bus(format!("no thread for the call: {error}"))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_that_does_not_answer_is_waited_for_once_in_a_while() {
        let silence = Silence(AtomicU64::new(0));
        assert!(!silence.is_on(5));
        silence.begin(0);
        let retry_ns = RETRY.as_nanos() as u64;
        assert!(silence.is_on(7) && silence.is_on(retry_ns));
        assert!(!silence.is_on(retry_ns + 1));
    }

    #[test]
    fn a_limit_survives_systemds_arithmetic() {
        for (quota_us, period_us, kept_us) in [
            (2_000, 100_000, 2_000),
            (1_000, 66_666, 1_333),
            (1_500, 10_000, 1_500),
            (1_000, 1_000_000, 10_000),
        ] {
            let values = CpuValues::yielding(Bandwidth::limit(quota_us, period_us));
            assert_eq!(values.bandwidth(), Bandwidth::limit(kept_us, period_us));
            assert_eq!(values.weight, 0);
            // As it comes back from the file.
            assert_eq!(values.quota_us_per_s % PERCENT_US_PER_S, 0);
        }
        let none = CpuValues {
            quota_us_per_s: NONE,
            period_us: NONE,
            weight: NONE,
        };
        assert_eq!(
            (none.bandwidth().quota_us, none.bandwidth().period_us),
            (None, 100_000)
        );
    }

    #[test]
    fn what_an_older_systemd_makes_of_ours_is_ours() {
        let told = CpuValues {
            quota_us_per_s: 15_500,
            period_us: 100_000,
            weight: WEIGHT_IDLE,
        };
        let quota = |quota_us_per_s| CpuValues {
            quota_us_per_s,
            ..told
        };
        let weight = |weight| CpuValues { weight, ..told };
        for kept in [told, weight(1), quota(20_000), quota(10_000)] {
            assert!(kept.comes_of(&told), "{kept:?}");
        }
        for other in [weight(100), quota(30_000), quota(15_400), quota(NONE)] {
            assert!(!other.comes_of(&told), "{other:?}");
        }
        assert!(
            !weight(0).comes_of(&weight(1)),
            "only from idle to the least"
        );
    }

    #[test]
    fn properties_are_looked_for_at_the_units_kind() {
        let of = |name| interface(&UnitName::parse(name).unwrap());
        assert_eq!(of("nginx"), "org.freedesktop.systemd1.Service");
        assert_eq!(of("user.slice"), "org.freedesktop.systemd1.Slice");
    }
}
