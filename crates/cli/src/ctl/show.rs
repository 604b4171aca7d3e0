//! Answers of the control socket for people.

use iofair_core::contract::Rate;
use iofair_core::unit::{BinarySize, Count, Size};
use serde_json::{Map, Value as Json};

use crate::output::table;

/// A text without its quotes; anything else as JSON, nothing as a dash.
pub(crate) fn word(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        Json::Null => "-".to_string(),
        other => other.to_string(),
    }
}

/// Names that are shown of a list.
const NAMES: usize = 20;

/// The first names of a list, and how many more there are.
fn names(all: &Json) -> String {
    let all = list(all);
    let shown: Vec<String> = all.iter().take(NAMES).map(word).collect();
    match all.len() - shown.len() {
        0 => shown.join(" "),
        more => format!("{} and {more} more", shown.join(" ")),
    }
}

/// A number of things.
fn counted(json: &Json, noun: &str) -> String {
    json.as_u64().map_or(format!("- {noun}s"), |number| Count(number, noun).to_string())
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn percent(json: &Json) -> String {
    json.as_f64().map_or("-".into(), |part| format!("{:.1} %", part * 100.0))
}

fn rate(json: &Json) -> String {
    let rate = json.as_u64().map(Rate);
    rate.map_or("-".into(), |rate| rate.to_string())
}

/// Bytes in binary units.
pub(crate) fn bytes(json: &Json) -> String {
    json.as_u64().map_or("-".into(), |count| BinarySize(count).to_string())
}

/// Keys as they are typed: `max.read=50MB/s`.
fn keys(keys: &Map<String, Json>, without: &[&str]) -> String {
    let shown = keys.iter().filter(|(key, _)| !without.contains(&key.as_str()));
    let shown = shown.map(|(key, value)| match value {
        Json::Object(inner) => {
            let inner = inner.iter().map(|(name, value)| format!("{key}.{name}={}", word(value)));
            inner.collect::<Vec<_>>().join(" ")
        }
        value => format!("{key}={}", word(value)),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// `iofair ctl status`.
pub(crate) fn status(status: &Json) -> String {
    let field = |name: &str| word(&status[name]);
    let count = |name: &str, noun| counted(&status[name], noun);
    let uptime = status["uptime_seconds"].as_f64().unwrap_or(0.0);
    let mut text = format!("{}, {} on {}", field("state"), field("stack"), field("drive"));
    let reaches = &status["reaches"];
    if reaches.is_object() {
        let [read, write, random] = ["read", "write", "random"]
            .map(|name| rate(&reaches[format!("{name}_bytes_per_second")]));
        text +=
            &format!("\nreaches      {read} of reads, {write} of writes, {random} of small reads");
        let times =
            [("latency", "reads"), ("write_latency", "writes"), ("sync_latency", "flushes")];
        let time = |(name, what): (&str, &str)| {
            let seconds = reaches[format!("{name}_seconds")].as_f64()?;
            Some(format!("{what} {:.2} ms", seconds * 1e3))
        };
        let times: Vec<String> = times.into_iter().filter_map(time).collect();
        if !times.is_empty() {
            text += &format!("\nlatency      beside writes: {}", times.join(", "));
        }
    } else if status["worst_case_bytes_per_second"].is_u64() {
        text += &format!(", at worst {}", rate(&status["worst_case_bytes_per_second"]));
    }
    text += &format!("\ncontracts    {}, revision {}\n", field("file"), field("revision"));
    let listens = ["listen_unix", "listen_tcp"].map(|name| &status[name]);
    let listens: Vec<String> = listens.into_iter().filter(|l| !l.is_null()).map(word).collect();
    text += &format!("listens      {}\n", listens.join(", "));
    text += &format!("running      {uptime:.0} s, version {}\n", field("version"));
    text += &format!("holds        {}, {}\n", count("groups", "group"), count("volumes", "volume"));
    text += &format!(
        "now          {}, {} in flight, {} at the drive; drive busy {} so far\n",
        count("connections", "connection"),
        count("pending", "request"),
        field("in_flight"),
        percent(&status["utilisation"])
    );
    text += &format!("free         {} for new volumes\n", bytes(&status["free_bytes"]));
    let [dirty, zeroed] = ["dirty_bytes", "zeroed_bytes"].map(|name| &status[name]);
    if dirty.is_u64() {
        let (dirty, zeroed) = (bytes(dirty), bytes(zeroed));
        text += &format!("zeroing      {dirty} of free space left to zero, {zeroed} zeroed\n");
    }
    for failure in list(&status["failures"]) {
        text += &format!("failing      {}\n", word(&failure["text"]));
    }
    if status["unmounted"].is_string() {
        text += &format!("unmounted    {}\n", word(&status["unmounted"]));
    }
    for removed in status["removed_files"].as_array().into_iter().flatten() {
        text += &format!("damage       {}\n", word(&removed["text"]));
    }
    text
}

/// What is guaranteed.
fn minimum(in_force: &Json) -> String {
    let bytes = rate(&in_force["min_bytes_per_second"]);
    let ios = in_force["min_ios_per_second"].as_u64().map(|ios| format!("{ios} IOPS"));
    match ios {
        Some(ios) if bytes == "-" => ios,
        Some(ios) => format!("{bytes}, {ios}"),
        None => bytes,
    }
}

/// The ceilings in force: `reads 50.00 MB/s, total 80.00 MB/s (64.00 MB at once)`.
fn ceilings(in_force: &Json) -> String {
    let one = |ceiling: &Json| {
        let in_bytes = ceiling["unit"] == "bytes";
        let per_second = match in_bytes {
            true => rate(&ceiling["per_second"]),
            false => format!("{}/s", counted(&ceiling["per_second"], "request")),
        };
        let burst = match &ceiling["burst"] {
            Json::Null => String::new(),
            burst if in_bytes => {
                format!(" ({} at once)", Size(burst.as_u64().unwrap_or(0)))
            }
            burst => format!(" ({} at once)", word(burst)),
        };
        format!("{} {per_second}{burst}", word(&ceiling["of"]))
    };
    let all: Vec<String> = list(&in_force["ceilings"]).iter().map(one).collect();
    if all.is_empty() { "-".to_string() } else { all.join(", ") }
}

/// `iofair ctl group list`.
pub(crate) fn groups(groups: &Json) -> String {
    let row = |group: &Json| {
        let contract = group["contract"].as_object();
        vec![
            word(&group["name"]),
            minimum(&group["in_force"]),
            word(&group["in_force"]["weight"]),
            percent(&group["in_force"]["share"]),
            contract
                .map(|contract| keys(contract, &["min", "min_iops", "weight"]))
                .unwrap_or_default(),
            names(&group["volumes"]),
        ]
    };
    let rows: Vec<Vec<String>> = list(groups).iter().map(row).collect();
    table(&["group", "min", "weight", "share", "contract", "volumes"], &rows, &[1, 2, 3])
}

/// `iofair ctl group show`.
pub(crate) fn group(group: &Json) -> String {
    let in_force = &group["in_force"];
    let contract = group["contract"].as_object().map(|contract| keys(contract, &[]));
    let contract = contract.unwrap_or_else(|| "none: it is a part of other groups' paths".into());
    let (rate, inside) =
        (rate(&group["usage"]["bytes_per_second"]), &group["usage"]["requests_in_flight"]);
    let ceilings = Some(ceilings(in_force)).filter(|text| text != "-");
    let rows = [
        ("group", word(&group["name"])),
        ("contract", contract),
        (
            "in force",
            format!(
                "min {}, weight {}, {} of the drive when all groups want it",
                minimum(in_force),
                word(&in_force["weight"]),
                percent(&in_force["share"])
            ),
        ),
        ("ceilings", ceilings.unwrap_or_default()),
        ("volumes", names(&group["volumes"])),
        ("now", format!("{rate}, {} in flight", counted(inside, "request"))),
    ];
    let shown = rows.iter().filter(|(name, value)| *name != "ceilings" || !value.is_empty());
    let row =
        |(name, value): &(&str, String)| format!("{name:<10}{value}").trim_end().to_string() + "\n";
    shown.map(row).collect()
}

/// A group's processor time, in all its ways.
fn cpu(usage: &Json) -> String {
    usage["cpu_percent"].as_f64().map_or("-".into(), |percent| format!("{percent:.1} %"))
}

/// `iofair ctl group usage`.
pub(crate) fn usage(groups: &Json) -> String {
    const COUNTS: [(&str, &str); 8] = [
        ("flushes", "flushes"),
        ("trims", "trims"),
        ("zeroes", "zeroes"),
        ("status", "block_statuses"),
        ("failed", "failed"),
        ("refused", "refused"),
        ("stalls", "stalls"),
        ("control", "control_calls"),
    ];
    let row = |group: &Json| {
        let usage = &group["usage"];
        let first = [word(&group["name"]), cpu(usage), bytes(&usage["memory_bytes"])];
        let [reads, writes] = [0, 1].map(|index| word(&usage["requests"][index]));
        let slots = word(&usage["request_slots"]);
        let counts = COUNTS.map(|(_, key)| word(&usage[key]));
        first.into_iter().chain([slots, reads, writes]).chain(counts).collect()
    };
    let rows: Vec<Vec<String>> = list(groups).iter().map(row).collect();
    let first = ["group", "cpu", "memory", "slots", "reads", "writes"];
    let head: Vec<&str> = first.into_iter().chain(COUNTS.map(|(head, _)| head)).collect();
    let right: Vec<usize> = (1..head.len()).collect();
    table(&head, &rows, &right)
}

/// `iofair ctl group usage NAME`: everything that is known.
pub(crate) fn usage_of(group: &Json) -> String {
    let usage = &group["usage"];
    let word = |key: &str| word(&usage[key]);
    let pair = |key: &str, show: fn(&Json) -> String| {
        format!("read {}, written {}", show(&usage[key][0]), show(&usage[key][1]))
    };
    let used = usage["cpu_seconds"].as_f64().unwrap_or(0.0);
    let rows = [
        ("cpu", format!("{} of a core now, {used:.1} s in all", cpu(usage))),
        ("memory", format!("{} beyond 128 KiB a client", bytes(&usage["memory_bytes"]))),
        (
            "slots",
            format!(
                "{} held, {} in flight",
                word("request_slots"),
                counted(&usage["requests_in_flight"], "request")
            ),
        ),
        ("rate", rate(&usage["bytes_per_second"])),
        ("requests", pair("requests", self::word)),
        ("bytes", pair("bytes", bytes)),
        ("flushes", word("flushes")),
        ("trims", word("trims")),
        ("zeroes", word("zeroes")),
        ("status", word("block_statuses")),
        ("failed", format!("{}, {} of them refused", word("failed"), word("refused"))),
        ("stalls", word("stalls")),
        ("control", word("control_calls")),
        ("broken", format!("{} s", word("broken_promise_seconds"))),
    ];
    rows.map(|(name, value)| format!("{name:<10}{value}\n")).concat()
}

/// What a change would do.
pub(crate) fn dry_run(tried: &Json) -> String {
    let (lines, groups) = (list(&tried["lines"]), list(&tried["groups"]));
    if lines.is_empty() && groups.is_empty() {
        return "nothing would change\n".to_string();
    }
    let mut text = "dry run, nothing has changed; the contract file would:\n".to_string();
    lines.iter().for_each(|line| text += &format!("  {}\n", word(line)));
    let row = |group: &Json| {
        let when = ["before", "after"].map(|when| &group[when]);
        let weight = |group: &Json| word(&group["weight"]);
        let shows = [minimum, weight, |group: &Json| percent(&group["share"]), ceilings];
        let changes = shows.map(|show| match when.map(show) {
            [before, after] if before == after => before,
            both => both.join(" -> "),
        });
        [vec![word(&group["name"])], changes.to_vec()].concat()
    };
    if !groups.is_empty() {
        let mut rows: Vec<Vec<String>> = groups.iter().map(row).collect();
        let mut head = vec!["group", "min", "weight", "share", "ceilings"];
        if rows.iter().all(|row| !row[4].contains(" -> ")) {
            head.pop();
            rows.iter_mut().for_each(|row| drop(row.pop()));
        }
        text += &table(&head, &rows, &[1, 2, 3]);
    }
    text + &notes(tried) + &gives_up(tried)
}

/// What the operator should know of a change, a line each.
pub(crate) fn notes(change: &Json) -> String {
    list(&change["notes"]).iter().map(|note| format!("note: {}\n", word(note))).collect()
}

/// What a change takes away, a line each.
pub(crate) fn gives_up(change: &Json) -> String {
    let line = |effect: &Json| format!("gives up: {}\n", word(&effect["text"]));
    list(&change["gives_up"]).iter().map(line).collect()
}

/// `iofair ctl volume list`.
pub(crate) fn volumes(volumes: &Json) -> String {
    let row = |volume: &Json| {
        let settings = volume["settings"].as_object();
        let mut settings =
            settings.map(|keys_| keys(keys_, &["group", "size"])).unwrap_or_default();
        if let Some(path) = volume["block_device"].as_str() {
            settings += &format!(" ({path})");
        }
        vec![
            word(&volume["name"]),
            word(&volume["settings"]["group"]),
            bytes(&volume["size_bytes"]),
            word(&volume["connections"]),
            word(&volume["requests"]),
            bytes(&volume["bytes"]),
            word(&volume["failed"]),
            settings,
        ]
    };
    let rows: Vec<Vec<String>> = list(volumes).iter().map(row).collect();
    let head = ["volume", "group", "size", "clients", "requests", "bytes", "failed", "settings"];
    table(&head, &rows, &[2, 3, 4, 5, 6])
}

/// Removed volumes whose data is kept, if there are any.
pub(crate) fn kept(kept: &Json) -> String {
    let row = |volume: &Json| {
        let [name, group, path] = ["name", "group", "path"].map(|key| word(&volume[key]));
        vec![name, group, bytes(&volume["size_bytes"]), path]
    };
    let rows: Vec<Vec<String>> = list(kept).iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["removed, data kept", "group", "size", "where"], &rows, &[2])
}

/// `iofair ctl stack`.
pub(crate) fn stack(stack: &Json) -> String {
    let mut text = format!("{}\n", word(&stack["name"]));
    for stage in list(&stack["stages"]) {
        text += &format!("  {}\n", word(&stage["policy"]));
        for (name, value) in stage["parameters"].as_object().into_iter().flatten() {
            text += &format!("    {name} = {}\n", word(value));
        }
    }
    text
}

/// `iofair ctl why`.
pub(crate) fn why(why: &Json) -> String {
    let mut text = format!("{}\n", word(&why["answer"]));
    for wait in list(&why["waits"]).iter().skip(1) {
        text += &format!("  also: {}\n", word(&wait["text"]));
    }
    for wait in list(&why["waits"]) {
        let oldest = wait["oldest_seconds"].as_f64().unwrap_or(0.0) * 1e3;
        text += &format!("  the oldest is in {} for {oldest:.1} ms\n", word(&wait["place"]));
    }
    text
}

/// `iofair ctl audit`.
pub(crate) fn audit(changes: &Json) -> String {
    let row = |change: &Json| {
        let certificate = list(&change["certificate"]).first().map(word);
        let named = |name: &str| (!change[name].is_null()).then(|| word(&change[name]));
        let uid = || named("uid").map(|uid| format!("uid {uid}"));
        let author =
            certificate.or_else(|| named("user")).or_else(uid).or_else(|| named("address"));
        let result =
            if change["event"] == "begin" { "begins".into() } else { word(&change["result"]) };
        vec![
            word(&change["time"]),
            word(&change["number"]),
            format!("{} ({})", author.unwrap_or_default(), word(&change["source"])),
            // The query says whether data was deleted, cut or taken over.
            match named("query").filter(|query| !query.is_empty()) {
                Some(query) => {
                    format!("{} {}?{query}", word(&change["method"]), word(&change["path"]))
                }
                None => format!("{} {}", word(&change["method"]), word(&change["path"])),
            },
            if change["edit"].is_null() { String::new() } else { change["edit"].to_string() },
            // The first line says what is wrong.
            result.lines().next().unwrap_or_default().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = list(changes).iter().map(row).collect();
    table(&["time", "number", "author", "change", "edit", "result"], &rows, &[1])
}
