//! Any bytes as a call of a library: what decodes encodes to an order that is equal, and its
//! extents are found without an overflow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::library::{LibraryCall, Order};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(call) = LibraryCall::decode(bytes) {
        _ = call.extents();
    }
    let Ok(order) = Order::decode(bytes) else { return };
    assert_eq!(Order::decode(&order.encode()).expect("it was decoded"), order);
});
