//! The judge of Kubernetes: csi-sanity, against the driver, a server, and loop devices of this machine.

mod rig;

use std::path::Path;
use std::process::Command;

use rig::{Scratch, driver, server};

/// Goal: the driver keeps the interface. Method: all of csi-sanity, with a pool in a file, its FUSE mount and loop devices.
#[test]
#[ignore = "needs root, csi-sanity"]
fn needs_root_needs_csi_sanity_the_judge_finds_nothing() {
    let scratch = Scratch::new("sanity");
    let directory = scratch.0.as_path();
    let at = |name: &str| directory.join(name).display().to_string();
    // More of these may be open than a server has room for slots of sparse files, which take none before they are written.
    let _server = server(directory, "back = \"file:pool.img\"", "[fuse]\nmount = \"volumes\"\n");
    let _driver = driver(
        directory,
        &["--node", "node-a", "--control", &at("control.sock"), "--devices", "loop"],
    );
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/csi-sanity/csi-sanity");
    let said = Command::new(judge)
        .arg("--ginkgo.no-color")
        .args(["--csi.endpoint", &format!("unix://{}", at("csi.sock"))])
        .args(["--csi.mountdir", &at("target"), "--csi.stagingdir", &at("staging")])
        .output()
        .expect("the judge runs");
    let text = String::from_utf8_lossy(&said.stdout);
    println!("{text}");
    assert!(said.status.success() && text.contains(" 0 Failed"), "{}", said.status);
    // 65 of 103 concern what this driver offers; the others snapshots and conditions of volumes.
    assert!(text.contains("65 Passed"), "a service went unjudged");
}
