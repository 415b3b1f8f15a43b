// Nodes as cards, as rows or as tiles.

// With more nodes than that, zones are shown when a pool or a search leaves fewer.
const MOST_ZONED = 600;
// Up to so many nodes are cards, and up to so many rows, unless somebody chooses.
const MOST_CARDS = 60, MOST_ROWS = 200;
// Largest and smallest cell.
const SIZES = { cards: [14, 8], rows: [9, 5], detail: [18, 8] };

// Name -> its element; pool -> names of its nodes and the element that sums them up.
const cards = new Map();
const sections = new Map();
const lazily = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) paintCard(entry.target, form);
}, { rootMargin: "300px" });
let form = "cards";
let atNode = "";

function formOf(number) {
  const wanted = link.as || (number <= MOST_CARDS ? "cards" : number <= MOST_ROWS ? "rows" : "tiles");
  return number > MOST_ZONED ? "tiles" : wanted;
}

function matches(node) {
  if (link.pool && node.pool !== link.pool) return false;
  const zones = node.zones;
  const kept = {
    room: () => zones.some((zone) => zone.free),
    full: () => zones.some((zone) => !zone.free && zone.cpus),
    crossing: () => node.pods.some((pod) => pod.aligned === false),
    trouble: () => node.trust,
    tried: () => triedOn(node),
  }[link.show];
  if (kept && !kept()) return false;
  return !link.q || hasWords(node.name) || hasWords(node.pool) || node.pods.some(podHasWords);
}

function hasWords(text) {
  return Boolean(text) && text.toLowerCase().includes(link.q.toLowerCase());
}

function podHasWords(pod) {
  return hasWords(pod.pod) || hasWords(pod.gang);
}

function pools(nodes) {
  const out = new Map();
  for (const node of nodes) {
    if (!out.has(node.pool)) out.set(node.pool, []);
    out.get(node.pool).push(node);
  }
  return [...out].sort(([a], [b]) => byName(a, b));
}

function summary(nodes) {
  const zones = nodes.flatMap((node) => node.zones);
  const largest = zones.reduce((most, zone) => Math.max(most, zone.free), 0);
  return `${count(nodes.length, "node")} · ${total(zones, "free").toLocaleString("en")} of `
    + `${count(total(zones, "cpus"), "CPU")} free · largest free zone ${largest}`;
}

function drawNodes() {
  cards.clear();
  sections.clear();
  lazily.disconnect();
  const wanted = [...shown.nodes.values()].filter(matches).sort((a, b) => byName(a.name, b.name));
  form = formOf(wanted.length);
  if (!wanted.some((node) => node.name === atNode)) atNode = wanted[0]?.name ?? "";
  const notes = [];
  if (!wanted.length) notes.push(shown.nodes.size ? "No node is like that." : "There is no node.");
  if (link.as && link.as !== form && wanted.length) {
    notes.push(`${count(wanted.length, "node")} are shown as tiles: choose a pool, or search, to see zones.`);
  }
  fill($("nodes"), ...notes.map((note) => el("p", { className: "soft" }, note)),
    ...pools(wanted).map(([name, nodes]) => el("section", { className: "pool", "data-key": name },
      el("h2", {}, name, el("small", {}, summary(nodes))),
      el("div", { className: `grid ${form}` }, ...nodes.map(nodeElement)))));
  for (const element of $("nodes").querySelectorAll("[data-node]")) cards.set(element.dataset.node, element);
  for (const section of $("nodes").querySelectorAll(".pool")) {
    const names = new Set([...section.querySelectorAll("[data-node]")].map((each) => each.dataset.node));
    sections.set(section.dataset.key, { names, sum: section.querySelector("small") });
  }
  if (form !== "tiles") reserveRoom();
}

// Canvases get their height before they are painted, so that nothing moves when they are.
function reserveRoom() {
  const widths = new Map();
  for (const [name, element] of cards) {
    const cores = coresOf(shown.nodes.get(name));
    const canvases = element.querySelectorAll("canvas");
    for (const canvas of canvases) {
      if (!widths.has(canvases.length)) widths.set(canvases.length, canvas.clientWidth);
      const width = widths.get(canvases.length);
      canvas.style.height = `${layout(cores.get(canvas.dataset.zone) ?? [], width, ...SIZES[form]).height}px`;
    }
  }
  for (const element of cards.values()) lazily.observe(element);
}

function drawSection(section) {
  section.sum.textContent = summary([...section.names].map((name) => shown.nodes.get(name)));
}

function nodeElement(node) {
  const made = form === "tiles" ? tile(node) : nodeCard(node);
  made.classList.toggle("open", node.name === link.node);
  made.classList.toggle("tried", Boolean(triedOn(node)));
  made.dataset.node = made.dataset.key = node.name;
  return made;
}

function redrawNode(old, node) {
  morphOne(old, nodeElement(node));
  if (form === "tiles") return;
  lazily.unobserve(old);
  lazily.observe(old);
}

function zoneCanvas(zone) {
  const text = `zone ${zone.id}: ${zone.free} of ${count(zone.cpus, "CPU")} free`;
  return el("canvas", { role: "img", "aria-label": text, "data-zone": zone.id });
}

function zoneRow(zone) {
  const amounts = [...Object.entries(zone.memory), ...Object.entries(zone.devices)];
  return el("div", { className: "zone" },
    el("span", { className: "id" }, `zone ${zone.id}`), zoneCanvas(zone),
    el("span", { className: "count", title: "free CPUs of this zone" }, `${zone.free}/${zone.cpus}`),
    el("div", { className: "bars" }, ...amounts.map(([name, [free, all]]) => bar(name, free, all))));
}

function nameButton(node) {
  return goTo(node.name, { node: node.name, pod: "", gang: "" }, { tabIndex: node.name === atNode ? 0 : -1 });
}

function nodeCard(node) {
  const free = `${total(node.zones, "free")} free`;
  const tried = triedOn(node);
  const head = el("header", {}, el("h3", {}, nameButton(node)),
    tried ? el("span", { className: "badge" }, `what if: CPUs ${tried}`) : null,
    el("span", {}, form === "cards" && node.policy ? `${node.policy} · ${free}` : node.zones.length ? free : ""));
  const zones = form === "rows" ? [el("div", { className: "strip" }, ...node.zones.map(zoneCanvas))]
    : node.zones.map(zoneRow);
  return el("article", { className: "node", "aria-label": `node ${node.name}` }, head,
    node.trust ? el("p", { className: "trouble" }, node.trust) : null, ...zones);
}

// A zone is a column of the tile, filled from below as far as its CPUs are taken.
function tile(node) {
  const zones = node.zones.length <= 8 ? node.zones
    : [{ free: total(node.zones, "free"), cpus: total(node.zones, "cpus") }];
  const text = node.trust || node.zones.map((zone) => `zone ${zone.id}: ${zone.free} of ${zone.cpus} CPUs free`).join("\n");
  const made = goTo("", { node: node.name, pod: "", gang: "" },
    { tabIndex: node.name === atNode ? 0 : -1, "aria-label": `node ${node.name}: ${text.replaceAll("\n", ", ")}` });
  made.className = node.trust ? "tile sick" : "tile";
  if (!node.trust) {
    made.style.backgroundImage = zones.map(() => "linear-gradient(var(--bar), var(--bar))").join(", ");
    made.style.backgroundSize = zones.map((zone) =>
      `${80 / zones.length}% ${zone.cpus ? Math.round(100 * (1 - zone.free / zone.cpus)) : 100}%`).join(", ");
    made.style.backgroundPosition = zones.map((_, place) =>
      `${zones.length > 1 ? (100 * place) / (zones.length - 1) : 50}% 100%`).join(", ");
  }
  return made;
}

function coresOf(node) {
  const zones = machines[node?.machine]?.zones ?? [];
  return new Map(zones.map((zone) => [String(zone.id), zone.cores]));
}

function paintCard(element, as) {
  const node = shown.nodes.get(element.dataset.node);
  if (!node) return;
  const held = ownersOf(node);
  const cores = coresOf(node);
  for (const canvas of element.querySelectorAll("canvas[data-zone]")) {
    paintZone(canvas, cores.get(canvas.dataset.zone) ?? [], held, SIZES[as]);
  }
}

function repaint() {
  if (form !== "tiles" && cards.size) {
    lazily.disconnect();
    reserveRoom();
  }
  const open = $("detail").querySelector("[data-node]");
  if (open) paintCard(open, "detail");
  drawLegend();
}

function drawLegend() {
  const swatch = (look) => {
    const canvas = el("canvas", { width: 14, height: 14 });
    paintCell(canvas.getContext("2d"), 0, 0, 14, look, themeColours());
    return canvas;
  };
  $("legend").hidden = form === "pods";
  $("legend").replaceChildren(...(form === "tiles" ? [
    el("span", {}, "a tile is a node, its columns are zones, filled as far as their CPUs are taken"),
    el("span", {}, "a tile with a cross cannot be trusted")] : [
    el("span", {}, swatch({ kind: 0 }), swatch({ kind: 8 }), swatch({ kind: 16 }), "a pod's own CPUs: colour and pattern, by node"),
    el("span", {}, swatch({}), "free: the shared pool, until a pod gets them"),
    el("span", {}, swatch({ reserved: true }), "reserved for the system"),
    el("span", {}, swatch({ tried: true }), "what if: would be taken"),
    el("span", {}, swatch({ kind: 0, chosen: true }), "of the pod or gang that is open"),
    el("span", {}, "a column is a core, its threads one above the other")]));
}

// One node of all is a stop of the Tab key; arrows go to the others.
function move(key) {
  const all = [...$("nodes").querySelectorAll("[data-node]")];
  if (!all.length) return;
  const here = all.findIndex((each) => each.contains(document.activeElement));
  const columns = all.filter((each) => each.offsetTop === all[Math.max(here, 0)].offsetTop).length || 1;
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[key];
  stand(all[here < 0 ? 0 : Math.min(all.length - 1, Math.max(0, here + by))]);
}

function stand(element) {
  const stop = (each) => each?.matches("button") ? each : each?.querySelector("button");
  const before = stop(cards.get(atNode));
  if (before) before.tabIndex = -1;
  atNode = element.dataset.node;
  stop(element).tabIndex = 0;
  stop(element).focus();
}
