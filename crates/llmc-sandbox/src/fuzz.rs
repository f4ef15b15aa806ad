//! Fuzz target: messages of a worker that may have been taken over.

use llmc_fuzz::{FuzzInput, check};

use llmc_documents::FileFormat;

use crate::document::DocumentReport;
use crate::wire::{pack, receive, take};

#[test]
fn worker_messages() {
    check!("worker_messages", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let cut = usize::from(input.byte());
        let stream = input.rest();
        let mut whole = stream.to_vec();
        let first = take::<DocumentReport>(&mut whole);
        // The same message comes out when its second part arrives later.
        let (begin, rest) = stream.split_at(cut.min(stream.len()));
        let mut inbox = begin.to_vec();
        let mut later = take::<DocumentReport>(&mut inbox);
        if matches!(later, Ok(None)) {
            inbox.extend_from_slice(rest);
            later = take::<DocumentReport>(&mut inbox);
        }
        if let (Ok(first), Ok(later)) = (&first, &later) {
            assert_eq!(format!("{first:?}"), format!("{later:?}"));
        }
        match first {
            Ok(Some((report, tail))) => {
                let used = stream.len() - whole.len();
                assert!(used >= 8 + tail.len() && stream.ends_with(&whole));
                let packed = pack(&report, &tail).expect("what was read can be written");
                let again = take::<DocumentReport>(&mut packed.clone());
                let again = again.expect("what was written can be read");
                assert_eq!(format!("{:?}", Some((report, tail))), format!("{again:?}"));
            }
            Ok(None) | Err(_) => {
                assert_eq!(whole, stream, "nothing is taken of what is no message")
            }
        }
        // The other side reads the server's messages with the same care, as long as they are no longer than they say.
        let declared: usize = stream.chunks(4).take(2).map(declared_length).sum();
        if declared <= 1 << 20 {
            let _ = receive::<FileFormat>(stream);
        }
    });
}

fn declared_length(bytes: &[u8]) -> usize {
    bytes
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
}
