//! The types, constants and functions of `law/*.h`, which build.rs generates with bindgen.
#![allow(dead_code, missing_docs, non_camel_case_types, non_snake_case)]

include!(concat!(env!("OUT_DIR"), "/law.rs"));
