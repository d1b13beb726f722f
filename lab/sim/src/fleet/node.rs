//! One node: what stands in its status, and the pods that work on it.

/// Progress is counted in millionths of a second at the full request.
const FULL_SPEED: u64 = 1_000_000;

/// One side pod. All request the same.
struct Pod {
    began: u64,
    ends: u64,
}

#[derive(Default)]
pub struct Node {
    pub standing_milli: Option<u64>,
    pods: Vec<Pod>,
    /// What a pod that was here from the start would have done: pods share what there is by their
    /// requests, so it goes on alike for all.
    progress: u64,
    next_end: Option<u64>,
}

impl Node {
    /// How many pods are bound here.
    pub fn pods(&self) -> u64 {
        self.pods.len() as u64
    }

    pub fn bound_milli(&self, request_milli: u64) -> u64 {
        self.pods() * request_milli
    }

    /// A pod comes, with work for so many seconds at its full request.
    pub fn bind(&mut self, work_s: u64) {
        let ends = self.progress + work_s * FULL_SPEED;
        self.pods.push(Pod {
            began: self.progress,
            ends,
        });
        self.next_end = Some(self.next_end.map_or(ends, |next| next.min(ends)));
    }

    /// Time passes with this part of the requests fulfilled; the number of pods that ended.
    pub fn work(&mut self, seconds: u64, granted_milli: u64, bound_milli: u64) -> u64 {
        if bound_milli == 0 {
            return 0;
        }
        self.progress += seconds * FULL_SPEED * granted_milli / bound_milli;
        if self.next_end.is_none_or(|next| next > self.progress) {
            return 0;
        }
        let before = self.pods.len();
        let progress = self.progress;
        self.pods.retain(|pod| pod.ends > progress);
        self.find_next_end();
        (before - self.pods.len()) as u64
    }

    /// The youngest pod goes, with its work lost: the seconds of it.
    pub fn drop_youngest(&mut self) -> Option<u64> {
        let pod = self.pods.pop()?;
        self.find_next_end();
        Some((self.progress - pod.began) / FULL_SPEED)
    }

    fn find_next_end(&mut self) {
        self.next_end = self.pods.iter().map(|pod| pod.ends).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_share_and_end_when_their_work_is_done() {
        let mut node = Node::default();
        node.bind(100);
        node.bind(100);
        assert_eq!(node.work(150, 1_000, 2_000), 0);
        assert_eq!(node.work(50, 1_000, 2_000), 2);
        assert_eq!(node.pods(), 0);
    }

    #[test]
    fn the_youngest_goes_with_what_it_did() {
        let mut node = Node::default();
        node.bind(100);
        node.work(10, 1_000, 1_000);
        node.bind(100);
        node.work(20, 2_000, 2_000);
        assert_eq!(node.drop_youngest(), Some(20));
        assert_eq!(node.drop_youngest(), Some(30));
        assert_eq!(node.drop_youngest(), None);
    }
}
