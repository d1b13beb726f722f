//! NUMA nodes and the distances between them, as `/sys/devices/system/node` tells.

use std::path::Path;

use crate::KernelFs;
use crate::cpus::parse_list;

/// The kernel's own number for a node's distance from itself.
const LOCAL: u32 = 10;

/// The nodes that are online. A machine that tells of none is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    cpus: Vec<Vec<u32>>,
    distances: Vec<Vec<u32>>,
}

impl Nodes {
    pub fn read(fs: &dyn KernelFs) -> Nodes {
        let dir = Path::new("/sys/devices/system/node");
        let online = fs.read(&dir.join("online")).unwrap_or_default();
        let mut nodes = Nodes::default();
        for node in parse_list(&online).unwrap_or_default() {
            let read = |name: &str| fs.read(&dir.join(format!("node{node}/{name}")));
            let cpus = read("cpulist").unwrap_or_default();
            let distances = read("distance").unwrap_or_default();
            nodes.cpus.push(parse_list(&cpus).unwrap_or_default());
            let words = distances.split_whitespace();
            nodes
                .distances
                .push(words.filter_map(|word| word.parse().ok()).collect());
        }
        nodes
    }

    /// How far a CPU's memory is from another's: 10 within a node.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let node = |cpu: u32| self.cpus.iter().position(|cpus| cpus.contains(&cpu));
        let (Some(from), Some(to)) = (node(from), node(to)) else {
            return LOCAL;
        };
        self.distances[from].get(to).copied().unwrap_or(LOCAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::FakeFs;

    #[test]
    fn distances_are_the_kernels() {
        let fake = FakeFs::v2();
        assert_eq!(Nodes::read(&fake).distance(0, 1), LOCAL);
        for (name, text) in [
            ("online", "0,2\n"),
            ("node0/cpulist", "0-1\n"),
            ("node0/distance", "10 21\n"),
            ("node2/cpulist", "2-3\n"),
            ("node2/distance", "21 10\n"),
        ] {
            fake.set_file(&format!("/sys/devices/system/node/{name}"), text);
        }
        let nodes = Nodes::read(&fake);
        let seen = [(0, 1), (0, 2), (3, 1), (3, 2), (0, 9)].map(|(a, b)| nodes.distance(a, b));
        assert_eq!(seen, [10, 21, 21, 10, 10]);
    }
}
