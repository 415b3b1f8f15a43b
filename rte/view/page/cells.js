// CPU cells on a canvas. A column is a core, its threads lie one above the other.

// A pod's colour is one of seven, its pattern one of three: both themes keep 3:1 to what is around.
const COLOURS = 7;
const KINDS = COLOURS * 3;
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

// What each CPU of a node is painted as: CPU -> index of its pod, the kind of each pod, sets of the
// reserved CPUs, of those that belong to what is selected, and of those that a what-if would take.
function ownersOf(node) {
  const owners = new Map();
  const chosen = new Set();
  const kinds = kindsOf(node);
  node.pods.forEach((pod, index) => {
    for (const cpu of parseList(pod.cpus)) {
      owners.set(cpu, index);
      if (isChosen(pod)) chosen.add(cpu);
    }
  });
  return {
    owners, chosen, kinds: node.pods.map((pod) => kinds.get(pod.uid)),
    reserved: new Set(parseList(node.reserved)), tried: new Set(parseList(triedOn(node))),
  };
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function themeColours() {
  const names = ["edge", "reserved", "card", "text", "accent"];
  const colours = Object.fromEntries(names.map((name) => [name, css(`--${name}`)]));
  colours.pods = Array.from({ length: COLOURS }, (_, place) => css(`--pod${place}`));
  return colours;
}

function frame(pen, x, y, size, width, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.strokeRect(x + width / 2, y + width / 2, size - width, size - width);
}

function paintCell(pen, x, y, size, look, colours) {
  const { kind, reserved, tried, chosen } = look;
  pen.fillStyle = kind !== undefined ? colours.pods[kind % COLOURS] : reserved ? colours.reserved : colours.card;
  pen.fillRect(x, y, size, size);
  pen.strokeStyle = pen.fillStyle = colours.card;
  if (kind === undefined && reserved) {
    pen.fillRect(x, y + size / 2 - 1, size, 2);
  } else if (kind === undefined) {
    frame(pen, x, y, size, tried ? 2 : 1, tried ? colours.accent : colours.edge);
    pen.fillStyle = colours.accent;
    if (tried) pen.fillRect(x + size / 3, y + size / 3, size / 3, size / 3);
  } else if (kind >= 2 * COLOURS) {
    pen.fillRect(x + size / 3, y + size / 3, size / 3, size / 3);
  } else if (kind >= COLOURS) {
    pen.lineWidth = size / 5;
    pen.beginPath();
    pen.moveTo(x, y + size);
    pen.lineTo(x + size, y);
    pen.stroke();
  }
  if (chosen) frame(pen, x, y, size, 2, colours.text);
}

// Where the cells of a zone go in a canvas of this width.
function layout(cores, width, most, least = 8) {
  const cell = Math.max(least, Math.min(most, Math.floor((width + GAP) / Math.max(1, cores.length)) - GAP));
  const step = cell + GAP;
  const columns = Math.max(1, Math.floor((width + GAP) / step));
  const threads = cores.reduce((most, core) => Math.max(most, core.length), 1);
  const rowHeight = threads * step + 2;
  const height = Math.max(1, Math.ceil(cores.length / columns)) * rowHeight - 2;
  return { cell, step, columns, rowHeight, height };
}

// Draws a zone's cores as wide as the canvas is; canvas.cpuAt(x, y) tells the CPU at a place.
function paintZone(canvas, cores, held, sizes) {
  const width = canvas.clientWidth || 200;
  const { cell, step, columns, rowHeight, height } = layout(cores, width, ...sizes);
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const colours = themeColours();
  cores.forEach((core, place) => {
    const x = (place % columns) * step;
    const y = Math.floor(place / columns) * rowHeight;
    core.forEach((cpu, thread) => paintCell(pen, x, y + thread * step, cell, {
      kind: held.kinds[held.owners.get(cpu)], reserved: held.reserved.has(cpu),
      tried: held.tried.has(cpu), chosen: held.chosen.has(cpu),
    }, colours));
  });
  canvas.cpuAt = (x, y) => {
    const column = Math.floor(x / step);
    const row = Math.floor(y / rowHeight);
    const core = column < columns ? cores[row * columns + column] : undefined;
    return core?.[Math.floor((y - row * rowHeight) / step)];
  };
}
