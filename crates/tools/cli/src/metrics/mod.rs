//! `penstock metrics`: the state of the pool's daemons for Prometheus.
//!
//! The command asks the nodes as `penstock status` does. It is a process of its own, so that no
//! daemon parses HTTP (docs/decisions/0080-metrics-come-from-a-process-of-their-own.md).

mod families;
mod http;
mod scrape;
mod serve;
mod text;

use std::process::ExitCode;

use crate::args::MetricsArgs;
use crate::failure::Failure;
use crate::run::{configured, no_nodes};
use crate::table;
use scrape::Scraper;
use serve::Place;

/// Writes the metrics once, or serves them.
pub fn metrics(args: &MetricsArgs) -> Result<ExitCode, Failure> {
    let place = args.listen.as_deref().map(Place::read).transpose()?;
    let config = configured(args.nodes.as_deref())?;
    if config.nodes.is_empty() {
        return Err(no_nodes());
    }
    let mut scraper = Scraper::new(config);
    match place {
        Some(place) => serve::serve(&place, scraper)?,
        None => table::print(&scraper.text())?,
    }
    Ok(ExitCode::SUCCESS)
}
