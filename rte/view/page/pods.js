// Pods: those that wait, with gangs as units, and all of them as a list that sorts.

const MOST_PODS = 500;

// Column -> what it is sorted by.
const COLUMNS = {
  pod: (row) => row.pod, node: (row) => row.node, zones: (row) => row.zones, cpus: (row) => row.amount,
  gang: (row) => row.gang, state: (row) => row.state,
};
const HEADS = { pod: "pod", node: "node", zones: "zones", cpus: "own CPUs", gang: "gang", state: "state" };

function podRow(pod, node) {
  const alone = node && !pod.cpus && !pod.containers ? "shared pool" : "in one zone";
  const placed = !node ? "waits" : pod.aligned === false ? "across zones" : alone;
  return {
    uid: pod.uid, pod: pod.pod, node: node?.name ?? "", zones: zonesText(pod.zones), cpus: node ? pod.cpus : "",
    amount: node ? parseList(pod.cpus).length : pod.cpus, gang: pod.gang ?? "",
    state: node && !pod.confirmed ? `${placed}, not confirmed` : placed,
  };
}

function podRows() {
  const rows = shown.waiting.map((pod) => [pod, null]);
  for (const node of shown.nodes.values()) for (const pod of node.pods) rows.push([pod, node]);
  return rows.filter(([pod, node]) => (!link.q || podHasWords(pod) || hasWords(node?.name))
    && (!link.pool || node?.pool === link.pool)
    && (link.show !== "crossing" || pod.aligned === false)).map(([pod, node]) => podRow(pod, node));
}

function drawPods() {
  cards.clear();
  sections.clear();
  lazily.disconnect();
  form = "pods";
  const [wanted, down] = link.sort.endsWith("-") ? [link.sort.slice(0, -1), -1] : [link.sort, 1];
  const column = COLUMNS[wanted] ? wanted : "pod";
  const by = COLUMNS[column];
  const compare = (a, b) => typeof by(a) === "number" ? by(a) - by(b) : byName(by(a), by(b));
  const rows = podRows().sort((a, b) => down * compare(a, b) || byName(a.pod, b.pod));
  const heads = Object.entries(HEADS).map(([key, text]) => {
    const here = key === column;
    return el("th", { scope: "col", "aria-sort": here ? (down > 0 ? "ascending" : "descending") : "none" },
      goTo(`${text}${here ? (down > 0 ? " ▲" : " ▼") : ""}`, { sort: here && down > 0 ? `${key}-` : key }));
  });
  const body = rows.slice(0, MOST_PODS).map((row) => el("tr", { "data-key": row.uid },
    el("td", {}, toPod(row.pod)), el("td", {}, row.node ? toNode(row.node) : ""), el("td", {}, row.zones),
    el("td", {}, row.cpus || (row.amount ? `${row.amount} wanted` : "")),
    el("td", {}, row.gang ? toGang(row.gang) : ""), el("td", {}, row.state)));
  fill($("nodes"),
    el("table", { className: "pods" }, el("caption", {}, count(rows.length, "pod"),
      rows.length > MOST_PODS ? `, the first ${MOST_PODS} of them; search to see others` : ""),
      el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body)));
}

function drawWaiting() {
  $("waits").textContent = shown.waits;
  const wanted = shown.waiting.filter((pod) => !link.q || podHasWords(pod));
  const units = new Map();
  for (const pod of wanted) {
    const key = pod.gang || pod.uid;
    if (!units.has(key)) units.set(key, []);
    units.get(key).push(pod);
  }
  const hidden = link.q ? 0 : shown.waits - shown.waiting.length;
  fill($("waiting").querySelector("ol"), ...[...units].map(([key, pods]) => waitingUnit(key, pods)),
    hidden > 0 ? el("li", { className: "soft" }, `and ${hidden} more`) : null,
    units.size ? null : el("li", { className: "soft" },
      shown.waits ? "No pod that waits is like that." : "No pod waits."));
}

function waitingUnit(key, pods) {
  const [first] = pods;
  const reason = el("div", { className: "soft" }, first.reason || `waits for ${first.scheduler}`);
  const cpus = pods.reduce((sum, pod) => sum + pod.cpus, 0);
  const size = cpus ? el("small", {}, ` ${count(cpus, "CPU")}`) : null;
  if (!first.gang) return el("li", { "data-key": first.uid }, toPod(first.pod), size, reason);
  return el("li", { "data-key": `gang ${key}` }, el("small", {}, "gang "), toGang(key),
    el("small", {}, ` ${count(pods.length, "pod")}`, cpus ? "," : ""), size, reason,
    el("details", {}, el("summary", {}, "its pods"), ...pods.map((pod) => el("div", { "data-key": pod.uid }, toPod(pod.pod)))));
}

function drawDecisions() {
  const known = link.t ? decisions.filter((each) => each.at <= Number(link.t)) : decisions;
  fill($("decisions").querySelector("ol"), ...known.slice(-60).reverse().map((each) => el("li",
    { "data-key": `${each.at} ${each.pod} ${each.node ?? ""}` }, toTime(each.at), ` ${each.pod} `,
    el("span", { className: "soft" }, each.node
      ? `→ ${each.node}${each.zones?.length ? `, ${zonesText(each.zones)}` : ""}` : each.reason))),
  known.length ? null : el("li", { className: "soft" }, "None so far."));
}
