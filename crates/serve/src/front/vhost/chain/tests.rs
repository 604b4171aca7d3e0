//! Chains as drivers write them and as nobody should, in a memory of two pieces with a gap between.

use vm_memory::{Bytes, GuestMemoryRegion};

use super::*;

const FACTS: Facts = Facts { bytes: 1 << 20, read_only: false };
const TABLE: Table = Table { address: GuestAddress(0), size: 64 };
/// Where tests put headers, other tables and data.
const HEADERS: u64 = 0x1000;
const TABLES: u64 = 0x2000;
const DATA: u64 = 0x8000;
const END: u64 = 0x20000;
/// The second piece follows the first one at once, the third after a gap.
const PIECES: [(u64, u64); 3] = [(0, 0x10000), (0x10000, END - 0x10000), (0x40000, 0x1000)];

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

fn memory() -> Arc<Memory> {
    let pieces = PIECES.map(|(at, bytes)| (GuestAddress(at), bytes as usize));
    Arc::new(memory::alone(&pieces).unwrap())
}

/// A chain of descriptors (address, length, flags without NEXT) at a place in a table, which begins on a page.
fn write(memory: &Memory, table: u64, chain: &[(u64, u32, u16)]) {
    for (index, (at, length, flags)) in chain.iter().enumerate() {
        let more = if index + 1 < chain.len() { NEXT } else { 0 };
        let next = (table % 0x1000) / 16 + index as u64 + 1;
        let descriptor = Descriptor::new(*at, *length, flags | more, next as u16);
        memory.write_obj(descriptor, GuestAddress(table + index as u64 * 16)).unwrap();
    }
}

fn header(memory: &Memory, kind: u32, sector: u64) {
    memory.write_obj(kind, GuestAddress(HEADERS)).unwrap();
    memory.write_obj(sector, GuestAddress(HEADERS + 8)).unwrap();
}

/// What a chain means, and where its data is in the guest.
fn read(memory: &Arc<Memory>, facts: Facts) -> (Result<Action, VringError>, Vec<(u64, usize)>) {
    let request = match parse(memory, TABLE, 0, facts, Vec::new()) {
        Ok(request) => request,
        Err(vring_error) => return (Err(vring_error), Vec::new()),
    };
    let guest = |span: &Span| {
        let inside = memory.iter().find_map(|region| {
            let offset = (span.pointer() as u64).checked_sub(region.as_ptr() as u64)?;
            (offset + span.len() as u64 <= region.len()).then(|| region.start_addr().0 + offset)
        });
        (inside.expect("every place is in memory"), span.len())
    };
    assert!(memory.address_in_range(request.status));
    (Ok(request.action), request.data.spans().iter().map(guest).collect())
}

fn data(operation: Operation, offset: u64, length: u32) -> Action {
    Action::Engine(Command { operation, offset, length, hole: false })
}

/// Goal: every kind of request means what the specification says. Method: one of each.
#[test]
fn good_requests_are_understood() {
    let memory = memory();
    let head = (HEADERS, 16, 0);
    let status = (HEADERS + 32, 1, WRITE);
    let check = |kind, chain: &[(u64, u32, u16)], action, places: &[(u64, usize)]| {
        header(&memory, kind, 3);
        write(&memory, 0, chain);
        assert_eq!(read(&memory, FACTS), (Ok(action), places.to_vec()), "{kind} {chain:?}");
    };
    let both = [(DATA, 512), (0xfe00, 512), (0x10000, 512)];
    let pieces = [(DATA, 512, WRITE), (0xfe00, 1024, WRITE)];
    let reading = [head, pieces[0], pieces[1], status];
    check(kind::READ, &reading, data(Operation::Read, 1536, 1536), &both);
    let writing = [head, (DATA, 1024, 0), status];
    check(kind::WRITE, &writing, data(Operation::Write, 1536, 1024), &[(DATA, 1024)]);
    check(kind::FLUSH, &[head, status], data(Operation::Flush, 0, 0), &[]);
    let name = [head, (DATA, 20, WRITE), status];
    check(kind::GET_ID, &name, Action::Name, &[(DATA, 20)]);
    // Header, data and status in one descriptor each way, as a driver may.
    let one = [(HEADERS, 16, 0), (DATA, 513, WRITE)];
    check(kind::READ, &one, data(Operation::Read, 1536, 512), &[(DATA, 512)]);
    check(99, &[head, status], Action::Refuse(status::UNSUPPORTED), &[]);
    for (kind, flags, hole) in
        [(kind::DISCARD, 0, false), (kind::WRITE_ZEROES, 0, false), (kind::WRITE_ZEROES, 1, true)]
    {
        memory.write_obj(8u64, GuestAddress(DATA)).unwrap();
        memory.write_obj([16u32, flags], GuestAddress(DATA + 8)).unwrap();
        let zeroes = kind == kind::WRITE_ZEROES;
        let operation = if zeroes { Operation::WriteZeroes } else { Operation::Discard };
        let action = Action::Engine(Command { operation, offset: 4096, length: 8192, hole });
        check(kind, &[head, (DATA, 16, 0), status], action, &[]);
    }
    memory.write_obj(1u32, GuestAddress(DATA + 12)).unwrap();
    let unmap = Action::Refuse(status::UNSUPPORTED);
    check(kind::DISCARD, &[head, (DATA, 16, 0), status], unmap, &[]);
}

/// Goal: a malformed chain with a place for the status is refused, and one without is a `VringError`. Method: one chain
/// a fault.
#[test]
fn bad_requests_are_refused() {
    let memory = memory();
    let (head, status) = ((HEADERS, 16, 0), (HEADERS + 32, 1, WRITE));
    let check = |kind, sector, chain: &[(u64, u32, u16)], expected: Result<Action, VringError>| {
        header(&memory, kind, sector);
        write(&memory, 0, chain);
        assert_eq!(read(&memory, FACTS), (expected, vec![]), "{kind} {sector} {chain:?}");
    };
    let refused = Ok(Action::Refuse(status::IO_ERROR));
    let into = |length| (DATA, length, WRITE);
    check(kind::READ, 0, &[head, into(511), status], refused);
    check(kind::READ, 0, &[head, status], refused);
    check(kind::READ, 2047, &[head, into(1024), status], refused);
    check(kind::READ, u64::MAX, &[head, into(512), status], refused);
    check(kind::READ, u64::MAX / 512, &[head, into(512), status], refused);
    check(kind::READ, 0, &[head, (DATA, 512, 0), into(512), status], refused);
    check(kind::READ, 0, &[head, (END, 512, WRITE), status], refused);
    check(kind::READ, 0, &[head, (END - 8, u32::MAX, WRITE), status], refused);
    check(kind::READ, 0, &[head, (u64::MAX - 8, 512, WRITE), status], refused);
    check(kind::WRITE, 0, &[head, (DATA, 512, 0), into(512), status], refused);
    check(kind::WRITE, 0, &[(HEADERS, 8, 0), status], refused);
    check(kind::DISCARD, 0, &[head, (DATA, 32, 0), status], refused);
    check(kind::FLUSH, 0, &[(END, 16, 0), status], refused);
    check(kind::READ, 0, &[head], Err(VringError::NoStatus));
    check(kind::READ, 0, &[head, into(512), (END, 1, WRITE)], Err(VringError::NoStatus));
    check(kind::READ, 0, &[head, (DATA, 0, WRITE)], Err(VringError::NoStatus));
    check(kind::WRITE, 0, &[head, into(512), (DATA, 512, 0), status], Err(VringError::Order));
    check(kind::READ, 0, &[head, (TABLES, 15, INDIRECT)], Err(VringError::Indirect));
    check(kind::READ, 0, &[head, (TABLES, 16 * 1025, INDIRECT)], Err(VringError::Indirect));
    check(kind::READ, 0, &[head, (TABLES, 0, INDIRECT)], Err(VringError::Table));
    check(kind::READ, 0, &[head, (END, 32, INDIRECT)], Err(VringError::Table));
    check(kind::READ, 0, &[head, (u64::MAX - 7, 32, INDIRECT)], Err(VringError::Table));
    write(&memory, TABLES, &[(TABLES, 32, INDIRECT)]);
    check(kind::READ, 0, &[head, (TABLES, 32, INDIRECT)], Err(VringError::Indirect));
    let read_only = Facts { read_only: true, ..FACTS };
    header(&memory, kind::WRITE, 0);
    write(&memory, 0, &[head, (DATA, 512, 0), status]);
    assert_eq!(read(&memory, read_only).0, refused);
    // A chain that bites its tail, and one that leaves its table.
    for (next, vring_error) in
        [(0, VringError::Order), (1, VringError::Endless), (64, VringError::Table)]
    {
        write(&memory, 0, &[head, (DATA, 512, WRITE), status]);
        let last = Descriptor::new(HEADERS + 32, 1, WRITE | NEXT, next);
        memory.write_obj(last, GuestAddress(32)).unwrap();
        assert_eq!(read(&memory, FACTS).0, Err(vring_error));
    }
}

/// The next number below a bound.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

/// Goal: how a request is cut into descriptors changes nothing. Method: reads and writes cut at random
/// borders, with the rest of the chain in an indirect table or not.
#[test]
fn cuts_change_nothing() {
    for mut seed in 0..if cfg!(miri) { 5 } else { 2000u64 } {
        let memory = memory();
        let (sector, sectors) = (draw(&mut seed, 1000), 1 + draw(&mut seed, 40));
        let (writes, length) = (draw(&mut seed, 2) == 0, sectors * 512);
        header(&memory, u32::from(writes), sector);
        let mut chain = Vec::new();
        let mut cut = |from: u64, length: u64, flags: u16| {
            let mut at = 0;
            while at < length {
                let piece = (1 + draw(&mut seed, 2048)).min(length - at);
                chain.push((from + at, piece as u32, flags));
                at += piece;
            }
        };
        cut(HEADERS, 16, 0);
        cut(DATA + 100, length, if writes { 0 } else { WRITE });
        chain.push((DATA - 1, 1, WRITE));
        let direct = draw(&mut seed, chain.len() as u64) as usize;
        write(&memory, TABLES, &chain[direct..]);
        chain.truncate(direct);
        chain.push((TABLES, ((0x1000 / 16) * 16) as u32, INDIRECT));
        write(&memory, 0, &chain);
        let operation = if writes { Operation::Write } else { Operation::Read };
        let (found, places) = read(&memory, FACTS);
        assert_eq!(found, Ok(data(operation, sector * 512, length as u32)), "seed {seed}");
        let mut at = DATA + 100;
        for (place, bytes) in places {
            assert_eq!(place, at, "seed {seed}");
            at += bytes as u64;
        }
        assert_eq!(at, DATA + 100 + length);
    }
}

/// Goal: whatever lies in a guest's memory, reading a chain ends, and what it names is in memory and as long
/// as it says. Method: tables, headers and data of random but plausible bytes over many seeds; most
/// descriptors point somewhere into memory, so that some chains get far.
#[test]
fn random_memory_is_harmless() {
    let (mut completed, mut engine) = (0, 0);
    let seeds = if cfg!(miri) { 10 } else { 20_000 };
    for first in 0..seeds {
        let (memory, mut seed) = (memory(), first);
        for slot in 0..u64::from(TABLE.size) * 2 {
            let addresses = [HEADERS, DATA, END - 600, 0x40000, 0xfff0, TABLES, u64::MAX - 20];
            let address = addresses[draw(&mut seed, 7) as usize] + draw(&mut seed, 20);
            let lengths = [16, 512, 1, 513, 0, 32 + 16 * draw(&mut seed, 200), u32::MAX.into()];
            let length = lengths[draw(&mut seed, 7) as usize] as u32;
            let flags = [NEXT, NEXT, NEXT | WRITE, WRITE, 0, INDIRECT, 0xffff];
            let flags = flags[draw(&mut seed, 7) as usize];
            let next = if draw(&mut seed, 8) == 0 { draw(&mut seed, 70) } else { slot % 64 + 1 };
            let at = slot % 64 * 16 + if slot < 64 { 0 } else { TABLES };
            let descriptor = Descriptor::new(address, length, flags, next as u16);
            memory.write_obj(descriptor, GuestAddress(at)).unwrap();
        }
        if draw(&mut seed, 4) > 0 {
            // Most begin well, and a few have but one piece of data.
            let next = 60 + draw(&mut seed, 3) as u16;
            let begin = Descriptor::new(HEADERS, 16, NEXT, next);
            memory.write_obj(begin, GuestAddress(0)).unwrap();
            write(&memory, 62 * 16, &[(DATA, 512, WRITE), (HEADERS + 32, 1, WRITE)]);
        }
        let kinds = [kind::READ, kind::WRITE, kind::FLUSH, kind::DISCARD, kind::GET_ID, 77];
        header(&memory, kinds[draw(&mut seed, 6) as usize], draw(&mut seed, 4000));
        let facts = Facts { read_only: draw(&mut seed, 4) == 0, ..FACTS };
        let (found, places) = read(&memory, facts);
        completed += u32::from(found.is_ok());
        let bytes: usize = places.iter().map(|(_, bytes)| bytes).sum();
        match found {
            Ok(Action::Engine(Command { operation, offset, length, .. })) => {
                engine += 1;
                assert!(offset + u64::from(length) <= FACTS.bytes, "seed {first}");
                let carries = matches!(operation, Operation::Read | Operation::Write);
                assert_eq!(bytes, if carries { length as usize } else { 0 }, "seed {first}");
                assert!(!facts.read_only || operation == Operation::Read || length == 0);
            }
            Ok(Action::Name) | Err(_) => {}
            Ok(Action::Refuse(_)) => assert_eq!(bytes, 0),
        }
    }
    let enough = completed > 1000 && engine > 100;
    assert!(enough || cfg!(miri), "the seeds are too wild: {completed}, {engine}");
}

/// Goal: what a chain costs is bounded by the longest request, however the guest's memory is cut: else one chain could
/// make millions of places. Method: a memory of pages, and chains that name all of it again and again.
#[test]
fn places_are_bounded() {
    // Still more places than a request may have.
    const PAGES: usize = if cfg!(miri) { 72 } else { 512 };
    let pieces: Vec<_> =
        (0..PAGES).map(|page| (GuestAddress(page as u64 * 0x1000), 0x1000)).collect();
    let memory = Arc::new(memory::alone(&pieces).unwrap());
    let all = (PAGES * 0x1000) as u32;
    for (kind, flags, length) in
        [(kind::READ, WRITE, all), (kind::WRITE, 0, all), (kind::READ, WRITE, all / 4)]
    {
        header(&memory, kind, 0);
        let mut chain = vec![(HEADERS, 16, 0)];
        chain.extend([(0, length, flags); 62]);
        chain.push((HEADERS + 32, 1, WRITE));
        write(&memory, 0, &chain);
        let request = parse(&memory, TABLE, 0, FACTS, Vec::new()).unwrap();
        assert_eq!(request.action, Action::Refuse(status::IO_ERROR));
        assert!(request.work <= 64 + 2 * PLACES_MAX as u32, "{} steps", request.work);
        let room = request.data.into_parts().0.capacity();
        assert!(room <= 2 * PLACES_MAX, "{room} places");
    }
}
