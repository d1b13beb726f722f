//! Why the last write of a value failed.

/// Kept until a write succeeds. A reason goes to the log when it is not the last one that did: the
/// loop writes many times a second.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteError {
    now: Option<String>,
    logged: Option<String>,
}

impl WriteError {
    pub fn set(&mut self, why: String) {
        if self.logged.as_ref() != Some(&why) {
            tracing::warn!("control loop: {why}; it is tried again");
            self.logged = Some(why.clone());
        }
        self.now = Some(why);
    }

    pub fn clear(&mut self) {
        self.now = None;
    }

    pub fn get(&self) -> Option<&String> {
        self.now.as_ref()
    }
}
