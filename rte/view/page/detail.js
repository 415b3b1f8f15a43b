// What is told of one node, pod or gang. It is drawn anew with each change; what the server was asked for
// is kept beside it.

const MOST_ANSWERS = 50;
// Question -> {answer | error, at}; without either: it is being asked.
const replies = new Map();

function reply(question) {
  if (!replies.has(question)) {
    if (replies.size > 50) replies.clear();
    const kept = {};
    replies.set(question, kept);
    ask(question).then((answer) => { kept.answer = answer; }, (error) => { kept.error = error.message; })
      .then(() => { kept.at = Date.now() / 1000; drawDetail(); });
  }
  return replies.get(question);
}

function drawDetail() {
  const box = $("detail");
  const wanted = link.pod || link.gang || link.node;
  box.hidden = !wanted;
  for (const [name, element] of cards) element.classList.toggle("open", name === link.node);
  if (!wanted) return;
  const parts = link.pod ? podDetail(wanted) : link.gang ? gangDetail(wanted) : nodeDetail(wanted);
  const kind = link.pod ? "Pod" : link.gang ? "Gang" : "Node";
  fill(box, el("header", { "data-key": "head" }, el("h2", {}, wanted),
    el("button", { type: "button", id: "close", "aria-label": `Close ${kind.toLowerCase()} ${wanted}` }, "✕")),
  el("div", { "data-key": `${kind} ${wanted}` }, ...parts));
  box.setAttribute("aria-label", `${kind} ${wanted}`);
  const drawn = box.querySelector("[data-node]");
  if (drawn) paintCard(drawn, "detail");
  for (const swatch of box.querySelectorAll("canvas[data-kind]")) {
    paintCell(swatch.getContext("2d"), 0, 0, 12, { kind: Number(swatch.dataset.kind) }, themeColours());
  }
}

function onlyNow() {
  return el("p", { className: "soft" }, embedded ? "This needs a running cluster."
    : "This is known of the present only. ", embedded ? null : goTo("Back to now", { t: "" }));
}

function findPod(wanted) {
  for (const node of shown.nodes.values()) {
    const pod = node.pods.find((each) => each.pod === wanted || each.uid === wanted);
    if (pod) return [pod, node];
  }
  return [shown.waiting.find((each) => each.pod === wanted || each.uid === wanted), null];
}

function absent(what) {
  return [el("p", {}, `This ${what} is not here ${link.t ? "at this moment" : "any more"}.`),
    link.t ? el("p", {}, goTo("Back to now", { t: "" })) : null];
}

function podDetail(wanted) {
  const [pod, node] = findPod(wanted);
  if (!pod) return absent("pod");
  const parts = [];
  if (node) {
    parts.push(el("p", {}, "On ", toNode(node.name),
      pod.zones?.length ? `, ${zonesText(pod.zones)}.` : ", in the shared pool.",
      pod.confirmed ? "" : " Its kubelet has not confirmed it yet."));
    if (pod.containers) {
      parts.push(el("p", { className: pod.aligned ? "yes" : "no" }, pod.aligned
        ? "✓ CPUs, memory and devices are in one zone." : "✗ It is spread over zones."), heldTable(pod));
    }
  } else {
    parts.push(el("p", {}, pod.reason || `It waits for ${pod.scheduler}.`));
  }
  if (pod.gang) parts.push(el("p", {}, "Of gang ", toGang(pod.gang), "."));
  return [...parts, el("h3", {}, node ? "A pod like it, elsewhere" : "Why not here"), ...whyNot(pod, node)];
}

function whyNot(pod, node) {
  if (embedded || link.t) return [onlyNow()];
  const question = `explain?pod=${encodeURIComponent(pod.uid)}&on=${encodeURIComponent(node?.name ?? "")}`;
  const { answer, error, at } = reply(question);
  const told = error ? el("p", { className: "no" }, error) : answer ? answerList(answer)
    : el("p", { className: "soft" }, "asking …");
  const again = el("button", { type: "button", "data-again": question }, "Ask again");
  return [told, at ? el("p", { className: "soft" }, `Asked at ${clock(at)}. `, again) : null];
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

function gangDetail(wanted) {
  const members = shown.waiting.filter((pod) => pod.gang === wanted).map((pod) => [pod, null]);
  const waits = members.length;
  for (const node of shown.nodes.values()) {
    for (const pod of node.pods) if (pod.gang === wanted) members.push([pod, node]);
  }
  if (!members.length) return absent("gang");
  const reason = members[0][0].reason;
  return [
    el("p", {}, `${count(members.length, "pod")}, ${members.length - waits} on nodes, ${waits} waiting.`),
    waits && reason ? el("p", {}, reason) : null,
    table(["pod", "node", "zones", "CPUs"], members.map(([pod, node]) => [toPod(pod.pod),
      node ? toNode(node.name) : "waits", zonesText(pod.zones), node ? pod.cpus || "shared pool" : String(pod.cpus || "")])),
  ];
}

function nodeDetail(name) {
  const node = shown.nodes.get(name);
  if (!node) return absent("node");
  const zones = el("div", {}, ...node.zones.map(zoneRow));
  zones.dataset.node = name;
  const kinds = kindsOf(node);
  const rows = node.pods.map((pod) => [
    pod.cpus ? el("canvas", { width: 12, height: 12, "aria-hidden": "true", "data-kind": kinds.get(pod.uid) }) : "",
    toPod(pod.pod), zonesText(pod.zones), pod.cpus || "shared pool"]);
  return [
    el("p", { className: "soft" }, [node.pool, node.kubelet, node.policy && `${node.policy}, ${node.scope} scope`,
      node.managers && `CPU manager ${node.managers.cpu}, memory manager ${node.managers.memory}`,
      node.reserved && `reserved CPUs: ${node.reserved}`, node.unschedulable && "cordoned"]
      .filter(Boolean).join(" · ")),
    node.trust ? el("p", { className: "no" }, node.trust) : null, zones,
    rows.length ? table(["colour", "pod", "zones", "CPUs"], rows) : el("p", {}, "No pods."),
    ...hardware(node), ...distances(node),
  ];
}

// Sockets, caches and devices with their owners: the drawing of `rte topology`, and a table of the devices.
function hardware(node) {
  if (!node.machine) return [];
  const head = el("h3", {}, "Hardware");
  if (link.t || (embedded && !embedded.hardware?.[node.name])) return [head, onlyNow()];
  const { answer, error } = embedded ? { answer: embedded.hardware[node.name] } : drawingOf(node);
  if (error) return [head, el("p", { className: "no" }, error)];
  if (!answer) return [head, el("p", { className: "soft" }, "asking …")];
  return [head,
    el("img", { className: "drawing", alt: `sockets, caches, cores and devices of ${node.name}`,
      src: `data:image/svg+xml,${encodeURIComponent(answer.svg)}` }),
    el("button", { type: "button", id: "enlarge" }, "Larger drawing"),
    answer.devices.length ? table(["device", "zone", "holder"], answer.devices.map((each) => [
      `${shortName(each.resource)} ${each.id}${each.healthy ? "" : " (not healthy)"}`, each.zones || "no zone",
      each.holder || "free"])) : null];
}

let drawing = {};

// The drawing is made anew when the node has changed, one at a time; till then the one before stays.
function drawingOf(node) {
  if (drawing.node !== node.name) drawing = { node: node.name };
  const kept = drawing;
  const version = stamp(node);
  if (kept.version !== version && !kept.isAsked) {
    Object.assign(kept, { version, isAsked: true });
    ask(`hardware?node=${encodeURIComponent(node.name)}`)
      .then((answer) => Object.assign(kept, { answer, error: "" }), (error) => { kept.error = error.message; })
      .then(() => { kept.isAsked = false; drawDetail(); });
  }
  return kept;
}

// A number that changes when what pods hold of the node does.
function stamp(node) {
  let number = 0;
  for (const letter of JSON.stringify(node.pods)) number = (31 * number + letter.charCodeAt(0)) % 1000003;
  return number;
}

function distances(node) {
  const rows = machines[node.machine]?.distances ?? [];
  if (rows.length < 2 || !rows.every((row) => row.length === rows.length)) return [];
  const names = rows.map((_, place) => `zone ${node.zones[place]?.id ?? "?"}`);
  return [el("details", {}, el("summary", {}, "Distances"),
    table(["from", ...names], rows.map((row, place) => [names[place], ...row.map(String)])))];
}

// One node's answer for a pod: whether it fits, and what is short in which zone.
function answerRow(answer, chosen) {
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
    .map(([name, ids]) => `${name} in ${zonesText(ids)}`).join(", ");
  const verdict = answer.fits ? `fits${lands ? `: ${lands}` : ""}` : answer.reason;
  return el("li", { "data-key": answer.node }, toNode(answer.node),
    " ", el("span", { className: answer.fits ? "yes" : "no" },
      `${answer.node === chosen ? "✓ best, " : answer.fits ? "✓ " : "✗ "}${verdict}`
        + (answer.waits ? " (wait: a pod in front is not confirmed yet)" : "")),
    answer.fits || !answer.message || answer.message === answer.reason ? null
      : el("div", { className: "soft" }, answer.message),
    ...zones, ...groupLines(answer.groups),
    totals.length ? el("div", { className: "soft" }, `node totals: ${totals.join("; ")}`) : null,
    answer.rules ? el("div", { className: "soft" }, answer.rules) : null,
    answer.would_help?.length && !answer.fits
      ? el("div", { className: "soft" }, `would fit without ${answer.would_help.join(", ")}`) : null,
    ...(answer.advice ?? []).map((line) => el("div", {}, line)));
}

// What processing groups would get on a node, or what is free there.
function groupLines(groups) {
  const where = (zone) => zone === null ? "no known zone" : `zone ${zone}`;
  const gets = (groups?.gets?.groups ?? []).map((each) => `group ${each.name} in ${where(each.zone)}`);
  const free = (groups?.free ?? []).map((each) => `free in ${where(each.zone)}: ${[
    `${count(each.cores, "core")} (${count(each.cpus, "CPU")})`,
    ...Object.entries(each.gpus).map(([model, number]) => `GPU ${model || "of unknown model"} (${number})`),
    each.nics.length ? count(each.nics.length, "NIC") : ""].filter(Boolean).join("; ")}`);
  const help = groups?.would_help?.length ? [`would fit without ${groups.would_help.join(", ")}`] : [];
  return [...gets, ...free, ...help].map((line) => el("div", { className: "soft" }, line));
}

function answerList(answer) {
  const fitting = answer.nodes.filter((each) => each.fits).length;
  const rest = answer.nodes.length - MOST_ANSWERS;
  return el("div", {},
    el("p", {}, answer.problem ? `It can go nowhere: ${answer.problem}`
      : `${fitting} of ${count(answer.nodes.length, "node")} would take ${answer.bound ? "a pod like it" : "it"}.`),
    answer.nominated ? el("p", {}, "Room is being made on ", toNode(answer.nominated), ".") : null,
    el("ol", {}, ...answer.nodes.slice(0, MOST_ANSWERS).map((each) => answerRow(each, answer.chosen)),
      rest > 0 ? el("li", { className: "soft" }, `and ${rest} more`) : null));
}

// --- what if ---

let tried = { text: "", nodes: {} };

function triedOn(node) {
  return link.t ? "" : tried.nodes[node.name] ?? "";
}

async function tryOut(text) {
  const into = $("answer");
  fill(into, el("p", { className: "soft" }, "asking …"));
  try {
    const headers = { "Content-Type": "application/yaml" };
    const answer = await ask("try", { method: "POST", headers, body: text });
    tried = { text, nodes: answer.takes };
    fill(into, ...triedParts(answer));
  } catch (error) {
    tried = { text: "", nodes: {} };
    fill(into, el("p", { className: "no" }, error.message));
  }
  drawMain();
}

function triedParts({ fit, together, pods, explain, takes }) {
  const hosts = Object.entries(fit.copies).sort((a, b) => b[1] - a[1] || byName(a[0], b[0]));
  const painted = Object.entries(takes);
  return [
    el("p", {}, el("b", {}, `${fit.exact ? "" : "At least "}${fit.total} ${fit.total === 1 ? "copy" : "copies"}`),
      ` of it fit now${hosts.length ? ": " : "."}`, hosts.slice(0, 8).map(([name, n]) => `${n} on ${name}`).join(", "),
      hosts.length > 8 ? ` and ${count(hosts.length - 8, "more node")}` : ""),
    together ? el("p", { className: together.verdict === "fits" ? "yes" : "no" },
      `All ${pods} together: ${together.verdict.replaceAll("_", " ")}. `
      + Object.entries(together.places).map(([pod, name]) => `${pod} → ${name}`).join(", ")) : null,
    painted.length ? el("p", {}, "Painted into the cells: ",
      painted.slice(0, 8).map(([name, cpus]) => `CPUs ${cpus} of ${name}`).join(", "),
      painted.length > 8 ? ` and of ${count(painted.length - 8, "more node")}` : "", ". ",
      goTo("Only these nodes", { show: "tried", as: "" })) : null,
    answerList(explain),
  ];
}
