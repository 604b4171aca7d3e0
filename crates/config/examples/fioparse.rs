use std::io::BufRead;
fn main() {
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let text = format!("[a]\nsize=1m\n{line}\n");
        let r = std::panic::catch_unwind(|| {
            iofair_config::fio::parse("a.fio", &text, &Default::default(), &[])
        });
        match r {
            Err(_) => println!("PANIC"),
            Ok(Err(e)) => println!("ERR {}", e.to_string().replace('\n', " | ")),
            Ok(Ok(f)) => match f.problems.first() {
                None => println!("OK"),
                Some(p) => println!(
                    "{} {}",
                    if p.unsupported.is_some() { "UNSUP" } else { "BAD" },
                    p.error.to_string().replace('\n', " | ")
                ),
            },
        }
    }
}
