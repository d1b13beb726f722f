//! Help and messages, word for word. `TRYCMD=overwrite cargo test -p tidegate-lab --test all
//! golden` takes what is printed now as what is expected: read the difference before you commit it.

#[test]
fn what_is_printed_is_what_is_expected() {
    let cases = trycmd::TestCases::new();
    cases.env("NO_COLOR", "1");
    cases.case("tests/golden/*.trycmd");
}
