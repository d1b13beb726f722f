//! Which test stands behind each cell of the support table.
//!
//! A cell without one says `no`, whatever `doctor` says; a test that is named here and is not there
//! fails the check.

use std::path::Path;

use tidegate_vm::catalog;

/// The tests of one mechanism: on this machine and as a user `FILE::FUNCTION` below
/// crates/tidegate/tests/all, in the VM a case.
pub struct Proof {
    /// As `doctor` names it.
    pub mechanism: &'static str,
    /// On the machine that builds.
    pub host: &'static str,
    /// In the VM, on each kernel of the table.
    pub vm: &'static str,
    /// By a user without rights, beside an agent.
    pub user: &'static str,
}

const USER: &str = "e2e_support::a_user_beside_an_agent_tightens_their_own_work";
const LIMITS: &str = "e2e_support::quota_burst_and_caps_stand_in_the_gates_group";

const fn proof(
    mechanism: &'static str,
    host: &'static str,
    vm: &'static str,
    user: &'static str,
) -> Proof {
    Proof {
        mechanism,
        host,
        vm,
        user,
    }
}

/// In `doctor`'s order.
pub const PROOFS: &[Proof] = &[
    proof(
        "headroom",
        "e2e_support::headroom_and_tolerance_bound_side_work",
        "engine-headroom",
        "e2e_users::a_user_may_yield_and_may_not_claim",
    ),
    proof(
        "objective",
        "e2e_support::an_objective_is_followed",
        "engine-terms",
        USER,
    ),
    proof(
        "tolerance",
        "e2e_support::headroom_and_tolerance_bound_side_work",
        "engine-headroom",
        USER,
    ),
    proof(
        "weight",
        "e2e_support::side_work_is_idle_class_and_has_its_weight",
        "engine-weights",
        USER,
    ),
    proof(
        "idle class",
        "e2e_support::side_work_is_idle_class_and_has_its_weight",
        "engine-terms",
        "e2e_users::a_user_may_yield_and_may_not_claim",
    ),
    proof(
        "lease",
        "kill::agent_and_guardian_are_killed_at_once",
        "engine-orphan",
        "e2e_users::a_user_may_yield_and_may_not_claim",
    ),
    proof("quota, period", LIMITS, "engine-terms", USER),
    proof("burst", LIMITS, "engine-terms", USER),
    proof("hard caps", LIMITS, "engine-terms", USER),
    proof("soft caps", LIMITS, "engine-caps-soft", USER),
    proof(
        "latency hints",
        "e2e_hints::a_command_has_it_from_its_first_instruction_and_so_has_what_it_forks",
        "engine-hints",
        USER,
    ),
    proof("slice", "", "", ""),
];

/// What is named and not there.
pub fn missing(repository: &Path, series: &[&str]) -> Vec<String> {
    let mut missing = Vec::new();
    let cases = match catalog::read(&repository.join("tests/vm/cases")) {
        Ok(cases) => cases,
        Err(trouble) => return vec![trouble.to_string()],
    };
    for proof in PROOFS {
        for test in [proof.host, proof.user] {
            if !test.is_empty() && !has_test(repository, test) {
                missing.push(format!(
                    "{}: crates/tidegate/tests/all has no {test}",
                    proof.mechanism
                ));
            }
        }
        let runs_on = |series: &&&str| {
            cases.iter().any(|case| {
                let here = case.kernels.iter().any(|kernel| kernel == **series);
                // What the table says is shown by every `make test`.
                let always = !case.long_on.iter().any(|kernel| kernel == **series);
                case.name == proof.vm && case.needs("tidegate") && here && always
            })
        };
        for series in series.iter().filter(|_| !proof.vm.is_empty()) {
            if !runs_on(&series) {
                let (mechanism, case) = (proof.mechanism, proof.vm);
                missing.push(format!(
                    "{mechanism}: no VM case {case} that runs on {series}"
                ));
            }
        }
    }
    missing
}

/// Whether the file holds that function, as a test.
fn has_test(repository: &Path, test: &str) -> bool {
    let Some((file, function)) = test.split_once("::") else {
        return false;
    };
    let path = repository.join(format!("crates/tidegate/tests/all/{file}.rs"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.contains(&format!("#[test]\nfn {function}() {{"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_is_named_is_there() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(missing(&repository, &["6.18", "7.3"]), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_is_not_there_is_missed() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(!has_test(&repository, "e2e_support::nothing_of_the_kind"));
        assert_eq!(missing(&repository, &["2.6"]).len(), PROOFS.len() - 1);
    }
}
