//! From the keys of a client to its processes. Every mistake that the parser cannot see is found here, with its place in the file.

use iofair_config::{ConfigError, Source};
use iofair_core::priority::Priority;
use iofair_core::time::Nanos;
use iofair_core::unit::Sectors;

use crate::client_file::ClientFile;
use crate::manner;
use crate::scenario::{ClientSpec, Job, Manner, Mix};

/// Most processes of one client: a guard against a slip of the pen, well above any source's.
pub const COUNT_MAX: u32 = 100_000;
/// The processes of one client, all in this group. The name of the keys is the client's.
pub fn processes(
    source: &Source,
    keys: &ClientFile,
    group: &str,
) -> Result<Vec<ClientSpec>, ConfigError> {
    let count = checked_count(source, keys)?;
    (0..count).map(|index| process(source, keys, index, count, group.to_owned())).collect()
}

/// How many processes a client has.
pub fn checked_count(source: &Source, keys: &ClientFile) -> Result<u32, ConfigError> {
    let name = keys.name.as_ref().expect("a client without a name was refused before");
    let count = keys.count.unwrap_or(1);
    if count > COUNT_MAX {
        let message = format!("{count} processes of `{}`", name.get_ref());
        return Err(source.error(name.span(), message).allowed(format!("0 to {COUNT_MAX}")));
    }
    Ok(count)
}

/// The name of process `index` of `count`.
pub fn process_name(keys: &ClientFile, index: u32, count: u32) -> String {
    let name = keys.name.as_ref().expect("a client without a name was refused before").get_ref();
    if count == 1 { name.clone() } else { format!("{name}.{index}") }
}

/// Process `index` of `count`, in this group.
pub fn process(
    source: &Source,
    keys: &ClientFile,
    index: u32,
    count: u32,
    group: String,
) -> Result<ClientSpec, ConfigError> {
    let mut spec = client(source, keys, process_name(keys, index, count), group)?;
    manner::apply(source, keys, index, count, &mut spec)?;
    Ok(spec)
}

fn client(
    source: &Source,
    keys: &ClientFile,
    name: String,
    group: String,
) -> Result<ClientSpec, ConfigError> {
    let at = keys.name.as_ref().expect("checked before").span();
    let Some(job) = keys.job else {
        let message = format!("client `{name}` has no `job`");
        return Err(source.error(at, message).allowed(manner::JOBS));
    };
    let block = keys.block.map_or(Sectors::from_kib(4), |bytes| bytes.sectors_ceil());
    let (depth, buffered) = (keys.depth.unwrap_or(1), keys.buffered.unwrap_or(true));
    let level = keys.level.unwrap_or(Priority::default().level);
    let refused = if block == Sectors::ZERO {
        Some("`block` is 0")
    } else if depth == 0 {
        Some("`depth` is 0")
    } else if depth > 1 && buffered {
        Some("a `depth` above 1 needs `buffered = false`")
    } else if keys.guest == Some(true) && !buffered {
        Some("`guest` needs `buffered = true`")
    } else if level > 7 {
        Some("`level` is 0 to 7")
    } else if keys.rate.is_some_and(|rate| rate.0 == 0) || keys.iops == Some(0) {
        Some("`rate` or `iops` is 0; write `inactive = true`")
    } else {
        None
    };
    if let Some(message) = refused {
        return Err(source.error(at, format!("client `{name}`: {message}")));
    }
    let pattern = manner::pattern(job);
    let calls = manner::calls(source, keys)?;
    // Of several sizes, the smallest is the block.
    let least = calls.sizes.iter().flatten().map(|size| size.0).min();
    let (block, most) = (
        least.unwrap_or(block),
        calls.sizes.iter().flatten().map(|size| size.0).max().unwrap_or(block),
    );
    let buffered = buffered && calls.mix != Mix::Trims;
    let iops = keys.iops.map(|iops| iops.saturating_mul(block.bytes()));
    let size = keys.size.map_or(Sectors::from_kib(500 << 10), |bytes| bytes.sectors_ceil());
    if size < most {
        let message = format!("client `{name}`: a file smaller than one block");
        return Err(source.error(at, message));
    }
    let class = keys.class.unwrap_or_default().class();
    Ok(ClientSpec {
        name,
        processes: 1,
        group,
        priority: Priority { class, level },
        guest: keys.guest.unwrap_or(false),
        manner: Manner::Plain,
        on_drive: keys.on_drive,
        job: Job {
            pattern,
            block,
            buffered,
            depth,
            rate: [keys.rate.map(|rate| rate.0), iops].into_iter().flatten().min(),
            fdatasync_every: keys.fdatasync.unwrap_or(0),
            on_off: keys.on_off.map(|(on, off)| (on.0, off.0)),
            think: keys.think.map_or(Nanos::ZERO, |time| time.0),
            sync_writes: keys.sync_writes.unwrap_or(true),
            metadata: keys.metadata.unwrap_or(false),
            calls,
        },
        file_size: size,
        start: keys.start.map_or(Nanos::ZERO, |time| time.0),
        stop: keys.stop.map(|time| time.0),
        step: None,
        place: None,
    })
}
