//! A replay: a recording and its arms, as `tidegate-lab replay --json` writes them and as the page
//! takes them.

use std::path::Path;

use serde_json::{Number, Value, json};

/// Figures of the page have so many parts of one: finer ones make it twice as large.
const PARTS: f64 = 10_000.0;

pub struct Shown {
    pub name: String,
    pub json: String,
}

impl Shown {
    pub fn read(path: &Path) -> Result<Shown, String> {
        let text = std::fs::read(path).map_err(|error| error.to_string())?;
        let view: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        if !view["arms"].is_array() || !view["recording"].is_object() {
            return Err("it is no replay".to_owned());
        }
        let name = path.file_name().unwrap_or_default();
        Ok(Shown::new(name.to_string_lossy().into_owned(), &view))
    }

    fn new(name: String, view: &Value) -> Shown {
        let mut value = json!({ "name": name, "view": view });
        round(&mut value);
        let json = value.to_string();
        Shown { name, json }
    }
}

fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map(|float| (float * PARTS).round() / PARTS);
            if let Some(rounded) = rounded.and_then(Number::from_f64) {
                *number = rounded;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_and_times_keep_their_milliseconds() {
        let mut value = json!({ "a": [0.300_000_011_920_928_96], "t": 1_795_766_400.123, "n": 7 });
        round(&mut value);
        assert_eq!(value.to_string(), r#"{"a":[0.3],"n":7,"t":1795766400.123}"#);
    }
}
