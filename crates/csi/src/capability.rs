//! What a volume can be used as.

use tonic::Status;

use crate::csi::VolumeCapability;
use crate::csi::volume_capability::AccessType;
use crate::csi::volume_capability::access_mode::Mode;

/// File systems that the node service creates.
pub(crate) const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// A volume's use by a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// As a block device.
    Block,
    /// With a file system of this type, and options of the mount.
    Mount(String, Vec<String>),
}

/// Reads a capability.
///
/// # Errors
/// INVALID_ARGUMENT names what is not supported, and what is.
pub(crate) fn supported(capability: &VolumeCapability) -> Result<Use, Status> {
    let mode = capability.access_mode.map(|mode| mode.mode());
    match mode {
        Some(
            Mode::SingleNodeWriter
            | Mode::SingleNodeReaderOnly
            | Mode::SingleNodeSingleWriter
            | Mode::SingleNodeMultiWriter,
        ) => {}
        Some(Mode::Unknown) | None => {
            return Err(Status::invalid_argument("the capability has no access mode"));
        }
        Some(mode) => {
            let message = format!(
                "access mode {} is not supported: a volume is on one node; allowed: SINGLE_NODE_WRITER and other SINGLE_NODE modes",
                mode.as_str_name()
            );
            return Err(Status::invalid_argument(message));
        }
    }
    match &capability.access_type {
        Some(AccessType::Block(_)) => Ok(Use::Block),
        Some(AccessType::Mount(mount)) => {
            let kind = if mount.fs_type.is_empty() { FILE_SYSTEMS[0] } else { &mount.fs_type };
            if !FILE_SYSTEMS.contains(&kind) {
                let message = format!(
                    "file system \"{kind}\" is not supported; allowed: {}",
                    FILE_SYSTEMS.join(", ")
                );
                return Err(Status::invalid_argument(message));
            }
            Ok(Use::Mount(kind.to_string(), mount.mount_flags.clone()))
        }
        None => Err(Status::invalid_argument("the capability is neither `block` nor `mount`")),
    }
}

/// Checks that all capabilities are supported, and that there is one.
///
/// # Errors
/// INVALID_ARGUMENT, as [`supported`].
pub(crate) fn all_supported(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("there is no volume capability"));
    }
    capabilities.iter().try_for_each(|capability| supported(capability).map(drop))
}
