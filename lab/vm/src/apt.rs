//! apt with a private root: this machine's transport, mirror and proxies; our own suite, lists and
//! cache.

use crate::VmError;
use crate::command::output;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suite that carries new kernels, and the one that it builds on, for the userland.
pub const SUITE: &str = "trixie-backports";
const BASE_SUITE: &str = "trixie";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Names the mirror where the machine's own apt sources name none (Ubuntu, for one).
const MIRROR_VARIABLE: &str = "TIDEGATE_DEBIAN_MIRROR";

pub fn run(command: &mut Command, what: &str) -> Result<String, VmError> {
    let remedy = "check the network and the machine's apt sources, then run it again";
    output(command, what, |line| line.starts_with("E:"), remedy)
}

/// apt with its own sources, lists and cache under `.cache/vm/apt`; the machine's own state is only
/// read.
pub struct PrivateApt {
    configuration: PathBuf,
}

impl PrivateApt {
    pub fn set_up(cache: &Path) -> Result<PrivateApt, VmError> {
        if !Path::new(KEYRING).is_file() {
            return Err(VmError::new(
                "check the list's signature",
                KEYRING,
                "no such file",
                "apt-get install debian-archive-keyring",
            ));
        }
        let root = cache.join("apt");
        let io = |e| VmError::io("set up a private apt", &root, &e);
        for directory in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(root.join(directory)).map_err(io)?;
        }
        let mirror = mirror()?;
        let place = root.display();
        let sources = format!(
            "Types: deb\nURIs: {mirror}\nSuites: {BASE_SUITE} {SUITE}\nComponents: main\nArchitectures: amd64\nSigned-By: {KEYRING}\n"
        );
        // Read last (apt -c), so that the machine's proxies hold and its hooks after an update do
        // not.
        let configuration = format!(
            "#clear APT::Update;\n\
             Dir::Etc::SourceList \"{place}/debian.sources\";\nDir::Etc::SourceParts \"/dev/null\";\n\
             Dir::State::Lists \"{place}/lists\";\nDir::State::status \"{place}/status\";\nDir::Cache \"{place}/cache\";\n\
             APT::Architecture \"amd64\";\nAPT::Sandbox::User \"root\";\nAPT::Update::Error-Mode \"any\";\n\
             Acquire::Languages \"none\";\nAcquire::Retries \"2\";\nAcquire::http::Timeout \"20\";\nAcquire::https::Timeout \"20\";\n"
        );
        fs::write(root.join("status"), "").map_err(io)?;
        fs::write(root.join("debian.sources"), sources).map_err(io)?;
        fs::write(root.join("apt.conf"), configuration).map_err(io)?;
        Ok(PrivateApt {
            configuration: root.join("apt.conf"),
        })
    }

    pub fn run(
        &self,
        program: &str,
        arguments: &[&str],
        directory: &Path,
        what: &str,
    ) -> Result<String, VmError> {
        run(
            Command::new(program)
                .arg("-c")
                .arg(&self.configuration)
                .args(arguments)
                .current_dir(directory),
            what,
        )
    }

    /// Downloads packages (`NAME=VERSION`) into `folder`, where apt checks each against the signed
    /// list, and unpacks them into `tree`. Returns their files.
    pub fn unpack(
        &self,
        packages: &[String],
        folder: &Path,
        tree: &Path,
    ) -> Result<Vec<PathBuf>, VmError> {
        let io = |e| VmError::io("download packages", folder, &e);
        fs::create_dir_all(folder).map_err(io)?;
        let mut words = vec!["download", "-q"];
        words.extend(packages.iter().map(String::as_str));
        self.run("apt-get", &words, folder, "download packages")?;
        let entries = fs::read_dir(folder).map_err(io)?;
        let files: Vec<PathBuf> = entries
            .map(|entry| Ok(entry.map_err(io)?.path()))
            .collect::<Result<_, VmError>>()?;
        for file in &files {
            let mut command = Command::new("dpkg-deb");
            run(command.arg("-x").arg(file).arg(tree), "unpack a package")?;
        }
        Ok(files)
    }
}

/// The Debian mirror that this machine's apt sources name.
fn mirror() -> Result<String, VmError> {
    if let Ok(named) = std::env::var(MIRROR_VARIABLE) {
        return Ok(named);
    }
    // What it would fetch; unlike its other listings, this needs no lists to be there yet.
    let listing = run(
        Command::new("apt-get").args(["--print-uris", "update"]),
        "read the machine's apt sources",
    )?;
    debian_mirror(&listing).ok_or_else(|| {
        VmError::new(
            "find a Debian mirror",
            "the machine's apt sources",
            "none of them is a Debian archive",
            &format!("set {MIRROR_VARIABLE} to one, and install debian-archive-keyring"),
        )
    })
}

fn debian_mirror(listing: &str) -> Option<String> {
    const RELEASES: [&str; 11] = [
        "bullseye",
        "bookworm",
        "trixie",
        "forky",
        "sid",
        "oldstable",
        "stable",
        "testing",
        "unstable",
        "duke",
        "rc-buggy",
    ];
    listing.lines().find_map(|line| {
        let uri = line.strip_prefix('\'')?.split('\'').next()?;
        let (mirror, rest) = uri.split_once("/dists/")?;
        let release = rest.strip_suffix("/InRelease")?;
        let base = release
            .strip_suffix("-updates")
            .or(release.strip_suffix("-backports"))
            .unwrap_or(release);
        RELEASES.contains(&base).then(|| mirror.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_debians_and_not_the_security_archive() {
        let listing = "'https://vendor.example/dists/nodistro/InRelease' a_InRelease 0 \n\
            'http://mirror.example/debian-security/dists/bookworm-security/InRelease' b 0 \n\
            'http://other.example/debian/dists/bookworm/main/dep11/icons-64x64.tar.xz' c 0 \n\
            'http://mirror.example/debian/dists/bookworm/InRelease' d 0 \n";
        assert_eq!(
            debian_mirror(listing).as_deref(),
            Some("http://mirror.example/debian")
        );
        let ubuntu = "'http://mirror.example/ubuntu/dists/noble/InRelease' e 0 \n";
        assert_eq!(debian_mirror(ubuntu), None);
    }
}
