// CPU cells on a canvas. A column is a core, its threads lie one above the other.

// Okabe and Ito's colours, told apart with every kind of colour vision; the rest is told by patterns.
const COLOURS = ["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"];
const KINDS = COLOURS.length * 3;
const CELL = 8;
const GAP = 1;

function parseList(text) {
  const out = [];
  for (const part of text ? text.split(",") : []) {
    const [first, last] = part.split("-").map(Number);
    for (let cpu = first; cpu <= (last ?? first); cpu++) out.push(cpu);
  }
  return out;
}

// UID -> colour and pattern: by its hash, so that it stays when others come and go; two pods of a
// node differ as long as there are enough.
function kindsOf(node) {
  const kinds = new Map();
  const taken = new Set();
  for (const { uid, cpus } of node.pods) {
    if (!cpus) continue;
    let kind = 0;
    for (const letter of uid) kind = (31 * kind + letter.charCodeAt(0)) % 1000003;
    kind %= KINDS;
    for (let tries = 0; taken.has(kind) && tries < KINDS; tries++) kind = (kind + 1) % KINDS;
    taken.add(kind);
    kinds.set(uid, kind);
  }
  return kinds;
}

// CPU -> index of its pod among the node's, the kind of each pod, and the set of reserved CPUs.
function ownersOf(node) {
  const owners = new Map();
  const kinds = kindsOf(node);
  node.pods.forEach((pod, index) => {
    for (const cpu of parseList(pod.cpus)) owners.set(cpu, index);
  });
  return { owners, kinds: node.pods.map((pod) => kinds.get(pod.uid)), reserved: new Set(parseList(node.reserved)) };
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function paintCell(pen, x, y, size, kind, reserved, colours) {
  if (kind === undefined) {
    pen.fillStyle = reserved ? colours.reserved : colours.free;
    pen.fillRect(x, y, size, size);
    return;
  }
  pen.fillStyle = COLOURS[kind % COLOURS.length];
  pen.fillRect(x, y, size, size);
  pen.strokeStyle = pen.fillStyle = colours.card;
  if (kind >= 2 * COLOURS.length) {
    pen.fillRect(x + size / 3, y + size / 3, size / 3, size / 3);
  } else if (kind >= COLOURS.length) {
    pen.lineWidth = size / 5;
    pen.beginPath();
    pen.moveTo(x, y + size);
    pen.lineTo(x + size, y);
    pen.stroke();
  }
}

function themeColours() {
  return { free: css("--free"), reserved: css("--reserved"), card: css("--card") };
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

// Draws a zone's cores as wide as the canvas is; canvas.cpuAt(x, y) tells the CPU at a place.
function paintZone(canvas, cores, held, most = 14) {
  const width = canvas.clientWidth || 200;
  const cell = Math.max(CELL, Math.min(most, Math.floor((width + GAP) / Math.max(1, cores.length)) - GAP));
  const step = cell + GAP;
  const columns = Math.max(1, Math.floor((width + GAP) / step));
  const threads = cores.reduce((most, core) => Math.max(most, core.length), 1);
  const rowHeight = threads * step + 2;
  const rows = Math.max(1, Math.ceil(cores.length / columns));
  const pen = sized(canvas, width, rows * rowHeight - 2);
  const colours = themeColours();
  cores.forEach((core, place) => {
    const x = (place % columns) * step;
    const y = Math.floor(place / columns) * rowHeight;
    core.forEach((cpu, thread) =>
      paintCell(pen, x, y + thread * step, cell, held.kinds[held.owners.get(cpu)], held.reserved.has(cpu), colours));
  });
  canvas.cpuAt = (x, y) => {
    const column = Math.floor(x / step);
    const row = Math.floor(y / rowHeight);
    const core = column < columns ? cores[row * columns + column] : undefined;
    return core?.[Math.floor((y - row * rowHeight) / step)];
  };
}

// Nodes as tiles, the darker the fuller: for more nodes than one looks at one by one.
function paintHeat(canvas, nodes) {
  const width = canvas.clientWidth || 600;
  const step = nodes.length > 1500 ? 9 : 13;
  const columns = Math.max(1, Math.floor(width / step));
  const pen = sized(canvas, width, Math.ceil(nodes.length / columns) * step);
  const colours = themeColours();
  nodes.forEach((node, place) => {
    const x = (place % columns) * step;
    const y = Math.floor(place / columns) * step;
    const total = node.zones.reduce((sum, zone) => sum + zone.cpus, 0);
    const free = node.zones.reduce((sum, zone) => sum + zone.free, 0);
    pen.globalAlpha = 1;
    pen.fillStyle = colours.free;
    pen.fillRect(x, y, step - 1, step - 1);
    if (node.trust) {
      pen.strokeStyle = css("--bad");
      pen.strokeRect(x + 1.5, y + 1.5, step - 4, step - 4);
    } else {
      pen.globalAlpha = total ? 1 - free / total : 0;
      pen.fillStyle = "#0072b2";
      pen.fillRect(x, y, step - 1, step - 1);
    }
  });
  pen.globalAlpha = 1;
  canvas.nodeAt = (x, y) => nodes[Math.floor(y / step) * columns + Math.floor(x / step)];
}
