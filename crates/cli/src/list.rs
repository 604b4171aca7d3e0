//! `iofair list`: what there is, straight from the tables that the program itself uses.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use iofair_core::params::{Kind, Values};
use iofair_core::policy::{Named, Role, Row, Table};
use iofair_drive::profile;
use serde::{Deserialize, Serialize};

use crate::failure::Usage;
use crate::output::{Output, table};

/// Arguments of `iofair list`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair list policies                throttles and schedulers
  iofair list policies bfq            one policy: every parameter with its default and range
  iofair list stacks                  named stacks, such as promise
  iofair list drives                  emulated drives and their variants, by class
  iofair list drives class:datacentre every parameter of each drive of a class
  iofair list drives samsung-970-pro  every parameter of a profile, with its source
  iofair list drives --json           the same as JSON")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

/// What is listed.
#[derive(clap::Subcommand)]
pub enum What {
    /// List throttles and schedulers. The name of a stack is THROTTLES-SCHEDULER.
    Policies {
        /// Show these policies with all parameters.
        names: Vec<String>,
    },
    /// List stacks with a short name, for the key `stack` of a contract file or experiment. All others are
    /// THROTTLES-SCHEDULER, such as max-none or prop-bfq.
    Stacks,
    /// List profiles of drives that can be emulated. NAME:VARIANT selects a variant of a drive, class:CLASS all drives of a class.
    Drives {
        /// Show these drives with all parameters and their sources.
        names: Vec<String>,
    },
}

/// Lists what there is in `table`.
///
/// # Errors
/// A name that is not in the list; standard output takes nothing.
pub fn run(args: &Args, output: &Output, table: &Table) -> Result<ExitCode> {
    args.what.show(output, table)
}

impl What {
    /// Lists it.
    ///
    /// # Errors
    /// As [`run`].
    pub fn show(&self, output: &Output, table: &Table) -> Result<ExitCode> {
        match self {
            Self::Policies { names } => policies(names, output, table)?,
            Self::Stacks => stacks(output, table)?,
            Self::Drives { names } => drives(names, output)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What is said of each policy, with the numbers that were measured: `reproduction/judgements.json`, which `make measured` writes.
const JUDGEMENTS: &str = include_str!("judgements.json");

#[derive(Default, Deserialize)]
struct Judgement {
    promises: Vec<Said>,
    fails: Vec<Said>,
}

#[derive(Serialize)]
struct PolicyInfo {
    name: &'static str,
    short: &'static str,
    role: &'static str,
    shares_between_groups: bool,
    summary: &'static str,
    promises: Vec<Said>,
    needs: &'static str,
    fails: Vec<Said>,
    parameters: Vec<ParameterInfo>,
}

/// What a policy is said to do, the experiment that shows it ("": the rules of its manual page do), and others
/// that its numbers are of.
#[derive(Deserialize, Serialize)]
struct Said {
    says: String,
    shown_by: String,
    besides: Vec<String>,
}

impl Said {
    /// A line of a policy's page, with the commands that show it.
    fn line(&self, head: &str) -> String {
        let (first, stacks) = self.shown_by.split_once(' ').unwrap_or((&self.shown_by, ""));
        let mut shown = String::new();
        if !first.is_empty() {
            let command =
                |name: &str| format!("iofair-lab run reproduction/experiments/{name}.toml");
            let commands = [format!("{} {stacks}", command(first)).trim_end().to_owned()];
            let besides = self.besides.iter().map(|usage| command(usage));
            let commands = commands.into_iter().chain(besides);
            shown = format!(" [{}]", commands.collect::<Vec<_>>().join("; "));
        }
        format!("{head:10}{}{shown}\n", self.says)
    }
}

#[derive(Serialize)]
struct ParameterInfo {
    name: &'static str,
    kind: &'static str,
    default: String,
    smallest: String,
    largest: String,
    doc: &'static str,
}

impl PolicyInfo {
    fn new(row: &Row, judgement: Judgement) -> Self {
        let (role, shares_between_groups) = match row.role {
            Role::Throttle => ("throttle", false),
            Role::Scheduler { groups, .. } => ("scheduler", groups),
        };
        let values = Values::new(row.parameters, row.overrides);
        let parameters = values.iter().map(|(parameter, value)| ParameterInfo {
            name: parameter.name,
            kind: kind(parameter.kind),
            default: parameter.show(value),
            smallest: parameter.show(parameter.range.0),
            largest: parameter.show(parameter.range.1),
            doc: parameter.doc,
        });
        Self {
            name: row.name,
            short: row.short,
            role,
            shares_between_groups,
            summary: row.summary,
            promises: judgement.promises,
            needs: row.judgement.needs,
            fails: judgement.fails,
            parameters: parameters.collect(),
        }
    }
    /// The whole page of one policy.
    fn page(&self) -> String {
        let shares = if self.shares_between_groups { ", shares between groups" } else { "" };
        let mut page = format!("{} ({}{shares}): {}\n", self.name, self.role, self.summary);
        if self.short != self.name {
            page += &format!("In a stack's name: {}\n", self.short);
        }
        page.extend(self.promises.iter().map(|promise| promise.line("Promises:")));
        page += &format!("{:10}{}\n", "Needs:", self.needs);
        page.extend(self.fails.iter().map(|fails| fails.line("Fails:")));
        page += &format!("{:10}lab/docs/performance.md\n", "Costs:");
        if self.parameters.is_empty() {
            return page + "It has no parameters.\n";
        }
        let rows = self.parameters.iter().map(|p| {
            let range = format!("{} to {}", p.smallest, p.largest);
            vec![p.name.to_string(), p.default.clone(), range, p.doc.to_string()]
        });
        page + &table(
            &["parameter", "default", "allowed", "meaning"],
            &rows.collect::<Vec<_>>(),
            &[],
        )
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::Count => "count",
        Kind::Percent => "percent",
        Kind::Time => "time",
        Kind::Bytes => "bytes",
        Kind::Rate => "rate",
    }
}

fn policies(names: &[String], output: &Output, known: &Table) -> Result<()> {
    let find = |name: &String| {
        let all: Vec<_> = known.policies.iter().map(|row| row.name).collect();
        let unknown = || Usage(format!("no policy \"{name}\"; there are: {}", all.join(", ")));
        known.find(name).ok_or_else(unknown)
    };
    let chosen: Vec<&Row> = match names {
        [] => known.policies.to_vec(),
        names => names.iter().map(find).collect::<Result<_, _>>()?,
    };
    let mut judgements: BTreeMap<String, Judgement> =
        serde_json::from_str(JUDGEMENTS).expect("a test writes it");
    let info = |row: &Row| PolicyInfo::new(row, judgements.remove(row.name).unwrap_or_default());
    let infos: Vec<_> = chosen.into_iter().map(info).collect();
    output.print(&infos, || {
        if !names.is_empty() {
            return infos.iter().map(PolicyInfo::page).collect::<Vec<_>>().join("\n");
        }
        let rows = infos.iter().map(|info| {
            let parameters = info.parameters.len().to_string();
            [info.name, info.short, info.role, &parameters, info.summary].map(str::to_string).into()
        });
        let header = ["policy", "in a stack", "role", "parameters", "what it does"];
        table(&header, &rows.collect::<Vec<Vec<_>>>(), &[3])
    })
}

#[derive(Serialize)]
struct StackInfo {
    name: &'static str,
    stack: &'static str,
    admits_minimums: bool,
    settings: Vec<String>,
    summary: &'static str,
}

fn stacks(output: &Output, known: &Table) -> Result<()> {
    let info = |named: &Named| {
        let Named { name, stack, admits, settings, summary } = *named;
        let setting =
            |(stage, parameter, value): &(&str, &str, &str)| format!("{stage}.{parameter}={value}");
        let settings = settings.iter().map(setting).collect();
        StackInfo { name, stack, admits_minimums: admits, settings, summary }
    };
    let infos: Vec<_> = known.stacks.iter().map(info).collect();
    output.print(&infos, || {
        let rows = infos.iter().map(|i| [i.name, i.stack, i.summary].map(str::to_string).into());
        table(&["name", "stack", "what it does"], &rows.collect::<Vec<Vec<_>>>(), &[])
    })
}

#[derive(Serialize)]
struct DriveInfo {
    name: String,
    title: String,
    numbers: Vec<profile::Sourced>,
}

impl DriveInfo {
    fn page(&self) -> String {
        let rows = self.numbers.iter().map(|number| {
            let free = if number.free { "a guess" } else { "" };
            vec![number.key.clone(), number.value.clone(), free.into(), number.source.clone()]
        });
        let header = ["number", "value", "", "source"];
        format!(
            "{}: {}\n{}",
            self.name,
            self.title,
            table(&header, &rows.collect::<Vec<_>>(), &[1])
        )
    }
}

fn drives(names: &[String], output: &Output) -> Result<()> {
    if names.is_empty() {
        let listed = profile::list();
        return output.print(&listed, || {
            let rows = listed.iter().map(|drive| {
                [&drive.class, &drive.name, &drive.about].map(ToString::to_string).to_vec()
            });
            table(&["class", "drive", "what it is"], &rows.collect::<Vec<_>>(), &[])
        });
    }
    let mut infos = Vec::new();
    let usage = |error: profile::ProfileError| Usage(error.to_string());
    let named = names.iter().map(|name| profile::expand(name).map_err(usage));
    for name in named.collect::<Result<Vec<_>, _>>()?.iter().flatten() {
        let profile = profile::read(name).map_err(|error| Usage(error.to_string()))?;
        let profile::Profile { name, title, numbers, .. } = profile;
        infos.push(DriveInfo { name, title, numbers });
    }
    output.print(&infos, || infos.iter().map(DriveInfo::page).collect::<Vec<_>>().join("\n"))
}
