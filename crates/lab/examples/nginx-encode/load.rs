//! An open-loop load: Poisson arrivals over a pool of kept connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::PORT;

/// So many requests can be under way.
const CONNECTIONS: usize = 48;

/// Requests at scheduled moments, whatever became of those before.
pub struct Load {
    latencies: Arc<Mutex<Vec<u64>>>,
    stop: mpsc::Sender<()>,
    driver: thread::JoinHandle<()>,
}

impl Load {
    /// Arrivals from now on, so many a second.
    pub fn start(rate: f64, seed: u64) -> Self {
        let latencies = Arc::new(Mutex::new(Vec::new()));
        let (arrivals, queue) = mpsc::channel::<Instant>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..CONNECTIONS {
            let (queue, latencies) = (queue.clone(), latencies.clone());
            thread::spawn(move || client(&queue, &latencies));
        }
        let (stop, stopped) = mpsc::channel();
        let driver = thread::spawn(move || {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let mut at = Instant::now();
            loop {
                at += Duration::from_secs_f64(-random.unit().ln() / rate);
                thread::sleep(at.saturating_duration_since(Instant::now()));
                if stopped.try_recv() != Err(mpsc::TryRecvError::Empty)
                    || arrivals.send(at).is_err()
                {
                    return;
                }
            }
        });
        Self {
            latencies,
            stop,
            driver,
        }
    }

    /// Forgets what was measured so far.
    pub fn clear(&self) {
        self.latencies.lock().unwrap().clear();
    }

    /// Ends the arrivals; latencies from the scheduled moment, in ns.
    pub fn stop(self) -> Vec<u64> {
        let taken = std::mem::take(&mut *self.latencies.lock().unwrap());
        let _ = self.stop.send(());
        let _ = self.driver.join();
        taken
    }
}

fn client(queue: &Mutex<mpsc::Receiver<Instant>>, latencies: &Mutex<Vec<u64>>) {
    let mut connection = None;
    let mut buffer = vec![0; 1 << 17];
    loop {
        let next = queue.lock().unwrap().recv();
        let Ok(due) = next else { return };
        let stream = connection.get_or_insert_with(|| {
            let stream = TcpStream::connect(("127.0.0.1", PORT)).expect("connect");
            stream.set_nodelay(true).expect("nodelay");
            stream
        });
        if request(stream, &mut buffer).is_err() {
            connection = None;
            continue;
        }
        latencies
            .lock()
            .unwrap()
            .push(due.elapsed().as_nanos() as u64);
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

/// A generator (xorshift64); the seed is not 0.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// In (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }
}
