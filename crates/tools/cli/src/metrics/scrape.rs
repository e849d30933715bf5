//! Asks all nodes for their status within a limit of time.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use penstock_client::config::{Config, NodeAddress};
use penstock_link::LinkError;

use super::text;
use crate::run::{Probed, ask_node, distinct_of};
use crate::table;

/// Longest time in which the nodes are asked. Prometheus gives up a scrape after 10 s
/// (`scrape_timeout`), and then has nothing of any node.
const SCRAPE_MAX: Duration = Duration::from_secs(7);

/// Age up to which a text is given out once more. Several servers that scrape at the same time, and
/// strangers, make the nodes no more work than one server that scrapes each second.
const FRESH_MAX: Duration = Duration::from_secs(1);

/// What asks the nodes.
#[derive(Debug)]
pub struct Scraper {
    config: Arc<Config>,
    /// For each node, what the thread holds that asks it.
    asking: Vec<Arc<()>>,
    /// The nodes that did not answer the last time.
    silent: BTreeSet<String>,
    last: Option<(Instant, String)>,
}

impl Scraper {
    pub fn new(mut config: Config) -> Self {
        // A daemon has this time for the hello, and once more for its answer.
        config.timeout = config.timeout.min(SCRAPE_MAX / 2);
        let asking = config.nodes.iter().map(|_| Arc::default()).collect();
        Self { config: Arc::new(config), asking, silent: BTreeSet::new(), last: None }
    }

    /// Returns the metrics of all nodes.
    pub fn text(&mut self) -> String {
        if let Some((at, text)) = &self.last
            && at.elapsed() <= FRESH_MAX
        {
            return text.clone();
        }
        let probed = self.ask();
        self.note_silent(&probed);
        let text = text::text(&probed);
        self.last = Some((Instant::now(), text.clone()));
        text
    }

    fn ask(&self) -> Vec<Probed> {
        let config = self.config.clone();
        let ask = move |index: usize| Some(ask_node(&config, config.nodes.get(index)?));
        let answers = ask_each(&self.asking, Instant::now() + SCRAPE_MAX, ask);
        let nodes = &self.config.nodes;
        let late = |node: &NodeAddress| LinkError::HelloTimeout { peer: node.to_string() };
        let answers = answers.into_iter().map(Option::flatten).zip(nodes);
        let answers = answers.map(|(answer, node)| answer.unwrap_or_else(|| Err(late(node))));
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

/// Calls `ask` for each index of `asking` in a thread, and returns the answers that come before the
/// deadline. The search for the address of a host, and a login, can take longer, and nothing ends
/// them. So a thread may outlive this call, and as long as it does, nobody asks the same again.
fn ask_each<T: Send + 'static>(
    asking: &[Arc<()>],
    deadline: Instant,
    ask: impl Fn(usize) -> T + Clone + Send + 'static,
) -> Vec<Option<T>> {
    let (tell, told) = mpsc::channel();
    for (index, held) in asking.iter().enumerate().filter(|(_, it)| Arc::strong_count(it) == 1) {
        let (tell, held, ask) = (tell.clone(), held.clone(), ask.clone());
        let answer = move || {
            let answer = ask(index);
            drop(held);
            // If nobody listens any more, the scrape is over.
            _ = tell.send((index, answer));
        };
        // Without a thread there is no answer.
        _ = penstock_process::start("scrape", answer);
    }
    drop(tell);
    let mut answers: Vec<Option<T>> = asking.iter().map(|_| None).collect();
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
        // Long enough for one answer, however busy the host is, because it is asked for again.
        let soon = || Instant::now() + Duration::from_millis(20);
        wait_for("an answer beside one that hangs", || {
            ask_each(&asking, soon(), ask.clone()) == [Some(0), None]
        });
        assert_eq!(ask_each(&asking, soon(), ask.clone())[1], None);
        assert_eq!(*count.lock(), 1, "a thread still asks it");
        release.send(()).unwrap();
        wait_for("the end of the thread", || Arc::strong_count(&asking[1]) == 1);
        release.send(()).unwrap();
        assert_eq!(ask_each(&asking, deadline(), ask), [Some(0), Some(1)]);
        assert_eq!(*count.lock(), 2);
    }
}
