//! The reports in a folder, as `lab` and `sim` write them: their pages, CSV and JSON, and pictures.
//! Nothing else of the folder is served.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

const FOLDERS_MAX: usize = 200;
const BYTES_MAX: u64 = 32 << 20;

pub struct Results {
    folder: PathBuf,
}

#[derive(Serialize)]
pub struct List {
    folder: String,
    pub reports: Vec<String>,
    pictures: Vec<String>,
}

impl Results {
    pub fn open(folder: &Path) -> io::Result<Results> {
        fs::read_dir(folder)?;
        Ok(Results {
            folder: folder.to_owned(),
        })
    }

    pub fn list(&self) -> List {
        let files = self.files();
        let stems = files.iter().filter_map(|name| name.strip_suffix(".html"));
        let has_json = |stem: &&str| files.contains(&format!("{stem}.json"));
        let pictures = files.iter().filter(|name| name.ends_with(".svg"));
        List {
            folder: self.folder.display().to_string(),
            reports: stems.filter(has_json).map(str::to_owned).collect(),
            pictures: pictures.cloned().collect(),
        }
    }

    /// A file of a report, with its media type. The page is no page here: what this one shows of
    /// it, it draws itself.
    pub fn file(&self, name: &str) -> Option<(&'static str, Vec<u8>)> {
        let list = self.list();
        let (stem, ending) = name.rsplit_once('.')?;
        let is_report = list.reports.iter().any(|one| one == stem);
        let media = match ending {
            "html" if is_report => "text/plain; charset=utf-8",
            "csv" if is_report => "text/csv; charset=utf-8",
            "json" if is_report => "application/json",
            "svg" if list.pictures.iter().any(|one| one == name) => "image/svg+xml",
            _ => return None,
        };
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.folder.join(name));
        let mut bytes = Vec::new();
        opened.ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some((media, bytes))
    }

    /// Files of the folder, and of the folders in it with these before them. No links, and nothing
    /// hidden.
    fn files(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut folders = Vec::new();
        for (name, kind) in entries(&self.folder) {
            if kind.is_file() {
                found.insert(name);
            } else if kind.is_dir() {
                folders.push(name);
            }
        }
        folders.sort();
        for folder in folders.iter().take(FOLDERS_MAX) {
            let within = entries(&self.folder.join(folder));
            let files = within.into_iter().filter(|(_, kind)| kind.is_file());
            found.extend(files.map(|(name, _)| format!("{folder}/{name}")));
        }
        found
    }
}

fn entries(folder: &Path) -> Vec<(String, fs::FileType)> {
    let each = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = each.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((name, entry.file_type().ok()?))
    });
    named.filter(|(name, _)| !name.starts_with('.')).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_reports_and_pictures_are_served() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("results");
        fs::create_dir_all(folder.join("burst")).unwrap();
        for name in [
            "law.html",
            "law.json",
            "law.csv",
            "burst/burst.html",
            "burst/burst.json",
            "demo.svg",
            "other.html",
            "other.json5",
            "secret.json",
            ".hidden.svg",
        ] {
            fs::write(folder.join(name), name).unwrap();
        }
        fs::write(dir.path().join("outside.svg"), "outside").unwrap();
        std::os::unix::fs::symlink("../outside.svg", folder.join("link.svg")).unwrap();
        let results = Results::open(&folder).unwrap();
        let list = results.list();
        assert_eq!(list.reports, ["burst/burst", "law"]);
        assert_eq!(list.pictures, ["demo.svg"]);
        let (media, bytes) = results.file("law.html").unwrap();
        assert_eq!(
            (media, &bytes[..]),
            ("text/plain; charset=utf-8", &b"law.html"[..])
        );
        for name in ["law.csv", "law.json", "burst/burst.json", "demo.svg"] {
            assert_eq!(results.file(name).unwrap().1, name.as_bytes());
        }
        for name in [
            "../outside.svg",
            "link.svg",
            ".hidden.svg",
            "secret.json",
            "other.html",
            "other.json5",
            "burst/../law.json",
            "burst/burst.csv",
            "/etc/passwd",
            "law",
            "",
        ] {
            assert!(results.file(name).is_none(), "{name}");
        }
    }
}
