//! Where an agent is.

use std::path::{Path, PathBuf};

/// What a socket's address has room for, with the zero at its end (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// The place of an agent's socket, as it is written: `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    socket: PathBuf,
}

/// Why a text is no place of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("is a bare path; write unix: before it")]
    BarePath,
    #[error(
        "is no socket, and an agent is reached over its socket alone; write unix:/path/to/tidegate.sock"
    )]
    Scheme,
    #[error("names no absolute path; write unix:/path/to/tidegate.sock")]
    NotAbsolute,
    #[error("is longer than a socket's path can be (107 bytes); use a shorter one")]
    TooLong,
}

impl Host {
    /// `unix:/path` or `unix:///path`.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let Some(path) = text.strip_prefix("unix:") else {
            return Err(match text.starts_with(['/', '.']) {
                true => HostError::BarePath,
                false => HostError::Scheme,
            });
        };
        let path = match path.strip_prefix("//") {
            Some(path) => path,
            None => path,
        };
        if !path.starts_with('/') || path.ends_with('/') {
            return Err(HostError::NotAbsolute);
        }
        if path.len() > SOCKET_PATH_MAX {
            return Err(HostError::TooLong);
        }
        Ok(Self {
            socket: path.into(),
        })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_or_refused_with_what_helps() {
        for text in ["unix:/run/x.sock", "unix:///run/x.sock"] {
            let host = Host::parse(text).unwrap();
            assert_eq!(host.socket(), Path::new("/run/x.sock"), "{text}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, why) in [
            ("", HostError::Scheme),
            ("tcp:127.0.0.1:80", HostError::Scheme),
            ("http://host", HostError::Scheme),
            ("/run/x.sock", HostError::BarePath),
            ("./x.sock", HostError::BarePath),
            ("unix:", HostError::NotAbsolute),
            ("unix:x.sock", HostError::NotAbsolute),
            ("unix://host/x.sock", HostError::NotAbsolute),
            ("unix:/run/", HostError::NotAbsolute),
            (&long, HostError::TooLong),
        ] {
            assert_eq!(Host::parse(text), Err(why), "{text}");
        }
    }
}
