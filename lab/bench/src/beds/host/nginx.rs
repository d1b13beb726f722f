//! A real web server: nginx that compresses a text for each request, and an open-loop load over a pool of kept connections, whose
//! latencies count from the scheduled arrival.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::rng::Rng;
use crate::{LabError, stop};

/// Where nginx listens.
pub const PORT: u16 = 18099;
/// So many requests can be under way.
const CONNECTIONS: usize = 48;
/// Half a second a request at worst, when it comes up beside side work.
const COMES_UP_NS: u64 = 10_000_000_000;

/// A text that takes about 3 ms to compress.
pub const TEXT_BYTES: usize = 100_000;

/// nginx's folder: a configuration, and a text. It goes with this.
pub struct Site {
    dir: PathBuf,
}

impl Site {
    /// Whether nginx is installed.
    pub fn is_installed() -> bool {
        let quiet = Command::new("nginx")
            .arg("-v")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    }

    /// Writes the folder, for so many worker processes and a text of so many bytes.
    pub fn new(workers: usize, text_bytes: usize) -> Result<Self, LabError> {
        let dir = std::env::temp_dir().join(format!("tglab-{}-nginx", std::process::id()));
        let site = Site { dir };
        let failed = |e| LabError::file("write nginx's folder", &site.dir, e);
        fs::create_dir_all(&site.dir).map_err(failed)?;
        fs::write(site.dir.join("page.txt"), text(text_bytes)).map_err(failed)?;
        let root = site.dir.display();
        // Their own places need not exist, as in a guest.
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|of| format!("{of}_temp_path {root}/{of};"))
            .concat();
        let conf = format!(
            "worker_processes {workers}; daemon off; user root; pid {root}/pid; error_log {root}/error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{ {temporary} access_log off; keepalive_requests 1000000; gzip on; gzip_comp_level 6; gzip_types text/plain;\n\
             server {{ listen 127.0.0.1:{PORT}; root {root}; }} }}\n"
        );
        fs::write(site.dir.join("nginx.conf"), conf).map_err(failed)?;
        Ok(site)
    }

    /// nginx's command.
    pub fn words(&self) -> Vec<String> {
        let root = self.dir.display();
        let words = format!("nginx -e {root}/error.log -c {root}/nginx.conf");
        words.split(' ').map(String::from).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// So many bytes, or a few more, of two thousand words in random order.
fn text(bytes: usize) -> String {
    let mut rng = Rng::new(7);
    let mut word = || -> String {
        let letters = 3 + rng.below(7);
        (0..letters)
            .map(|_| (b'a' + rng.below(26) as u8) as char)
            .collect()
    };
    let words: Vec<String> = (0..2000).map(|_| word()).collect();
    let mut rng = Rng::new(8);
    let mut text = String::new();
    while text.len() < bytes {
        text += &words[rng.below(words.len() as u64) as usize];
        text.push(' ');
    }
    text
}

/// Waits until nginx answers.
pub fn wait_until_up() -> Result<(), LabError> {
    let tries = COMES_UP_NS / 50_000_000;
    for _ in 0..tries {
        if TcpStream::connect(("127.0.0.1", PORT)).is_ok() {
            return Ok(());
        }
        stop::sleep_ns(50_000_000)?;
    }
    Err(LabError::process("nginx", "does not answer after 10 s"))
}

/// What a request takes when nothing else runs, ms: the median of some, one after the other.
pub fn request_ms() -> Result<f64, LabError> {
    let failed = |e: std::io::Error| LabError::process("nginx", format!("a request: {e}"));
    let mut stream = connect().map_err(failed)?;
    let mut buffer = vec![0; 1 << 17];
    let mut times = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        request(&mut stream, &mut buffer).map_err(failed)?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(crate::stats::median(&times).unwrap_or(f64::NAN))
}

/// Requests at scheduled moments, whatever became of those before.
pub struct Load {
    latencies: Arc<Mutex<Vec<u64>>>,
    stop: mpsc::Sender<()>,
    driver: Option<thread::JoinHandle<()>>,
}

impl Load {
    /// Poisson arrivals from now on, so many a second.
    pub fn start(per_second: f64, seed: u64) -> Self {
        let latencies = Arc::new(Mutex::new(Vec::new()));
        let (arrivals, queue) = mpsc::channel::<Instant>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..CONNECTIONS {
            let (queue, latencies) = (Arc::clone(&queue), Arc::clone(&latencies));
            thread::spawn(move || client(&queue, &latencies));
        }
        let (stop, stopped) = mpsc::channel();
        let driver = thread::spawn(move || {
            let mut rng = Rng::new(seed);
            let mut at = Instant::now();
            loop {
                at += Duration::from_nanos(rng.exponential_ns(1e9 / per_second));
                thread::sleep(at.saturating_duration_since(Instant::now()));
                let is_over = stopped.try_recv() != Err(mpsc::TryRecvError::Empty);
                if is_over || arrivals.send(at).is_err() {
                    return;
                }
            }
        });
        Self {
            latencies,
            stop,
            driver: Some(driver),
        }
    }

    /// Latencies since the last call, from the scheduled moment, ns.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(
            &mut *self
                .latencies
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(driver) = self.driver.take() {
            let _ = driver.join();
        }
    }
}

fn connect() -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", PORT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn client(queue: &Mutex<mpsc::Receiver<Instant>>, latencies: &Mutex<Vec<u64>>) {
    let mut connection = None;
    let mut buffer = vec![0; 1 << 17];
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(due) = next else { return };
        // A request that fails is not counted; the next one connects again.
        let Ok(mut stream) = connection.take().map_or_else(connect, Ok) else {
            continue;
        };
        if request(&mut stream, &mut buffer).is_ok() {
            connection = Some(stream);
            let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
            latencies.push(due.elapsed().as_nanos() as u64);
        }
    }
}

/// One request; the answer is chunked, and ends with an empty chunk.
fn request(stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<()> {
    stream.write_all(b"GET /page.txt HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")?;
    let mut tail = [0; 5];
    loop {
        let read = stream.read(buffer)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        for byte in &buffer[read.saturating_sub(5)..read] {
            tail.rotate_left(1);
            tail[4] = *byte;
        }
        if &tail == b"0\r\n\r\n" {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_same_each_time_and_long_enough() {
        let one = text(TEXT_BYTES);
        assert!(one == text(TEXT_BYTES) && one.len() >= TEXT_BYTES && one.is_ascii());
    }
}
