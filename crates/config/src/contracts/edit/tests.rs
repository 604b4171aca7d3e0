//! Each kind of change on one file with comments, and what is said about wrong ones.

use super::*;
use serde_json::json;

const FILE: &str = r#"# our pool
[drive]
back = "memory:1GiB"  # enough
stack = "max+prop-bfq"
[drive.policy.bfq]
slice_idle = "4ms"    # measured

# the good customer
[[group]]
name = "tenants/alice"
weight = 300          # paid for
max = "50MB/s"

[[group]]
name = "batch"

[[volume]]
name = "alice-root"
group = "tenants/alice"
size = "512MiB"
"#;

/// Goal: a file keeps its ends of lines. Method: a change of a key, one of a new group and one of a removed one, in a file with
/// CRLF.
#[test]
fn ends_of_lines_stay() {
    let file = FILE.replace('\n', "\r\n");
    let mut contracts = Contracts::parse("pool.toml", &file).expect("a good file");
    for edit in [
        group("batch", json!({"weight": 5}), How::Merge),
        group("new", json!({"max": {"read": "5MB/s"}}), How::Create),
        Edit::Remove { kind: Kind::Group, name: "batch".into() },
    ] {
        contracts = contracts.edited(&edit).expect("allowed");
        let text = contracts.text();
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
        assert!(!text.contains("\r\r"), "{text:?}");
    }
    assert!(contracts.text().starts_with("# our pool\r\n"));
}

/// Goal: comments inside a list, or a table in braces, are kept, or the change is refused. Method: changes of what is beside and inside
/// such values, of the same value, and of a list of tables.
#[test]
fn comments_inside_values_stay() {
    let text = "[drive]\nback = 'memory:1GiB'\n[[group]]\nname = 'a'\nmax = { # all\n  read = '5MB/s', # slow\n  \
                # own\n  write = '4MB/s',\n}\nclients = [ 'uid:0', # root\n 'uid:1' ]\n";
    let contracts = Contracts::parse("pool.toml", text).expect("good");
    for (json, written) in [
        (json!({"weight": 7}), "weight = 7"),
        (json!({"max": {"write": "3MB/s"}}), "write = \"3MB/s\""),
        (json!({"max": {"total": "6MB/s", "total_iops": null}}), "total = \"6MB/s\""),
        (json!({"clients": ["uid:0", "uid:1"]}), "'uid:1' ]"),
    ] {
        let edit = group("a", json, How::Merge);
        let after = contracts.edited(&edit).expect("nothing is lost").text().to_string();
        assert!(after.contains(written), "{after}");
        assert_eq!(after.matches('#').count(), text.matches('#').count(), "{after}");
    }
    let list = format!("group = [ {{ name = 'a' }}, # first\n]\n{}", &text[..29]);
    let listed = Contracts::parse("pool.toml", &list).expect("good");
    for (contracts, edit, key) in [
        (&contracts, group("a", json!({"max": {"read": null}}), How::Merge), "max"),
        (&contracts, group("a", json!({"max": "1MB/s"}), How::Merge), "max"),
        (&contracts, group("a", json!({"max": {"total": "6MB/s"}}), How::Replace), "max"),
        (&contracts, group("a", json!({"clients": ["uid:0"]}), How::Merge), "clients"),
        (&listed, group("a", json!({"weight": 7}), How::Merge), "group"),
        (&listed, Edit::Remove { kind: Kind::Group, name: "a".into() }, "group"),
    ] {
        let error = contracts.edited(&edit).expect_err(key);
        let told = format!("pool.toml: the value of `{key}` has comments in it");
        assert!(error.error().to_string().starts_with(&told), "{}", error.error());
    }
    contracts.edited(&group("a", json!({"clients": null}), How::Merge)).expect("they go with it");
}

/// Goal: the largest values of a file can be written again. Method: changes beside and of each, and of one that is larger.
#[test]
fn the_largest_values_can_be_changed() {
    let text = "[drive]\nback = 'memory:1GiB'\n[[group]]\nname = 'a'\nmax = { read_iops = 9223372036854775807, read = '15EiB/s' }\n";
    let contracts = Contracts::parse("pool.toml", text).expect("good");
    for json in [json!({"weight": 7}), json!({"max": {"write_iops": i64::MAX, "write": "15EiB/s"}})]
    {
        contracts.edited(&group("a", json, How::Merge)).expect("allowed");
    }
    for number in [json!(1_u64 << 63), json!("9223372036854775808")] {
        let edit = group("a", json!({"max": {"write_iops": number}}), How::Merge);
        let error = contracts.edited(&edit).expect_err("too large");
        let allowed = error.error().allowed.as_deref();
        assert_eq!(allowed, Some("a whole number such as 300, at most 9223372036854775807"));
    }
}

/// Goal: what is not there is removed without a trace. Method: parts of tables that a group does not have.
#[test]
fn nothing_is_removed_of_nothing() {
    for (name, json) in [
        ("batch", json!({"latency": {"sync": null}, "max": {"read": null}})),
        ("tenants/alice", json!({"max": {"total": null}, "latency": {"read": null}})),
    ] {
        assert_eq!(after(&group(name, json, How::Merge)), FILE);
    }
    let edit = group("batch", json!({"latency": {}}), How::Merge);
    assert!(matches!(file().edited(&edit), Err(EditError::Bad(_))));
    let replaced = json!({"max": {"read": null, "write": null, "total": "9MB/s"}});
    let after = after(&group("tenants/alice", replaced, How::Merge));
    assert!(after.contains("max = { total = \"9MB/s\" }"), "{after}");
}

fn keys(json: Json) -> Keys {
    json.as_object().cloned().unwrap_or_default()
}
fn group(name: &str, json: Json, how: How) -> Edit {
    Edit::Set { kind: Kind::Group, name: name.into(), keys: keys(json), how }
}
fn volume(name: &str, json: Json, how: How) -> Edit {
    Edit::Set { kind: Kind::Volume, name: name.into(), keys: keys(json), how }
}
fn file() -> Contracts {
    Contracts::parse("pool.toml", FILE).expect("a good file")
}
fn after(edit: &Edit) -> String {
    file().edited(edit).unwrap_or_else(|error| panic!("{error:?}")).text().to_string()
}

/// Goal: a change touches its own words and nothing else. Method: one key, several, nested ones, none;
/// the text is compared with the old one and the words replaced by hand.
#[test]
fn changes_keep_the_rest_as_it_was() {
    let merge = |json| after(&group("tenants/alice", json, How::Merge));
    assert_eq!(merge(json!({"weight": 500})), FILE.replace("300 ", "500 "));
    assert_eq!(merge(json!({"weight": 300, "max": "50MB/s"})), FILE);
    assert_eq!(merge(json!({"max": null})), FILE.replace("max = \"50MB/s\"\n", ""));
    let split = "max = { read = \"20MB/s\", write = \"50MB/s\" }";
    let split = FILE.replace("max = \"50MB/s\"", split);
    assert_eq!(merge(json!({"max": {"read": "20MB/s"}})), split);
    let both =
        "max = { read = \"50MB/s\", write = \"50MB/s\", burst = \"1MB\", total = \"60MB/s\" }";
    let both = FILE.replace("max = \"50MB/s\"", both);
    assert_eq!(merge(json!({"max": {"total": "60MB/s", "burst": "1MB"}})), both);
    let more = merge(json!({"min": "1MB/s", "max": {"read_iops": 9, "write": null}}));
    let contracts = Contracts::parse("more.toml", &more).expect("a good file");
    let contract = &contracts.groups[0].contract;
    assert_eq!((contract.min, contract.max.iops[0]), (Some(1_000_000), Some(9)));
    assert_eq!(contract.max.bytes_per_s, [Some(50_000_000), None]);
    let replace = after(&group("tenants/alice", json!({"weight": 7}), How::Replace));
    assert_eq!(replace, FILE.replace("300 ", "7 ").replace("max = \"50MB/s\"\n", ""));
}

/// Goal: new things come after their like, removed ones go with their comment. Method: add and remove.
#[test]
fn tables_are_added_and_removed() {
    let text = after(&group("new", json!({"min": "5MB/s", "class": "idle"}), How::Create));
    let written =
        "name = \"batch\"\n\n[[group]]\nname = \"new\"\nmin = \"5MB/s\"\nclass = \"idle\"";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&text), sorted(&FILE.replace("name = \"batch\"", written)));
    let contracts = Contracts::parse("new.toml", &text).expect("a good file");
    assert_eq!(contracts.groups[2].name, "new");
    let without = after(&Edit::Remove { kind: Kind::Group, name: "batch".into() });
    assert_eq!(without, FILE.replace("[[group]]\nname = \"batch\"\n\n", ""));
    let text = after(&volume("b", json!({"group": "batch", "size": "1MiB"}), How::Replace));
    assert_eq!(Contracts::parse("b.toml", &text).expect("good").volumes[1].size_bytes, 1 << 20);
    let text = after(&volume("alice-root", json!({"size": "600MiB"}), How::Merge));
    assert_eq!(text, FILE.replace("512MiB", "600MiB"));
    let inline = "group = [{ name = 'a' }]\n[drive]\nback = 'memory:1GiB'\nstack = 'none-none'\n";
    let inline = Contracts::parse("inline.toml", inline).expect("a good file");
    let edited = inline.edited(&group("b", json!({}), How::Create)).expect("a good change");
    assert_eq!(edited.groups.len(), 2);
}

/// Goal: a new stack keeps the parameters that it understands, or takes those given. Method: away and
/// back, with and without parameters.
#[test]
fn stacks_change_with_their_parameters() {
    let stack = |name: &str, policy: Option<Json>| {
        after(&Edit::Stack { name: name.into(), policy: policy.map(keys), give_up: false })
    };
    let named = stack("complete", None);
    assert_eq!(named, FILE.replace("max+prop-bfq", "complete"));
    let other = stack("max+prop-promise", None);
    assert!(!other.contains("slice_idle") && other.contains("# enough"), "{other}");
    let given = stack("max+prop-bfq", Some(json!({"bfq": {"slice_idle": "2ms"}})));
    assert_eq!(given, FILE.replace("4ms", "2ms"));
    assert!(!stack("max+prop-bfq", Some(json!({}))).contains("slice_idle"));
}

/// Goal: a stack that does not enforce what groups were promised is refused, with all that would be lost; who agrees loses it,
/// and the file says so. Method: no control, with a minimum that says what it reaches alone, too.
#[test]
fn a_stack_gives_up_only_what_is_agreed_to() {
    let stack = |give_up| Edit::Stack { name: "none-mq-deadline".into(), policy: None, give_up };
    let text = FILE.replace("max = ", "min = \"9MB/s\"\nalone = \"90MB/s\"\nmax = ");
    let before = Contracts::parse("pool.toml", &text).expect("a good file");
    let error = before.edited(&stack(false)).expect_err("promises are lost");
    let error = error.error();
    assert!(error.message.contains("`min`, `weight`, `max` of group \"tenants/alice\""), "{error}");
    assert_eq!(error.line(), 10, "{error}");
    let after = before.edited(&stack(true)).expect("agreed to");
    let gone = ["weight = 300          # paid for\n", "max = \"50MB/s\"\n"];
    let lines = gone.iter().fold(FILE.to_string(), |text, line| text.replace(line, ""));
    let table = "[drive.policy.bfq]\nslice_idle = \"4ms\"    # measured\n";
    let lines = lines.replace(table, "").replace("max+prop-bfq", "none-mq-deadline");
    assert_eq!(after.text(), lines);
    let same = |name: &str| Edit::Stack { name: name.into(), policy: None, give_up: true };
    let kept = file().edited(&same("max+prop-bfq")).expect("nothing is lost");
    assert_eq!(kept.text(), FILE);
}

/// Goal: wrong changes are refused with the words that a wrong file gets. Method: one of each kind.
#[test]
fn wrong_changes_are_refused() {
    let refuse = |edit: Edit| file().edited(&edit).expect_err("a wrong change");
    let error = refuse(group("batch", json!({"weight": 5000}), How::Merge));
    let EditError::Bad(error) = error else { panic!("{error:?}") };
    assert_eq!((error.line(), error.allowed.as_deref()), (16, Some("1 to 1000")));
    assert!(error.to_string().contains("weight 5000 is out of range"), "{error}");
    let error = refuse(group("batch", json!({"weigth": 1}), How::Merge));
    assert_eq!(error.error().nearest.as_deref(), Some("weight"));
    let error = refuse(group("bath", json!({}), How::Merge));
    assert!(matches!(error, EditError::Missing(_)), "{error:?}");
    assert_eq!(error.error().nearest.as_deref(), Some("batch"));
    let error = refuse(group("batch", json!({}), How::Create));
    assert!(matches!(error, EditError::Exists(_)), "{error:?}");
    let error = refuse(group("batch", json!({"name": "other"}), How::Merge));
    assert!(error.error().message.contains("cannot be renamed"), "{error:?}");
    let error = refuse(group("batch", json!({"max": [1, null]}), How::Merge));
    assert!(matches!(error, EditError::Bad(_)), "{error:?}");
    let error = refuse(Edit::Remove { kind: Kind::Group, name: "tenants/alice".into() });
    assert!(error.error().message.contains("has volumes: alice-root"), "{error:?}");
    let error = refuse(Edit::Stack { name: "prop-none".into(), policy: None, give_up: false });
    assert!(error.error().message.contains("cannot share"), "{error:?}");
    let error = refuse(Edit::Remove { kind: Kind::Volume, name: "x".into() });
    assert!(matches!(error, EditError::Missing(_)), "{error:?}");
    for (name, message) in [
        ("tenants", "group \"tenants\" has no contract: it is only a part of other groups' paths"),
        ("tenant", "there is no group \"tenant\""),
    ] {
        let error = refuse(Edit::Remove { kind: Kind::Group, name: name.into() });
        assert!(matches!(error, EditError::Missing(_)), "{error:?}");
        assert_eq!(error.error().message, message);
    }
}
