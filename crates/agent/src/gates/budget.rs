//! What one user, and all users together, may hold: gates, moving limits, groups, descriptors,
//! bytes that are written down.
//!
//! | budget | one user | users together | in all |
//! |---|---|---|---|
//! | gates | `gates_per_user` (64) | 15/16 of `gates_max` | `gates_max` (4,096) |
//! | limits that the loop moves, besides the side root's | 32 | 96 | 127 |
//! | groups for one process or task each (`cap_scope`) | 256 | 1,024 | 512 a gate |
//! | descriptors that are left free | 256 | 256 | 64 |
//! | bytes of one command line that are kept | 4,096 | | |
//! | bytes of one name or value | 256 | | |
//!
//! Root is not held to a user's budget. What is left to root is also what the control loop needs to
//! go on cutting.

use std::collections::BTreeMap;

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::ledger::MOVING_LIMITS_MAX;
use tidegate_terms::{Setting, Settings};

use crate::gates::Gate;

/// One of the moving limits is the side root's.
const MOVING_MAX: usize = MOVING_LIMITS_MAX - 1;
const MOVING_OF_USERS_MAX: usize = 96;
const MOVING_OF_USER_MAX: usize = 32;

/// On cgroup v1, a cut of the side root's quota writes to each of them first (`quota_tree`): some
/// 50 us each with a thousand.
const SUBGROUPS_OF_USER_MAX: usize = 256;
const SUBGROUPS_OF_USERS_MAX: usize = 1_024;

/// Descriptors that a user's new gate must leave free, and root's.
const SPARE_DESCRIPTORS: usize = 256;
const SPARE_DESCRIPTORS_OF_ROOT: usize = 64;

const TERM_BYTES_MAX: usize = 256;

/// Whether `user` may have one more gate; `moves` when it gets a limit of its own that the loop
/// moves.
pub(crate) fn check_room(
    gates: &[Gate],
    (user, moves): (u32, bool),
    side_root: &GroupPath,
    settings: &Settings,
) -> ApiResult<()> {
    let is_root = user == 0;
    let own = || gates.iter().filter(|gate| gate.record.charged_to() == user);
    let (most, of_user) = (
        settings.gates_max.value.get(),
        settings.gates_per_user.value.get(),
    );
    if !is_root && own().count() >= of_user {
        return Err(full(
            format!("uid {user} has {of_user} gates, as many as one user may have"),
            &raise(Setting::GatesPerUser),
        ));
    }
    if gates.len() >= if is_root { most } else { most - most / 16 } {
        return Err(full(
            format!("there are {} gates", gates.len()),
            &raise(Setting::GatesMax),
        ));
    }
    if moves {
        check_moving(gates, user, side_root)?;
    }
    Ok(())
}

/// The journal has room for so many limits that move.
fn check_moving(gates: &[Gate], user: u32, side_root: &GroupPath) -> ApiResult<()> {
    let moving = || {
        gates
            .iter()
            .filter(|gate| has_moving_limit(gate, side_root))
    };
    let own = moving().filter(|gate| gate.record.charged_to() == user);
    let (held, most, whose) = match user {
        0 => (moving().count(), MOVING_MAX, "all gates have"),
        _ if own.clone().count() >= MOVING_OF_USER_MAX => {
            (own.count(), MOVING_OF_USER_MAX, "this user has")
        }
        _ => {
            let of_users = moving().filter(|gate| gate.record.charged_to() != 0);
            (of_users.count(), MOVING_OF_USERS_MAX, "users have")
        }
    };
    match held >= most {
        false => Ok(()),
        true => Err(full(
            format!(
                "{whose} {held} side gates outside the side root, whose limits move by themselves"
            ),
            "no setting raises it: start side work with `tidegate run --side`, or gate the group above them",
        )),
    }
}

/// Side work outside the side root has a limit of its own.
fn has_moving_limit(gate: &Gate, side_root: &GroupPath) -> bool {
    gate.is_limited() && !gate.record.attachment.group().is_within(side_root)
}

/// How many groups for one process or task each `user` may have besides `held`, by user.
pub(crate) fn subgroups_left(user: u32, held: impl Iterator<Item = (u32, usize)>) -> usize {
    if user == 0 {
        return usize::MAX;
    }
    let (mut own, mut all) = (0, 0);
    for (holder, count) in held.filter(|(holder, _)| *holder != 0) {
        own += if holder == user { count } else { 0 };
        all += count;
    }
    let left = SUBGROUPS_OF_USER_MAX.saturating_sub(own);
    left.min(SUBGROUPS_OF_USERS_MAX.saturating_sub(all))
}

pub(crate) fn check_subgroups(
    user: u32,
    held: impl Iterator<Item = (u32, usize)>,
) -> ApiResult<()> {
    match subgroups_left(user, held) {
        0 => Err(full(
            subgroups_full(user),
            "use cap_scope=group, or end gates with cap_scope=process or task",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn subgroups_full(user: u32) -> String {
    format!(
        "uid {user} may have {SUBGROUPS_OF_USER_MAX} groups for single processes and tasks, all users \
         {SUBGROUPS_OF_USERS_MAX}"
    )
}

/// Whether a gate of `user` leaves enough descriptors free: side work and main hold one for each
/// sensed file.
pub(crate) fn check_descriptors(user: u32) -> ApiResult<()> {
    let spare = match user {
        0 => SPARE_DESCRIPTORS_OF_ROOT,
        _ => SPARE_DESCRIPTORS,
    };
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = most.map_or(usize::MAX, |most| most as usize);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    match open + spare <= most {
        true => Ok(()),
        false => Err(full(
            format!("the agent has {open} of {most} descriptors open"),
            "raise LimitNOFILE= of the service (`ulimit -n` where it was started)",
        )),
    }
}

fn raise(setting: Setting) -> String {
    format!(
        "end some, or have an administrator raise {} in /etc/tidegate/tidegate.toml and restart the agent",
        setting.name()
    )
}

fn full(detail: String, remedy: &str) -> ApiError {
    ApiError::new(ErrorKind::Busy, format!("budget: {detail}")).with_remedy(remedy)
}

/// Refuses names and values that no term has.
pub(crate) fn check_size(terms: &BTreeMap<String, String>) -> ApiResult<()> {
    let long = |(name, value): &(&String, &String)| name.len().max(value.len()) > TERM_BYTES_MAX;
    let Some((name, _)) = terms.iter().find(long) else {
        return Ok(());
    };
    let name = &name[..name.floor_char_boundary(32)];
    let detail = format!("budget: term {name:?}: a name or a value is over {TERM_BYTES_MAX} bytes");
    Err(ApiError::new(ErrorKind::Usage, detail).with_remedy("see `tidegate set --help`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::{Attachment, of_terms};
    use tidegate_terms::Config;

    fn gates_of(user: u32, count: usize, in_place: bool) -> Vec<Gate> {
        let gate = |nth: usize| {
            let mut gate = of_terms(&format!("g{user}-{nth}"), &[("class", "side")]);
            gate.record.uid = user;
            let place = if in_place { "/x" } else { "/tidegate-side/x" };
            let group = GroupPath::parse(place).unwrap();
            gate.record.attachment = Attachment::InPlace { group };
            gate
        };
        (0..count).map(gate).collect()
    }

    fn room(gates: &[Gate], user: u32, moves: bool) -> Result<(), String> {
        let settings = Config::default().settings();
        let side_root = GroupPath::parse("/tidegate-side").unwrap();
        check_room(gates, (user, moves), &side_root, &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn one_user_has_64_gates_and_leaves_room_for_others_and_for_root() {
        let gates = gates_of(1000, 64, false);
        let refused = room(&gates, 1000, false).unwrap_err();
        assert!(refused.contains("uid 1000 has 64 gates"), "{refused}");
        assert!(refused.contains("gates_per_user"), "{refused}");
        assert_eq!(room(&gates[1..], 1000, false), Ok(()));
        assert_eq!(room(&gates, 1001, false), Ok(()));
        assert_eq!(room(&gates, 0, false), Ok(()));
        let many: Vec<Gate> = (1..=60)
            .flat_map(|user| gates_of(user, 64, false))
            .collect();
        let refused = room(&many, 1000, false).unwrap_err();
        assert!(refused.contains("gates_max"), "{refused}");
        assert_eq!(room(&many, 0, false), Ok(()), "the last are root's");
        let all = gates_of(0, 4096, false);
        assert!(room(&all, 0, false).is_err());
    }

    #[test]
    fn limits_that_move_have_a_share_for_each() {
        assert_eq!(room(&gates_of(1000, 31, true), 1000, true), Ok(()));
        let own = gates_of(1000, 32, true);
        assert!(
            room(&own, 1000, true)
                .unwrap_err()
                .contains("this user has 32")
        );
        assert_eq!(room(&own, 1000, false), Ok(()), "in the side root");
        let of_users: Vec<Gate> = (1..=3).flat_map(|user| gates_of(user, 32, true)).collect();
        assert!(
            room(&of_users, 1000, true)
                .unwrap_err()
                .contains("users have 96")
        );
        assert_eq!(room(&of_users, 0, true), Ok(()));
        assert!(
            room(&gates_of(0, MOVING_MAX, true), 0, true).is_err(),
            "one is the side root's"
        );
    }

    #[test]
    fn no_name_or_value_is_longer_than_any_term_needs() {
        let terms = |name: &str, value: String| BTreeMap::from([(name.to_owned(), value)]);
        assert_eq!(check_size(&terms("weight", "1".repeat(256))), Ok(()));
        let refused = check_size(&terms("weight", "1".repeat(257))).unwrap_err();
        assert!(refused.detail.contains("weight"), "{refused}");
        assert!(check_size(&terms(&"\u{e9}".repeat(200), String::new())).is_err());
    }
}
