//! Where mutants live: a copy of the law and its tests, with the C part as a shared object that is made anew for each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Mutant, tests_of};

/// A test binary that takes longer hangs: the sound law's take a few seconds each.
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// Tests of the toolchain, not of the law; and what only they need.
const LEFT_OUT: [&str; 2] = ["bpf.rs", "bpf_run.rs"];
const DEPENDENCIES_LEFT_OUT: [&str; 2] = ["libbpf-rs", "rustix"];

/// Replaces the crate's build script: the C part comes from outside.
const BUILD_SCRIPT: &str = r#"//! Links the shared object that `cargo xtask mutants` makes.
fn main() {
    let folder = std::env::var("TIDEGATE_LAW_OBJECT").unwrap_or_default();
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::rustc-link-lib=dylib=tidegate_law_native");
    println!("cargo::rerun-if-changed=build.rs");
}
"#;

/// What became of a mutant.
pub enum Verdict {
    /// The first test that failed, and how many more did.
    Caught {
        by: String,
        more: usize,
    },
    Survived,
    Error(String),
}

/// A test binary and its name.
struct Test {
    name: String,
    binary: PathBuf,
}

/// Is this one of the tests that are to notice this mutant?
fn concerns(test: &Test, mutant: &Mutant) -> bool {
    tests_of(mutant.header)
        .iter()
        .any(|start| test.name.starts_with(start))
}

/// The copy, its tests built.
pub struct Bed {
    root: PathBuf,
    tests: Vec<Test>,
}

/// The header's text with the mutant in it.
pub fn broken(text: &str, mutant: &Mutant) -> Result<String, String> {
    match text.matches(mutant.from).count() {
        1 => Ok(text.replacen(mutant.from, mutant.to, 1)),
        found => Err(format!(
            "its text is there {found} times, not once; bring xtask/src/mutants/table_*.rs up to date"
        )),
    }
}

fn trouble(what: &Path, why: &std::io::Error) -> String {
    format!("{}: {why}", what.display())
}

/// Writes only what differs, so that cargo builds only that.
fn place(file: &Path, text: &[u8]) -> Result<(), String> {
    if fs::read(file).is_ok_and(|there| there == text) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(|why| trouble(folder, &why))?;
    }
    fs::write(file, text).map_err(|why| trouble(file, &why))
}

/// Copies a folder's files and folders, less those named.
fn copy(from: &Path, to: &Path, leave_out: &[&str]) -> Result<(), String> {
    let entries = fs::read_dir(from).map_err(|why| trouble(from, &why))?;
    for entry in entries {
        let entry = entry.map_err(|why| trouble(from, &why))?;
        let name = entry.file_name();
        if leave_out.iter().any(|left| name == *left) {
            continue;
        }
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(&name), leave_out)?;
        } else {
            let text = fs::read(entry.path()).map_err(|why| trouble(&entry.path(), &why))?;
            place(&to.join(&name), &text)?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file)
        .map_err(|why| format!("{}; run it at the top of the checkout", trouble(file, &why)))
}

impl Bed {
    /// Copies the law and builds its tests, without the network.
    pub fn new(top: &Path, root: &Path) -> Result<Self, String> {
        fs::create_dir_all(root).map_err(|why| trouble(root, &why))?;
        let root = root.canonicalize().map_err(|why| trouble(root, &why))?;
        // A test that is gone must not live on in the copy.
        let _ = fs::remove_dir_all(root.join("crates/law/tests"));
        copy(&top.join("law"), &root.join("law"), &[])?;
        copy(
            &top.join("crates/law"),
            &root.join("crates/law"),
            &[&LEFT_OUT[..], &["build.rs", "Cargo.toml"]].concat(),
        )?;
        place(&root.join("crates/law/build.rs"), BUILD_SCRIPT.as_bytes())?;
        let crate_manifest = read(&top.join("crates/law/Cargo.toml"))?;
        let kept: Vec<&str> = crate_manifest
            .lines()
            .filter(|line| {
                !DEPENDENCIES_LEFT_OUT
                    .iter()
                    .any(|name| line.starts_with(name))
            })
            .collect();
        place(
            &root.join("crates/law/Cargo.toml"),
            (kept.join("\n") + "\n").as_bytes(),
        )?;
        let manifest = read(&top.join("Cargo.toml"))?;
        let members = manifest.replace(
            r#"members = ["crates/*", "xtask"]"#,
            r#"members = ["crates/law"]"#,
        );
        place(&root.join("Cargo.toml"), members.as_bytes())?;
        // Cargo takes out of it what the copy does not need: it is compared with the one it was made from.
        let lock = read(&top.join("Cargo.lock"))?;
        let lock_was = root.join("Cargo.lock.checkout");
        if fs::read_to_string(&lock_was).ok().as_ref() != Some(&lock) {
            place(&root.join("Cargo.lock"), lock.as_bytes())?;
            place(&lock_was, lock.as_bytes())?;
        }
        let mut bed = Self {
            root,
            tests: Vec::new(),
        };
        bed.compile(&bed.root.join("law"), &bed.root.join("sound"))?;
        bed.tests = bed.build()?;
        Ok(bed)
    }

    /// The C part with the headers of `law`, as a shared object in `folder`.
    fn compile(&self, law: &Path, folder: &Path) -> Result<(), String> {
        fs::create_dir_all(folder).map_err(|why| trouble(folder, &why))?;
        let crate_folder = self.root.join("crates/law");
        let doors = fs::read_dir(crate_folder.join("native"))
            .map_err(|why| trouble(&crate_folder, &why))?;
        let sources = doors.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let out = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args(["-shared", "-fPIC", "-O2", "-std=gnu11", "-w", "-I"])
            .arg(law)
            .arg("-o")
            .arg(folder.join("libtidegate_law_native.so"))
            .arg(crate_folder.join("native.c"))
            .args(sources)
            .output()
            .map_err(|why| format!("cc: {why}; install a C compiler"))?;
        if out.status.success() {
            Ok(())
        } else {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            Err(format!(
                "does not compile: {}",
                said.lines().next().unwrap_or("")
            ))
        }
    }

    fn build(&self) -> Result<Vec<Test>, String> {
        let out = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "test",
                "--no-run",
                "--offline",
                "--tests",
                "--message-format=json",
                "--manifest-path",
            ])
            .arg(self.root.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(self.root.join("target"))
            .env("TIDEGATE_LAW_OBJECT", self.root.join("sound"))
            .current_dir(&self.root)
            .output()
            .map_err(|why| format!("cargo: {why}"))?;
        if !out.status.success() {
            return Err(format!(
                "the copy does not build:\n{}",
                String::from_utf8_lossy(&out.stderr)
            ));
        }
        let mut tests = Vec::new();
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            let is_test = message["target"]["kind"][0] == "test";
            if let (true, Some(name), Some(binary)) = (
                is_test,
                message["target"]["name"].as_str(),
                message["executable"].as_str(),
            ) {
                tests.push(Test {
                    name: name.to_owned(),
                    binary: binary.into(),
                });
            }
        }
        tests.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tests)
    }

    /// Runs one test binary on an object: the failed tests, or how it ended otherwise.
    fn failures(&self, test: &Test, object: &Path, which: &[&str]) -> Result<Vec<String>, String> {
        let log_path = object.join(format!("{}.log", test.name));
        let log = fs::File::create(&log_path).map_err(|why| trouble(&log_path, &why))?;
        let mut child = Command::new(&test.binary)
            .args(which)
            .current_dir(self.root.join("crates/law"))
            .env("LD_LIBRARY_PATH", object)
            // The same inputs each time, and no time spent on finding the least one.
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn()
            .map_err(|why| trouble(&test.binary, &why))?;
        let started = Instant::now();
        let status = loop {
            match child
                .try_wait()
                .map_err(|why| trouble(&test.binary, &why))?
            {
                Some(status) => break status,
                None if started.elapsed() > HANGS_AFTER => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Ok(vec![format!("{} (hangs)", test.name)]);
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let said = fs::read(&log_path).map_err(|why| trouble(&log_path, &why))?;
        let said = String::from_utf8_lossy(&said);
        let failed = said
            .lines()
            .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let mut failed: Vec<String> = failed
            .map(|name| format!("{}::{name}", test.name))
            .collect();
        if failed.is_empty() && !status.success() {
            failed.push(format!("{} ({status})", test.name));
        }
        Ok(failed)
    }

    /// The law as it is must pass the tests of these mutants, or nothing below means anything; how many test binaries those are.
    pub fn sound(&self, mutants: &[&Mutant]) -> Result<usize, String> {
        let mut count = 0;
        for test in &self.tests {
            if !mutants.iter().any(|mutant| concerns(test, mutant)) {
                continue;
            }
            let failed = self.failures(test, &self.root.join("sound"), &[])?;
            if let Some(first) = failed.first() {
                return Err(format!(
                    "{first} fails on the law as it is; mend that first"
                ));
            }
            count += 1;
        }
        Ok(count)
    }

    /// Breaks a copy of the law and runs its header's tests, up to the first binary that fails.
    pub fn judge(&self, mutant: &Mutant, worker: usize) -> Verdict {
        self.try_judge(mutant, worker)
            .unwrap_or_else(Verdict::Error)
    }

    fn try_judge(&self, mutant: &Mutant, worker: usize) -> Result<Verdict, String> {
        let folder = self.root.join(format!("broken-{worker}"));
        let law = folder.join("law");
        copy(&self.root.join("law"), &law, &[])?;
        let text = read(&law.join(mutant.header))?;
        place(&law.join(mutant.header), broken(&text, mutant)?.as_bytes())?;
        self.compile(&law, &folder)?;
        // Quick tests first; those that search for a violation only for what the rest lets pass.
        for which in [
            &["--skip", "walk", "--skip", "bounds"][..],
            &["bounds", "--skip", "walk"][..],
            &["walk"][..],
        ] {
            for test in self.tests.iter().filter(|test| concerns(test, mutant)) {
                let mut failed = self.failures(test, &folder, which)?;
                if !failed.is_empty() {
                    let by = failed.remove(0);
                    return Ok(Verdict::Caught {
                        by,
                        more: failed.len(),
                    });
                }
            }
        }
        Ok(Verdict::Survived)
    }
}
