//! Generates the messages, services and (for tests) clients of the Container Storage Interface, without a compiler for protocol buffers on the
//! machine.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/csi.proto");
    let interface = protox::compile(["csi.proto"], ["proto"])?;
    tonic_prost_build::configure().build_transport(false).compile_fds(interface)?;
    Ok(())
}
