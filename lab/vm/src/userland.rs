//! A Debian userland with systemd as the first process, small enough to be unpacked into memory at
//! every boot: systemd, its bus, and what they depend on, out of Debian's packages, unpacked
//! without running their scripts.
//!
//! It is kept under `.cache/vm/userland/` as one archive, named by the packages' versions.

use crate::apt::{PrivateApt, run};
use crate::cpio::Archive;
use crate::{VmError, fetch, tool};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is wanted; apt adds what these depend on.
const PACKAGES: [&str; 7] = [
    "systemd",
    "dbus",
    "base-files",
    "libelf1t64",
    "zlib1g",
    // A package is installed as on a machine: by dpkg, which wants ldconfig.
    "dpkg",
    "libc-bin",
];
/// Counts up when the archive is made otherwise from the same packages.
const RECIPE: u32 = 2;
/// Of no use in the guest, and most of its size.
const LEFT_OUT: [&str; 16] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/zoneinfo",
    "usr/share/bug",
    "usr/share/perl5",
    "usr/share/common-licenses",
    "usr/lib/locale",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/share/dpkg",
    "usr/lib/systemd/boot",
    "usr/lib/systemd/catalog",
    "usr/lib/systemd/system-generators",
    "usr/lib/udev",
];
/// What dpkg in the guest knows as installed.
const STATUS: &str = "var/lib/dpkg/status";
/// The archive within its folder.
const ARCHIVE: &str = "tree.cpio";

/// A userland ready to go into an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Userland {
    /// The archive, without what is the bed's own.
    pub archive: PathBuf,
    /// The version of systemd.
    pub systemd: String,
}

/// The userland: from the cache, or made of the packages that Debian's stable suite has now.
pub fn systemd(cache: &Path) -> Result<Userland, VmError> {
    let known = cached(cache);
    match known {
        Some(userland) if fetch::list_is_fresh(cache) => Ok(userland),
        known => make(cache).or_else(|trouble| known.ok_or(trouble)),
    }
}

fn folder(cache: &Path) -> PathBuf {
    cache.join("userland")
}

/// The one that was made last.
fn cached(cache: &Path) -> Option<Userland> {
    let name = fs::read_to_string(folder(cache).join("current")).ok()?;
    // One of an older recipe lacks what tests now need.
    let ours = name.starts_with(&format!("{RECIPE}-"));
    ours.then(|| read(&folder(cache).join(name.trim())))?
}

fn read(place: &Path) -> Option<Userland> {
    let archive = place.join(ARCHIVE);
    let packages = fs::read_to_string(place.join("packages")).ok()?;
    let systemd = packages.lines().find_map(|l| l.strip_prefix("systemd="))?;
    archive.is_file().then(|| Userland {
        archive,
        systemd: systemd.into(),
    })
}

fn make(cache: &Path) -> Result<Userland, VmError> {
    for program in ["apt-get", "dpkg-deb", "sha256sum"] {
        tool(program)?;
    }
    let apt = PrivateApt::set_up(cache)?;
    if !fetch::list_is_fresh(cache) {
        fetch::refresh_list(cache, &apt)?;
    }
    let mut words = vec!["install", "--print-uris", "-qq", "-y"];
    words.extend(["--no-install-recommends", "-o", "Debug::NoLocking=1"]);
    words.extend(PACKAGES);
    let listing = apt.run("apt-get", &words, cache, "choose the userland's packages")?;
    let packages = packages(&listing);
    let all = folder(cache);
    fs::create_dir_all(&all).map_err(|e| VmError::io("make the cache", &all, &e))?;
    let text = packages.join("\n") + "\n";
    let partial = all.join("partial");
    let _ = fs::remove_dir_all(&partial);
    let io = |e| VmError::io("keep the userland", &partial, &e);
    fs::create_dir_all(&partial).map_err(io)?;
    fs::write(partial.join("packages"), &text).map_err(io)?;
    let sum = fetch::sha256(&partial.join("packages"))?;
    let name = format!("{RECIPE}-{}", &sum[..16.min(sum.len())]);
    let place = all.join(&name);
    if read(&place).is_none() {
        eprintln!("vm: fetching a userland of {} packages", packages.len());
        unpack(&apt, &packages, &partial)?;
        let _ = fs::remove_dir_all(&place);
        fs::rename(&partial, &place).map_err(io)?;
    } else {
        fs::remove_dir_all(&partial).map_err(io)?;
    }
    fs::write(all.join("current"), &name).map_err(io)?;
    read(&place).ok_or_else(|| {
        let at = place.display().to_string();
        VmError::new(
            "make the userland",
            &at,
            "systemd is not in it",
            "run it again",
        )
    })
}

/// `NAME=VERSION` of each file that apt would fetch: `'URI' NAME_VERSION_ARCH.deb SIZE SUM`.
fn packages(listing: &str) -> Vec<String> {
    let one = |line: &str| {
        let file = line.strip_prefix('\'')?.split_once("' ")?.1;
        let mut parts = file.split_whitespace().next()?.split('_');
        let (name, version) = (parts.next()?, parts.next()?);
        Some(format!("{name}={}", version.replace("%3a", ":")))
    };
    let mut found: Vec<String> = listing.lines().filter_map(one).collect();
    found.sort();
    found
}

/// Fetches, unpacks and archives.
fn unpack(apt: &PrivateApt, packages: &[String], partial: &Path) -> Result<(), VmError> {
    let (debs, tree) = (partial.join("debs"), partial.join("tree"));
    let io = |e| VmError::io("unpack the userland", &debs, &e);
    let mut status = String::new();
    for deb in apt.unpack(packages, &debs, &tree)? {
        let mut command = Command::new("dpkg-deb");
        let fields = run(command.arg("-f").arg(&deb), "read a package's fields")?;
        status.push_str(&as_installed(&fields));
    }
    let known = tree.join(STATUS);
    fs::create_dir_all(known.parent().unwrap_or(&tree)).map_err(io)?;
    fs::write(&known, status).map_err(io)?;
    let mut archive = Archive::default();
    add(&mut archive, &tree, "")?;
    fs::write(partial.join(ARCHIVE), archive.finish()).map_err(io)?;
    fs::remove_dir_all(&tree).map_err(io)?;
    fs::remove_dir_all(&debs).map_err(io)
}

/// A package's entry in dpkg's status, where it is installed.
fn as_installed(fields: &str) -> String {
    format!("{}\nStatus: install ok installed\n\n", fields.trim_end())
}

/// Puts what is below `tree/at` into the archive, in the order of names.
fn add(archive: &mut Archive, tree: &Path, at: &str) -> Result<(), VmError> {
    let folder = tree.join(at);
    let io = |e| VmError::io("archive the userland", &folder, &e);
    let entries = fs::read_dir(&folder).map_err(io)?;
    let mut names: Vec<_> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    for name in names {
        let path = format!("{at}{}{name}", if at.is_empty() { "" } else { "/" });
        let file = tree.join(&path);
        let meta = fs::symlink_metadata(&file).map_err(io)?;
        if LEFT_OUT.contains(&path.as_str()) {
            continue;
        }
        if meta.is_symlink() {
            let target = fs::read_link(&file).map_err(io)?;
            archive.symlink(&path, &target.to_string_lossy());
        } else if meta.is_dir() {
            archive.directory(&path);
            add(archive, tree, &path)?;
        } else if meta.is_file() {
            let mode = meta.permissions().mode() & 0o777;
            archive.file(&path, mode, &fs::read(&file).map_err(io)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_would_fetch_is_read_with_its_epochs() {
        let listing = "'http://mirror.example/debian/pool/main/s/systemd/systemd_257.13-1%7edeb13u1_amd64.deb' \
            systemd_257.13-1~deb13u1_amd64.deb 3093632 MD5Sum:ac\n\
            'http://mirror.example/debian/pool/main/a/audit/libaudit1_4.0.2-2_amd64.deb' \
            libaudit1_1%3a4.0.2-2_amd64.deb 57680 MD5Sum:77\nWARNING: a line of another kind\n";
        assert_eq!(
            packages(listing),
            ["libaudit1=1:4.0.2-2", "systemd=257.13-1~deb13u1"]
        );
    }

    #[test]
    fn an_unpacked_package_is_installed_for_dpkg() {
        assert_eq!(
            as_installed("Package: x\nVersion: 1\n"),
            "Package: x\nVersion: 1\nStatus: install ok installed\n\n"
        );
    }

    #[test]
    fn a_tree_becomes_an_archive_without_what_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path();
        fs::create_dir_all(tree.join("usr/share/doc/x")).unwrap();
        fs::create_dir_all(tree.join("usr/bin")).unwrap();
        fs::write(tree.join("usr/share/doc/x/copyright"), "text").unwrap();
        fs::write(tree.join("usr/bin/true"), "program").unwrap();
        std::os::unix::fs::symlink("usr/bin", tree.join("bin")).unwrap();
        let mut archive = Archive::default();
        add(&mut archive, tree, "").unwrap();
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("usr/bin/true\0") && text.contains("usr/share\0"));
        assert!(text.contains("bin\0") && !text.contains("copyright"));
    }
}
