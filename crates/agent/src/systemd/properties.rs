//! The properties that systemd was told for a unit, over which: written down before it is told,
//! like every knob. It is a file of its own beside the ledger, because these values belong to a
//! unit and outlive its group.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_cgroup::target::UnitName;
use tidegate_cgroup::{KernelFs, KfsError};
use tracing::warn;

use super::bus::{self, BusError, CpuValues};
use crate::paths::RunDir;

/// Where systemd keeps what `SetUnitProperties` was told until the next boot, and the files that
/// ours come to.
const DROP_INS: [&str; 2] = ["/run/systemd/system.control", "/run/systemd/transient"];
const FILES: [&str; 3] = [
    "50-CPUQuota.conf",
    "50-CPUQuotaPeriodSec.conf",
    "50-CPUWeight.conf",
];

#[derive(Debug, thiserror::Error)]
pub enum PropertiesError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Kfs(#[from] KfsError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyRecord {
    pub gate: String,
    pub unit: UnitName,
    pub was: CpuValues,
    pub ours: CpuValues,
    pub had: Vec<PathBuf>,
    /// Without an agent it is taken back after so long; never, where the gate's fallback is the
    /// floor.
    pub revert_after_s: Option<u64>,
}

fn file(run_dir: &RunDir) -> PathBuf {
    run_dir.dir().join("units.json")
}

/// All records; what cannot be read is reported and counts as none.
pub fn load(fs: &dyn KernelFs, run_dir: &RunDir) -> Vec<PropertyRecord> {
    let path = file(run_dir);
    let text = match fs.read(&path) {
        Ok(text) => text,
        Err(error) if error.is_gone() => return Vec::new(),
        Err(error) => {
            warn!("{error}");
            return Vec::new();
        }
    };
    serde_json::from_str(&text).unwrap_or_else(|error| {
        warn!(
            "{}: {error}; systemd keeps what it was told for those units",
            path.display()
        );
        Vec::new()
    })
}

pub fn store(
    fs: &dyn KernelFs,
    run_dir: &RunDir,
    records: &[PropertyRecord],
) -> Result<(), PropertiesError> {
    let path = file(run_dir);
    if records.is_empty() {
        return match fs.unlink(&path) {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec_pretty(records)?;
    Ok(fs.replace(&path, &text)?)
}

pub fn drop_ins(unit: &UnitName) -> Vec<PathBuf> {
    let of = |dir: &str| {
        let folder = Path::new(dir).join(format!("{unit}.d"));
        FILES.map(|name| folder.join(name))
    };
    let all = DROP_INS.into_iter().flat_map(of);
    all.filter(|path| path.exists()).collect()
}

/// Has systemd write again what it would have before, if what it holds is still ours, and removes
/// our drop-ins, which would outlive it.
pub fn revert(record: &PropertyRecord) -> Result<(), BusError> {
    if !bus::state(&record.unit)?.is_known() {
        return Ok(());
    }
    let found = bus::cpu_values(&record.unit)?;
    if !found.comes_of(&record.ours) && found != record.was {
        return Err(BusError::Refused {
            unit: record.unit.to_string(),
            why: "another program changed its CPUQuota or CPUWeight since; left alone".to_owned(),
        });
    }
    if found != record.was {
        bus::set_cpu_values(&record.unit, &record.was)?;
    }
    for path in drop_ins(&record.unit) {
        if record.had.contains(&path) {
            continue;
        }
        // Gone already, or the folder holds others': either is as it should be.
        let _ = std::fs::remove_file(&path);
        let _ = path.parent().map(std::fs::remove_dir);
    }
    Ok(())
}

/// Takes back those that are `wanted`; a line for each that could not be. What was changed since is
/// forgotten, what could not be reached is tried again by the next repair.
pub fn revert_where(
    fs: &dyn KernelFs,
    run_dir: &RunDir,
    wanted: impl Fn(&PropertyRecord) -> bool,
) -> Vec<String> {
    let mut records = load(fs, run_dir);
    if !records.iter().any(&wanted) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    records.retain(|record| {
        if !wanted(record) {
            return true;
        }
        match revert(record) {
            Ok(()) => false,
            Err(error) => {
                lines.push(error.to_string());
                matches!(error, BusError::NoBus { .. })
            }
        }
    });
    if let Err(error) = store(fs, run_dir, &records) {
        warn!("{error}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cgroup::RealFs;

    #[test]
    fn records_are_kept_and_the_file_goes_with_the_last() {
        let place = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(place.path(), "t");
        let fs = RealFs::new();
        assert_eq!(load(&fs, &run_dir), []);
        let values = CpuValues {
            quota_us_per_s: bus::NONE,
            period_us: bus::NONE,
            weight: bus::NONE,
        };
        let record = PropertyRecord {
            gate: "web".into(),
            unit: UnitName::parse("web").unwrap(),
            was: values,
            ours: CpuValues {
                weight: 0,
                ..values
            },
            had: vec![],
            revert_after_s: Some(5),
        };
        store(&fs, &run_dir, std::slice::from_ref(&record)).unwrap();
        assert_eq!(load(&fs, &run_dir), [record]);
        std::fs::write(file(&run_dir), "[{").unwrap();
        assert_eq!(
            load(&fs, &run_dir),
            [],
            "a damaged file is no reason to stop"
        );
        store(&fs, &run_dir, &[]).unwrap();
        store(&fs, &run_dir, &[]).unwrap();
        assert!(!file(&run_dir).exists());
    }
}
