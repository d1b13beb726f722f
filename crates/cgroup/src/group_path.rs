//! Names of groups: a path below a hierarchy's mount that cannot leave it.

use serde::{Deserialize, Serialize};

/// The kernel's NAME_MAX, which holds for a cgroup's name.
const NAME_MAX_BYTES: usize = 255;
/// The kernel's PATH_MAX, less room for the mount and a file's name.
const PATH_MAX_BYTES: usize = 3_500;

/// A group's path below the mount of its hierarchy: `/`, `/a`, `/a/b`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupPath(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "group path: {path:?}: {why}; give it as it stands below the cgroup mount, like /system.slice/nginx.service"
)]
pub struct GroupPathError {
    pub path: String,
    pub why: &'static str,
}

impl GroupPath {
    /// The hierarchy's root (as far as it is mounted).
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Checks a path. Doubled and trailing slashes are dropped; `..`, `.`, control characters and
    /// overlong names are refused.
    pub fn parse(path: &str) -> Result<Self, GroupPathError> {
        let bad = |why| GroupPathError {
            path: crate::clip(path),
            why,
        };
        if !path.starts_with('/') {
            return Err(bad("it does not begin with /"));
        }
        if path.len() > PATH_MAX_BYTES {
            return Err(bad("longer than 3500 bytes"));
        }
        let mut clean = String::with_capacity(path.len());
        for name in path.split('/').filter(|name| !name.is_empty()) {
            check_name(name).map_err(bad)?;
            clean.push('/');
            clean.push_str(name);
        }
        if clean.is_empty() {
            clean.push('/');
        }
        Ok(Self(clean))
    }

    pub fn join(&self, name: &str) -> Result<Self, GroupPathError> {
        if name.is_empty() || name.contains('/') {
            let why = "a name is one part of a path, not empty, without /";
            return Err(GroupPathError {
                path: crate::clip(name),
                why,
            });
        }
        Self::parse(&format!("{}/{name}", self.0))
    }

    pub fn parent(&self) -> Option<Self> {
        match self.0.rfind('/') {
            _ if self.is_root() => None,
            Some(0) => Some(Self::root()),
            Some(at) => Some(Self(self.0[..at].to_owned())),
            None => None,
        }
    }

    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    pub fn is_within(&self, other: &Self) -> bool {
        other.is_root()
            || self
                .0
                .strip_prefix(&other.0)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without the leading slash, to be joined to a mount's path.
    pub fn relative(&self) -> &str {
        &self.0[1..]
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "." | ".." => Err("\".\" and \"..\" are no names of groups"),
        _ if name.len() > NAME_MAX_BYTES => Err("a name longer than 255 bytes"),
        _ if name.chars().any(char::is_control) => Err("control characters in it"),
        _ => Ok(()),
    }
}

crate::checked_text!(GroupPath, GroupPathError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let path = GroupPath::parse("//a///b/").unwrap();
        assert_eq!(path.as_str(), "/a/b");
        assert_eq!(path.name(), "b");
        assert_eq!(path.parent().unwrap().as_str(), "/a");
        assert_eq!(path.parent().unwrap().parent().unwrap(), GroupPath::root());
        assert_eq!(GroupPath::root().parent(), None);
        assert!(path.is_within(&GroupPath::parse("/a").unwrap()));
        assert!(
            !GroupPath::parse("/ab")
                .unwrap()
                .is_within(&GroupPath::parse("/a").unwrap())
        );
        for hostile in [
            "", "a", "/a/../b", "/..", "/./a", "/a\n", "/a\u{7f}", "/a\0",
        ] {
            assert!(GroupPath::parse(hostile).is_err(), "{hostile:?}");
        }
        assert!(GroupPath::parse(&format!("/{}", "x".repeat(256))).is_err());
        assert!(GroupPath::parse(&"/x".repeat(3000)).is_err());
        assert!(GroupPath::root().join("a/b").is_err());
        assert!(GroupPath::root().join("..").is_err());
        assert!(serde_json::from_str::<GroupPath>("\"/a/../b\"").is_err());
    }
}
