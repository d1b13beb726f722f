//! Where the guest's kernel comes from: Debian's newest cloud kernel of the asked series in the
//! backports suite's package list, fetched through apt with a private root.
//!
//! apt does the transport, and checks the list's signature against Debian's keyring and the package
//! against the list. The mirror is whichever one this machine's own apt sources name for Debian.
//! The kernel lies under `.cache/vm/kernels/PACKAGE_VERSION/` and needs no network afterwards.

use crate::apt::{PrivateApt, SUITE, run};
use crate::{VmError, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A list older than this is refreshed before use; failing that, the cached kernel serves.
const LIST_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The configuration's name in the cache.
const CONFIG: &str = "config";

/// A kernel ready to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The image to boot.
    pub vmlinuz: PathBuf,
    pub config: PathBuf,
    /// Debian's package that it came in.
    pub package: String,
    pub version: String,
    /// Why it may not be the newest, if so.
    pub note: Option<String>,
}

impl Kernel {
    /// The configuration, where libbpf looks for it in the guest: programs of others may ask for
    /// what is in it.
    pub(crate) fn config_file(&self) -> Option<(String, PathBuf)> {
        let release = ["linux-image-", "linux-binary-"]
            .iter()
            .find_map(|prefix| self.package.strip_prefix(prefix))?;
        Some((format!("/boot/config-{release}"), self.config.clone()))
    }
}

/// One stanza of the package list, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    package: String,
    version: String,
}

/// The kernel of `series` ("6.18"): from the cache, or fetched; `refresh` looks for a newer one
/// first.
pub fn kernel(cache: &Path, series: &str, refresh: bool) -> Result<Kernel, VmError> {
    let cached = newest_cached(cache, series)?;
    let stale = refresh || !list_is_fresh(cache);
    match (cached, stale) {
        (Some(kernel), false) => Ok(kernel),
        (cached, _) => match fetch_newest(cache, series) {
            Ok(kernel) => Ok(kernel),
            Err(trouble) => match cached {
                Some(kernel) => Ok(Kernel {
                    note: Some(format!("kept the cached kernel: {trouble}")),
                    ..kernel
                }),
                None => Err(trouble),
            },
        },
    }
}

fn fetch_newest(cache: &Path, series: &str) -> Result<Kernel, VmError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(VmError::new(
            "guest kernel",
            std::env::consts::ARCH,
            "only amd64 kernels are known",
            "use an amd64 machine",
        ));
    }
    for program in ["apt-get", "apt-cache", "dpkg", "dpkg-deb", "sha256sum"] {
        tool(program)?;
    }
    let apt = PrivateApt::set_up(cache)?;
    refresh_list(cache, &apt)?;
    let list = apt.run("apt-cache", &["dumpavail"], cache, "read the package list")?;
    let candidates = candidates(&list, series);
    let Some(newest) = newest(&candidates) else {
        return Err(VmError::new(
            "guest kernel",
            &format!("{SUITE}, series {series}"),
            "the list has no linux-image or linux-binary cloud package of it",
            "name another series with --kernel",
        ));
    };
    let directory = kernels(cache).join(directory_name(newest));
    if let Some(kernel) = read_cached(&directory)? {
        return Ok(kernel);
    }
    download(&apt, &packages(&list, newest), &directory)
}

pub(crate) fn refresh_list(cache: &Path, apt: &PrivateApt) -> Result<(), VmError> {
    apt.run("apt-get", &["update", "-q"], cache, "read the package list")?;
    fs::write(list_stamp(cache), SUITE)
        .map_err(|e| VmError::io("note the list's age", &list_stamp(cache), &e))
}

/// Whether the lists need not be read again.
pub(crate) fn list_is_fresh(cache: &Path) -> bool {
    list_age(cache).is_some_and(|age| age <= LIST_AGE_MAX)
}

/// Downloads beside the final place and renames, so that an interrupted fetch never looks complete.
fn download(apt: &PrivateApt, packages: &[Candidate], directory: &Path) -> Result<Kernel, VmError> {
    let partial = PathBuf::from(format!("{}.partial", directory.display()));
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(|e| VmError::io("make the cache", &partial, &e))?;
    eprintln!(
        "vm: fetching {} {}",
        packages[0].package, packages[0].version
    );
    let named = packages.iter();
    let named = named.map(|one| format!("{}={}", one.package, one.version));
    let (debs, tree) = (partial.join("debs"), partial.join("tree"));
    apt.unpack(&named.collect::<Vec<_>>(), &debs, &tree)?;
    let image = file_in(&tree, "vmlinuz")?;
    let io = |e| VmError::io("keep the kernel", &partial, &e);
    fs::rename(&image, partial.join("vmlinuz")).map_err(io)?;
    fs::rename(file_in(&tree, CONFIG)?, partial.join(CONFIG)).map_err(io)?;
    fs::remove_dir_all(&tree).map_err(io)?;
    fs::remove_dir_all(&debs).map_err(io)?;
    let vmlinuz_sum = sha256(&partial.join("vmlinuz"))?;
    fs::write(
        partial.join("origin"),
        format!(
            "{}\n{}\n{vmlinuz_sum}\n",
            packages[0].package, packages[0].version
        ),
    )
    .map_err(io)?;
    let _ = fs::remove_dir_all(directory);
    fs::rename(&partial, directory).map_err(io)?;
    read_cached(directory)?.ok_or_else(|| {
        VmError::new(
            "keep the kernel",
            &directory.display().to_string(),
            "it changed while being read",
            "run it again",
        )
    })
}

/// A file of an unpacked kernel: `boot/NAME-VERSION` up to 7.0, `usr/lib/modules/VERSION/NAME`
/// after.
fn file_in(tree: &Path, name: &str) -> Result<PathBuf, VmError> {
    let boot = tree.join("boot");
    if boot.is_dir() {
        return only_file(&boot, &format!("{name}-"));
    }
    only_file(&only_file(&tree.join("usr/lib/modules"), "")?, name)
}

/// The cached kernel in `directory`, if it is whole: its image is what was unpacked.
fn read_cached(directory: &Path) -> Result<Option<Kernel>, VmError> {
    let (vmlinuz, origin) = (directory.join("vmlinuz"), directory.join("origin"));
    let Ok(text) = fs::read_to_string(&origin) else {
        return Ok(None);
    };
    let [package, version, sum] = text.lines().collect::<Vec<_>>()[..] else {
        return Ok(None);
    };
    let config = directory.join(CONFIG);
    if !vmlinuz.is_file() || !config.is_file() || sha256(&vmlinuz)? != sum {
        return Ok(None);
    }
    Ok(Some(Kernel {
        vmlinuz,
        config,
        package: package.into(),
        version: version.into(),
        note: None,
    }))
}

fn newest_cached(cache: &Path, series: &str) -> Result<Option<Kernel>, VmError> {
    let mut best: Option<Kernel> = None;
    let Ok(entries) = fs::read_dir(kernels(cache)) else {
        return Ok(None);
    };
    for entry in entries.flatten() {
        let Some(kernel) = read_cached(&entry.path())? else {
            continue;
        };
        if of_series(&kernel.package, series)
            && best
                .as_ref()
                .is_none_or(|b| newer(&kernel.version, &b.version))
        {
            best = Some(kernel);
        }
    }
    Ok(best)
}

fn kernels(cache: &Path) -> PathBuf {
    cache.join("kernels")
}

fn list_stamp(cache: &Path) -> PathBuf {
    // Its name changes with the suites, so that an older version's lists are not taken for these.
    cache.join("lists-read")
}

fn list_age(cache: &Path) -> Option<Duration> {
    let read = fs::metadata(list_stamp(cache))
        .and_then(|m| m.modified())
        .ok()?;
    SystemTime::now().duration_since(read).ok()
}

fn directory_name(candidate: &Candidate) -> String {
    // Debian versions may hold ':' and '~'; both are legal in file names but awkward in QEMU's
    // option syntax.
    let version = candidate.version.replace([':', '~', ','], "_");
    format!("{}_{version}", candidate.package)
}

/// `linux-image-6.18.15+deb13-cloud-amd64` is of series 6.18; `-unsigned` and `-dbg` variants are
/// not.
fn of_series(package: &str, series: &str) -> bool {
    ["linux-image-", "linux-binary-"]
        .iter()
        .filter_map(|prefix| package.strip_prefix(prefix)?.strip_prefix(series))
        .any(|rest| rest.starts_with(['.', '+', '-']) && rest.ends_with("-cloud-amd64"))
}

fn candidates(list: &str, series: &str) -> Vec<Candidate> {
    stanzas(list)
        .filter(|found| of_series(&found.package, series))
        .collect()
}

/// The packages of a kernel: from 7.1 on, what it was configured with is in one of its own.
fn packages(list: &str, kernel: &Candidate) -> Vec<Candidate> {
    let release = kernel.package.strip_prefix("linux-binary-");
    let base = release.and_then(|release| {
        let name = format!("linux-base-{release}");
        stanzas(list).find(|found| found.package == name && found.version == kernel.version)
    });
    [kernel.clone()].into_iter().chain(base).collect()
}

fn stanzas(list: &str) -> impl Iterator<Item = Candidate> {
    list.split("\n\n").filter_map(|stanza| {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|l| l.strip_prefix(name)?.strip_prefix(": "))
        };
        Some(Candidate {
            package: field("Package")?.into(),
            version: field("Version")?.into(),
        })
    })
}

fn newest(candidates: &[Candidate]) -> Option<&Candidate> {
    candidates.iter().reduce(|best, next| {
        if newer(&next.version, &best.version) {
            next
        } else {
            best
        }
    })
}

/// Debian's own order of versions.
fn newer(left: &str, right: &str) -> bool {
    Command::new("dpkg")
        .args(["--compare-versions", left, "gt", right])
        .status()
        .is_ok_and(|s| s.success())
}

fn only_file(directory: &Path, part: &str) -> Result<PathBuf, VmError> {
    let entries =
        fs::read_dir(directory).map_err(|e| VmError::io("look into the package", directory, &e))?;
    let mut found = entries.flatten().map(|e| e.path()).filter(|p| {
        p.file_name()
            .is_some_and(|n| n.to_string_lossy().contains(part))
    });
    found.next().ok_or_else(|| {
        let place = directory.display().to_string();
        VmError::new(
            "look into the package",
            &place,
            &format!("no file named *{part}*"),
            "report it: the package's layout has changed",
        )
    })
}

pub(crate) fn sha256(file: &Path) -> Result<String, VmError> {
    let text = run(Command::new("sha256sum").arg(file), "compute a SHA256")?;
    Ok(text
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .trim_start_matches('\\')
        .to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Package: linux-image-6.18.9+deb13-cloud-amd64\nVersion: 6.18.9-1~bpo13+1\n\n\
        Package: linux-image-6.18.15+deb13-cloud-amd64\nVersion: 6.18.15-1~bpo13+1\n\n\
        Package: linux-image-6.18.15+deb13-cloud-amd64-unsigned\nVersion: 6.18.15-1~bpo13+1\n\n\
        Package: linux-image-6.19.6+deb13-cloud-amd64\nVersion: 6.19.6-1~bpo13+1\n\n\
        Package: linux-base-7.3.4+deb13-cloud-amd64\nVersion: 7.3.4-1~bpo13+1\n\n\
        Package: linux-binary-7.3.4+deb13-cloud-amd64\nVersion: 7.3.4-1~bpo13+1\n";

    #[test]
    fn the_newest_of_the_series_is_chosen_by_debians_order() {
        assert_eq!(candidates(LIST, "6.18").len(), 2);
        let names = |series| {
            let found = candidates(LIST, series);
            let packages = packages(LIST, newest(&found).unwrap()).into_iter();
            packages.map(|c| c.package).collect::<Vec<_>>()
        };
        assert_eq!(names("6.18"), ["linux-image-6.18.15+deb13-cloud-amd64"]);
        let (binary, base) = (
            "linux-binary-7.3.4+deb13-cloud-amd64",
            "linux-base-7.3.4+deb13-cloud-amd64",
        );
        assert_eq!(names("7.3"), [binary, base]);
        assert!(
            candidates(LIST, "6.1").is_empty(),
            "6.1 must not match 6.18"
        );
    }

    #[test]
    fn both_layouts_of_debians_kernel_packages_are_known() {
        for (place, config) in [
            ("boot/vmlinuz-6.18.1", "boot/config-6.18.1"),
            (
                "usr/lib/modules/7.3.1/vmlinuz",
                "usr/lib/modules/7.3.1/config",
            ),
        ] {
            let tree = tempfile::tempdir().unwrap();
            let image = tree.path().join(place);
            fs::create_dir_all(image.parent().unwrap()).unwrap();
            fs::write(&image, "kernel").unwrap();
            assert_eq!(file_in(tree.path(), "vmlinuz").unwrap(), image);
            assert!(file_in(tree.path(), CONFIG).is_err());
            fs::write(tree.path().join(config), "CONFIG_BPF=y").unwrap();
            let found = file_in(tree.path(), CONFIG).unwrap();
            assert_eq!(found, tree.path().join(config));
        }
        assert!(file_in(Path::new("/nonexistent"), "vmlinuz").is_err());
    }

    #[test]
    fn a_cached_kernel_whose_image_changed_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("vmlinuz"), "kernel").unwrap();
        let sum = sha256(&place.path().join("vmlinuz")).unwrap();
        fs::write(
            place.path().join("origin"),
            format!("linux-image-6.18.1-cloud-amd64\n6.18.1-1\n{sum}\n"),
        )
        .unwrap();
        assert_eq!(read_cached(place.path()).unwrap(), None);
        fs::write(place.path().join(CONFIG), "CONFIG_BPF=y").unwrap();
        assert!(read_cached(place.path()).unwrap().is_some());
        fs::write(place.path().join("vmlinuz"), "kernel, cut").unwrap();
        assert_eq!(read_cached(place.path()).unwrap(), None);
    }
}
