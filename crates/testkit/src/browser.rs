//! Chromium without a window, through chromedriver and its HTTP interface (W3C WebDriver).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::directory::Directory;

/// The key of an element's id in answers, by the standard.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one page.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: Directory,
}

impl Browser {
    pub fn start() -> Self {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().unwrap();
        // "ChromeDriver was started successfully on port N."
        let told = BufReader::new(driver.stdout.take().unwrap()).lines().find_map(|line| {
            line.unwrap().split_once("successfully on port ").map(|(_, port)| port.to_string())
        });
        let port = told.unwrap().trim_end_matches('.').parse().unwrap();
        let profile = Directory::new();
        let mut this = Self { driver, port, session: String::new(), _profile: profile };
        let data = format!("--user-data-dir={}", this._profile.path("profile"));
        let mut arguments = vec![data.as_str(), "--headless", "--no-sandbox", "--disable-gpu"];
        // It would look for hosts of its maker otherwise.
        arguments.extend(["--no-first-run", "--disable-background-networking"]);
        arguments.extend(["--disable-component-update", "--disable-sync"]);
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": wanted } });
        let session = this.call("POST", "/session", &wanted);
        this.session = session["sessionId"].as_str().unwrap().to_string();
        this
    }
    fn call(&self, method: &str, path: &str, body: &Json) -> Json {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}",
            self.port
        )
        .unwrap();
        // It keeps the connection whatever it is asked.
        let (mut reader, mut head, mut length) = (BufReader::new(stream), String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let from = head.len();
            assert!(reader.read_line(&mut head).unwrap() > 0, "{method} {path}: {head}");
            let line = head[from..].to_ascii_lowercase();
            length =
                line.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let told = String::from_utf8_lossy(&body);
        assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {told}");
        serde_json::from_slice::<Json>(&body).unwrap()["value"].take()
    }
    fn of_session(&self, path: &str, body: &Json) -> Json {
        self.call("POST", &format!("/session/{}{path}", self.session), body)
    }
    pub fn open(&self, url: &str) {
        self.of_session("/url", &json!({ "url": url }));
    }
    /// Gives the window this size.
    pub fn resize(&self, width: u32, height: u32) {
        self.of_session("/window/rect", &json!({ "width": width, "height": height }));
    }
    /// What a script returns.
    pub fn run(&self, script: &str) -> Json {
        self.of_session("/execute/sync", &json!({ "script": script, "args": [] }))
    }
    /// Waits until a script returns true.
    pub fn wait_for(&self, script: &str) {
        for _ in 0..600 {
            if self.run(script) == true {
                return;
            }
            sleep(Duration::from_millis(100));
        }
        panic!("never: {script}; {}", self.run("return document.body.innerText"));
    }
    fn element(&self, selector: &str) -> String {
        let wanted = json!({ "using": "css selector", "value": selector });
        self.of_session("/element", &wanted)[ELEMENT].as_str().unwrap().to_string()
    }
    pub fn click(&self, selector: &str) {
        self.of_session(&format!("/element/{}/click", self.element(selector)), &json!({}));
    }
    /// Presses keys while an element has the focus.
    pub fn press(&self, selector: &str, keys: &str) {
        let path = format!("/element/{}/value", self.element(selector));
        self.of_session(&path, &json!({ "text": keys }));
    }
    /// What the console shows.
    pub fn console(&self) -> Vec<String> {
        let entries = self.of_session("/se/log", &json!({ "type": "browser" }));
        let text = |entry: &Json| entry["message"].as_str().unwrap().to_string();
        entries.as_array().unwrap().iter().map(text).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.call("DELETE", &format!("/session/{}", self.session), &Json::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
