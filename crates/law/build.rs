//! Generates Rust bindings of law/*.h with bindgen and compiles the static inline functions that
//! they call.

use std::env;
use std::path::{Path, PathBuf};

use bindgen::callbacks::{AttributeInfo, EnumVariantValue, FieldInfo, IntKind, ParseCallbacks};
use bindgen::{EnumVariation, FieldVisibilityKind};

/// Enums of the headers that Rust code matches on. Their C functions return no other values.
const RUST_ENUMS: [&str; 5] = [
    "tg_bw_verdict",
    "tg_cap_state",
    "tg_delay_state",
    "tg_reason",
    "tg_runqueue_displaces",
];

/// Structs whose values only the law may change: their fields are private to the crate.
const STATES: [&str; 6] = [
    "tg_bw_pool",
    "tg_bw_silo",
    "tg_delay",
    "tg_hweight_group",
    "tg_runqueue",
    "tg_side_credit",
];

fn main() {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let law = here.join("../../law");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for watched in ["bindings.h", "bpf", "native", "../../law"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    let wrappers = out.join("wrappers.c");
    bindgen::builder()
        .header(here.join("bindings.h").to_string_lossy())
        .clang_args([
            format!("-I{}", law.display()),
            "-fparse-all-comments".to_owned(),
        ])
        .allowlist_item("(tg|TG)_.*")
        .default_enum_style(EnumVariation::Consts)
        .rustified_enum(RUST_ENUMS.join("|"))
        .prepend_enum_name(false)
        .derive_default(true)
        .no_default("tg_bw_pool|tg_delay|tg_headroom|tg_.*_config")
        .derive_hash(true)
        .derive_eq(true)
        .derive_ord(true)
        .wrap_static_fns(true)
        .wrap_static_fns_path(&wrappers)
        .parse_callbacks(Box::new(Names))
        .generate()
        .expect("bindings of law/*.h")
        .write_to_file(out.join("law.rs"))
        .expect("write the bindings");
    let mut build = cc::Build::new();
    // Undefined behaviour, signed overflow included, ends a test with a trap.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build
            .flag("-fsanitize=undefined")
            .flag("-fsanitize-undefined-trap-on-error");
    }
    build
        .files(sources(&here.join("native")))
        .file(wrappers)
        .include(&law)
        .std("gnu11")
        .opt_level(2)
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Werror")
        .compile("tidegate_law_native");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().expect("crates/law/native");
    let paths = entries.map(|entry| entry.expect("crates/law/native").path());
    let mut sources: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    sources
}

/// Says how Rust names and types differ from those of C.
#[derive(Debug)]
struct Names;

impl ParseCallbacks for Names {
    /// `TG_REASON_CUT` of `enum tg_reason` becomes `Cut`.
    fn enum_variant_name(
        &self,
        enum_name: Option<&str>,
        variant: &str,
        _value: EnumVariantValue,
    ) -> Option<String> {
        let enum_name = enum_name?.trim_start_matches("enum ");
        let (_, word) = variant.rsplit_once('_')?;
        let (first, rest) = word.split_at(1);
        RUST_ENUMS
            .contains(&enum_name)
            .then(|| first.to_owned() + &rest.to_lowercase())
    }

    /// Every reader of a decision gets the reason as this enum.
    fn add_attributes(&self, info: &AttributeInfo<'_>) -> Vec<String> {
        let attributes = [
            "#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]",
            "#[serde(rename_all = \"snake_case\")]",
        ];
        match info.name {
            "tg_reason" => attributes.map(str::to_owned).to_vec(),
            _ => Vec::new(),
        }
    }

    /// `~0ULL`, which bindgen reads as -1, and times are of 64 bits.
    fn int_macro(&self, name: &str, value: i64) -> Option<IntKind> {
        (value == -1 || name.ends_with("_NS")).then_some(IntKind::U64)
    }

    fn field_visibility(&self, field: FieldInfo<'_>) -> Option<FieldVisibilityKind> {
        STATES
            .contains(&field.type_name)
            .then_some(FieldVisibilityKind::PublicCrate)
    }
}
