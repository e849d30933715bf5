//! Asks all nodes for their status within a limit of time.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use penstock_client::config::{Config, NodeAddress};
use penstock_link::LinkError;

use super::text;
use crate::run::{Answer, Probed, ask_node, distinct_of};
use crate::table;

/// Longest time in which the nodes are asked. Prometheus gives up a scrape after 10 s
/// (`scrape_timeout`), and then has nothing of any node.
const SCRAPE_MAX: Duration = Duration::from_secs(7);

/// What asks the nodes.
#[derive(Debug)]
pub struct Scraper {
    config: Arc<Config>,
    /// For each node, what the thread holds that asks it.
    asking: Vec<Arc<()>>,
    /// The nodes that did not answer the last time.
    silent: BTreeSet<String>,
}

impl Scraper {
    pub fn new(mut config: Config) -> Self {
        // A daemon has this time for the hello, and once more for its answer.
        config.timeout = config.timeout.min(SCRAPE_MAX / 2);
        let asking = config.nodes.iter().map(|_| Arc::default()).collect();
        Self { config: Arc::new(config), asking, silent: BTreeSet::new() }
    }

    /// Returns the metrics of all nodes.
    pub fn text(&mut self) -> String {
        let probed = self.ask();
        self.note_silent(&probed);
        text::text(&probed)
    }

    fn ask(&self) -> Vec<Probed> {
        let config = self.config.clone();
        let ask = move |index: usize| Some(ask_node(&config, config.nodes.get(index)?));
        let answers = ask_each(&self.asking, Instant::now() + SCRAPE_MAX, ask);
        let nodes = &self.config.nodes;
        let answers = answers.into_iter().zip(nodes).map(|(answer, node)| settled(answer, node));
        distinct_of(nodes, answers.collect())
    }

    /// Says which nodes have fallen silent and why, and which answer again.
    fn note_silent(&mut self, probed: &[Probed]) {
        for probed in probed {
            let node = probed.node.to_string();
            match &probed.answer {
                Err(error) if self.silent.insert(node) => {
                    table::say(&format!("node {} does not answer: {error}", probed.node.name));
                }
                Ok(_) if self.silent.remove(&probed.node.to_string()) => {
                    table::say(&format!("node {} answers again", probed.node.name));
                }
                _ => {}
            }
        }
    }
}

/// Returns the answer of a node, or why there is none.
fn settled(answer: Option<io::Result<Option<Answer>>>, node: &NodeAddress) -> Answer {
    match answer {
        Some(Ok(Some(answer))) => answer,
        Some(Err(source)) => Err(LinkError::System { doing: "starting a thread", source }),
        Some(Ok(None)) | None => Err(LinkError::HelloTimeout { peer: node.to_string() }),
    }
}

/// Calls `ask` for each index of `asking` in a thread, and returns the answers that come before the
/// deadline, or the error of the system if it cannot start the thread. The search for the address
/// of a host, and a login, can take longer, and nothing ends them. So a thread may outlive this
/// call, and as long as it does, nobody asks the same again.
fn ask_each<T: Send + 'static>(
    asking: &[Arc<()>],
    deadline: Instant,
    ask: impl Fn(usize) -> T + Clone + Send + 'static,
) -> Vec<Option<io::Result<T>>> {
    let (tell, told) = mpsc::channel();
    for (index, held) in asking.iter().enumerate().filter(|(_, it)| Arc::strong_count(it) == 1) {
        let (teller, held, ask) = (tell.clone(), held.clone(), ask.clone());
        let answer = move || {
            let answer = ask(index);
            drop(held);
            // If nobody listens any more, the scrape is over.
            _ = teller.send((index, Ok(answer)));
        };
        if let Err(error) = penstock_process::start("scrape", answer) {
            // This function listens.
            _ = tell.send((index, Err(error)));
        }
    }
    drop(tell);
    let mut answers: Vec<Option<io::Result<T>>> = asking.iter().map(|_| None).collect();
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok((index, answer)) = told.recv_timeout(left()) {
        if let Some(place) = answers.get_mut(index) {
            *place = Some(answer);
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use penstock_process::Lock;
    use penstock_trial::{deadline, wait_for};

    use super::*;

    #[test]
    fn a_node_without_an_answer_has_the_reason() {
        let node = NodeAddress::unix("a", "/a".into());
        let reason = |answer| settled(answer, &node).unwrap_err().to_string();
        assert!(reason(None).ends_with("did not finish the hello in time"));
        let no_thread = io::Error::from_raw_os_error(rustix::io::Errno::AGAIN.raw_os_error());
        assert!(reason(Some(Err(no_thread))).starts_with("starting a thread: "));
        assert_eq!(reason(Some(Ok(Some(Err(LinkError::Closed))))), "the link is closed");
    }

    #[test]
    fn a_node_that_hangs_holds_up_no_scrape_and_is_not_asked_twice() {
        let asking = [Arc::new(()), Arc::new(())];
        let (release, released) = mpsc::channel::<()>();
        let (released, count) = (Arc::new(Lock::new(released)), Arc::new(Lock::new(0)));
        let ask = {
            let count = count.clone();
            move |index| {
                if index == 1 {
                    *count.lock() += 1;
                    // Ends when the test says so.
                    _ = released.lock().recv();
                }
                index
            }
        };
        let asked = |deadline| {
            let answers = ask_each(&asking, deadline, ask.clone());
            answers.into_iter().map(|answer| answer.map(Result::unwrap)).collect::<Vec<_>>()
        };
        // Long enough for one answer, however busy the host is, because it is asked for again.
        let soon = || Instant::now() + Duration::from_millis(20);
        wait_for("an answer beside one that hangs", || asked(soon()) == [Some(0), None]);
        wait_for("the start of the thread that hangs", || *count.lock() == 1);
        assert_eq!(asked(soon())[1], None);
        assert_eq!(*count.lock(), 1, "a thread still asks it");
        release.send(()).unwrap();
        wait_for("the end of the thread", || Arc::strong_count(&asking[1]) == 1);
        release.send(()).unwrap();
        // A thread of an earlier question may still hold the other one.
        wait_for("the end of all threads", || Arc::strong_count(&asking[0]) == 1);
        assert_eq!(asked(deadline()), [Some(0), Some(1)]);
        assert_eq!(*count.lock(), 2);
    }
}
