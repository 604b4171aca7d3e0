// Tables of reports can be sorted, and charts saved. Without this script, a page shows the same.
"use strict";

// The number that a cell begins with; null if it is text.
function number(cell) {
  const found = /^[<≥≤]?\s*(-?\d[\d,]*(\.\d+)?)/.exec(cell.textContent.trim());
  return found ? Number(found[1].replaceAll(",", "")) : null;
}
function sortable(table) {
  const [head, ...rows] = table.rows;
  if (!head || rows.length < 2 || ![...head.cells].every((cell) => cell.tagName === "TH")) return;
  if (rows.some((row) => row.cells.length !== head.cells.length)) return;
  [...head.cells].forEach((cell, column) => {
    if (!cell.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      order(rows, column, down ? -1 : 1);
    });
  });
}
function order(rows, column, sign) {
  // A name that stands for the rows below it, too, is written in each of them.
  rows.forEach((row, index) => {
    const cell = row.cells[0];
    if (!cell.textContent.trim() && index > 0) cell.innerHTML = rows[index - 1].cells[0].innerHTML;
    row.classList.remove("first");
  });
  const keyed = rows.map((row) => ({ row, text: row.cells[column].textContent.trim(), value: number(row.cells[column]) }));
  const numeric = keyed.some((it) => it.value !== null) && keyed.every((it) => it.value !== null || it.text.length < 12);
  keyed.sort((a, b) => {
    if (!numeric) return sign * a.text.localeCompare(b.text);
    // Cells without a number stay at the end.
    if (a.value === null || b.value === null) return (a.value === null) - (b.value === null);
    return sign * (a.value - b.value);
  });
  for (const { row } of keyed) row.parentNode.append(row);
}

// What a picture has from the page's style sheet.
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font-size", "font-family",
  "font-weight", "text-anchor", "display"];

// A chart as a file of its own: its size, its styles, and the ground that it stands on.
function picture(svg) {
  const copy = svg.cloneNode(true), box = svg.getBoundingClientRect();
  const from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, index) => {
    const style = getComputedStyle(element);
    to[index].setAttribute("style", STYLES.map((name) => name + ":" + style.getPropertyValue(name)).join(";"));
  });
  copy.setAttribute("xmlns", svg.namespaceURI);
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  const card = svg.closest(".card") || document.body, ground = document.createElementNS(svg.namespaceURI, "rect");
  const [x, y, width, height] = (copy.getAttribute("viewBox") || "0 0 " + box.width + " " + box.height).split(/[\s,]+/);
  for (const [name, value] of Object.entries({ x, y, width, height })) ground.setAttribute(name, value);
  ground.setAttribute("style", "fill:" + getComputedStyle(card).backgroundColor);
  copy.prepend(ground);
  return { text: new XMLSerializer().serializeToString(copy), width: box.width, height: box.height };
}
function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function savePng({ text, width, height }, name) {
  const image = new Image(), canvas = document.createElement("canvas");
  // Twice as fine as on the screen.
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  image.onload = () => {
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, name));
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
}
function saveable(svg, index) {
  const near = svg.parentElement.querySelector("h3"), title = near ? near.textContent : document.title;
  const name = title.trim().replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) + "-" + (index + 1);
  const place = document.createElement("div");
  place.className = "save";
  for (const [kind, act] of [
    ["SVG", () => save(new Blob([picture(svg).text], { type: "image/svg+xml" }), name + ".svg")],
    ["PNG", () => savePng(picture(svg), name + ".png")],
  ]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.setAttribute("aria-label", "Save as " + kind + ": " + title);
    button.addEventListener("click", act);
    place.append(button);
  }
  svg.after(place);
}

document.querySelectorAll("table").forEach(sortable);
[...document.querySelectorAll("svg")].filter((svg) => (svg.getBoundingClientRect().width || Number(svg.getAttribute("width"))) > 150).forEach(saveable);
