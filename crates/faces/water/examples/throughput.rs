//! Measures how many commands the runtime takes per second. The commands and the device do nothing,
//! so that the cost of batch, graph and scheduler remains. Prints one line of JSON.

use std::sync::Arc;
use std::time::Instant;

use water::backend::null::Null;
use water::clock::{Clock, Real};
use water::command::{Command, DeviceId};
use water::request::Request;
use water::runtime::Runtime;
use water::transport::alone::Alone;

/// Number of commands of a round, and length of the chains that they form.
const COMMANDS: usize = 200_000;
const CHAIN: usize = 64;
/// Number of commands that the program keeps under way, like a program with a bounded number of
/// events.
const WINDOW: usize = 8192;
const ROUNDS: usize = 7;

fn main() {
    let clock: Arc<dyn Clock> = Arc::new(Real::new());
    let runtime = Runtime::root(Box::new(Alone), Box::new(Null::new(1)), clock, true)
        .expect("one rank starts");
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut ids = Vec::with_capacity(WINDOW);
        let mut last = None;
        for index in 0..COMMANDS {
            let waits = if index % CHAIN == 0 { Vec::new() } else { last.into_iter().collect() };
            last = runtime.with_root(|root| {
                root.issue(waits, Request::new(DeviceId::new(0, 0), Command::Marker))
            });
            ids.extend(last);
            if ids.len() == WINDOW {
                runtime.wait(&ids).expect("nothing fails");
                runtime.with_root(|root| ids.drain(..).for_each(|id| root.let_go(id)));
                last = None;
            }
        }
        runtime.wait(&ids).expect("nothing fails");
        runtime.with_root(|root| ids.drain(..).for_each(|id| root.let_go(id)));
        rates.push(COMMANDS as f64 / began.elapsed().as_secs_f64());
    }
    runtime.end();
    rates.sort_by(f64::total_cmp);
    let median = rates.get(ROUNDS / 2).copied().unwrap_or_default();
    println!(
        "{{\"measure\":\"empty commands per second\",\"median\":{median:.0},\"all\":{rates:.0?}}}"
    );
}
