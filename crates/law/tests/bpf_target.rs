//! The law in the kernel: the headers with state that the sched_ext engine runs, loaded as BPF
//! programs and fed random words by `BPF_PROG_TEST_RUN`, must leave the very bytes that the native
//! build leaves.
//! `TIDEGATE_BPF_INPUTS` is the number of inputs for each header, `TIDEGATE_SEED` their seed.
//!
//! Skipped with one line where BPF may not be loaded.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::c_int;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use libbpf_rs::{MapCore, Object, ObjectBuilder, PrintLevel, ProgramInput};
use rustix::mm::{MapFlags, ProtFlags};

const CLANG: &str = "clang-19";
const INPUTS: u64 = 100_000;
/// Law, map, program, in the order of native/ops.c.
const LAWS: [(&str, &str, &str); 3] = [
    ("cap.h", ".bss.cap", "law_cap"),
    (HEADROOM, ".bss.headroom", "law_headroom"),
    ("bandwidth.h", ".bss.bw", "law_bandwidth"),
];
const HEADROOM: &str = "headroom.h";
/// Words that come in at the start of every struct of bpf/ops.h.
const WORDS: usize = 8;

/// `struct tg_native_op`; the address is a number, since a pointer is not `Sync`.
#[repr(C)]
struct NativeOp {
    io: usize,
    size: u64,
    run: extern "C" fn() -> c_int,
}

unsafe extern "C" {
    static tg_native_ops: [NativeOp; LAWS.len()];
}

/// What libbpf says, the verifier's reasons among it.
static SAID: Mutex<String> = Mutex::new(String::new());

fn listen(_level: PrintLevel, text: String) {
    SAID.lock().unwrap().push_str(&text);
}

/// The law as BPF, loaded; `None` after saying why not.
fn load() -> Option<Object> {
    if Command::new(CLANG).arg("--version").output().is_err() {
        println!("skipped: {CLANG} is not installed (apt-get install {CLANG})");
        return None;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = std::env::temp_dir().join(format!("tidegate-law-run-{}.o", std::process::id()));
    let built = Command::new(CLANG)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I",
        ])
        .arg(here.join("../../law"))
        .arg("-c")
        .arg(here.join("bpf/law.bpf.c"))
        .arg("-o")
        .arg(&out)
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let object = std::fs::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();

    libbpf_rs::set_print(Some((PrintLevel::Debug, listen)));
    let opened = ObjectBuilder::default().open_memory(&object).unwrap();
    let why = match opened.load() {
        Ok(loaded) => return Some(loaded),
        Err(why) => why,
    };
    // Without the right to load there is no word from the verifier.
    let said = SAID.lock().unwrap();
    if why.kind() == libbpf_rs::ErrorKind::PermissionDenied && !said.contains("PROG LOAD LOG") {
        println!("skipped: BPF may not be loaded here ({why}); it takes root, or CAP_BPF");
        return None;
    }
    let lines: Vec<&str> = said.lines().collect();
    for line in &lines[lines.len().saturating_sub(100)..] {
        println!("{line}");
    }
    panic!("the kernel refuses the law: {why}");
}

/// SplitMix64 (Steele et al., 2014).
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// One header's memory on both sides.
struct Sides<'a> {
    native: &'a mut [u64],
    kernel: &'a mut [u64],
}

fn sides(object: &Object, op: &NativeOp, map: &str) -> Sides<'static> {
    let size = op.size;
    // SAFETY: a static struct of u64 alignment and its size; each header's is used by this test
    // alone, from one thread.
    let native = unsafe { std::slice::from_raw_parts_mut(op.io as *mut u64, size as usize / 8) };
    let map = object
        .maps()
        .find(|found| found.name().to_str() == Some(map))
        .unwrap();
    assert!(u64::from(map.value_size()) >= size);
    // SAFETY: a new mapping of the whole map, which is never unmapped; only this process and the
    // program it runs write to it.
    let kernel = unsafe {
        let at = rustix::mm::mmap(
            std::ptr::null_mut(),
            (size as usize).next_multiple_of(4096),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            map.as_fd(),
            0,
        );
        std::slice::from_raw_parts_mut(at.unwrap().cast::<u64>(), native.len())
    };
    Sides { native, kernel }
}

/// How many inputs from one fresh start to the next.
const LIFE: u64 = 1_000;

/// Words for one run, and at times a fresh start, in which some laws need what a caller sets up.
fn prepare(law: &str, at: u64, words: &mut Words, state: &mut [u64]) {
    let fresh = at.is_multiple_of(LIFE);
    if fresh {
        state.fill(0);
        if law == HEADROOM {
            let cfg = tidegate_law::HeadroomConfig::FAST;
            let at = state[12..]
                .as_mut_ptr()
                .cast::<tidegate_law::HeadroomConfig>();
            // SAFETY: the struct has the configuration, of u32 alone, after its 12 leading words.
            unsafe { at.write_unaligned(cfg) };
        }
    }
    for word in &mut state[..WORDS] {
        *word = words.next();
    }
    if law == HEADROOM {
        // The machine stands, and main's level for a while: bits 8 to 17.
        const LEVEL: u64 = 0x3_ff00;
        state[7] = Words(at / LIFE).next() & !LEVEL | Words(at / 64).next() & LEVEL;
        if fresh {
            // Zero: set up. An even word: the tuning that is in cfg.
            state[0] &= !0xff;
            state[1] &= !1;
        }
    }
}

#[test]
fn the_kernel_computes_what_the_native_build_computes() {
    let Some(object) = load() else { return };
    let inputs = from_environment("TIDEGATE_BPF_INPUTS", INPUTS);
    let seed = from_environment("TIDEGATE_SEED", 1);
    // SAFETY: a constant.
    let ops = unsafe { &tg_native_ops };
    for (which, ((law, map, program), op)) in (0u64..).zip(LAWS.into_iter().zip(ops)) {
        let both = sides(&object, op, map);
        let program = object
            .progs_mut()
            .find(|found| found.name() == program)
            .unwrap();
        let mut words = Words(seed ^ which << 56);
        let (mut changed, mut before) = (0u64, both.native.to_vec());
        let started = std::time::Instant::now();
        for at in 0..inputs {
            prepare(law, at, &mut words, both.native);
            let taken = if at.is_multiple_of(LIFE) {
                both.native.len()
            } else {
                WORDS
            };
            both.kernel[..taken].copy_from_slice(&both.native[..taken]);
            (op.run)();
            program.test_run(ProgramInput::default()).unwrap();
            if both.native[..] != both.kernel[..] {
                let off = (0..both.native.len())
                    .find(|&at| both.native[at] != both.kernel[at])
                    .unwrap();
                panic!(
                    "{law}: input {at}: word {off}: {:#x} natively, {:#x} in the kernel; again: \
                     TIDEGATE_SEED={seed} TIDEGATE_BPF_INPUTS={} cargo test -p tidegate-law --test bpf_target",
                    both.native[off],
                    both.kernel[off],
                    at + 1
                );
            }
            changed += u64::from(both.native[WORDS..] != before[WORDS..]);
            before.copy_from_slice(both.native);
        }
        println!(
            "{law}: {inputs} inputs, {changed} of them changed something, in {:.1?}",
            started.elapsed()
        );
        assert!(changed * 2 > inputs, "{law}: the inputs do nothing");
    }
}
