//! Embeds the page of `tidegate web`: the files of `web/`, and uPlot where `npm ci` has put it
//! there. Without uPlot there is no page, and the command says so.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    println!("cargo::rerun-if-changed={}", web.display());
    let mut list = String::new();
    for (name, file) in files(&web) {
        let media = match file.extension().and_then(|extension| extension.to_str()) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        };
        let _ = writeln!(list, "({name:?}, {media:?}, include_bytes!({file:?})),");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("page.rs");
    let written = std::fs::write(&out, format!("&[{list}]"));
    written.unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}

/// The files by the paths of their addresses.
fn files(web: &Path) -> Vec<(String, PathBuf)> {
    let plots = web.join("node_modules/uplot/dist");
    let mut files = vec![
        ("/uplot.js".to_owned(), plots.join("uPlot.iife.min.js")),
        ("/uplot.css".to_owned(), plots.join("uPlot.min.css")),
    ];
    if !files.iter().all(|(_, file)| file.exists()) {
        return Vec::new();
    }
    for entry in web.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match name.rsplit_once('.') {
            Some(("index", "html")) => files.push(("/".to_owned(), entry.path())),
            Some((_, "js" | "css" | "svg")) => files.push((format!("/{name}"), entry.path())),
            _ => {}
        }
    }
    files.sort();
    files
}
