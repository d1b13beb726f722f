//! Room on a disk or in memory.

use std::fmt;

use crate::refusal::Refusal;
use crate::values::Value;

/// Room on a disk or in memory, in whole MiB; none is `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    mib: u64,
}

impl Room {
    pub(crate) const fn from_mib(mib: u64) -> Room {
        Room { mib }
    }

    /// In bytes; 0 where it is off.
    pub fn bytes(self) -> u64 {
        self.mib << 20
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self.mib {
            0 | 4..=65_536 => Ok(()),
            _ => Err(Refusal::new("is not from 4MiB to 64GiB")),
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mib {
            0 => f.write_str("off"),
            mib if mib.is_multiple_of(1_024) => write!(f, "{}GiB", mib / 1_024),
            mib => write!(f, "{mib}MiB"),
        }
    }
}

impl Value for Room {
    fn parse(text: &str) -> Result<Room, Refusal> {
        if text == "off" {
            return Ok(Room::default());
        }
        let unit = |ending: &str, mib: u64| {
            let number: u64 = text.strip_suffix(ending)?.trim_end().parse().ok()?;
            number.checked_mul(mib)
        };
        let found = unit("MiB", 1).or_else(|| unit("GiB", 1_024));
        let mib = found.filter(|mib| (1..=1 << 30).contains(mib));
        let mib = mib.ok_or_else(|| Refusal::new("is not a size in MiB or GiB"))?;
        Ok(Room { mib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_mebibytes_and_shown_as_short_as_they_can_be() {
        for (text, shown) in [
            ("off", "off"),
            ("256MiB", "256MiB"),
            ("1024 MiB", "1GiB"),
            ("2GiB", "2GiB"),
        ] {
            let room = Room::parse(text).unwrap();
            assert_eq!(room.to_string(), shown);
            assert!(room.check().is_ok());
        }
        for wrong in [
            "",
            "0MiB",
            "256",
            "256MB",
            "1.5GiB",
            "-1MiB",
            "18446744073709551615GiB",
        ] {
            assert!(Room::parse(wrong).is_err(), "{wrong}");
        }
        for out in ["3MiB", "65GiB"] {
            assert!(Room::parse(out).unwrap().check().is_err(), "{out}");
        }
    }
}
