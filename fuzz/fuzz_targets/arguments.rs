//! Any bytes as kernel arguments; what decodes encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::args;

fuzz_target!(|bytes: &[u8]| {
    let Ok(decoded) = args::read(bytes).collect::<Result<Vec<_>, _>>() else { return };
    let mut encoded = Vec::new();
    for (index, arg) in &decoded {
        args::write(&mut encoded, *index, *arg).expect("it was decoded");
    }
    assert_eq!(encoded, bytes);
});
