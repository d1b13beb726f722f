//! Help, usage errors and messages, word for word. `TRYCMD=overwrite cargo test -p tidegate --test
//! all golden` takes what is printed now as what is expected: read the difference before you commit
//! it.

#[test]
fn what_is_printed_is_what_is_expected() {
    let cases = trycmd::TestCases::new();
    // No machine's own instance is met, and messages have the same path everywhere.
    cases.env("TIDEGATE_RUN_DIR", "/nonexistent/tidegate");
    cases.env("TIDEGATE_PREFIX", "tidegate-golden");
    cases.env("NO_COLOR", "1");
    cases.case("tests/golden/*.trycmd");
}
