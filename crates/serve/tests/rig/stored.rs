//! Servers whose volumes are on a disk, and what lies below.
#![allow(dead_code)]

use iofair_serve::{Consent, Server};

use crate::rig::wire::Wire;
use crate::rig::{Directory, parse, run};

/// Contracts with volumes: name, group, size, more keys.
pub(crate) fn contracts(
    directory: &Directory,
    back: &str,
    volumes: &[(&str, &str, &str)],
) -> String {
    let mut text = format!(
        "[drive]\nback = '{back}'\nstack = 'none-none'\npaths = ['{}']\n[listen]\nunix = '{}'\n[control]\nunix = '{}'\n\
         [[group]]\nname = 'g'\n[[group]]\nname = 'h'\n",
        directory.0.display(),
        directory.path("socket"),
        directory.path("control.sock")
    );
    for (name, group, more) in volumes {
        text += &format!("[[volume]]\nname = '{name}'\ngroup = '{group}'\n{more}\n");
        text += if more.contains("size") { "" } else { "size = '8MiB'\n" };
    }
    text
}

pub(crate) fn start(text: &str, take_over: &[&str]) -> Result<Server, String> {
    let consent = Consent {
        take_over: take_over.iter().map(|name| (*name).to_string()).collect(),
        ..Consent::default()
    };
    let checked = Server::check(&parse(text), &consent).map_err(|error| error.to_string());
    let started = Server::start_with(parse(text), Default::default(), &consent);
    let started = started.map_err(|error| error.to_string());
    assert_eq!(checked.err(), started.as_ref().err().cloned(), "a check and a start say the same");
    started
}

pub(crate) fn refused(text: &str, words: &str) {
    let error = start(text, &[]).err().unwrap_or_else(|| panic!("it started: {text}"));
    assert!(error.contains(words), "{error}");
}

pub(crate) fn connect(directory: &Directory, volume: &str) -> Wire {
    Wire::connect_to(&directory.path("socket"), volume).unwrap()
}

/// A mounted file system that goes with its owner.
pub(crate) struct Mounted(String);

impl Mounted {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        run("mount", arguments);
        Self((*arguments.last().unwrap()).to_string())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Threads of a server that has ended may close its files a little later.
        run("umount", &["--lazy", &self.0]);
    }
}

/// A loop device that goes with its owner.
pub(crate) struct Loop(String);

impl Loop {
    pub(crate) fn new(image: &str) -> Self {
        Self::from(image, 0)
    }
    /// Of what is in the file from a byte on.
    pub(crate) fn from(image: &str, offset: u64) -> Self {
        let offset = offset.to_string();
        Self(run("losetup", &["-f", "--show", "-o", &offset, image]).trim().to_string())
    }
    pub(crate) fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}
