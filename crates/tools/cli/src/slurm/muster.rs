//! Which nodes of a job are ready, from what they write to standard output. Pure.

use super::error::SlurmError;
use super::job::Job;

/// Start of the line of a node that is ready. The name and the address follow.
const READY: &str = "penstock-ready";
/// Start of the line of a node that cannot be used. The name and the reason follow.
const FAILED: &str = "penstock-failed";
/// Stands for the address of a node that offers nothing.
const NO_ADDRESS: &str = "-";

/// Longest line of a node: a reason has a few hundred bytes. The end of a longer one is left out.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Returns the line of a node that is ready.
pub fn ready(node: &str, address: Option<&str>) -> String {
    format!("{READY} {node} {}\n", address.unwrap_or(NO_ADDRESS))
}

/// Returns the line of a node that cannot be used.
pub fn failed(node: &str, reason: &str) -> String {
    let reason: String = reason.replace('\n', " ").chars().take(LINE_BYTES_MAX / 8).collect();
    format!("{FAILED} {node} {reason}\n")
}

/// The nodes of a job that have answered.
#[derive(Debug)]
pub struct Muster {
    components: Vec<Heard>,
}

#[derive(Debug)]
struct Heard {
    /// Names of the nodes, each with its answer.
    nodes: Vec<(String, Option<Answer>)>,
    /// Beginning of a line.
    line: Vec<u8>,
}

/// The address of a daemon, if there is one.
type Answer = Option<String>;

impl Muster {
    pub fn new(job: &Job) -> Self {
        let heard = |nodes: &[String]| Heard {
            nodes: nodes.iter().map(|name| (name.clone(), None)).collect(),
            line: Vec::new(),
        };
        Self { components: job.components.iter().map(|it| heard(&it.nodes)).collect() }
    }

    /// Takes what the nodes of the component at this place have written. Lines of others, such as
    /// prologs of Slurm, mean nothing.
    pub fn hear(&mut self, place: usize, bytes: &[u8]) -> Result<(), SlurmError> {
        let Some(heard) = self.components.get_mut(place) else { return Ok(()) };
        for byte in bytes {
            if *byte != b'\n' {
                if heard.line.len() < LINE_BYTES_MAX {
                    heard.line.push(*byte);
                }
                continue;
            }
            let line = String::from_utf8_lossy(&std::mem::take(&mut heard.line)).into_owned();
            let Some((kind, rest)) = line.split_once(' ') else { continue };
            let Some((name, text)) = rest.split_once(' ') else { continue };
            match kind {
                FAILED => {
                    let (node, reason) = (name.to_owned(), text.to_owned());
                    return Err(SlurmError::Node { node, reason });
                }
                READY => {
                    let address = (text != NO_ADDRESS).then(|| text.to_owned());
                    if let Some(node) = heard.nodes.iter_mut().find(|(known, _)| known == name) {
                        node.1 = Some(address);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the names of the nodes that have not answered.
    pub fn missing(&self) -> Vec<&str> {
        let nodes = self.components.iter().flat_map(|it| &it.nodes);
        nodes.filter(|(_, answer)| answer.is_none()).map(|(name, _)| &**name).collect()
    }

    /// Returns the addresses of the daemons in the order of the job's nodes.
    pub fn addresses(&self) -> Vec<&str> {
        let nodes = self.components.iter().flat_map(|it| &it.nodes);
        nodes.filter_map(|(_, answer)| answer.as_ref()?.as_deref()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn muster() -> Muster {
        let variables = |name: &str| {
            let value = match name {
                "SLURM_JOB_NODELIST" | "SLURM_JOB_NODELIST_HET_GROUP_0" => "a",
                "SLURM_HET_SIZE" => "2",
                "SLURM_JOB_NODELIST_HET_GROUP_1" => "b[1-2]",
                _ => return None,
            };
            Some(value.to_owned())
        };
        Muster::new(&Job::read(variables, &[]).unwrap())
    }

    #[test]
    fn nodes_answer_in_any_order_and_in_any_pieces() {
        let mut muster = muster();
        assert_eq!(muster.missing(), ["a", "b1", "b2"]);
        let noise = "a prolog\n\n".to_owned() + &"x".repeat(2 * LINE_BYTES_MAX) + "\n";
        let said = noise + &ready("b2", Some("tcp:2:1")) + &ready("b1", Some("tcp:1:1"));
        for byte in said.as_bytes() {
            muster.hear(1, &[*byte]).unwrap();
        }
        assert_eq!(muster.missing(), ["a"]);
        // Another component has no such node.
        muster.hear(1, ready("a", None).as_bytes()).unwrap();
        assert_eq!(muster.missing(), ["a"]);
        muster.hear(0, ready("a", None).as_bytes()).unwrap();
        assert!(muster.missing().is_empty());
        assert_eq!(muster.addresses(), ["tcp:1:1", "tcp:2:1"]);
    }

    #[test]
    fn a_node_says_why_it_cannot_be_used() {
        let said = failed("b1", "no\nroom");
        let error = muster().hear(1, said.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("b1") && error.contains("no room"), "{error}");
        assert!(failed("a", &"x".repeat(9 << 10)).len() < LINE_BYTES_MAX);
    }
}
