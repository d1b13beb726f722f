//! What is shown of a headroom that is found by measured harm.

use tidegate_api::HarmView;
use tidegate_knobs::control::{AutoState, Found};

/// All of it.
pub(super) fn harm_view(found: &Found) -> HarmView {
    let state = match found.state {
        AutoState::NoSide => "no side work",
        AutoState::NoRoom => "no room",
        AutoState::NoMain => "no main work",
        AutoState::Learning => "learning",
        AutoState::Known => "known",
        AutoState::Most => "most",
        AutoState::Unknown(_) => "unknown",
    };
    let pct = |nth: usize| {
        let ratio_ppm = found.ratio_ppm?[nth];
        Some((f64::from(ratio_ppm) - 1e6) / 1e4)
    };
    HarmView {
        state: state.to_owned(),
        level_pct: f64::from(found.level_ppm) / 1e4,
        aim_pct: f64::from(found.aim_ppm) / 1e4,
        harm_pct: pct(0),
        harm_from_pct: pct(1),
        harm_to_pct: pct(2),
        sentence: sentence(found),
    }
}

/// Harm with its interval, the level, and why it is not known.
pub(crate) fn sentence(found: &Found) -> String {
    let level = f64::from(found.level_ppm) / 1e4;
    let aim = f64::from(found.aim_ppm) / 1e4;
    let about = |what: String| match cost(found) {
        Some(cost) => format!("{cost}; {what}"),
        None => what,
    };
    let idle_class = match found.level_ppm {
        0 => " (the idle class alone, without a quota)",
        _ => "",
    };
    match found.state {
        AutoState::NoSide => {
            "side work uses little more than its tolerance, so there is nothing to measure"
                .to_owned()
        }
        AutoState::NoMain => format!(
            "main is almost idle, so there is nothing to measure; {level:.0} % of headroom meanwhile{idle_class}"
        ),
        AutoState::NoRoom => format!(
            "main and {level:.0} % of headroom leave side work little more than its tolerance; a lower level is tried next"
        ),
        AutoState::Learning => about(format!(
            "measuring at {level:.0} % of headroom{idle_class}: at times side work is held at its tolerance, to compare"
        )),
        AutoState::Known => about(format!(
            "{level:.0} % of headroom{idle_class} is the least at which that is within {aim} %"
        )),
        AutoState::Most => about(format!(
            "that is above {aim} % even at {level:.0} % of headroom, the most that is tried; more can be named, as in headroom = 80%"
        )),
        AutoState::Unknown(why) => format!(
            "it cannot be told what side work costs main ({why}): {level:.0} % of headroom is in force"
        ),
    }
}

/// `side work costs main 1.3 % (0.4–2.2)`.
fn cost(found: &Found) -> Option<String> {
    let [ratio, from, to] = found.ratio_ppm?.map(|ppm| (f64::from(ppm) - 1e6) / 1e4);
    Some(format!(
        "side work costs main {ratio:.1} % ({from:.1}–{to:.1})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(state: AutoState, level_ppm: u32, ratio_ppm: Option<[u32; 3]>) -> String {
        harm_view(&Found {
            level_ppm,
            state,
            aim_ppm: 50_000,
            ratio_ppm,
            is_low: false,
        })
        .sentence
    }

    #[test]
    fn harm_is_told_with_its_interval_and_the_level() {
        let ratio_ppm = Some([1_013_000, 1_004_000, 1_022_000]);
        assert_eq!(
            said(AutoState::Known, 150_000, ratio_ppm),
            "side work costs main 1.3 % (0.4–2.2); 15 % of headroom is the least at which that is within 5 %"
        );
        assert_eq!(
            said(AutoState::Learning, 0, None),
            "measuring at 0 % of headroom (the idle class alone, without a quota): at times side work is held at its \
             tolerance, to compare"
        );
    }

    #[test]
    fn why_it_is_not_known_is_told() {
        assert_eq!(
            said(AutoState::Unknown("drift"), 200_000, None),
            "it cannot be told what side work costs main (drift): 20 % of headroom is in force"
        );
    }
}
