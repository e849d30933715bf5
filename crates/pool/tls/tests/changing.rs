//! Memory that a program changes while it is sealed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use penstock_tls::limits::{PLAIN_BYTES_MAX, RECORD_OVERHEAD_BYTES};
use penstock_tls::{Message, Pieces, Records, Side, Suite, TrafficSecret};
use penstock_trial::deadline;

/// Values that the memory has in turn.
const VALUES: [u8; 2] = [0x11, 0xee];
/// Number of records that shall have both values in them, so that the change came in the middle. On
/// a machine with one busy core, this takes some seconds.
const MIXED: usize = 1_000;

fn pair(suite: Suite) -> [Records; 2] {
    let secret =
        || TrafficSecret::new(suite, &vec![7; suite.secret_bytes()]).expect("the right size");
    [Side::Client, Side::Server].map(|side| Records::new(side, secret(), secret()))
}

/// Runs `work` while another thread changes `memory` as a program does: with stores that this
/// thread knows nothing about. The system makes them, so no reference of this program is broken.
fn while_changing(memory: &[u8], work: impl FnOnce()) {
    let at = memory.as_ptr().addr() as u64;
    let bytes = memory.len();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let memory = File::options().write(true).open("/proc/self/mem").unwrap();
            for value in VALUES.iter().cycle() {
                if done.load(Relaxed) {
                    break;
                }
                memory.write_all_at(&vec![*value; bytes], at).unwrap();
            }
        });
        // Also if a check fails: the other thread must end then, too.
        let _ends = Ends(&done);
        work();
    });
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A record has the old bytes or the new ones, as a copy would, and it is good.
#[test]
fn memory_that_changes_while_it_is_sealed_makes_good_records() {
    for suite in Suite::ALL {
        // Not a multiple of the ciphers' blocks: the last bytes take another way.
        let content = vec![VALUES[0]; PLAIN_BYTES_MAX - 3];
        let [mut client, mut server] = pair(suite);
        let mut record = vec![0; PLAIN_BYTES_MAX + RECORD_OVERHEAD_BYTES];
        let mut mixed = 0;
        let deadline = deadline();
        while_changing(&content, || {
            while mixed < MIXED && Instant::now() < deadline {
                let pieces = [content.as_slice()];
                let mut pieces = Pieces::new(&pieces);
                let bytes = client.sealer.seal(&mut pieces, &mut record).unwrap();
                let Ok(Message::Data(data)) = server.opener.open(&mut record[..bytes]) else {
                    panic!("{suite:?}: a bad record was made of memory that changed");
                };
                assert_eq!(data.len(), content.len());
                assert!(data.iter().all(|byte| VALUES.contains(byte)), "{suite:?}");
                mixed += usize::from(VALUES.iter().all(|value| data.contains(value)));
            }
        });
        println!("{suite:?}: {mixed} records were sealed during a change");
        assert!(mixed > 0, "{suite:?}: no record was sealed during a change");
    }
}
