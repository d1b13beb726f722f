//! Why a text is no value of its type.

/// Why a piece of text is not a value of its type, as the end of a sentence that begins with the
/// text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl Refusal {
    pub fn new(why: impl Into<String>) -> Refusal {
        Refusal(why.into())
    }
}
