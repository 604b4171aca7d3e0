//! A random load over several connections that knows what must be there.

use std::collections::BTreeMap;
use std::io;

use iofair_drive::random::Random;

use crate::link::{CommandType, Link, Reply, Request};
use crate::model::{Made, Volume};

/// Requests of a connection at once.
const DEPTH: usize = 16;
/// Longest request.
const LONGEST: u64 = 64 << 10;

/// A request in flight.
struct Flying {
    volume: usize,
    request: Request,
    made: Option<Made>,
    covered: u64,
}

/// Connections with their volumes' numbers, and what is in flight.
pub(crate) struct Load<'a> {
    pub(crate) volumes: &'a mut [Volume],
    pub(crate) links: Vec<(usize, Box<dyn Link>)>,
    pub(crate) random: Random,
    flying: BTreeMap<u64, Flying>,
    next: u64,
    /// Requests that were answered well.
    pub(crate) answered: u64,
}

/// How a load ended.
type Ended = Result<(), String>;

impl<'a> Load<'a> {
    pub(crate) fn new(
        volumes: &'a mut [Volume],
        links: Vec<(usize, Box<dyn Link>)>,
        random: Random,
    ) -> Self {
        Self { volumes, links, random, flying: BTreeMap::new(), next: 0, answered: 0 }
    }
    /// Goes on until the power is gone, then takes all answers that still come.
    pub(crate) fn run(&mut self) -> Ended {
        loop {
            let link = self.random.below(self.links.len() as u64) as usize;
            let full = self.links[link].1.in_flight() >= DEPTH;
            let on = if full || (self.links[link].1.in_flight() > 0 && self.random.chance(50)) {
                self.receive(link)?
            } else {
                self.burst(link).is_ok()
            };
            if !on {
                break;
            }
        }
        for link in 0..self.links.len() {
            while self.links[link].1.in_flight() > 0 {
                let Ok(answer) = self.links[link].1.receive() else { break };
                self.take(answer)?;
            }
        }
        Ok(())
    }
    /// Sends some requests at once: often neighbours, which the engine merges.
    fn burst(&mut self, link: usize) -> io::Result<()> {
        let room = (DEPTH - self.links[link].1.in_flight()) as u64;
        let count = self.random.between(1, room.min(6));
        let mut at = None;
        for _ in 0..count {
            let Some(request) = self.draw(link, at) else { continue };
            let neighbour = request.offset + request.length as u64;
            at = (request.length > 0 && self.random.chance(60)).then_some(neighbour);
            self.send(link, request)?;
        }
        self.links[link].1.push()
    }
    /// A request whose sectors no other request uses, if one is found at once.
    fn draw(&mut self, link: usize, at: Option<u64>) -> Option<Request> {
        let (volume, link) = &self.links[link];
        let (abilities, volume) = (link.abilities(), *volume);
        let bytes = self.volumes[volume].bytes() as u64;
        let random = &mut self.random;
        let dice = random.below(100);
        if dice < 10 && !abilities.write_through {
            return Some(Request { command_type: CommandType::Flush, offset: 0, length: 0 });
        }
        let unit = match abilities.block {
            1 if random.chance(10) => 1,
            block if random.chance(20) => block.max(512),
            block => block.max(4096),
        } as u64;
        let length = match random.below(8) {
            0 => random.between(1, LONGEST / unit) * unit,
            _ => random.between(1, 4.max(4096 / unit)) * unit,
        };
        let offset = at.unwrap_or_else(|| random.below(bytes / unit) * unit);
        let length = length.min(bytes.saturating_sub(offset)) as usize;
        if length == 0 || !self.volumes[volume].take(offset, length) {
            return None;
        }
        let durable = abilities.durable && random.chance(12);
        let command_type = match dice {
            10..25 => CommandType::Read,
            25..32 => {
                let durable = durable && abilities.durable_zeroes;
                CommandType::Zeroes { durable, hole: random.chance(50) }
            }
            32..38 => CommandType::Trim,
            _ => {
                let mut word = random.bits();
                let mut data = vec![0; length];
                for bytes in data.chunks_mut(8) {
                    word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    bytes.copy_from_slice(&word.to_ne_bytes()[..bytes.len()]);
                }
                CommandType::Write { data, durable }
            }
        };
        Some(Request { command_type, offset, length })
    }
    fn send(&mut self, link: usize, request: Request) -> io::Result<()> {
        let (volume, link) = &mut self.links[link];
        let model = &mut self.volumes[*volume];
        let made = match &request.command_type {
            CommandType::Write { data, .. } => Some(model.sent(request.offset, data)),
            CommandType::Zeroes { .. } | CommandType::Trim => {
                Some(model.sent(request.offset, &vec![0; request.length]))
            }
            CommandType::Read | CommandType::Flush => None,
        };
        let covered = model.covered();
        let tag = self.next;
        self.next += 1;
        let sent = link.send(tag, &request);
        self.flying.insert(tag, Flying { volume: *volume, request, made, covered });
        sent
    }
    /// Takes one answer; false if it says that the power is gone.
    fn receive(&mut self, link: usize) -> Result<bool, String> {
        match self.links[link].1.receive() {
            Ok(answer) => self.take(answer),
            Err(_) => Ok(false),
        }
    }
    fn take(&mut self, (tag, result): Reply) -> Result<bool, String> {
        let flying = self.flying.remove(&tag).expect("every request is answered once");
        let model = &mut self.volumes[flying.volume];
        let Ok(data) = result else { return Ok(false) };
        self.answered += 1;
        let through = self
            .links
            .iter()
            .any(|(volume, link)| *volume == flying.volume && link.abilities().write_through);
        match (&flying.request.command_type, &flying.made) {
            (CommandType::Read, _) => model.check_read(flying.request.offset, &data)?,
            (CommandType::Flush, _) => model.flushed(flying.covered),
            (
                CommandType::Write { durable, .. } | CommandType::Zeroes { durable, .. },
                Some(made),
            ) => {
                model.written(made, *durable || through);
            }
            (_, Some(made)) => model.written(made, false),
            (command_type, None) => panic!("{command_type:?} without versions"),
        }
        Ok(true)
    }
}
