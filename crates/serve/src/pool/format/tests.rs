//! Version 1 byte by byte, and everything that is no pool.

use super::*;

fn superblock() -> Superblock {
    Superblock {
        pool: Uuid::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
        generation: 5,
        blocks: 1024,
        slot_blocks: 16,
        slots: [256, 272],
        current: 1,
        tables: [
            TableCopy { generation: 4, bytes: 48, checksum: 7 },
            TableCopy { generation: 5, bytes: 0, checksum: 0 },
        ],
    }
}

fn table() -> Table {
    let record = |id: u128, name: &str, state, size, extents: &[(u64, u64)]| Record {
        id: Uuid::from_u128(id),
        name: name.into(),
        group: "tenants/alice".into(),
        state,
        size,
        extents: extents
            .iter()
            .map(|(start, blocks)| Extent { start: *start, blocks: *blocks })
            .collect(),
    };
    Table {
        volumes: vec![
            record(1, "root", State::Live, 3 * BLOCK - 512, &[(300, 2), (290, 1)]),
            record(2, "data", State::Kept, BLOCK, &[(288, 1)]),
        ],
        dirty: vec![Extent { start: 400, blocks: 8 }],
    }
}

/// A superblock that names this table, and the table's bytes.
fn sealed(table: &Table) -> (Superblock, Vec<u8>) {
    let mut superblock = superblock();
    let bytes = table.encode(superblock.pool, superblock.generation);
    let checksum = crc32c::crc32c(&bytes);
    superblock.tables[1] = TableCopy { generation: 5, bytes: bytes.len() as u64, checksum };
    (superblock, bytes)
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).map(|line| {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.join(" ") + "\n"
    });
    lines.collect()
}

/// Goal: version 1 is the same for ever. Method: golden bytes.
#[test]
fn version_1_has_these_bytes() {
    let (superblock, bytes) = sealed(&table());
    let encoded = superblock.encode();
    assert!(encoded[USED..].iter().all(|byte| *byte == 0));
    let golden = hex(&encoded[..USED + 8]) + "\n" + &hex(&bytes);
    assert_eq!(golden, include_str!("version1.hex"), "{golden}");
}

/// Goal: what was written is read. Method: both, and the empty ones.
#[test]
fn what_was_written_is_read() {
    for table in [table(), Table::default()] {
        let (superblock, bytes) = sealed(&table);
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
        assert_eq!(Table::decode(&bytes, &superblock, 1), Ok(table));
        assert_eq!(Table::decode(&bytes, &superblock, 0), Err(Defect::Checksum));
    }
}

/// Goal: no flipped bit, no cut and no foreign version is taken for good. Method: every bit of both.
#[test]
fn damage_is_detected() {
    let (superblock, bytes) = sealed(&table());
    let encoded = superblock.encode();
    let step = if cfg!(miri) { 1999 } else { 1 };
    for bit in (0..8 * SUPERBLOCK_BYTES).step_by(step) {
        let mut damaged = encoded;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&damaged).is_err(), "bit {bit}");
    }
    for bit in (0..8 * bytes.len()).step_by(step) {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Table::decode(&damaged, &superblock, 1), Err(Defect::Checksum), "bit {bit}");
    }
    for length in (0..bytes.len()).step_by(step) {
        assert!(Table::decode(&bytes[..length], &superblock, 1).is_err());
    }
    let mut newer = encoded;
    newer[8] = 2;
    assert_eq!(Superblock::decode(&newer), Err(Defect::Version(2)));
    assert_eq!(Superblock::decode(&[0; 512]), Err(Defect::Absent));
    assert_eq!(Superblock::decode(&[]), Err(Defect::Absent));
}

/// Goal: a table with a right checksum and wrong content is refused, in words. Method: one of each.
#[test]
fn contradictions_are_refused() {
    let wrong = |change: &dyn Fn(&mut Table)| {
        let mut table = table();
        change(&mut table);
        let (superblock, bytes) = sealed(&table);
        Table::decode(&bytes, &superblock, 1).unwrap_err().to_string()
    };
    let extent = |start, blocks| Extent { start, blocks };
    type Damage<'a> = &'a dyn Fn(&mut Table);
    let cases: [(Damage<'_>, &str); 9] = [
        (&|t| t.volumes[1].extents[0].start = 301, "block 301 belongs to two"),
        (&|t| t.volumes[1].extents[0].start = 280, "belongs to two"),
        (&|t| t.volumes[1].extents[0].start = 3, "belongs to two"),
        (&|t| t.dirty[0] = extent(1020, 5), "past the end"),
        (&|t| t.dirty[0] = extent(u64::MAX, 5), "past the end"),
        (&|t| t.volumes[1].name = "root".into(), "two volumes are called"),
        (&|t| t.volumes[1].id = t.volumes[0].id, "two volumes have the UUID"),
        (&|t| t.volumes[0].size += 513, "another size than its extents"),
        (&|t| t.volumes[0].name.clear(), "impossible length"),
    ];
    for (change, words) in cases {
        let told = wrong(change);
        assert!(told.contains(words), "{told}");
    }
}

/// Goal: the table of ten thousand volumes fits, with eight extents each. Method: one.
#[test]
fn ten_thousand_volumes_fit() {
    let mut table = Table::default();
    for number in 0..10_000_u64 {
        let extents = (0..8).map(|i| Extent { start: 5000 + number * 16 + i * 2, blocks: 1 });
        table.volumes.push(Record {
            id: Uuid::from_u128(u128::from(number)),
            name: format!("volume-{number:0>56}"),
            group: format!("tenants/{number:0>56}"),
            state: State::Live,
            size: 8 * BLOCK,
            extents: extents.collect(),
        });
    }
    let bytes = table.encode(Uuid::nil(), 1);
    assert!(bytes.len() as u64 <= SLOT_BYTES_MAX, "{} bytes", bytes.len());
}
