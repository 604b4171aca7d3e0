//! How full a volume is.

use std::path::Path;

use tonic::Status;

use super::mounts::Mounted;
use crate::csi::VolumeUsage;
use crate::csi::volume_usage::Unit;

fn usage_of(unit: Unit, total: u64, free: u64, available: u64) -> VolumeUsage {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let used = signed(total.saturating_sub(free));
    VolumeUsage { available: signed(available), total: signed(total), used, unit: unit.into() }
}

/// Bytes and inodes of a file system, or the bytes of a block device.
pub(super) fn usage(
    mounted: &Mounted,
    place: &Path,
    size: u64,
) -> Result<Vec<VolumeUsage>, Status> {
    if !mounted.is_file_system() {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        return Ok(vec![VolumeUsage {
            total: size,
            unit: Unit::Bytes.into(),
            ..VolumeUsage::default()
        }]);
    }
    let known = rustix::fs::statvfs(place);
    let known = known.map_err(|error| Status::internal(format!("{}: {error}", place.display())))?;
    let bytes = |blocks: u64| blocks.saturating_mul(known.f_frsize);
    Ok(vec![
        usage_of(Unit::Bytes, bytes(known.f_blocks), bytes(known.f_bfree), bytes(known.f_bavail)),
        usage_of(Unit::Inodes, known.f_files, known.f_ffree, known.f_favail),
    ])
}
