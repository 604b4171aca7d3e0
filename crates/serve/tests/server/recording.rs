//! Recordings of a server: every request of its clients is in the trace, whole and in order.

use crate::rig::controlled::Controlled;
use crate::rig::wire::{Wire, Workload};
use iofair_core::request::Operation;
use iofair_serve::control::client::Call;
use iofair_trace::read::{DROPPED, Reader};
use iofair_trace::{Metadata, Record, Source};
use serde_json::json;

/// A recording that is in progress.
struct Recording<'a> {
    rig: &'a Controlled,
    path: String,
    trace: Vec<u8>,
}

impl<'a> Recording<'a> {
    fn start(rig: &'a Controlled) -> Self {
        let reply = rig.ask(&Call::new("POST", "/v1/recordings").body(json!({})));
        let name = reply.json().unwrap()["recording"].as_str().unwrap().to_owned();
        Self { rig, path: format!("/v1/recordings/{name}"), trace: Vec::new() }
    }
    fn take(&mut self, method: &str) {
        let path = format!("{}?from={}", self.path, self.trace.len());
        let reply = self.rig.ask(&Call::new(method, &path));
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        self.trace.extend(reply.body);
    }
    /// The requests, the streams' names and groups, and the number of dropped requests.
    fn end(mut self) -> (Vec<Record>, Vec<(String, String)>, u64) {
        self.take("DELETE");
        let mut reader = Reader::new(self.trace.as_slice(), "recording").unwrap();
        let mut records = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            records.push(record);
        }
        assert!(!reader.is_torn());
        assert_eq!(reader.metadata().value(Metadata::BACK), Some("memory"));
        let streams = reader.streams().iter();
        let streams = streams.map(|stream| (stream.name.clone(), stream.group.clone()));
        (records, streams.collect(), reader.notes().count_of(DROPPED))
    }
}

/// Goal: the trace has what clients asked for, with place and completion, and nothing of before or after. Method: known
/// requests of two volumes around a recording, taken in pieces.
#[test]
fn a_recording_has_every_request() {
    let rig = Controlled::start();
    let socket = rig.directory.path("socket");
    let mut wire = Wire::connect(&socket);
    assert_eq!(wire.read(0, 4096).error, 0);
    let mut recording = Recording::start(&rig);
    for number in 0..50 {
        assert_eq!(wire.write(0, number * 8192, &[1; 4096]), 0);
        assert_eq!(wire.read(number * 8192, 8192).error, 0);
        if number % 10 == 0 {
            recording.take("GET");
        }
    }
    wire.send_flush().unwrap();
    assert_eq!(wire.receive().unwrap().error, 0);
    let (records, streams, dropped) = recording.end();
    assert_eq!(wire.read(0, 4096).error, 0);
    assert_eq!((records.len(), dropped), (101, 0));
    assert_eq!(streams, [("v".to_owned(), "tenants/alice".to_owned())]);
    for (number, pair) in records.chunks(2).take(50).enumerate() {
        let [write, read] = pair else { panic!("pairs") };
        assert_eq!((write.operation, read.operation), (Operation::Write, Operation::Read));
        assert_eq!((write.length, read.length), (4096, 8192));
        assert_eq!(write.offset - records[0].offset, number as u64 * 8192);
        assert_eq!(write.offset, read.offset);
    }
    assert_eq!(records[100].operation, Operation::Flush);
    assert!(records.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let complete = |record: &Record| record.completion.is_some_and(|completion| !completion.failed);
    assert!(records.iter().all(complete));
}

/// Goal: a second recording has nothing of the first. Method: both under load, requests in flight meanwhile.
#[test]
fn recordings_do_not_mix() {
    let rig = Controlled::start();
    let socket = rig.directory.path("socket");
    std::thread::scope(|scope| {
        let load = scope.spawn(|| Workload::new(&socket, 64, 64).run(60_000, 16));
        let mut counts = Vec::new();
        for _ in 0..3 {
            let (records, _, dropped) = Recording::start(&rig).end();
            assert_eq!(dropped, 0);
            let open = records.iter().filter(|record| record.completion.is_none()).count();
            assert!(open <= 16, "{open} of {} requests have no completion", records.len());
            counts.push(records.len());
        }
        load.join().unwrap();
    });
}
