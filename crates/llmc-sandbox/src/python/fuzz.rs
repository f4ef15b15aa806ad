//! Fuzz target: frames of a process that runs untrusted code.

use llmc_fuzz::{FuzzInput, check};

use super::frames::{Frame, FrameBuffer};

/// The frames of a stream that arrives in the given pieces, and the refusal at its end.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<String>) {
    let mut buffer = FrameBuffer::default();
    let mut frames = Vec::new();
    for piece in pieces {
        buffer.add(piece);
        loop {
            match buffer.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(refusal) => return (frames, Some(refusal)),
            }
        }
    }
    (frames, None)
}

#[test]
fn python_frames() {
    check!("python_frames", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let size = usize::from(input.byte()) + 1;
        let stream = input.rest();
        let whole = read(std::iter::once(stream));
        let pieces = read(stream.chunks(size));
        assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
        // A frame is made of bytes of its own: no more of them than five bytes each allow, and no more content than came.
        assert!(whole.0.len() <= stream.len() / 5);
        let content = |frame: &Frame| match frame {
            Frame::Printed(text) => text.len(),
            Frame::System(_, content) => content.len(),
            _ => 0,
        };
        assert!(whole.0.iter().map(content).sum::<usize>() <= stream.len());
        if let Some(refusal) = whole.1 {
            assert!(refusal.len() < 400 + stream.len(), "{refusal}");
        }
    });
}
