//! `iofair ctl`: looks at a running server and changes it, over its control socket.

pub(crate) mod address;
mod show;
pub(crate) mod words;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use iofair_config::shell;
use iofair_core::time::{Instant, Nanos};
use iofair_serve::control::client::{Address, Call, call};
use iofair_serve::{Clock, Consent};
use serde_json::{Value as Json, json};

use crate::failure::{Refused, Usage};
use crate::output::Output;
use address::Place;

/// Flags of changes of one volume that give consent, and the query of their calls.
const CONSENT: [(&str, &str); 3] = [
    ("--take-over", "take_over=true"),
    ("--shrink", "shrink=true"),
    ("--delete-data", "data=delete"),
];
/// Between two looks at a server that ends, and how long that may take: more than the default `drain` of a drive.
const PAUSE: Duration = Duration::from_millis(20);
const END_MAX: Nanos = Nanos::from_secs(60);
/// Number of items requested at once.
const PAGE: usize = 10_000;

/// Arguments of `iofair ctl`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  iofair ctl status
  iofair ctl group set tenants/alice weight=300 max.read=50MB/s
  iofair ctl group create tenants/carol weight=50
  iofair ctl group show tenants/alice
  iofair ctl group usage                                   processor time, memory, slots and requests of each group
  iofair ctl group set tenants/alice max=none              remove the ceiling
  iofair ctl --dry-run group set tenants/alice min=50MB/s  what would change, or why it would be refused
  iofair ctl volume create alice-data tenants/alice 10GiB
  iofair ctl stack prop-bfq bfq.slice_idle=4ms             change the policy stack; clients stay connected
  iofair ctl why tenants/alice                             what holds its requests now
  iofair ctl --socket /run/iofair/control.sock status
  iofair ctl --socket https://pool1:9720 --tls-ca ca.pem --tls-certificate me.pem --tls-key me-key.pem status

Changes are also written to the contract file, so they survive a restart. Comments in the file are kept.")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Show what a change would do to the contract file and to the groups, and change nothing.
    #[arg(long, global = true)]
    dry_run: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the state of the server.
    Status,
    /// List, change and remove groups and their contracts.
    #[command(subcommand)]
    Group(Group),
    /// List, create, resize and remove volumes.
    #[command(subcommand)]
    Volume(Volume),
    /// Show the policy stack and its parameters, or change it.
    Stack {
        /// Name of the new stack, such as max+prop-bfq.
        name: Option<String>,
        /// Parameters, such as bfq.slice_idle=4ms. Without any, current parameters that fit the new stack are kept.
        #[arg(value_name = "POLICY.PARAMETER=VALUE")]
        parameters: Vec<String>,
        /// Remove keys that the new stack does not enforce from the contract file; otherwise they are an error.
        #[arg(long, requires = "name")]
        give_up: bool,
    },
    /// Show what holds a group's requests now, and by which rule.
    Why {
        /// Path of the group.
        group: String,
    },
    /// Accept no new clients and requests, complete those in flight, then end the server, hold or resume.
    Drain {
        /// Resume at once. All earlier requests are then complete, and durable where required.
        #[arg(long, conflicts_with = "hold")]
        resume: bool,
        /// Hold until `iofair ctl resume`.
        #[arg(long)]
        hold: bool,
    },
    /// Resume after `drain --hold`.
    Resume,
    /// Apply the contract file as it is now.
    Reload {
        /// Allow this volume to shrink to the size in the file; data beyond that size is lost. May be repeated.
        #[arg(long, value_name = "VOLUME")]
        shrink: Vec<String>,
        /// Give this volume's data, kept for another group, to the group in the file; if its file is missing, begin with an
        /// empty volume. May be repeated.
        #[arg(long, value_name = "VOLUME")]
        take_over: Vec<String>,
        /// Disconnect the clients of this volume, which the file no longer has, and delete its data permanently. May be
        /// repeated.
        #[arg(long, value_name = "VOLUME")]
        delete_data: Vec<String>,
    },
    /// Show the last changes: who made them, and their results.
    Audit {
        /// Number of lines: two for each change.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        last: u16,
    },
}

impl Command {
    /// Whether it is a change that the server can try.
    fn changes_contracts(&self) -> bool {
        match self {
            Self::Group(group) => {
                matches!(group, Group::Create { .. } | Group::Set { .. } | Group::Remove { .. })
            }
            Self::Volume(volume) => !matches!(volume, Volume::List),
            Self::Stack { name, .. } => name.is_some(),
            Self::Reload { .. } => true,
            _ => false,
        }
    }
    /// Whether it changes anything.
    fn changes(&self) -> bool {
        self.changes_contracts() || matches!(self, Self::Drain { .. } | Self::Resume)
    }
}

#[derive(clap::Subcommand)]
enum Group {
    /// List groups, with the share that each gets while all are busy.
    List,
    /// Show a group: its contract, what is in force, its volumes.
    Show {
        /// Path of the group.
        name: String,
    },
    /// Show what groups have used since the server started, and what they hold now.
    Usage {
        /// Show all counters of this group.
        name: Option<String>,
    },
    /// Create a group.
    Create {
        /// Path of the group, such as tenants/alice.
        name: String,
        /// Keys as in the contract file: weight=300, max.read=50MB/s, latency=2ms.
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
    },
    /// Change the contract of a group.
    Set {
        /// Path of the group.
        name: String,
        /// Keys as in the contract file: weight=300, max.read=50MB/s, latency=2ms. The value `none` removes a key.
        #[arg(required = true, value_name = "KEY=VALUE")]
        keys: Vec<String>,
        /// Make the change only if the contract file still has this revision.
        #[arg(long)]
        revision: Option<String>,
    },
    /// Remove a group without volumes.
    Remove {
        /// Path of the group.
        name: String,
    },
}

#[derive(clap::Subcommand)]
enum Volume {
    /// List volumes.
    List,
    /// Create a volume.
    Create {
        /// Name of the volume.
        name: String,
        /// Path of the volume's group.
        group: String,
        /// Size, such as 10GiB.
        size: String,
        /// Other keys as in the contract file, such as read_only=true.
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
        /// Take over data that is kept under this name for another group, or begin anew if the kept file is missing.
        #[arg(long)]
        take_over: bool,
        /// Allow data that is kept under this name to shrink; what is beyond the size is lost.
        #[arg(long)]
        shrink: bool,
    },
    /// Change the size of a volume.
    Resize {
        /// Name of the volume.
        name: String,
        /// New size, such as 20GiB.
        size: String,
        /// Allow the volume to shrink; data beyond the new size is lost.
        #[arg(long)]
        shrink: bool,
    },
    /// Remove a volume from the contracts. It accepts no new clients, and its data is kept.
    Remove {
        /// Name of the volume.
        name: String,
        /// Disconnect its clients and delete its data permanently.
        #[arg(long)]
        delete_data: bool,
    },
}

/// A refusal with what would be accepted, if that is known.
fn suggesting(
    error: anyhow::Error,
    suggestion: impl FnOnce(&Refused) -> Option<String>,
) -> anyhow::Error {
    match error.downcast::<Refused>() {
        Ok(mut refused) => {
            let text = suggestion(&refused);
            refused.text += &text.map_or(String::new(), |text| format!("\n  {text}"));
            refused.into()
        }
        Err(error) => error,
    }
}

/// The consent for want of which a call was refused.
fn missing(refused: &Refused) -> Option<Consent> {
    serde_json::from_value(refused.error.get("consent")?.clone()).ok()
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let (address, dry_run) = (args.place.find()?, args.dry_run);
    let talk = Talk { address, dry_run, options: args.place.options() };
    if dry_run && !args.command.changes_contracts() {
        let message = "--dry-run is for changes of contracts; allowed: group create, set and remove, volume create, \
                       resize and remove, stack NAME, reload";
        return Err(Usage(message.into()).into());
    }
    if args.command.changes() {
        // Before a call that may take long: what listens there is iofair, and responds.
        talk.request(&Call::new("GET", "/v1/stack"))?;
    }
    match &args.command {
        Command::Status => {
            let status = talk.request(&Call::new("GET", "/v1/status"))?;
            output.print(&status, || show::status(&status))?;
        }
        Command::Group(group) => talk.group(group, output)?,
        Command::Volume(volume) => talk.volume(volume, output)?,
        Command::Stack { name, parameters, give_up } => {
            let shown = |stack: &Json| show::stack(&stack["stack"]);
            match name {
                None => {
                    let stack = talk.request(&Call::new("GET", "/v1/stack"))?;
                    output.print(&stack, || shown(&stack))?;
                }
                Some(name) => {
                    let mut body = words::stack(name, parameters)?;
                    body["give_up"] = json!(give_up);
                    let call = Call::new("PUT", "/v1/stack").body(body);
                    let flag = "or --give-up, which removes these keys from the contract file";
                    let needed =
                        |refused: &Refused| !give_up && refused.text.contains("does not enforce");
                    let told = |refused: &Refused| needed(refused).then(|| flag.into());
                    talk.change(call, output, shown).map_err(|error| suggesting(error, told))?;
                }
            }
        }
        Command::Why { group } => {
            let call = Call::new("GET", &(words::path("groups", group)? + "/why"));
            let why = talk.object(&call, "answer")?;
            output.print(&why, || show::why(&why))?;
        }
        Command::Drain { resume, hold } => {
            let then = match (resume, hold) {
                (true, _) => "resume",
                (_, true) => "hold",
                _ => "end",
            };
            let call = Call::new("POST", "/v1/drain").body(json!({ "then": then }));
            let done = talk.object(&call, "state")?;
            if then == "end" {
                talk.wait_for_end()?;
            }
            output.print(&done, || format!("{}\n", show::word(&done["state"])))?;
        }
        Command::Resume => {
            let done = talk.object(&Call::new("POST", "/v1/resume"), "state")?;
            output.print(&done, || format!("{}\n", show::word(&done["state"])))?;
        }
        Command::Audit { last } => {
            let call = Call::new("GET", &format!("/v1/audit?last={last}"));
            let changes = talk.object(&call, "changes")?;
            output.print(&changes, || show::audit(&changes["changes"]))?;
        }
        Command::Reload { shrink, take_over, delete_data } => {
            let (shrink, take_over) = (shrink.clone(), take_over.clone());
            talk.reload(Consent { shrink, take_over, delete: delete_data.clone() }, output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A server to talk to.
struct Talk {
    address: Address,
    /// Whether changes are only tried.
    dry_run: bool,
    /// How the server was named.
    options: String,
}

impl Talk {
    /// The response to a call that has the revision of the contract file in it, as most have.
    fn request(&self, request: &Call) -> Result<Json> {
        self.object(request, "revision")
    }
    /// The response to a call, which has this field.
    fn object(&self, request: &Call, field: &str) -> Result<Json> {
        address::object(&self.address, request, field)
    }
    /// Waits until the server, which ends, does not respond any more.
    fn wait_for_end(&self) -> Result<()> {
        let clock = Clock::start();
        // A server that is busy may be late with a response.
        let is_there = |reply: &io::Result<_>| match reply {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::TimedOut,
        };
        while is_there(&call(&self.address, &Call::new("GET", "/v1/status"))) {
            if clock.now() > Instant::ZERO + END_MAX {
                let seconds = END_MAX.0 / 1_000_000_000;
                anyhow::bail!(
                    "all requests are complete, but the server has not ended within {seconds} s"
                );
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
    /// A whole list, page by page.
    fn all(&self, kind: &str) -> Result<Json> {
        let mut whole = self.request(&Call::new("GET", &format!("/v1/{kind}?limit={PAGE}")))?;
        while let Some(next) = whole.as_object_mut().and_then(|whole| whole.remove("next")) {
            let after = words::escaped(&show::word(&next));
            let path = format!("/v1/{kind}?limit={PAGE}&after={after}");
            let mut page = self.request(&Call::new("GET", &path))?;
            let (Json::Array(all), Json::Array(more)) = (&mut whole[kind], page[kind].take())
            else {
                break;
            };
            if more.is_empty() {
                break;
            }
            all.extend(more);
            page["next"].take().as_str().into_iter().for_each(|next| whole["next"] = json!(next));
        }
        Ok(whole)
    }
    /// A change, or a dry run of it; `shown` is for what it made.
    fn change(
        &self,
        request: Call,
        output: &Output,
        shown: impl Fn(&Json) -> String,
    ) -> Result<()> {
        let joined = if request.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{joined}dry_run=true", request.path);
        let try_out = || self.request(&Call { path: path.clone(), ..request.clone() });
        if self.dry_run {
            let tried = try_out()?;
            return output.print(&tried, || show::dry_run(&tried));
        }
        // Volumes take nothing from others.
        let gives_up = match request.path.starts_with("/v1/volumes") {
            true => Json::Null,
            false => try_out()?["gives_up"].take(),
        };
        let mut done = self.request(&request)?;
        if !gives_up.is_null() {
            done["gives_up"] = gives_up;
        }
        output.print(&done, || shown(&done) + &show::notes(&done) + &show::gives_up(&done))
    }
    /// A change of which only the revision is shown.
    fn revised(&self, request: Call, output: &Output) -> Result<()> {
        self.change(request, output, |done| {
            format!("done; revision {}\n", show::word(&done["revision"]))
        })
    }
    /// A command that calls the same server.
    fn command(&self, words: &[&str]) -> String {
        let words = words.iter().map(|word| shell::word(word)).collect::<Vec<_>>().join(" ");
        format!("`iofair ctl{} {words}`", self.options)
    }
    fn reload(&self, consent: Consent, output: &Output) -> Result<()> {
        let given = [
            ("shrink", &consent.shrink),
            ("take_over", &consent.take_over),
            ("delete", &consent.delete),
        ];
        let of = |(word, names): (&str, &Vec<String>)| {
            names.iter().map(|name| format!("{word}={}&", words::escaped(name))).collect::<String>()
        };
        let query = given.map(of).concat();
        let path = format!("/v1/reload?{query}");
        let call = Call::new("POST", path.trim_end_matches(['?', '&']));
        let accepting = |refused: &Refused| {
            let options = consent.and(missing(refused)?).options();
            let (server, options) = (&self.options, options.trim_end());
            Some(format!("to accept this: `iofair ctl{server} reload {options}`"))
        };
        self.revised(call, output).map_err(|error| suggesting(error, accepting))
    }
    fn group(&self, group: &Group, output: &Output) -> Result<()> {
        match group {
            Group::List => {
                let groups = self.all("groups")?;
                output.print(&groups, || show::groups(&groups["groups"]))
            }
            Group::Usage { name: None } => {
                let groups = self.all("groups")?;
                output.print(&groups, || show::usage(&groups["groups"]))
            }
            Group::Usage { name: Some(name) } => {
                let one = self.request(&Call::new("GET", &words::path("groups", name)?))?;
                output.print(&one, || show::usage_of(&one["group"]))
            }
            Group::Show { name } => {
                let one = self.request(&Call::new("GET", &words::path("groups", name)?))?;
                output.print(&one, || show::group(&one["group"]))
            }
            Group::Create { name, keys } => {
                let request =
                    Call::new("PUT", &words::path("groups", name)?).body(words::keys(keys)?);
                let request = Call { only_new: true, ..request };
                self.change(request, output, |done| show::groups(&json!([done["group"]])))
            }
            Group::Set { name, keys, revision } => {
                let path = words::path("groups", name)?;
                let body = words::keys(keys)?;
                let there = self.request(&Call::new("GET", &path));
                let create = |refused: &Refused| {
                    let keys = keys.iter().map(String::as_str);
                    let words: Vec<&str> =
                        ["group", "create", name].into_iter().chain(keys).collect();
                    (refused.status == 404).then(|| format!("a new one: {}", self.command(&words)))
                };
                let there = there.map_err(|error| suggesting(error, create))?;
                // A group that only exists as a part of paths has no contract to change yet.
                let new = there["group"]["contract"].is_null();
                let request = Call::new(if new { "PUT" } else { "PATCH" }, &path).body(body);
                let request = Call { if_match: revision.clone(), only_new: new, ..request };
                self.change(request, output, |done| show::groups(&json!([done["group"]])))
            }
            Group::Remove { name } => {
                self.revised(Call::new("DELETE", &words::path("groups", name)?), output)
            }
        }
    }
    fn volume(&self, volume: &Volume, output: &Output) -> Result<()> {
        let (mut words, agreed, request) = match volume {
            Volume::List => {
                let volumes = self.all("volumes")?;
                return output.print(&volumes, || {
                    show::volumes(&volumes["volumes"]) + &show::kept(&volumes["kept"])
                });
            }
            Volume::Create { name, group, size, keys, take_over, shrink } => {
                let mut body = words::keys(keys)?;
                for (key, value) in [("group", group), ("size", size)] {
                    if !body[key].take().is_null() {
                        return Err(Usage(format!("\"{key}\" is given twice")).into());
                    }
                    body[key] = json!(value);
                }
                let mut words = vec!["create", name, group, size];
                words.extend(keys.iter().map(String::as_str));
                let request = Call { only_new: true, ..Call::new("PUT", "").body(body) };
                (words, [*take_over, *shrink, false], request)
            }
            Volume::Resize { name, size, shrink } => {
                let request = Call::new("PATCH", "").body(json!({ "size": size }));
                (vec!["resize", name, size], [false, *shrink, false], request)
            }
            Volume::Remove { name, delete_data } => {
                (vec!["remove", name], [false, false, *delete_data], Call::new("DELETE", ""))
            }
        };
        let given = CONSENT.iter().zip(agreed).filter(|(_, is_given)| *is_given);
        let query: Vec<&str> = given.map(|((_, query), _)| *query).collect();
        let path = format!("{}?{}", words::path("volumes", words[1])?, query.join("&"));
        let request = Call { path: path.trim_end_matches('?').into(), ..request };
        let done = match volume {
            Volume::Remove { .. } => self.revised(request, output),
            _ => self.change(request, output, |done| show::volumes(&json!([done["volume"]]))),
        };
        let accepting = |refused: &Refused| {
            let Consent { shrink, take_over, delete } = missing(refused)?;
            let missing = [take_over, shrink, delete].map(|names| !names.is_empty());
            let all = CONSENT
                .iter()
                .zip(agreed)
                .zip(missing)
                .filter(|((_, given), more)| *given || *more);
            words.insert(0, "volume");
            words.extend(all.map(|(((flag, _), _), _)| flag));
            Some(format!("to accept this: {}", self.command(&words)))
        };
        done.map_err(|error| suggesting(error, accepting))
    }
}
