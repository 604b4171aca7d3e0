//! Generates the messages, services and (for tests) clients of the Container Storage Interface, without a compiler for protocol buffers on the
//! machine.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/csi.proto");
    let interface = protox::compile(["csi.proto"], ["proto"])?;
    let services = tonic_prost_build::configure().build_transport(false);
    // Snapshots, groups of volumes and their conditions are not supported, and say so.
    services.generate_default_stubs(true).compile_fds(interface)?;
    Ok(())
}
