// Small parts of the page, made of elements; texts never become markup.

function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
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

function bar(resource, free, total) {
  const used = el("b");
  used.style.width = `${total ? Math.round(100 * (1 - free / total)) : 0}%`;
  const text = `${amount(resource, free)} of ${amount(resource, total)} free`;
  return el("span", { className: "bar", title: `${resource}: ${text}` },
    shortName(resource), el("i", {}, used), isBytes(resource) ? bytes(free) : `${free}/${total}`);
}

function zoneRow(node, zone) {
  const bars = Object.entries(zone.memory).map(([name, [free, total]]) => bar(name, free, total));
  bars.push(...Object.entries(zone.devices).map(([name, [free, total]]) => bar(name, free, total)));
  const cells = el("canvas", { role: "img",
    "aria-label": `zone ${zone.id}: ${zone.free} of ${zone.cpus} CPUs free` });
  cells.dataset.zone = zone.id;
  return el("div", { className: "zone" },
    el("span", { className: "id", title: `NUMA zone ${zone.id}` }, String(zone.id)), cells,
    el("span", { className: "count", title: "free CPUs of this zone" }, `${zone.free}/${zone.cpus}`),
    el("div", { className: "bars" }, ...bars));
}

function nodeCard(node) {
  const free = node.zones.reduce((sum, zone) => sum + zone.free, 0);
  const card = el("article", { className: "node", tabIndex: 0, "aria-label": `node ${node.name}` },
    el("header", {}, el("h3", {}, node.name),
      el("span", {}, node.policy ? `${node.policy} · ${free} free` : "")),
    node.trust ? el("p", { className: "trouble" }, node.trust) : null,
    ...node.zones.map((zone) => zoneRow(node, zone)));
  card.dataset.node = node.name;
  return card;
}

function table(heads, rows) {
  return el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell ?? ""))))));
}

function heldTable(pod) {
  return table(["container", "CPUs", "memory", "devices"], (pod.containers ?? []).map((each) => [
    each.name || "(whole pod)", each.cpus,
    each.memory.map(([name, zones, size]) =>
      `${bytes(size)}${name === "memory" ? "" : ` of ${name}`} in zone ${zones}`).join(", "),
    each.devices.map(([name, ids]) => `${shortName(name)}: ${ids.map(([id, zones]) =>
      `${id} (${zones === null ? "no zone" : `zone ${zones}`})`).join(", ")}`).join("; "),
  ]));
}

// One node's answer for a pod: whether it fits, and what is short in which zone.
function answerRow(answer, chosen, open) {
  const zones = answer.fits ? [] : answer.zones.map((zone) => {
    const parts = Object.keys(zone.wanted).map((name) => {
      const short = zone.short[name];
      return `${name} ${amount(name, zone.free[name])} free of ${amount(name, zone.wanted[name])} wanted`
        + (short ? ` (${amount(name, short)} short)` : "");
    });
    return el("div", { className: "soft" }, `zone ${zone.zone}: ${parts.join("; ") || "nothing is short"}`);
  });
  const totals = answer.fits ? [] : Object.entries(answer.totals ?? {}).map(([name, [wanted, free]]) => {
    const told = (value) => name === "cpu" ? String(value / 1000) : amount(name, value);
    return `${name} ${told(free)} free of ${told(wanted)} wanted`;
  });
  const lands = Object.entries(answer.lands ?? {}).filter(([, ids]) => ids.length)
    .map(([name, ids]) => `${name} in zone ${ids.join("+")}`).join(", ");
  const verdict = answer.fits ? `fits${lands ? `: ${lands}` : ""}` : answer.reason;
  return el("li", {},
    el("button", { type: "button", className: "link", onclick: () => open(answer.node) }, answer.node),
    " ", el("span", { className: answer.fits ? "yes" : "no" },
      `${answer.node === chosen ? "✓ best, " : answer.fits ? "✓ " : "✗ "}${verdict}`),
    answer.fits || !answer.message || answer.message === answer.reason ? null
      : el("div", { className: "soft" }, answer.message),
    ...zones,
    totals.length ? el("div", { className: "soft" }, `node totals: ${totals.join("; ")}`) : null,
    answer.would_help?.length
      ? el("div", { className: "soft" }, `would fit without ${answer.would_help.join(", ")}`) : null);
}

const MOST_ANSWERS = 50;

function answerList(answer, open) {
  const fitting = answer.nodes.filter((each) => each.fits).length;
  const rows = answer.nodes.slice(0, MOST_ANSWERS).map((each) => answerRow(each, answer.chosen, open));
  const rest = answer.nodes.length - rows.length;
  return el("div", {},
    el("p", {}, answer.problem ? `It can go nowhere: ${answer.problem}`
      : `${fitting} of ${count(answer.nodes.length, "node")} would take ${answer.bound ? "a pod like it" : "it"}.`),
    el("ol", {}, ...rows, rest > 0 ? el("li", { className: "soft" }, `and ${rest} more`) : null));
}

const SVG = "http://www.w3.org/2000/svg";

function curve(points, key, most, colour, dash) {
  const line = document.createElementNS(SVG, "polyline");
  const first = points[0].at;
  const span = Math.max(1, points[points.length - 1].at - first);
  line.setAttribute("points", points.map((point) =>
    `${(300 * (point.at - first) / span).toFixed(1)},${(98 - 94 * point[key] / most).toFixed(1)}`).join(" "));
  line.setAttribute("fill", "none");
  line.setAttribute("stroke", colour);
  line.setAttribute("stroke-width", "2");
  line.setAttribute("stroke-dasharray", dash);
  line.setAttribute("vector-effect", "non-scaling-stroke");
  return line;
}

const CURVES = [
  ["free", "free CPUs", "#0072b2", ""],
  ["largest", "largest free zone", "#d55e00", "6 3"],
  ["stranded", "free outside their node's emptiest zone", "#009e73", "2 3"],
];

function curves(points) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 300 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "free CPUs, the largest free zone and stranded CPUs over time");
  const last = points[points.length - 1];
  // Free and stranded CPUs are parts of one sum; the largest zone has a scale of its own.
  const all = Math.max(1, ...points.map((point) => Math.max(point.free, point.stranded)));
  const zone = 1.25 * Math.max(1, ...points.map((point) => point.largest));
  const line = points.length > 1 ? points : [{ ...last, at: last.at - 1 }, last];
  for (const [key, , colour, dash] of CURVES) svg.append(curve(line, key, key === "largest" ? zone : all, colour, dash));
  const caption = el("figcaption", {}, ...CURVES.map(([key, name, colour]) => {
    const swatch = el("i", { className: "swatch" });
    swatch.style.background = colour;
    return el("span", {}, swatch, `${name}: ${last[key].toLocaleString("en")}`);
  }));
  return [svg, caption];
}
