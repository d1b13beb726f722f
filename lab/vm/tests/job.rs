//! A job in the bed brings back what it said, how it ended and what it left, and time inside is
//! virtual.

use std::path::PathBuf;
use std::time::Duration;
use tidegate_vm::{Done, Job, Setup, VmError, cache};

/// Runs a line of the guest's shell; `None` where this machine has no emulator or kernel.
fn shell(line: &str) -> Option<(Done, Vec<String>)> {
    let work = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("job");
    let job = Job {
        setup: Setup {
            cache: cache(),
            work,
            series: "6.18".into(),
            scripts: None,
            binaries: vec![("/opt/who".into(), "/usr/bin/who".into())],
        },
        command: ["sh", "-c", line].map(str::to_owned).to_vec(),
        environment: vec![("QUOTE".into(), "it's \"here\"".into())],
        limit_s: 40,
        wall_limit: Duration::from_secs(300),
    };
    let mut heard = Vec::new();
    match job.run(&mut |line| heard.push(line.to_owned())) {
        Ok(done) => Some((done, heard)),
        Err(trouble) if VmError::is_lacking(&trouble) => {
            println!("skipped: {trouble}");
            None
        }
        Err(trouble) => panic!("{trouble}"),
    }
}

#[test]
fn a_job_brings_back_its_words_its_status_and_its_files() {
    let line = "uname -r; echo \"$QUOTE\"; echo aside >&2; mkdir sub; printf 'a\\000\\r\\n\\004b' >sub/raw; \
        /opt/who --version >who; a=$(cut -d. -f1 /proc/uptime); sleep 20; b=$(cut -d. -f1 /proc/uptime); \
        echo $((b - a)) >slept; exit 3";
    let Some((done, heard)) = shell(line) else {
        return;
    };
    assert_eq!(done.status, 3);
    assert!(heard.iter().any(|line| line == "aside"), "{heard:?}");
    let read = |name: &str| std::fs::read(done.results.join(name)).unwrap();
    let said = String::from_utf8(read(".stdout")).unwrap();
    assert!(said.starts_with("6.18."), "{said}");
    assert!(said.ends_with("it's \"here\"\n"), "{said}");
    assert_eq!(read("sub/raw"), b"a\0\r\n\x04b");
    assert!(read("who").starts_with(b"who (GNU coreutils)"));
    assert_eq!(read("slept"), b"20\n");
    assert!(done.kernel.starts_with("linux-"), "{}", done.kernel);
    assert!((20.0..25.0).contains(&done.guest_s), "{}", done.guest_s);
}
