//! Who writes a run down: a trace for Perfetto ([`Perfetto`]), and what each group went through
//! ([`Tally`]).

mod perfetto;
mod tally;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

pub use perfetto::Perfetto;
pub use tally::{GroupTally, Tally};

use crate::Ns;
use crate::trace::{Event, Tracer};

/// Several tracers, each told everything.
pub struct Fan(pub Vec<Box<dyn Tracer>>);

impl Tracer for Fan {
    fn event(&mut self, now_ns: Ns, event: &Event) {
        for tracer in &mut self.0 {
            tracer.event(now_ns, event);
        }
    }
}

/// A place to write to, shared by the tracer inside the machine and by the code that closes it. The
/// first error is kept and ends the writing: a full disk should not end the run.
#[derive(Clone)]
pub struct Sink(Arc<Mutex<Inner>>);

struct Inner {
    out: Box<dyn Write + Send>,
    failed: Option<io::Error>,
}

impl Sink {
    /// Around a writer, which should be buffered.
    pub fn new(out: Box<dyn Write + Send>) -> Sink {
        Sink(Arc::new(Mutex::new(Inner { out, failed: None })))
    }

    fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        // What was written before a panic elsewhere is as good as it was.
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.failed.is_none()
            && let Err(error) = write(&mut inner.out)
        {
            inner.failed = Some(error);
        }
    }

    /// Flushes.
    ///
    /// # Errors
    /// The first error of any write.
    pub fn close(&self) -> io::Result<()> {
        self.write(|out| out.flush());
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.failed.take().map_or(Ok(()), Err)
    }
}
