//! Clients that we did not write, against a live server: nbdinfo, nbdcopy, qemu-img, fio.

use crate::rig::{Rig, begin, contracts, fio, parse, report, run};

const BACKS: [&str; 3] = ["memory:64MiB", "file", "emulated:samsung-970-pro"];

/// Goal: what a client is told. Method: nbdinfo over both kinds of sockets.
#[test]
#[ignore = "needs clients: nbdinfo"]
fn needs_clients_nbdinfo_reads_the_export_list() {
    let rig = Rig::start("memory:64MiB");
    for uri in [rig.unix("v"), rig.tcp("v")] {
        let told: serde_json::Value =
            serde_json::from_str(&run("nbdinfo", &["--json", &uri])).unwrap();
        assert_eq!(
            (&told["protocol"], &told["structured"]),
            (&"newstyle-fixed".into(), &true.into())
        );
        let export = &told["exports"][0];
        assert_eq!(export["export-name"], "v");
        assert_eq!(export["export-size"], 64 << 20);
        assert_eq!(export["contexts"][0], "base:allocation");
        for able in ["flush", "fua", "multi_conn", "trim", "zero", "fast_zero", "df", "cache"] {
            assert_eq!(export[format!("can_{able}")], true, "{able}");
        }
        assert_eq!(export["is_read_only"], false);
        assert_eq!(export["block_size_minimum"], 1);
    }
    let map: serde_json::Value =
        serde_json::from_str(&run("nbdinfo", &["--map", "--json", &rig.unix("v")])).unwrap();
    assert_eq!(map[0]["type"], 3, "nothing was written: {map}");
}

/// Goal: bytes that go in come out, through every back end. Method: nbdcopy in over Unix (several
/// connections), out over TCP, compare.
#[test]
#[ignore = "needs clients: nbdcopy"]
fn needs_clients_nbdcopy_in_and_out() {
    for back in BACKS {
        let rig = Rig::start(back);
        let (image, copy) = (rig.image(), rig.directory.path("copy"));
        run("nbdcopy", &["--flush", &image, &rig.unix("v")]);
        run("nbdcopy", &[&rig.tcp("v"), &copy]);
        run("cmp", &[&image, &copy]);
    }
}

/// Goal: qemu's client agrees. Method: convert in, compare out.
#[test]
#[ignore = "needs clients: qemu-img"]
fn needs_clients_qemu_img_in_and_out() {
    for back in ["memory:64MiB", "file"] {
        let rig = Rig::start(back);
        let (image, uri) = (rig.image(), rig.unix("v"));
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &image, &uri]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &uri]);
    }
}

/// Goal: random writes of odd sizes from several connections are all there. Method: fio verifies its
/// own checksums; blocks of 512 bytes to 64 KiB, and 1000-byte ones that no drive likes.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_fio_verifies() {
    for back in BACKS {
        let rig = Rig::with(back, "none-mq-deadline", "");
        let sizes = ["--bsrange=512-64k", "--bs_unaligned=0", "--iodepth=16", "--numjobs=4"];
        let common = [
            "--verify_state_save=0",
            "--rw=randwrite",
            "--verify=crc32c",
            "--size=8m",
            "--offset_increment=16m",
        ];
        report(fio(&rig.unix("v"), &[&common[..], &sizes].concat()));
        let odd = [
            "--verify_state_save=0",
            "--rw=randwrite",
            "--verify=crc32c",
            "--size=4m",
            "--bs=1000",
            "--iodepth=8",
        ];
        report(fio(&rig.tcp("v"), &[&odd[..], &["--io_size=1m"]].concat()));
    }
}

/// Goal: a ceiling holds on a live server. Method: fio reads as fast as it may for three seconds.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_a_ceiling_holds() {
    let rig = Rig::with("memory:64MiB", "max-none", "max = '10MB/s'");
    let job = report(fio(
        &rig.unix("v"),
        &["--rw=randread", "--bs=4k", "--iodepth=8", "--size=64m", "--time_based", "--runtime=3"],
    ));
    let rate = job["read"]["bw_bytes"].as_u64().unwrap();
    assert!((9_000_000..=11_000_000).contains(&rate), "{rate} bytes a second");
    let told = rig.server.stats(true).unwrap();
    assert!(told.volumes[0].stats.bytes[0] > 25_000_000, "{:?}", told.volumes[0]);
    assert_eq!(rig.server.stats(false).unwrap().volumes[0].stats.bytes[0], 0, "counted anew");
}

/// Goal: new contracts reach running connections, and none is cut off. Method: fio under load while
/// the ceiling, the stack and the volumes change; a bad file changes nothing.
#[test]
#[ignore = "needs clients: fio"]
fn needs_clients_contracts_change_under_load() {
    let mut rig = Rig::with("memory:128MiB", "none-none", "");
    let load = ["--rw=randrw", "--bs=4k", "--iodepth=8", "--size=32m", "--numjobs=2"];
    let child = fio(&rig.unix("v"), &[&load[..], &["--time_based", "--runtime=3"]].concat());
    while rig.server.stats(false).unwrap().volumes[0].connections < 2 {
        std::thread::yield_now();
    }
    let back = "memory:128MiB";
    for round in 0..200 {
        let stack = ["max-none", "prop-bfq", "max-noop", "none-none"][round % 4];
        let contract = ["max = '900MB/s'", "weight = 300", "max = '800MB/s'", ""][round % 4];
        let text = contracts(&rig.directory, back, stack, contract);
        rig.server.reload(parse(&text)).unwrap();
    }
    let more = contracts(&rig.directory, back, "none-none", "")
        + "[[group]]\nname = 'h/i'\n[[volume]]\nname = 'w'\ngroup = 'h/i'\nsize = '32MiB'\n";
    rig.server.reload(parse(&more)).unwrap();
    run("nbdinfo", &[&rig.unix("w")]);
    let large = more.replace("32MiB", "320MiB");
    let large = iofair_config::contracts::Contracts::parse("test.toml", &large);
    assert!(large.is_err() || rig.server.reload(large.unwrap()).is_err());
    rig.server.reload(parse(&contracts(&rig.directory, back, "none-none", ""))).unwrap();
    let gone = begin("nbdinfo", &[&rig.unix("w")]).wait_with_output().unwrap();
    assert!(!gone.status.success(), "the volume is retired");
    report(child);
}
