//! Opens the pool once, when the program first asks for platforms.

use std::sync::{Arc, OnceLock};

use penstock_client::config::{Config, DEVICES_VARIABLE, Platforms};
use penstock_client::{Node, Pool, notice, summary};
use penstock_process::{log, variable};

use super::context;
use super::platform::Platform;
use crate::edge::Ref;

/// Returns the platforms; an empty list without a pool.
pub(crate) fn platforms() -> &'static [Ref<Platform>] {
    // The pool stays open until the process ends: nothing may run in a driver at exit.
    static PLATFORMS: OnceLock<(Option<Pool>, Vec<Ref<Platform>>)> = OnceLock::new();
    &PLATFORMS
        .get_or_init(|| {
            open().map_or_else(|| (None, Vec::new()), |(pool, made)| (Some(pool), made))
        })
        .1
}

fn open() -> Option<(Pool, Vec<Ref<Platform>>)> {
    if variable::WORKER.is_on() {
        return None;
    }
    let config = Config::load().inspect_err(|error| notice::once(format_args!("{error}"))).ok()?;
    if config.nodes.is_empty() {
        // This is no error: the driver may be installed on a host whose user has no pool.
        log!(Info, "no nodes are configured; name them in PENSTOCK_NODES");
        return None;
    }
    let keys = config
        .load_keys()
        .inspect_err(|error| notice::once(format_args!("{error}")))
        .unwrap_or_default();
    let pool = summary::open("OpenCL", || Pool::of(&config, &keys, notice::print));
    let devices = pool.chosen(&config);
    let of_node =
        |node: &Node| devices.iter().filter(|it| it.node() == node.index()).cloned().collect();
    let is_used = |node: &&Arc<Node>| devices.iter().any(|device| device.node() == node.index());
    let nodes: Vec<_> = pool.nodes().iter().filter(is_used).cloned().collect();
    if nodes.is_empty() {
        let all = pool.devices().count();
        if config.devices.is_some() && all > 0 {
            notice::once(format_args!(
                "{DEVICES_VARIABLE} selects none of the pool's {all} devices"
            ));
        }
        return None;
    }
    context::hear_errors(&nodes);
    let platforms = match config.platforms {
        Platforms::Pool => vec![Platform::create("Penstock".to_owned(), &nodes, devices)],
        Platforms::Node => {
            let create = |node: &Arc<Node>| {
                Platform::create(
                    format!("Penstock {}", node.host()),
                    std::slice::from_ref(node),
                    of_node(node),
                )
            };
            nodes.iter().map(create).collect()
        }
    };
    Some((pool, platforms))
}
