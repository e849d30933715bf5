//! How work is split among devices: `wtr_partition*` and `wtr_self_schedule`.
