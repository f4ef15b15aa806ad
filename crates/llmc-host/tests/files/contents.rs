//! What is in files: kept, guarded by hashes, and read in slices.

use super::*;

#[test]
fn a_rewrite_keeps_mode_owner_attributes_and_cuts_outside_hard_links() {
    let f = Fixture::new();
    fs::write(f.path("a"), "one").unwrap();
    fs::set_permissions(f.path("a"), fs::Permissions::from_mode(0o751)).unwrap();
    let attribute = rustix::fs::setxattr(
        f.path("a"),
        "user.note",
        b"kept",
        rustix::fs::XattrFlags::empty(),
    );
    fs::hard_link(f.path("a"), f.path("../outside/hard")).unwrap();
    for (step, expect) in [(0, "two"), (1, "two+"), (2, "2+")] {
        match step {
            0 => f.write("a", "two").unwrap(),
            1 => f.append("a", "+").unwrap(),
            _ => f.edit("a", "two", "2").unwrap(),
        };
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), expect);
        assert_eq!(fs::metadata(f.path("a")).unwrap().mode() & 0o7777, 0o751);
        if attribute.is_ok() {
            let mut value = [0; 16];
            let len = rustix::fs::getxattr(f.path("a"), "user.note", &mut value[..]).unwrap();
            assert_eq!(&value[..len], b"kept");
        }
    }
    assert_eq!(
        fs::read_to_string(f.path("../outside/hard")).unwrap(),
        "one"
    );
    f.assert_no_litter();
}

#[test]
fn hashes_guard_against_lost_updates() {
    let f = Fixture::new();
    let first = f.write("a", "one").unwrap();
    assert_eq!(first, sha256_hex(b"one"));
    let expect = |text: &str, tag: &str| {
        let expected = ExpectedHash::parse(tag).unwrap();
        let written = f.ws.write(
            "a",
            text.as_bytes(),
            WriteMode::Rewrite,
            Some(&expected),
            "t",
            &CancelToken::default(),
        );
        written.map(|written| written.sha256)
    };
    let second = expect("two", &first[..8]).unwrap();
    assert!(matches!(
        expect("three", &first),
        Err(Error::ShaMismatch { .. })
    ));
    assert!(expect("three", &second.to_uppercase()).is_ok());
    for bad in ["", "1234567", "zzzzzzzz", &"a".repeat(65)] {
        assert!(ExpectedHash::parse(bad).is_err(), "{bad}");
    }
    // Without the file there is nothing to compare with.
    let expected = ExpectedHash::parse("deadbeef").unwrap();
    f.ws.write(
        "new",
        b"x",
        WriteMode::Rewrite,
        Some(&expected),
        "t",
        &CancelToken::default(),
    )
    .unwrap();
}

#[test]
fn text_keeps_its_bytes() {
    let f = Fixture::new();
    let crlf = "\u{feff}a\r\nb\r\nno end";
    fs::write(f.path("crlf"), crlf).unwrap();
    let slice =
        f.ws.roots
            .read_lines("crlf", 1, 1, &CancelToken::default())
            .unwrap();
    assert_eq!(
        (slice.text.as_str(), slice.total_lines, slice.truncated()),
        ("b\r\n", 3, true)
    );
    f.append("crlf", "!").unwrap();
    assert_eq!(
        fs::read_to_string(f.path("crlf")).unwrap(),
        format!("{crlf}!")
    );
    let wide: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("hé\nx".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    fs::write(f.path("wide"), &wide).unwrap();
    let slice =
        f.ws.roots
            .read_lines("wide", 0, 10, &CancelToken::default())
            .unwrap();
    assert_eq!(
        (slice.text.as_str(), slice.total_lines, slice.total_bytes),
        ("hé\nx", 2, wide.len() as u64)
    );
    assert!(matches!(f.append("wide", "x"), Err(Error::NotText { .. })));
    assert!(matches!(
        f.edit("wide", "x", "y"),
        Err(Error::NotText { .. })
    ));
    fs::write(f.path("bin"), b"\0\x01\x02").unwrap();
    assert!(matches!(
        f.edit("bin", "x", "y"),
        Err(Error::NotText { .. })
    ));
    assert_eq!(fs::read(f.path("wide")).unwrap(), wide);
}

#[test]
fn slices_and_totals_agree_with_a_plain_split() {
    let f = Fixture::new();
    for text in [
        "",
        "\n",
        "a",
        "a\n",
        "a\nb",
        "a\n\nb\n",
        &"line\n".repeat(70_000),
        &"x".repeat(300_000),
    ] {
        fs::write(f.path("t"), text).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for (skip, max) in [(0, 1), (0, 2000), (1, 2), (69_999, 5), (80_000, 1)] {
            let slice =
                f.ws.roots
                    .read_lines("t", skip, max, &CancelToken::default())
                    .unwrap();
            let expect: String = lines
                .iter()
                .skip(skip as usize)
                .take(max as usize)
                .copied()
                .collect();
            assert_eq!(slice.text, expect);
            assert_eq!(slice.total_lines, lines.len() as u64);
            assert_eq!(slice.sha256, sha256_hex(text.as_bytes()));
        }
    }
    fs::File::create(f.path("sparse"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    assert!(
        matches!(f.read("sparse"), Err(Error::TooLarge { .. })),
        "one line of 64 MiB"
    );
}
