//! Scenarios that come with the command, and the files that they name.

/// A scenario that comes with the command.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name on the command line.
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! builtin {
    ($($name:literal),+ $(,)?) => {
        /// Every one, by name.
        pub const BUILTIN: &[Builtin] = &[$(Builtin {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".toml")),
        }),+];
    };
}

builtin!(
    "burst",
    "cyclictest-beside-hackbench",
    "diurnal",
    "fibtest",
    "fork-storm",
    "lock-holder",
    "recorded-arrivals",
    "web-server-and-encoder",
);

const FILES: &[(&str, &str)] = &[(
    "recorded-arrivals.txt",
    include_str!("../../scenarios/recorded-arrivals.txt"),
)];

/// A file that a built-in scenario names.
pub(super) fn file(name: &str) -> Result<&'static str, String> {
    let found = FILES.iter().find(|file| file.0 == name);
    found.map(|file| file.1).ok_or_else(|| {
        "a built-in scenario has no such file; copy the scenario to a file of your own".to_owned()
    })
}
