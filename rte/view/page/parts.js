// Small parts of the page, made of elements; texts never become markup.

const $ = (id) => document.getElementById(id);

function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// Makes `old` like `made` and keeps the elements that stay, so that focus, selection, what is unfolded
// and what is painted survive. Children with data-key are told apart by it, others by their place.
function morph(old, made) {
  const focused = document.activeElement;
  morphChildren(old, made);
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

function morphChildren(old, made) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let place = old.firstChild;
  for (const next of [...made.childNodes]) {
    const key = next.dataset?.key;
    const kept = key ? keyed.get(key) : place;
    if (!kept || kept.nodeName !== next.nodeName || kept.dataset?.key !== key) {
      old.insertBefore(next, place);
      continue;
    }
    if (kept === place) place = place.nextSibling;
    else old.insertBefore(kept, place);
    morphOne(kept, next);
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}

// What a reader changes (an unfolded part, a text) and what was painted is not ours to reset.
const KEPT = { CANVAS: ["width", "height", "style"], DETAILS: ["open"] };

function morphOne(old, made) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  const kept = KEPT[old.nodeName] ?? [];
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    if (kept.includes(name) || old.getAttribute(name) === value) continue;
    // The policy of the page forbids style attributes, but not styles that a script sets.
    if (name === "style") old.style.cssText = made.style.cssText;
    else old.setAttribute(name, value);
  }
  morphChildren(old, made);
}

function fill(element, ...children) {
  morph(element, el(element.localName, {}, ...children));
}

// A button that changes what the link says; one listener serves them all.
function goTo(text, change, properties = {}) {
  return el("button", { type: "button", className: "link", "data-go": JSON.stringify(change), ...properties }, text);
}

const toNode = (name) => goTo(name, { node: name, pod: "", gang: "" });
const toPod = (name) => goTo(name, { pod: name, node: "", gang: "" });
const toGang = (name) => goTo(name, { gang: name, node: "", pod: "" });

function toTime(at) {
  return el("button", { type: "button", className: "link", title: "show this moment", "data-at": at }, clock(at));
}

function bytes(amount) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) { amount /= 1024; unit++; }
  return `${amount >= 100 || amount % 1 === 0 ? Math.round(amount) : amount.toFixed(1)} ${units[unit]}`;
}

function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function isBytes(resource) {
  return resource === "memory" || resource.startsWith("hugepages-");
}

function amount(resource, value) {
  return isBytes(resource) ? bytes(value) : String(value);
}

function shortName(resource) {
  return resource === "memory" ? "mem" : resource.replace(/^hugepages-/, "huge ").replace(/^.*\//, "");
}

function byName(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

function zonesText(zones) {
  const runs = [];
  for (const zone of zones ?? []) {
    const last = runs.at(-1);
    if (last && zone === last[1] + 1) last[1] = zone; else runs.push([zone, zone]);
  }
  const list = runs.map(([first, last]) => first === last ? first : `${first}-${last}`).join(",");
  return zones?.length ? `zone${zones.length > 1 ? "s" : ""} ${list}` : "";
}

function total(zones, key) {
  return zones.reduce((sum, zone) => sum + zone[key], 0);
}

function bar(resource, free, all) {
  const used = el("b");
  used.style.width = `${all ? Math.round(100 * (1 - free / all)) : 0}%`;
  const text = `${amount(resource, free)} of ${amount(resource, all)} free`;
  return el("span", { className: "bar", title: `${resource}: ${text}` },
    shortName(resource), el("i", {}, used), isBytes(resource) ? bytes(free) : `${free}/${all}`);
}

function table(heads, rows) {
  return el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell ?? ""))))));
}
