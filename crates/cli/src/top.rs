//! `iofair top`: a running server, live: who is promised what, who gets what, who is held and why.
//!
//! `numbers` turns two looks at the server into rows, `view` holds what the user chose and answers keys,
//! `draw` paints a frame. Only this file knows the terminal and the server.

mod draw;
mod numbers;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use iofair_core::time::Nanos;
use iofair_serve::Clock;
use iofair_serve::control::client::{Address, Call, call};
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::{DefaultTerminal, Terminal};
use serde_json::json;

use crate::ctl::address::{Place, object};
use crate::ctl::words;
use crate::output::{Output, write};
use numbers::Look;
use view::{Action, View};

/// Arguments of `iofair top`.
#[derive(clap::Args)]
#[command(
    after_help = "Keys: up and down select a group, left and right fold it, + and - change its weight, e enters a
weight, s sorts (name, share, rate, wait), w shows why groups wait, q quits.

Examples:
  iofair top
  iofair top --socket /run/iofair/control.sock
  iofair top --once                      a single frame as text"
)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Print a single frame as text and exit.
    #[arg(long)]
    once: bool,
    /// Seconds between refreshes, and between the two looks of --once.
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Size of the frame of --once, such as 80x24.
    #[arg(long, default_value = "80x24", value_name = "COLUMNSxLINES", requires = "once")]
    size: String,
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let address = args.place.find()?;
    let first = look(&address)?;
    if output.json {
        output.print(&first, String::new)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut view = View::new(first);
    if args.once {
        // How busy something is, and how long requests take, is known between two looks.
        thread::sleep(Duration::from_secs(args.every));
        view.update(look(&address)?);
        write(&picture(&view, size(&args.size)?)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = ratatui::try_init()
        .context("a live view needs a terminal; --once prints one moment without it")?;
    let ended = live(&mut terminal, &mut view, &address, Nanos::from_secs(args.every));
    // A closed terminal needs no restoring.
    let _ = ratatui::try_restore();
    ended.map(|()| ExitCode::SUCCESS)
}

fn size(text: &str) -> Result<(u16, u16)> {
    let parsed = text.split_once('x').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let sensible = parsed.filter(|(columns, lines)| *columns > 0 && *lines > 0);
    let message = || format!("\"{text}\" is not a size; a size is written as in 80x24");
    sensible.ok_or_else(|| crate::failure::Usage(message()).into())
}

/// What the server says now.
fn look(address: &Address) -> Result<Look> {
    let looked = object(address, &Call::new("GET", "/v1/live?limit=10000"), "uptime_seconds")?;
    serde_json::from_value(looked).context("the server's response")
}

/// One frame as text.
fn picture(view: &View, (columns, lines): (u16, u16)) -> Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines))?;
    terminal.draw(|frame| draw::frame(frame, view))?;
    let buffer = terminal.backend().buffer();
    let line = |y: u16| {
        let cells = (0..columns).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_string()
    };
    let text = (0..lines).map(line).collect::<Vec<_>>().join("\n");
    Ok(text.trim_end().to_string() + "\n")
}

fn live(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    address: &Address,
    every: Nanos,
) -> Result<()> {
    let clock = Clock::start();
    let mut next = clock.now() + every;
    loop {
        terminal.draw(|frame| draw::frame(frame, view))?;
        let rest = Duration::from_nanos(next.since(clock.now()).0);
        if event::poll(rest)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match view.on_key(key) {
                Action::None => {}
                Action::Quit => return Ok(()),
                Action::Weight { group, weight } => {
                    let told = set_weight(address, &group, weight);
                    view.say(told.unwrap_or_else(|error| format!("{error:#}")));
                    next = clock.now();
                }
            }
        } else {
            next = clock.now() + every;
            match look(address) {
                Ok(fresh) => view.update(fresh),
                // It may come back: the last numbers stay, and the reason stands below.
                Err(error) => view.say(format!("{error:#}")),
            }
        }
    }
}

fn set_weight(address: &Address, group: &str, weight: u32) -> io::Result<String> {
    let path = format!("/v1/groups/{}", words::escaped(group));
    let reply = call(address, &Call::new("PATCH", &path).body(json!({ "weight": weight })))?;
    let json = reply.object("revision")?;
    if reply.is_good() {
        return Ok(format!("{group}: weight {weight}, written into the contract file"));
    }
    Ok(json["error"]["message"].as_str().unwrap_or("refused").to_string())
}
