// State, and what happens to it. The address (#…) holds everything that one may want to link to.

const MOST_CARDS = 600;
const $ = (id) => document.getElementById(id);
const embedded = JSON.parse($("data").textContent);
const now = { nodes: new Map(), waiting: [], waits: 0 };
const shown = { nodes: new Map(), waiting: [], waits: 0 };
let machines = {}, samples = [], decisions = [], begins = null, latest = 0;
let link = readLink();

function readLink() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(["q", "pool", "show", "node", "pod", "t", "theme", "try"]
    .map((key) => [key, wanted.get(key) ?? ""]));
}

function go(change) {
  Object.assign(link, change);
  const parts = new URLSearchParams(Object.entries(link).filter(([, value]) => value));
  history.replaceState(null, "", parts.size ? `#${parts}` : location.pathname + location.search);
}

// --- what comes in ---

function takeAll(store, document_) {
  store.nodes = new Map(document_.nodes.map((node) => [node.name, node]));
  store.waiting = document_.waiting;
  store.waits = document_.waits ?? document_.waiting.length;
}

function begin(document_) {
  takeAll(now, document_);
  ({ machines, samples, decisions, begins } = document_);
  remark(document_.remark ?? "");
  latest = document_.at;
  if (!link.t) Object.assign(shown, now, { nodes: new Map(now.nodes) });
}

function remark(text) {
  $("remark").textContent = text;
  $("remark").hidden = !text;
}

const dirty = new Set();
let planned = false;

function take(change) {
  if (change.reload) return load();
  latest = Math.max(latest, change.at ?? 0);
  if (change.sample) samples.push(change.sample);
  if (change.remark != null) remark(change.remark);
  if (change.nodes) {
    Object.assign(machines, change.machines);
    decisions.push(...change.decisions);
    if (decisions.length > 400) decisions.splice(0, decisions.length - 400);
    for (const [name, node] of Object.entries(change.nodes)) {
      if (node) now.nodes.set(name, node); else now.nodes.delete(name);
    }
    now.waiting = change.waiting;
    now.waits = change.waits;
    if (!link.t) {
      for (const [name, node] of Object.entries(change.nodes)) {
        if (node) shown.nodes.set(name, node); else shown.nodes.delete(name);
        dirty.add(name);
      }
      shown.waiting = now.waiting;
      shown.waits = now.waits;
    }
  }
  if (!planned) {
    planned = true;
    requestAnimationFrame(() => { planned = false; update(); });
  }
}

// Draws what changed, and nothing else.
function update() {
  const started = performance.now();
  const touched = new Set();
  let whole = false;
  for (const name of dirty) {
    const card = cards.get(name);
    const node = shown.nodes.get(name);
    const section = node && sections.get(node.pool);
    if (!node || !matches(node)) whole ||= Boolean(card);
    else if (!card || !section?.names.has(name)) whole = true;
    else {
      touched.add(section);
      if (!section.heat) replaceCard(card, node);
    }
  }
  if (whole) drawNodes();
  else for (const section of touched) drawSection(section);
  if (dirty.has(link.node)) drawDetail();
  dirty.clear();
  drawStats();
  drawSide();
  performance.measure("rte-update", { start: started, end: performance.now() });
}

async function ask(path, options) {
  const answer = await fetch(`view/${path}`, options);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? answer.statusText);
  return body;
}

async function load() {
  begin(await ask("data"));
  draw();
}

function listen() {
  const stream = new EventSource("view/events");
  let lost = false;
  stream.onmessage = (event) => {
    const change = JSON.parse(event.data);
    tell("live", "live");
    if (change.hello) { if (lost) load(); lost = false; } else take(change);
  };
  stream.onerror = () => { lost = true; tell("lost", "connection lost, trying again"); };
}

function tell(kind, text) {
  $("state").className = kind;
  $("state").textContent = link.t ? "showing the past" : text;
}

// --- nodes ---

const cards = new Map();
// By pool: names of its nodes, the element that sums them up, and the canvas that stands for many.
const sections = new Map();
const lazily = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) paintCard(entry.target);
}, { rootMargin: "300px" });
const resized = new ResizeObserver(() => requestAnimationFrame(repaint));

function matches(node) {
  if (link.pool && node.pool !== link.pool) return false;
  const zones = node.zones;
  const kept = {
    room: () => zones.some((zone) => zone.free),
    full: () => zones.some((zone) => !zone.free && zone.cpus),
    crossing: () => node.pods.some((pod) => pod.aligned === false),
    trouble: () => node.trust,
  }[link.show];
  if (kept && !kept()) return false;
  const words = link.q.toLowerCase();
  return !words || node.name.includes(words) || node.pool.toLowerCase().includes(words)
    || node.pods.some((pod) => pod.pod.includes(words));
}

function pools(nodes) {
  const out = new Map();
  for (const node of nodes) {
    if (!out.has(node.pool)) out.set(node.pool, []);
    out.get(node.pool).push(node);
  }
  return [...out].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

function summary(nodes) {
  const zones = nodes.flatMap((node) => node.zones);
  const free = zones.reduce((sum, zone) => sum + zone.free, 0);
  const all = zones.reduce((sum, zone) => sum + zone.cpus, 0);
  const largest = zones.reduce((most, zone) => Math.max(most, zone.free), 0);
  return `${count(nodes.length, "node")} · ${free.toLocaleString("en")} of ${count(all, "CPU")} free · `
    + `largest free zone ${largest}`;
}

function drawNodes() {
  cards.clear();
  sections.clear();
  lazily.disconnect();
  const wanted = [...shown.nodes.values()].filter(matches)
    .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const asTiles = wanted.length > MOST_CARDS;
  $("nodes").replaceChildren(...pools(wanted).map(([name, nodes]) => {
    const heat = asTiles && nodes.length > 40 ? heatOf(nodes) : null;
    const section = { names: new Set(nodes.map((node) => node.name)), sum: el("small"), heat };
    sections.set(name, section);
    return el("section", { className: "pool" },
      el("h2", {}, name, section.sum,
        asTiles ? el("button", { type: "button", onclick: () => choose({ pool: name }) }, "show zones") : null),
      heat ? el("div", { className: "heat" }, heat) : el("div", { className: "grid" }, ...nodes.map(card)));
  }));
  if (!wanted.length) {
    $("nodes").append(el("p", { className: "soft" },
      shown.nodes.size ? "No node is like that." : "There is no node."));
  }
  for (const section of sections.values()) drawSection(section);
}

function drawSection(section) {
  const nodes = [...section.names].map((name) => shown.nodes.get(name));
  section.sum.textContent = summary(nodes);
  if (section.heat) paintHeat(section.heat, nodes);
}

function heatOf(nodes) {
  const canvas = el("canvas", { role: "img", "aria-label": `${nodes.length} nodes, the darker the fuller` });
  for (const node of nodes) cards.set(node.name, canvas);
  return canvas;
}

function card(node) {
  const made = nodeCard(node);
  made.classList.toggle("open", node.name === link.node);
  cards.set(node.name, made);
  lazily.observe(made);
  return made;
}

function replaceCard(old, node) {
  const focused = old === document.activeElement;
  lazily.unobserve(old);
  const made = card(node);
  old.replaceWith(made);
  if (focused) made.focus({ preventScroll: true });
}

function paintCard(element, cell) {
  const node = shown.nodes.get(element.dataset.node);
  const machine = node && machines[node.machine];
  if (!machine) return;
  const held = ownersOf(node);
  const cores = new Map(machine.zones.map((zone) => [String(zone.id), zone.cores]));
  for (const canvas of element.querySelectorAll("canvas")) {
    paintZone(canvas, cores.get(canvas.dataset.zone) ?? [], held, cell);
  }
}

function repaint() {
  for (const section of sections.values()) drawSection(section);
  for (const element of cards.values()) {
    if (element.localName === "article") { lazily.unobserve(element); lazily.observe(element); }
  }
  const open = $("detail").querySelector("[data-node]");
  if (open) paintCard(open, 18);
  drawLegend();
}

// --- around the nodes ---

function draw() {
  const names = pools(shown.nodes.values());
  $("pool").replaceChildren(el("option", { value: "" }, "all pools"),
    ...names.map(([name, nodes]) => el("option", { value: name }, `${name} (${nodes.length})`)));
  $("q").value = link.q;
  $("pool").value = link.pool;
  $("show").value = link.show;
  $("try").open ||= Boolean(link.try);
  document.documentElement.dataset.theme = link.theme;
  document.body.classList.toggle("past", Boolean(link.t));
  document.body.classList.toggle("file", Boolean(embedded));
  if (embedded) tell("", `as of ${new Date(latest * 1000).toLocaleString("en-GB")}`);
  drawNodes();
  drawStats();
  drawSide();
  drawDetail();
  drawLegend();
  performance.measure("rte-first", { start: 0, end: performance.now() });
}

function drawStats() {
  const nodes = [...shown.nodes.values()];
  const pods = nodes.reduce((sum, node) => sum + node.pods.length, 0);
  $("stats").replaceChildren(summary(nodes), " · ", el("b", {}, count(pods, "pod")), " on nodes · ",
    el("b", {}, `${shown.waits} waiting`));
  const from = begins ?? latest;
  if (!link.t) $("time").value = 1000;
  else $("time").value = latest > from ? 1000 * (Number(link.t) - from) / (latest - from) : 1000;
  $("moment").textContent = link.t ? clock(Number(link.t)) : "now";
}

function drawSide() {
  $("waits").textContent = shown.waits;
  $("waiting").querySelector("ol").replaceChildren(...shown.waiting.map((pod) => el("li", {},
    el("button", { type: "button", className: "link", onclick: () => choose({ pod: pod.pod, node: "" }) }, pod.pod),
    pod.cpus ? el("small", {}, ` ${count(pod.cpus, "CPU")}`) : null,
    el("div", { className: "soft" }, pod.reason || `waits for ${pod.scheduler}`))));
  const hidden = shown.waits - shown.waiting.length;
  if (hidden > 0) $("waiting").querySelector("ol").append(el("li", { className: "soft" }, `and ${hidden} more`));
  if (samples.length) $("curves").querySelector("figure").replaceChildren(...curves(samples));
  $("decisions").querySelector("ol").replaceChildren(...decisions.slice(-60).reverse().map((each) => el("li", {},
    el("button", { type: "button", className: "link", title: "show this moment",
      onclick: () => travel(each.at) }, clock(each.at)),
    ` ${each.pod} `, el("span", { className: "soft" },
      each.node ? `→ ${each.node}${each.zones?.length ? `, zone ${each.zones.join("+")}` : ""}` : each.reason))));
}

function findPod(wanted) {
  for (const node of shown.nodes.values()) {
    const pod = node.pods.find((each) => each.pod === wanted || each.uid === wanted);
    if (pod) return [pod, node];
  }
  return [shown.waiting.find((each) => each.pod === wanted || each.uid === wanted), null];
}

let asked = 0;

function drawDetail() {
  const box = $("detail");
  const wanted = link.pod || link.node;
  box.hidden = !wanted;
  for (const [name, element] of cards) element.classList.toggle("open", name === link.node);
  if (!wanted) return;
  const close = el("button", { type: "button", "aria-label": "Close", onclick: closeDetail }, "✕");
  box.replaceChildren(el("header", {}, el("h2", {}, wanted), close),
    ...(link.pod ? podDetail(link.pod) : nodeDetail(link.node)));
  const drawn = box.querySelector("[data-node]");
  if (drawn) paintCard(drawn, 18);
}

function podDetail(wanted) {
  const [pod, node] = findPod(wanted);
  if (!pod) return [el("p", {}, "This pod is not here at this moment.")];
  const parts = [];
  if (node) {
    parts.push(el("p", {}, "On ", el("button", { type: "button", className: "link",
      onclick: () => choose({ node: node.name, pod: "" }) }, node.name),
    pod.zones?.length ? `, zone ${pod.zones.join(" + ")}.` : ", in the shared pool.",
    pod.confirmed ? "" : " Its kubelet has not confirmed it yet."));
    if (pod.containers) {
      parts.push(el("p", { className: pod.aligned ? "yes" : "no" }, pod.aligned
        ? "✓ CPUs, memory and devices lie in one zone." : "✗ It lies across zones."), heldTable(pod));
    }
  } else {
    parts.push(el("p", {}, pod.reason || `It waits for ${pod.scheduler}.`));
  }
  const why = el("div", { className: "asks" }, el("h3", {}, node ? "A pod like it, elsewhere" : "Why not here"));
  parts.push(why);
  if (!embedded && !link.t) explain(pod.uid, why);
  return parts;
}

async function explain(uid, into) {
  const turn = ++asked;
  try {
    const answer = await ask(`explain?pod=${encodeURIComponent(uid)}`);
    if (turn === asked) into.append(answerList(answer, (name) => choose({ node: name, pod: "" })));
  } catch (error) {
    if (turn === asked) into.append(el("p", { className: "no" }, error.message));
  }
}

function nodeDetail(name) {
  const node = shown.nodes.get(name);
  if (!node) return [el("p", {}, "This node is not here at this moment.")];
  const zones = el("div", {}, ...node.zones.map((zone) => zoneRow(node, zone)));
  zones.dataset.node = name;
  const distances = machines[node.machine]?.distances ?? [];
  const kinds = kindsOf(node);
  const rows = node.pods.map((pod) => {
    const swatch = el("canvas", { width: 12, height: 12 });
    if (pod.cpus) paintCell(swatch.getContext("2d"), 0, 0, 12, kinds.get(pod.uid), false, themeColours());
    return [swatch, el("button", { type: "button", className: "link",
      onclick: () => choose({ pod: pod.pod, node: "" }) }, pod.pod), pod.cpus || "shared pool"];
  });
  return [
    el("p", { className: "soft" }, [node.pool, node.kubelet, node.policy && `${node.policy}, ${node.scope} scope`,
      node.managers && `CPU manager ${node.managers.cpu}, memory manager ${node.managers.memory}`,
      node.reserved && `CPUs ${node.reserved} reserved`, node.unschedulable && "cordoned"]
      .filter(Boolean).join(" · ")),
    node.trust ? el("p", { className: "no" }, node.trust) : null, zones,
    rows.length ? table(["", "pod", "CPUs"], rows) : el("p", {}, "No pods."),
    distances.length > 1 && distances.every((row) => row.length === distances.length)
      ? el("details", {}, el("summary", {}, "Distances"),
        table(["", ...node.zones.map((zone) => String(zone.id))],
          distances.map((row, place) => [String(node.zones[place]?.id ?? ""), ...row.map(String)]))) : null,
  ].filter(Boolean);
}

function drawLegend() {
  const swatch = (owner, reserved) => {
    const canvas = el("canvas", { width: 14, height: 14 });
    paintCell(canvas.getContext("2d"), 0, 0, 14, owner, reserved, themeColours());
    return canvas;
  };
  const heat = [...sections.values()].some((section) => section.heat);
  $("legend").replaceChildren(...(heat ? [el("span", {},
    "a tile is a node, the darker the fuller; with a red frame it cannot be trusted")] : [
    el("span", {}, swatch(0), swatch(8), swatch(16), "a pod's own CPUs: colour and pattern, by node"),
    el("span", {}, swatch(undefined, false), "free: the shared pool, until a pod gets them"),
    el("span", {}, swatch(undefined, true), "reserved for the system"),
    el("span", {}, "a column is a core, its threads one above the other")]));
}

// --- what people do ---

function choose(change) {
  go(change);
  if ("pool" in change || "q" in change || "show" in change) draw(); else drawDetail();
  if (change.node || change.pod) $("detail").focus({ preventScroll: false });
}

function closeDetail() {
  const name = link.node;
  choose({ node: "", pod: "" });
  cards.get(name)?.focus?.();
}

let travelling = 0;

async function travel(moment) {
  const turn = ++travelling;
  if (moment === null || moment >= latest) {
    go({ t: "" });
    Object.assign(shown, now, { nodes: new Map(now.nodes) });
  } else {
    go({ t: moment.toFixed(1) });
    const then = await ask(`at?t=${moment}`);
    if (turn !== travelling) return;
    takeAll(shown, then);
  }
  tell(link.t ? "" : "live", "live");
  draw();
}

$("q").addEventListener("input", (event) => choose({ q: event.target.value.trim() }));
$("pool").addEventListener("change", (event) => choose({ pool: event.target.value }));
$("show").addEventListener("change", (event) => choose({ show: event.target.value }));
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("time").addEventListener("input", (event) => {
  const from = begins ?? latest;
  const value = Number(event.target.value);
  travel(value >= 1000 ? null : from + (latest - from) * value / 1000);
});
$("theme").addEventListener("click", () => {
  const dark = link.theme ? link.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  go({ theme: dark ? "light" : "dark" });
  document.documentElement.dataset.theme = link.theme;
  repaint();
});
$("help").addEventListener("click", () => $("keys").showModal());

$("columns").addEventListener("click", (event) => {
  if (event.target.closest("button, a, summary, input, textarea")) return;
  const cpu = cpuUnder(event);
  const element = event.target.closest("[data-node]");
  if (event.target.nodeAt) {
    const node = event.target.nodeAt(event.offsetX, event.offsetY);
    if (node) choose({ node: node.name, pod: "" });
  } else if (element) {
    const node = shown.nodes.get(element.dataset.node);
    const owner = cpu === undefined ? undefined : ownersOf(node).owners.get(cpu);
    if (owner !== undefined) choose({ pod: node.pods[owner].pod, node: "" });
    else if (element.localName === "article") choose({ node: node.name, pod: "" });
  }
});

function cpuUnder(event) {
  return event.target.cpuAt?.(event.offsetX, event.offsetY);
}

document.addEventListener("mousemove", (event) => {
  const tip = $("tip");
  let text = "";
  if (event.target.nodeAt) {
    const node = event.target.nodeAt(event.offsetX, event.offsetY);
    if (node) text = `${node.name}\n${node.trust || node.zones.map((zone) =>
      `zone ${zone.id}: ${zone.free} of ${zone.cpus} CPUs free`).join("\n")}`;
  } else {
    const cpu = cpuUnder(event);
    const element = event.target.closest?.("[data-node]");
    if (cpu !== undefined && element) {
      const node = shown.nodes.get(element.dataset.node);
      const { owners, reserved } = ownersOf(node);
      const owner = owners.get(cpu);
      text = `CPU ${cpu}, zone ${event.target.dataset.zone}: ${owner !== undefined ? node.pods[owner].pod
        : reserved.has(cpu) ? "reserved for the system" : "free"}`;
    }
  }
  tip.hidden = !text;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
});

function move(step) {
  const all = [...$("nodes").querySelectorAll("article")];
  if (!all.length) return;
  const here = all.indexOf(document.activeElement);
  const columns = all.filter((each) => each.offsetTop === all[Math.max(here, 0)].offsetTop).length || 1;
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[step];
  all[Math.min(all.length - 1, Math.max(0, here < 0 ? 0 : here + by))].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape") {
    if (typing) event.target.blur(); else closeDetail();
  } else if (typing) {
    return;
  } else if (event.key === "/") {
    $("q").focus();
  } else if (event.key.startsWith("Arrow") && !event.target.closest?.("#side")) {
    move(event.key);
  } else if (event.key === "Enter" && event.target.dataset?.node) {
    choose({ node: event.target.dataset.node, pod: "" });
  } else if (event.key === "w" && !embedded) {
    $("try").open = true;
    $("manifest").focus();
  } else if (event.key === "[" || event.key === "]") {
    const at = link.t ? Number(link.t) : latest;
    travel(event.key === "[" ? Math.max(begins ?? latest, at - 10) : at + 10);
  } else if (event.key === "l") {
    travel(null);
  } else if (event.key === "d") {
    $("theme").click();
  } else if (event.key === "?") {
    $("keys").showModal();
  } else {
    return;
  }
  event.preventDefault();
});

$("try").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const into = $("answer");
  into.replaceChildren(el("p", { className: "soft" }, "asking …"));
  try {
    const headers = { "Content-Type": "application/yaml" };
    const answer = await ask("try", { method: "POST", headers, body: $("manifest").value });
    const { fit, together } = answer;
    const hosts = Object.entries(fit.copies).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
    into.replaceChildren(
      el("p", {}, el("b", {}, `${fit.exact ? "" : "At least "}${fit.total} ${fit.total === 1 ? "copy" : "copies"}`),
        ` of it fit now${hosts.length ? ": " : "."}`, hosts.slice(0, 8).map(([name, n]) => `${n} on ${name}`).join(", "),
        hosts.length > 8 ? ` and ${hosts.length - 8} more nodes` : ""),
      together ? el("p", { className: together.verdict === "fits" ? "yes" : "no" },
        `All ${answer.pods} together: ${together.verdict.replaceAll("_", " ")}. `
        + Object.entries(together.places).map(([pod, name]) => `${pod} → ${name}`).join(", ")) : "",
      answerList(answer.explain, (name) => choose({ node: name, pod: "" })));
  } catch (error) {
    into.replaceChildren(el("p", { className: "no" }, error.message));
  }
});

addEventListener("hashchange", () => {
  link = readLink();
  travel(link.t ? Number(link.t) : null);
});

if (matchMedia("(max-width: 860px)").matches) $("curves").open = false;
resized.observe($("nodes"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
if (embedded) {
  begin(embedded);
  link.t = "";
  draw();
} else {
  load().then(async () => {
    if (link.t) await travel(Number(link.t));
    listen();
  }).catch((error) => tell("lost", `cannot read the cluster: ${error.message}`));
}
