// The live page: draws what the server sends, once a second. It sends nothing but the request for events.
"use strict";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// The newest look and the one before, and the rates of each group: {fine, coarse, broken}, newest last.
let look = null, before = null, groups = 0;
let tracks = new Map(), fineSeconds = 1, coarseSeconds = 10, ticks = 0;
let chosen = null, minutes = 5, sort = { key: null, down: true };
const FINE = 300, COARSE = 360;

function element(name, attributes, ...children) {
  const it = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) it.setAttribute(key, value);
  it.append(...children);
  return it;
}
function drawn(name, attributes, text) {
  const it = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
  if (text !== undefined) it.textContent = text;
  return it;
}

// Numbers with three digits.
function digits(value) {
  if (value === 0) return "0";
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
function rate(bytes) {
  if (bytes === 0) return "0";
  if (bytes >= 1e9) return digits(bytes / 1e9) + " GB/s";
  if (bytes >= 1e6) return digits(bytes / 1e6) + " MB/s";
  return digits(bytes / 1e3) + " kB/s";
}
function time(seconds) {
  if (seconds === null) return "-";
  if (seconds >= 1) return digits(seconds) + " s";
  return seconds >= 1e-3 ? digits(seconds * 1e3) + " ms" : digits(seconds * 1e6) + " µs";
}
function span(seconds) {
  const [d, h, m] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (d > 0) return d + " d " + (h % 24) + " h";
  if (h > 0) return h + " h " + (m % 60) + " min";
  return m > 0 ? m + " min " + Math.floor(seconds % 60) + " s" : Math.floor(seconds) + " s";
}
function promise(group) {
  if (group.min_bytes_per_second !== null) return rate(group.min_bytes_per_second);
  return group.min_ios_per_second !== null ? group.min_ios_per_second + " IO/s" : "-";
}

// The time within which 99 of 100 requests since the look before took a step.
function p99(group, step) {
  const old = before && before.groups.find((it) => it.name === group.name);
  const passed = group.steps[step].counts.map((n, i) => Math.max(0, n - (old ? old.steps[step].counts[i] : n)));
  const total = passed.reduce((a, b) => a + b, 0), bounds = look.bucket_bounds_seconds;
  if (total === 0) return null;
  let seen = 0;
  const at = passed.findIndex((n) => (seen += n) >= Math.ceil(total * 0.99));
  return bounds[Math.min(at, bounds.length - 1)];
}

const COLUMNS = [
  { key: "name", title: "Group", of: (g) => g.name },
  { key: "weight", title: "Weight", of: (g) => g.weight },
  { key: "min", title: "Minimum", of: (g) => g.min_bytes_per_second ?? g.min_ios_per_second ?? 0, text: promise },
  { key: "promised", title: "Share by weight", of: (g) => g.share_promised, text: (g) => percent(g.share_promised) },
  { key: "got", title: "Share of bytes", of: (g) => g.share_got, text: (g) => percent(g.share_got) },
  { key: "rate", title: "Rate", of: (g) => g.bytes_per_second, text: (g) => rate(g.bytes_per_second) },
  { key: "last", title: "5 minutes", picture: true },
  ...["held", "queued", "drive"].map((step, index) => (
    { key: step, title: "p99 " + step, of: (g) => p99(g, index) ?? -1, text: (g) => time(p99(g, index)) })),
  { key: "broken", title: "Broken", of: (g) => g.broken_promise_seconds,
    text: (g) => g.broken_promise_seconds + " s", bad: (g) => g.broken_promise_seconds > 0 },
  { key: "why", title: "What holds it back", left: true, of: (g) => g.why || "", text: (g) => g.why || "" },
];
function percent(part) { return part === null ? "-" : (100 * part).toFixed(1) + " %"; }

function heads() {
  for (const column of COLUMNS) {
    const cell = element("th", { scope: "col", class: column.left ? "left" : "" });
    if (column.of) {
      const button = element("button", { type: "button" }, column.title);
      button.addEventListener("click", () => {
        sort = sort.key === column.key && !sort.down ? { key: null, down: true }
          : { key: column.key, down: sort.key !== column.key };
        table();
      });
      cell.append(button);
    } else cell.append(column.title);
    column.head = cell;
    $("head").append(cell);
  }
}

// Groups in order: a tree, or sorted by a column.
function ordered() {
  const all = [...look.groups], column = COLUMNS.find((it) => it.key === sort.key);
  if (!column) return all.sort((a, b) => path(a).localeCompare(path(b)));
  const sign = sort.down ? -1 : 1;
  return all.sort((a, b) => {
    const [x, y] = [column.of(a), column.of(b)];
    return sign * (typeof x === "string" ? x.localeCompare(y) : x - y) || a.name.localeCompare(b.name);
  });
}
// Groups inside a group follow it.
function path(group) { return group.name.replaceAll("/", "\u0001"); }

// Rows are kept by name, so that the focus stays where it is.
const rows = new Map();
function table() {
  if (!look) return;
  for (const column of COLUMNS) {
    if (sort.key !== column.key) column.head.removeAttribute("aria-sort");
    else column.head.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
  }
  const shown = ordered(), names = new Set(shown.map((group) => group.name));
  for (const [name, row] of rows) if (!names.has(name)) { row.remove(); rows.delete(name); }
  shown.forEach((group, index) => {
    let row = rows.get(group.name);
    if (!row) { row = newRow(group.name); rows.set(group.name, row); }
    fill(row, group);
    const there = $("rows").children[index];
    if (there !== row) $("rows").insertBefore(row, there || null);
  });
  const focusable = rows.get(chosen) || $("rows").firstElementChild;
  for (const row of rows.values()) row.tabIndex = row === focusable ? 0 : -1;
  const more = groups - shown.length, are = more === 1 ? " more group is" : " more groups are";
  $("more").textContent = more > 0 ? more + are + " not shown here; iofair top shows all." : "";
}
function newRow(name) {
  const row = element("tr", {});
  for (const column of COLUMNS) row.append(element("td", { class: column.left ? "left" : "" }));
  row.addEventListener("click", () => choose(name));
  row.addEventListener("focus", () => choose(name));
  return row;
}
function fill(row, group) {
  row.setAttribute("aria-selected", String(group.name === chosen));
  COLUMNS.forEach((column, index) => {
    const cell = row.children[index];
    if (column.picture) { spark(cell, tracks.get(group.name)); return; }
    let text = String((column.text || column.of)(group));
    if (column.key === "name") {
      const depth = sort.key ? 0 : group.name.split("/").length - 1;
      cell.style.paddingLeft = 0.5 + depth + "rem";
      if (!sort.key) text = group.name.split("/").pop();
      cell.title = group.name;
    }
    if (column.left) cell.title = text;
    if (cell.textContent !== text) cell.textContent = text;
    if (column.bad) cell.classList.toggle("bad", column.bad(group));
  });
}
function choose(name) {
  if (chosen === name) return;
  chosen = name;
  table();
  chart();
}

// The part of the rate's history that a chart of so many minutes shows: [seconds ago, bytes a second], oldest first.
function points(track, length) {
  if (!track) return [];
  if (length <= 5) return track.fine.map((value, i) => [(track.fine.length - 1 - i) * fineSeconds, value]);
  const late = ticks % coarseSeconds;
  return track.coarse.map((value, i) => [(track.coarse.length - 1 - i) * coarseSeconds + late, value]);
}
function line(list, seconds, most, [width, height, left, top]) {
  return list.filter(([ago]) => ago <= seconds).map(([ago, value]) =>
    (left + width * (1 - ago / seconds)).toFixed(1) + "," + (top + height * (1 - value / most)).toFixed(1));
}
function spark(cell, track) {
  let picture = cell.firstElementChild;
  if (!picture) {
    picture = drawn("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" });
    picture.append(drawn("polyline", { class: "curve" }));
    cell.append(picture);
  }
  const list = points(track, 5), most = Math.max(1, ...list.map(([, value]) => value));
  picture.firstElementChild.setAttribute("points", line(list, 300, most, [100, 18, 0, 1]).join(" "));
}
// A round number not below this one.
function round(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((n) => n * unit).find((n) => n >= value);
}
function chart() {
  if (!look) return;
  const group = look.groups.find((it) => it.name === chosen), track = tracks.get(group ? chosen : "");
  $("shown").textContent = group ? chosen : "All groups";
  $("why").textContent = group ? group.why || "nothing waits" : "";
  const seconds = minutes * 60, list = points(track, minutes);
  const least = group ? group.min_bytes_per_second : null;
  const most = round(Math.max(1e3, least || 0, ...list.map(([, value]) => value)) * 1.05);
  // A unit of the picture is a pixel, so that letters have their size on any screen.
  const svg = $("chart"), parts = [], whole = Math.max(280, svg.clientWidth);
  const [width, height, left, top] = [whole - 90, 160, 80, 10], box = [width, height, left, top];
  svg.setAttribute("viewBox", "0 0 " + whole + " 200");
  for (const part of [0, 0.5, 1]) {
    const y = top + height * (1 - part);
    parts.push(drawn("line", { class: "axis", x1: left, x2: left + width, y1: y, y2: y }),
      drawn("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, rate(most * part)));
  }
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const ago = seconds * (1 - part), seldom = part % 0.5 !== 0 && whole < 500,
      text = seldom ? "" : ago === 0 ? "now" : minutes > 5 ? "-" + ago / 60 + " min" : "-" + ago + " s";
    parts.push(drawn("text", { x: left + width * part, y: top + height + 20, "text-anchor": part === 1 ? "end" : "middle" }, text));
  }
  const curve = line(list, seconds, most, box);
  if (curve.length > 1) {
    const [first] = curve[0].split(","), [last] = curve[curve.length - 1].split(","), base = top + height;
    parts.push(drawn("polygon", { class: "area", points: first + "," + base + " " + curve.join(" ") + " " + last + "," + base }),
      drawn("polyline", { class: "curve", points: curve.join(" ") }));
  }
  if (least !== null) {
    const y = top + height * (1 - least / most);
    parts.push(drawn("line", { class: "least", x1: left, x2: left + width, y1: y, y2: y }));
  }
  const breaks = (track ? track.broken : []).map((at) => ticks - at).filter((ago) => ago <= seconds);
  for (const ago of breaks) {
    parts.push(drawn("circle", { class: "broken", cx: left + width * (1 - ago / seconds), cy: top + height - 4, r: 3 }));
  }
  svg.replaceChildren(...parts);
  const now = list.length ? list[list.length - 1][1] : 0, notes = [rate(now) + " now"];
  if (least !== null) notes.push("the dashed line is the minimum of " + rate(least));
  if (breaks.length) notes.push("dots mark seconds in which it was not kept");
  $("caption").textContent = "Bytes a second, " + (minutes > 5 ? "means of 10 seconds: " : "each second: ") + notes.join("; ") + ".";
}

function server() {
  const busy = before && look.uptime_seconds > before.uptime_seconds
    ? (look.drive_busy_seconds - before.drive_busy_seconds) / (look.uptime_seconds - before.uptime_seconds) : null;
  const facts = [["stack", look.stack], ["up for", span(look.uptime_seconds)],
    ["drive busy", busy === null ? "-" : percent(Math.min(1, Math.max(0, busy)))],
    ["at the drive", look.drive_commands + " of " + look.drive_depth],
    ["requests", look.requests_in_flight], ["connections", look.connections]];
  $("server").replaceChildren(...facts.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
}

function onHistory(data) {
  fineSeconds = data.fine_seconds;
  coarseSeconds = data.coarse_seconds;
  ticks = 0;
  look = before = null;
  tracks = new Map(Object.entries(data.groups).map(([name, it]) =>
    [name, { fine: it.fine, coarse: it.coarse, broken: it.broken_seconds_ago.map((ago) => -ago), seconds: null }]));
}
function onLook(data) {
  before = look;
  look = data.live;
  groups = data.groups;
  ticks += 1;
  const outermost = look.groups.filter((group) => !group.name.includes("/"));
  keep("", outermost.reduce((sum, group) => sum + group.bytes_per_second, 0), 0);
  for (const group of look.groups) keep(group.name, group.bytes_per_second, group.broken_promise_seconds);
  if (chosen !== null && !look.groups.some((group) => group.name === chosen)) chosen = null;
  server();
  table();
  chart();
}
function keep(name, value, broken) {
  let track = tracks.get(name);
  if (!track) { track = { fine: [], coarse: [], broken: [], seconds: null }; tracks.set(name, track); }
  track.fine.push(value);
  if (track.fine.length > FINE) track.fine.shift();
  if (ticks % coarseSeconds === 0) {
    const last = track.fine.slice(-coarseSeconds);
    track.coarse.push(last.reduce((a, b) => a + b, 0) / last.length);
    if (track.coarse.length > COARSE) track.coarse.shift();
  }
  if (track.seconds !== null && broken > track.seconds) track.broken.push(ticks);
  track.seconds = broken;
}

function listen() {
  const events = new EventSource("events");
  const state = (text, bad) => { $("state").textContent = text; $("state").classList.toggle("bad", bad); };
  events.addEventListener("history", (event) => onHistory(JSON.parse(event.data)));
  events.addEventListener("look", (event) => {
    onLook(JSON.parse(event.data));
    const failures = (look.failures || []).map((failure) => failure.text);
    state(failures.join("; ") || "live", failures.length > 0);
  });
  events.onerror = () => {
    state("no connection to the server; trying again", true);
    // A browser does not try again after a refusal.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}
function keys(event) {
  if (event.key === "Escape" && chosen !== null) { choose(null); return; }
  const list = [...$("rows").children], at = list.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1, Home: -list.length, End: list.length }[event.key];
  if (step === undefined || list.length === 0 || at < 0) return;
  event.preventDefault();
  const row = list[Math.max(0, Math.min(list.length - 1, at + step))];
  row.tabIndex = 0;
  row.focus();
}

heads();
for (const button of document.querySelectorAll("[data-minutes]")) {
  button.addEventListener("click", () => {
    minutes = Number(button.dataset.minutes);
    for (const other of document.querySelectorAll("[data-minutes]")) other.setAttribute("aria-pressed", String(other === button));
    chart();
  });
}
document.addEventListener("keydown", keys);
window.addEventListener("resize", chart);
listen();
