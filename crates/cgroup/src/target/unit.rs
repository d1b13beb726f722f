//! A systemd unit's name, as far as it can have processes and so a group.

use serde::{Deserialize, Serialize};

use super::TargetError;

/// systemd's own limit (`UNIT_NAME_MAX`), without the zero at the end.
const UNIT_NAME_MAX_BYTES: usize = 255;
const WITH_GROUP: [&str; 6] = ["service", "scope", "slice", "mount", "socket", "swap"];
const WITHOUT_GROUP: [&str; 5] = ["target", "timer", "path", "device", "automount"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UnitName(String);

impl UnitName {
    /// Checks a name that a user gave; without a kind it is a service's, as for `systemctl`.
    pub fn parse(name: &str) -> Result<Self, TargetError> {
        let bad = |why| TargetError::Form {
            text: format!("unit:{}", crate::clip(name)),
            why,
        };
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
        if name.is_empty() || !name.bytes().all(allowed) {
            return Err(bad(
                "not a unit's name (letters, digits and `:-_.\\@`, such as nginx.service)",
            ));
        }
        if name.starts_with(['-', '.']) && name != "-.slice" {
            return Err(bad("a unit's name does not begin with '-' or '.'"));
        }
        if name == "-.slice" {
            return Err(bad("the root slice is the whole machine"));
        }
        let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
        let full = match kind {
            kind if WITH_GROUP.contains(&kind) => name.to_owned(),
            kind if WITHOUT_GROUP.contains(&kind) => {
                return Err(bad(
                    "units of this kind have no processes; name a service, scope or slice",
                ));
            }
            _ => format!("{name}.service"),
        };
        if full.len() > UNIT_NAME_MAX_BYTES {
            return Err(bad("longer than 255 bytes"));
        }
        if full.contains("@.") {
            return Err(bad(
                "a template has no processes; name an instance, such as getty@tty1.service",
            ));
        }
        Ok(Self(full))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `service`, `scope`, ...
    pub fn kind(&self) -> &str {
        self.0.rsplit_once('.').map_or("service", |(_, kind)| kind)
    }

    pub fn stem(&self) -> &str {
        self.0.rsplit_once('.').map_or(&self.0, |(stem, _)| stem)
    }
}

crate::checked_text!(UnitName, TargetError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_with_processes() {
        for (given, full, kind, stem) in [
            ("nginx", "nginx.service", "service", "nginx"),
            ("nginx.service", "nginx.service", "service", "nginx"),
            ("user-1000.slice", "user-1000.slice", "slice", "user-1000"),
            ("session-3.scope", "session-3.scope", "scope", "session-3"),
            ("php8.2-fpm", "php8.2-fpm.service", "service", "php8.2-fpm"),
            (
                "systemd-fsck@dev-disk-by\\x2duuid.service",
                "systemd-fsck@dev-disk-by\\x2duuid.service",
                "service",
                "systemd-fsck@dev-disk-by\\x2duuid",
            ),
        ] {
            let unit = UnitName::parse(given).unwrap();
            assert_eq!(
                (unit.as_str(), unit.kind(), unit.stem()),
                (full, kind, stem)
            );
        }
    }

    #[test]
    fn what_has_no_group_or_could_do_harm_is_refused() {
        let long = "x".repeat(250);
        for hostile in [
            "",
            "-.slice",
            "-x",
            ".x",
            "a/b",
            "../x",
            "a b",
            "a\n",
            "a\u{1b}[2J",
            "multi-user.target",
            "apt.timer",
            "getty@.service",
            "é.service",
            long.as_str(),
        ] {
            assert!(UnitName::parse(hostile).is_err(), "{hostile:?}");
        }
        let why = UnitName::parse("multi-user.target")
            .unwrap_err()
            .to_string();
        assert!(why.contains("no processes"), "{why}");
    }
}
