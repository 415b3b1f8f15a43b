// State, and what happens to it. The address (#…) holds everything that one may want to link to.

const KEYS = ["q", "pool", "show", "as", "sort", "node", "pod", "gang", "t", "theme", "try"];
// A longer manifest is not kept in the address.
const LONGEST_TRY = 4000;
const embedded = JSON.parse($("data").textContent);
const now = { nodes: new Map(), waiting: [], waits: 0 };
const shown = { nodes: new Map(), waiting: [], waits: 0 };
let machines = {}, samples = [], decisions = [], begins = null, latest = 0;
let link = readLink();

function readLink() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(KEYS.map((key) => [key, wanted.get(key) ?? ""]));
}

function go(change) {
  const opens = ["node", "pod", "gang"].some((key) => change[key] && change[key] !== link[key]);
  Object.assign(link, change);
  const parts = new URLSearchParams(Object.entries(link).filter(([, value]) => value));
  const address = parts.size ? `#${parts}` : location.pathname + location.search;
  // What was opened before is one step back.
  if (opens) history.pushState(null, "", address); else history.replaceState(null, "", address);
}

function isChosen(pod) {
  return link.pod ? pod.pod === link.pod || pod.uid === link.pod : Boolean(link.gang) && pod.gang === link.gang;
}

// Tells who cannot see it what an action has brought.
function say(text) {
  $("said").textContent = text;
}

// --- what comes in ---

function takeAll(store, document_) {
  store.nodes = new Map(document_.nodes.map((node) => [node.name, node]));
  store.waiting = document_.waiting;
  store.waits = document_.waits ?? document_.waiting.length;
}

function showNow() {
  Object.assign(shown, now, { nodes: new Map(now.nodes) });
}

function begin(document_) {
  takeAll(now, document_);
  ({ machines, samples, decisions, begins } = document_);
  remark(document_.remark ?? "");
  latest = document_.at;
  if (!link.t) showNow();
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
    for (const store of link.t ? [now] : [now, shown]) {
      for (const [name, node] of Object.entries(change.nodes)) {
        if (node) store.nodes.set(name, node); else store.nodes.delete(name);
      }
      store.waiting = change.waiting;
      store.waits = change.waits;
    }
    if (!link.t) for (const name of Object.keys(change.nodes)) dirty.add(name);
  }
  if (!planned) {
    planned = true;
    requestAnimationFrame(() => { planned = false; update(); });
  }
}

// Draws what changed, and nothing else.
function update() {
  const started = performance.now();
  if (form === "pods") drawPods(); else updateNodes();
  dirty.clear();
  drawStats();
  drawSide();
  if (!link.t) drawDetail();
  performance.measure("rte-update", { start: started, end: performance.now() });
}

function updateNodes() {
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
      redrawNode(card, node);
    }
  }
  if (whole) drawNodes();
  else for (const section of touched) drawSection(section);
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
  const told = link.t ? "showing the past" : text;
  $("state").className = kind;
  if ($("state").textContent !== told) $("state").textContent = told;
}

// --- around the nodes ---

function draw() {
  const names = pools(shown.nodes.values());
  $("pool").replaceChildren(el("option", { value: "" }, "all pools"),
    ...names.map(([name, nodes]) => el("option", { value: name }, `${name} (${nodes.length})`)));
  for (const key of ["q", "pool", "show", "as"]) if ($(key).value !== link[key]) $(key).value = link[key];
  document.documentElement.dataset.theme = link.theme;
  document.body.classList.toggle("past", Boolean(link.t));
  document.body.classList.toggle("file", Boolean(embedded));
  if (embedded) tell("", `as of ${new Date(latest * 1000).toLocaleString("en-GB")}`);
  drawMain();
  drawStats();
  drawSide();
  drawDetail();
  performance.measure("rte-first", { start: 0, end: performance.now() });
}

function drawMain() {
  if (link.as === "pods") drawPods(); else drawNodes();
  drawLegend();
}

function drawStats() {
  const nodes = [...shown.nodes.values()];
  const pods = nodes.reduce((sum, node) => sum + node.pods.length, 0);
  fill($("stats"), summary(nodes), " · ", el("b", {}, count(pods, "pod")), " on nodes · ",
    el("b", {}, `${shown.waits} waiting`));
  const from = begins ?? latest;
  const moment = link.t ? clock(Number(link.t)) : "now";
  $("time").value = link.t && latest > from ? 1000 * (Number(link.t) - from) / (latest - from) : 1000;
  $("time").setAttribute("aria-valuetext", moment);
  $("moment").textContent = moment;
}

function drawSide() {
  drawWaiting();
  drawDecisions();
  drawChart();
}

let pointed = null;

// The chart ends with what the rest of the page says, not with the last sample.
function drawChart() {
  const zones = [...now.nodes.values()].flatMap((node) => node.zones);
  if (!samples.length && !zones.length) return;
  const stranded = [...now.nodes.values()].reduce((sum, { zones }) =>
    sum + total(zones, "free") - Math.max(0, ...zones.map((zone) => zone.free)), 0);
  const last = { at: latest, free: total(zones, "free"), stranded,
    largest: zones.reduce((most, zone) => Math.max(most, zone.free), 0) };
  const moment = pointed ?? (link.t ? Number(link.t) : latest);
  fill($("curves").querySelector("figure"), ...chart([...samples, last], begins ?? samples[0]?.at ?? latest, latest, moment));
}

// --- what people do ---

let opener = null;

function choose(change) {
  const opens = change.node || change.pod || change.gang;
  if (opens && !$("detail").contains(document.activeElement)) opener = document.activeElement;
  if ("t" in change) return travel(change.t ? Number(change.t) : null);
  go(change);
  if (opens || "node" in change) {
    if (form === "cards" || form === "rows") repaint();
    drawDetail();
  }
  if (["q", "pool", "show", "as", "sort"].some((key) => key in change)) {
    draw();
    if (!("sort" in change)) say(form === "pods" ? $("nodes").querySelector("caption").textContent : count(cards.size, "node"));
  }
  if (opens) $("detail").focus({ preventScroll: false });
}

function closeDetail() {
  const name = link.node;
  if (!(link.node || link.pod || link.gang)) return;
  choose({ node: "", pod: "", gang: "" });
  if (opener?.isConnected && opener !== document.body) opener.focus();
  else if (cards.has(name)) stand(cards.get(name));
  else $("nodes").focus();
}

let travelling = 0;

async function travel(moment) {
  const turn = ++travelling;
  if (moment === null || moment >= latest) {
    go({ t: "" });
    showNow();
  } else {
    go({ t: moment.toFixed(1) });
    const then = await ask(`at?t=${moment}`);
    if (turn !== travelling) return;
    takeAll(shown, then);
  }
  tell(link.t ? "" : "live", "live");
  draw();
  say(link.t ? `showing ${clock(Number(link.t))}` : "showing now");
}

for (const key of ["pool", "show", "as"]) {
  $(key).addEventListener("change", (event) => choose({ [key]: event.target.value }));
}
$("q").addEventListener("input", (event) => choose({ q: event.target.value.trim() }));
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

const figure = $("curves").querySelector("figure");
function chartMoment(event) {
  const picture = event.target.closest("svg");
  return picture ? momentAt(event, picture, begins ?? latest, latest) : undefined;
}
figure.addEventListener("pointermove", (event) => { pointed = chartMoment(event) ?? null; drawChart(); });
figure.addEventListener("pointerleave", () => { pointed = null; drawChart(); });
figure.addEventListener("click", (event) => {
  const moment = chartMoment(event);
  if (moment !== undefined && !embedded) travel(moment);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.id === "close") return closeDetail();
  if (button?.id === "enlarge") return enlarge();
  if (button?.dataset.go) return choose(JSON.parse(button.dataset.go));
  if (button?.dataset.at) return travel(Number(button.dataset.at));
  if (button?.dataset.again) {
    replies.delete(button.dataset.again);
    return drawDetail();
  }
  if (event.target.closest("button, a, summary, input, textarea")) return undefined;
  const element = event.target.closest("[data-node]");
  if (!element) return undefined;
  const cpu = cpuUnder(event);
  const node = shown.nodes.get(element.dataset.node);
  const owner = cpu === undefined ? undefined : ownersOf(node).owners.get(cpu);
  if (owner !== undefined) choose({ pod: node.pods[owner].pod, node: "", gang: "" });
  else if (element.localName === "article") choose({ node: node.name, pod: "", gang: "" });
  return undefined;
});

function enlarge() {
  const drawing = $("detail").querySelector(".drawing");
  $("large").querySelector("div").replaceChildren(el("img", { alt: drawing.alt, src: drawing.src }));
  $("large").showModal();
}

function cpuUnder(event) {
  return event.target.cpuAt?.(event.offsetX, event.offsetY);
}

function tipOf(event) {
  const element = event.target.closest?.("[data-node]");
  const node = element && shown.nodes.get(element.dataset.node);
  if (!node) return "";
  if (element.classList.contains("tile")) {
    return `${node.name}\n${node.trust || node.zones.map((zone) =>
      `zone ${zone.id}: ${zone.free} of ${zone.cpus} CPUs free`).join("\n")}`;
  }
  const cpu = cpuUnder(event);
  if (cpu === undefined) return "";
  const { owners, reserved, tried: wanted } = ownersOf(node);
  const owner = owners.get(cpu);
  const whose = owner !== undefined ? node.pods[owner].pod : reserved.has(cpu) ? "reserved for the system"
    : wanted.has(cpu) ? "free; the what-if would take it" : "free";
  return `CPU ${cpu}, zone ${event.target.dataset.zone}: ${whose}`;
}

document.addEventListener("mousemove", (event) => {
  const tip = $("tip");
  const text = tipOf(event);
  tip.hidden = !text;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
});

const SHORTCUTS = {
  "/": () => $("q").focus(),
  w: () => { if (!embedded) { $("try").open = true; $("manifest").focus(); } },
  "[": () => travel(Math.max(begins ?? latest, (link.t ? Number(link.t) : latest) - 10)),
  "]": () => travel((link.t ? Number(link.t) : latest) + 10),
  l: () => travel(null),
  d: () => $("theme").click(),
  p: () => choose({ as: link.as === "pods" ? "" : "pods" }),
  "?": () => $("keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches?.("input, textarea, select");
  if (event.key === "Escape") {
    $("tip").hidden = true;
    if (event.target === $("q") && link.q) choose({ q: "" });
    else closeDetail();
  } else if (typing) {
    return;
  } else if (event.key.startsWith("Arrow") && !event.target.closest?.("#side, table")) {
    if (form === "pods") return;
    move(event.key);
  } else if (SHORTCUTS[event.key] && $("single").checked) {
    SHORTCUTS[event.key]();
  } else {
    return;
  }
  event.preventDefault();
});

$("try").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("manifest").value;
  go({ try: text.length <= LONGEST_TRY ? text : "" });
  tryOut(text);
});
$("clear").addEventListener("click", () => {
  tried = { text: "", nodes: {} };
  $("answer").replaceChildren();
  choose({ try: "", show: link.show === "tried" ? "" : link.show });
});

// A link with a what-if asks it again, of the cluster as it is now.
function tryLinked() {
  if (!link.try || link.try === tried.text || embedded) return;
  $("try").open = true;
  $("manifest").value = link.try;
  tryOut(link.try);
}

addEventListener("hashchange", () => {
  link = readLink();
  travel(link.t ? Number(link.t) : null);
  tryLinked();
});

if (matchMedia("(max-width: 860px)").matches) $("curves").open = false;
new ResizeObserver(() => requestAnimationFrame(repaint)).observe($("nodes"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
if (embedded) {
  begin(embedded);
  link.t = "";
  if (!link.node && embedded.nodes.length === 1) link.node = embedded.nodes[0].name;
  draw();
} else {
  load().then(async () => {
    if (link.t) await travel(Number(link.t));
    tryLinked();
    listen();
  }).catch((error) => tell("lost", `cannot read the cluster: ${error.message}`));
}
