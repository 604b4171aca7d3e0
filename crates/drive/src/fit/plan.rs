//! The rows of a calibration.
//!
//! The *survey* finds what kind of drive it is and how much it writes before it becomes slower. The other rows follow from
//! it. All of them are bounded by requests and by time, so that a slow drive takes longer, but not for ever.

use iofair_core::request::Operation::{self, Flush, Read, Write};
use iofair_core::time::Nanos;

use super::row::{
    DISK_MIX, FILL, FILL_SHORT, FLUSH, LARGE, LONE_READS, MIX, Quantity, READS, Row, SMALL, STEADY,
    SUSTAINED, SUSTAINED_SMALL,
};
use super::scope::Scope;
use super::survey::Survey;
use crate::measure::{Amount, Load, Order, Stream};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Depth of large sequential requests.
pub(super) const STREAM: u32 = 8;
/// Bytes between two entries of the survey's series of writes: short and long.
const WINDOWS: (u64, u64) = (128 * KIB, 4 * MIB);
/// Bytes of the short series.
const SHORT_SERIES: u64 = 16 * MIB;
/// Small and large requests of the rows that show limits, at most, and how many large ones are in flight: more than a second
/// at the highest limits that are offered for one volume.
const SUSTAINED_REQUESTS: (u64, u64) = (400_000, 30_000);
/// The time of a row for which these are meant; a longer one has more.
const SUSTAINED_ROW: Nanos = Nanos::from_secs(5);
const SUSTAINED_DEPTH: u32 = 32;
/// Requests between two entries of their series, at the start.
const SUSTAINED_WINDOW: u64 = 1;
/// Of the rate of the drive, the part that light writes take, in percent.
const LIGHT_PERCENT: u64 = 30;

/// Relative errors of means: of most rows, of rows without random places, and of rows whose requests a disk reorders.
const TOLERANCE: f64 = 0.01;
const TOLERANCE_DETERMINISTIC: f64 = 0.003;
const TOLERANCE_REORDERED: f64 = 0.05;

impl Scope {
    fn stream(&self, operation: Operation, block: u64, depth: u32, order: Order) -> Stream {
        let block = block.min(self.facts.max_request.bytes());
        let depth = depth.min(self.facts.depth).max(1);
        let area = (0, self.area / block * block);
        Stream { area, ..Stream::new(operation, block, depth, order) }
    }
    fn row(&self, name: &str, streams: Vec<Stream>, requests: u64, quantities: &[Quantity]) -> Row {
        let warm_up = Amount { requests: (requests / 10).min(50), time: self.row_time };
        let measured = Amount { requests, time: self.row_time };
        let load = Load { streams, warm_up, measured, window: 0 };
        // Requests that all go to the same or to the next place differ little from each other; where a disk reorders
        // many, small differences in time lead to another order.
        let order = load.streams[0].order;
        let tolerance = match order {
            Order::Same | Order::Backward => TOLERANCE_DETERMINISTIC,
            _ if self.facts.rotational && load.streams.len() > 1 => TOLERANCE_REORDERED,
            _ => TOLERANCE,
        };
        let (name, quantities) = (name.to_owned(), quantities.to_vec());
        Row { name, load, quantities, tolerance, held_out: false, state: None }
    }
    /// Rows of the survey.
    pub fn survey(&self) -> Vec<Row> {
        use Quantity::{Flush as Flushes, Latency, Longest, Rate};
        let reads = match self.facts.rotational {
            true => 300,
            false => 4000,
        };
        let deviation = Quantity::Deviation(0);
        let mut rows = vec![
            self.row(
                LONE_READS,
                vec![self.stream(Read, SMALL, 1, Order::Random)],
                reads,
                &[Latency(0), deviation, Longest(0)],
            ),
            self.row(
                READS,
                vec![self.stream(Read, LARGE, STREAM, Order::Sequential)],
                600,
                &[Rate(0)],
            ),
        ];
        rows.extend(self.sustained());
        if !self.writes {
            return rows;
        }
        rows.push(self.row(
            FLUSH,
            vec![self.stream(Flush, SMALL, 1, Order::Same)],
            20,
            &[Flushes(0)],
        ));
        let (bytes, time) = self.fill;
        for (name, bytes, window) in
            [(FILL_SHORT, SHORT_SERIES, WINDOWS.0), (FILL, bytes, WINDOWS.1)]
        {
            let writer = self.stream(Write, LARGE, STREAM, Order::Sequential);
            let requests = bytes / writer.block;
            let mut row = self.row(name, vec![writer], requests, &[]);
            row.load.warm_up = Amount { requests: 0, time };
            row.load.measured.time = time;
            row.load.window = window;
            rows.push(row);
        }
        rows
    }
    /// Reads for as long as a row may last: a volume with limits is fast at first.
    fn sustained(&self) -> Vec<Row> {
        if self.facts.rotational {
            return Vec::new();
        }
        let rows = [
            (SUSTAINED_SMALL, SMALL, self.facts.depth, Order::Random, SUSTAINED_REQUESTS.0),
            (SUSTAINED, LARGE, SUSTAINED_DEPTH, Order::Sequential, SUSTAINED_REQUESTS.1),
        ];
        let times = self.row_time.0.checked_div(SUSTAINED_ROW.0).filter(|_| !self.is_simulated);
        let row = |(name, block, depth, order, requests): (&str, u64, u32, Order, u64)| {
            let requests = requests * times.unwrap_or(1).max(1);
            let stream = self.stream(Read, block, depth, order);
            let mut row = self.row(name, vec![stream], requests, &[]);
            row.load.warm_up.requests = 0;
            row.load.window = stream.block * SUSTAINED_WINDOW;
            row
        };
        rows.map(row).to_vec()
    }
    /// All other rows.
    pub fn rows(&self, survey: &Survey) -> Vec<Row> {
        let mut rows = match survey.is_disk {
            true => self.disk(survey),
            false => self.flash(survey),
        };
        rows.retain(|row| self.writes || !(row.writes() || has_flush(row)));
        rows
    }
    fn flash(&self, survey: &Survey) -> Vec<Row> {
        use Quantity::{Latency, Rate};
        let mut rows = Vec::new();
        for (name, block, depth, requests) in [
            ("16 KiB random reads, QD1", 16 * KIB, 1, 1500),
            ("64 KiB random reads, QD1", 64 * KIB, 1, 1500),
            ("256 KiB random reads, QD1", LARGE, 1, 800),
            ("64 KiB random reads, QD8", 64 * KIB, 8, 3000),
        ] {
            let stream = self.stream(Read, block, depth, Order::Random);
            rows.push(self.row(name, vec![stream], requests, &[Latency(0)]));
        }
        for depth in [4, 8, 16, 32, 64, 128, 256] {
            if depth <= self.facts.depth {
                let stream = self.stream(Read, SMALL, depth, Order::Random);
                let name = format!("4 KiB random reads, QD{depth}");
                rows.push(self.row(&name, vec![stream], 4000, &[Latency(0)]));
            }
        }
        let small = self.stream(Read, SMALL, 1, Order::Random);
        for depth in [2, 4, 7, 15, 20, 23, 26, 30] {
            if depth < self.facts.depth {
                let reader = self.stream(Read, LARGE, depth, Order::Sequential);
                let name =
                    format!("4 KiB random reads, QD1, beside 256 KiB sequential reads, QD{depth}");
                rows.push(self.row(&name, vec![reader, small], 600, &[Rate(0), Latency(1)]));
            }
        }
        for depth in [1, 32] {
            let writer = self.stream(Write, SMALL, depth, Order::Random);
            let mut row = self.row(&cached_writes(depth), vec![writer], 150, &[Latency(0)]);
            row.load.warm_up.requests = 0;
            rows.push(row);
        }
        rows.extend(self.flash_full(survey));
        rows.extend(self.flushes());
        rows.extend(self.held_out());
        rows.extend(self.mixes(survey));
        rows
    }
    /// Beside writes, once the cache is full.
    fn flash_full(&self, survey: &Survey) -> Vec<Row> {
        use Quantity::{Latency, Rate};
        let (small, writer) = (
            self.stream(Read, SMALL, 1, Order::Random),
            self.stream(Write, LARGE, STREAM, Order::Sequential),
        );
        let fill = survey.fill_bytes.div_ceil(writer.block).max(64);
        let full = |mut row: Row| {
            row.load.warm_up.requests = fill;
            row.load.warm_up.time = Nanos(self.fill.1.0.max(self.row_time.0));
            row
        };
        let mut rows = vec![
            full(self.row(STEADY, vec![writer], 600, &[Rate(0)])),
            full(self.row(
                "4 KiB random reads, QD1, beside 256 KiB sequential writes, QD8",
                vec![writer, small],
                1500,
                &[Rate(0), Latency(1)],
            )),
            full(self.row(
                "256 KiB sequential reads, QD8, beside the same writes",
                vec![writer, self.stream(Read, LARGE, STREAM, Order::Sequential)],
                600,
                &[Rate(0), Rate(1)],
            )),
        ];
        // One write at a time, with pauses: the cache stays empty, and reads wait only for single page programs.
        let block = 128 * KIB;
        let pause = Nanos::for_units_ceil(block * 100 / LIGHT_PERCENT, survey.write_rate.max(1));
        let light = Stream { pause, ..self.stream(Write, block, 1, Order::Sequential) };
        rows.push(self.row(
            "4 KiB random reads, QD1, beside light writes",
            vec![small, light],
            4000,
            &[Latency(0)],
        ));
        rows
    }
    fn flushes(&self) -> Vec<Row> {
        [(SMALL, 1), (64 * KIB, 16)]
            .map(|(block, flush_every)| {
                let writer = self.stream(Write, block, 1, Order::Random);
                let name = format!("flush after {flush_every} writes of {} KiB", block / KIB);
                let requests = 24 * u64::from(flush_every + 1);
                self.row(
                    &name,
                    vec![Stream { flush_every, ..writer }],
                    requests,
                    &[Quantity::Flush(0)],
                )
            })
            .to_vec()
    }
    /// Mixes of small requests with a full cache, whose rate is the worst case of a promise. They also verify the fit.
    fn mixes(&self, survey: &Survey) -> Vec<Row> {
        use Quantity::{Latency, Rate};
        let writer = self.stream(Write, SMALL, 16, Order::Random);
        let reader = self.stream(Read, SMALL, 16, Order::Random);
        let mut row = self.row(MIX, vec![writer, reader], 3000, &[Rate(0), Rate(1), Latency(1)]);
        row.load.warm_up.requests = (survey.fill_bytes / SMALL).max(50);
        row.held_out = true;
        vec![row]
    }
    /// Rows that verify the fit.
    fn held_out(&self) -> Vec<Row> {
        use Quantity::{Latency, Rate};
        let mut rows = vec![
            self.row(
                "16 KiB random reads, QD16",
                vec![self.stream(Read, 16 * KIB, 16, Order::Random)],
                3000,
                &[Latency(0)],
            ),
            self.row(
                "4 KiB random reads, QD4, beside 128 KiB sequential reads, QD4",
                vec![
                    self.stream(Read, SMALL, 4, Order::Random),
                    self.stream(Read, 128 * KIB, 4, Order::Sequential),
                ],
                2000,
                &[Latency(0), Rate(1)],
            ),
            self.row(
                "4 KiB random, QD8, seven reads to three writes",
                vec![
                    self.stream(Read, SMALL, 6, Order::Random),
                    Stream {
                        pause: Nanos::from_micros(100),
                        ..self.stream(Write, SMALL, 2, Order::Random)
                    },
                ],
                3000,
                &[Latency(0)],
            ),
        ];
        rows.iter_mut().for_each(|row| row.held_out = true);
        rows
    }
    fn disk(&self, survey: &Survey) -> Vec<Row> {
        use Quantity::{Latency, Longest, Rate};
        let mut rows = Vec::new();
        let mut read = |name: &str, stream: Stream, requests: u64, quantities: &[Quantity]| {
            rows.push(self.row(name, vec![stream], requests, quantities));
        };
        let stream = |block, depth, order| self.stream(Read, block, depth, order);
        let of_area = |stream: Stream, from: u64, bytes: u64| {
            let block = stream.block;
            let from = from.min(self.area.saturating_sub(bytes)) / block * block;
            Stream { area: (from, bytes.min(self.area) / block * block), ..stream }
        };
        let latency = [Latency(0)];
        read("the same 4 KiB again", stream(SMALL, 1, Order::Same), 200, &latency);
        read("the same 128 KiB again", stream(128 * KIB, 1, Order::Same), 200, &latency);
        let part = self.area.min(64 * MIB);
        for (name, from) in [("beginning", 0), ("end", self.area)] {
            let sequential = of_area(stream(LARGE, 4, Order::Sequential), from, part);
            read(
                &format!("256 KiB sequential reads, QD4, at the {name}"),
                sequential,
                240,
                &[Rate(0)],
            );
        }
        let backward = of_area(stream(SMALL, 1, Order::Backward), 0, 8 * MIB);
        read("4 KiB reads backward", backward, 100, &latency);
        for (name, parts) in
            [("1/4096", 4096), ("1/256", 256), ("1/32", 32), ("1/8", 8), ("1/3", 3)]
        {
            let short = of_area(stream(SMALL, 1, Order::Random), 0, self.area / parts);
            read(&format!("4 KiB random reads in {name} of the area"), short, 1200, &latency);
        }
        read("4 KiB reads at both ends", stream(SMALL, 1, Order::Ends), 1200, &latency);
        for depth in [4, 31] {
            let random = stream(SMALL, depth, Order::Random);
            read(
                &format!("4 KiB random reads, QD{depth}"),
                random,
                1500,
                &[Latency(0), Longest(0)],
            );
        }
        for runs in [2, 4, 8, 16, 32] {
            let streams = stream(SMALL, 1, Order::Interleaved(runs));
            read(
                &format!("4 KiB reads of {runs} sequential streams in turn"),
                streams,
                600,
                &latency,
            );
        }
        let paused = Stream {
            pause: Nanos::from_millis(60),
            pause_every: 64,
            ..of_area(stream(64 * KIB, 1, Order::Sequential), 0, part)
        };
        read("64 KiB sequential reads with a pause after each 4 MiB", paused, 640, &latency);
        rows.extend(self.disk_mixed());
        rows.extend(self.disk_writes(survey));
        let mut last = self.row(
            "16 KiB random reads in 1/16 of the area, QD2",
            vec![of_area(self.stream(Read, 16 * KIB, 2, Order::Random), 0, self.area / 16)],
            600,
            &latency,
        );
        last.held_out = true;
        rows.push(last);
        rows
    }
    /// Small reads beside sequential streams.
    fn disk_mixed(&self) -> Vec<Row> {
        use Quantity::{Latency, Rate};
        let mut rows = Vec::new();
        let small = self.stream(Read, SMALL, 1, Order::Random);
        for depth in [6, 14, 20, 30] {
            let others = self.stream(Read, 128 * KIB, depth, Order::Interleaved(depth));
            let name = format!("4 KiB random reads, QD1, beside {depth} sequential streams");
            rows.push(self.row(&name, vec![others, small], 1200, &[Rate(0), Latency(1)]));
        }
        rows
    }
    fn disk_writes(&self, survey: &Survey) -> Vec<Row> {
        use Quantity::{Latency, Rate};
        let mut rows = Vec::new();
        let stream = |block, depth| self.stream(Write, block, depth, Order::Random);
        for (name, block) in [("4 KiB", SMALL), ("64 KiB", 64 * KIB)] {
            let name = format!("{name} random writes, QD1, in the cache");
            let mut row = self.row(&name, vec![stream(block, 1)], 40, &[Latency(0)]);
            row.load.warm_up.requests = 0;
            rows.push(row);
        }
        let durable = Stream { durable: true, ..stream(SMALL, 1) };
        rows.push(self.row("4 KiB random durable writes, QD1", vec![durable], 1200, &[Latency(0)]));
        let part = self.area.min(256 * MIB) / SMALL * SMALL;
        let durable = Stream { area: (0, part), ..durable };
        rows.push(self.row(
            "4 KiB durable writes in 256 MiB, QD1",
            vec![durable],
            1200,
            &[Latency(0)],
        ));
        let writer = self.stream(Write, LARGE, STREAM, Order::Sequential);
        let mut row = self.row(STEADY, vec![writer], 400, &[Rate(0)]);
        row.load.warm_up.requests = survey.fill_bytes.div_ceil(writer.block);
        rows.push(row);
        // From an empty cache: the more it holds, the more of these writes it absorbs.
        let mut row = self.row(
            "4 KiB random writes, QD4, from an empty cache",
            vec![stream(SMALL, 4)],
            6000,
            &[Rate(0)],
        );
        row.load.warm_up.requests = 0;
        rows.push(row);
        rows.extend(self.flushes());
        // Short: once the cache is full, a disk that empties it first completes few reads a second.
        let (reader, writer) = (self.stream(Read, SMALL, 4, Order::Random), stream(SMALL, 4));
        let quantities = [Rate(0), Rate(1), Latency(0)];
        let mut row = self.row(DISK_MIX, vec![reader, writer], 80, &quantities);
        row.load.warm_up.requests = 20;
        rows.push(row);
        rows
    }
}

/// The row of small writes that the cache of a flash drive takes.
pub(super) fn cached_writes(depth: u32) -> String {
    format!("4 KiB random writes, QD{depth}, in the cache")
}

fn has_flush(row: &Row) -> bool {
    row.load.streams.iter().any(|stream| stream.operation == Flush)
}
