// CPUs over time: two panels with a scale each, one axis of time, and a line at the moment that is shown.

const SVG = "http://www.w3.org/2000/svg";
const CHART = { width: 360, left: 44, right: 8, most: 300 };
const PANELS = [
  { title: "CPUs", top: 16, height: 84, lines: [["free", "free CPUs", "", "--pod4"], ["stranded", "stranded CPUs", "2 3", "--pod5"]] },
  { title: "CPUs of the largest free zone", top: 124, height: 40, lines: [["largest", "largest free zone", "", "--pod2"]] },
];

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// The smallest round number that is not less.
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((each) => each * power).find((each) => each >= value);
}

function pointAt(points, moment) {
  let found = points[0];
  for (const point of points) if (point.at <= moment) found = point;
  return found;
}

function chart(points, from, to, moment) {
  const { width, left, right } = CHART;
  const span = Math.max(1, to - from);
  const across = (at) => left + (width - left - right) * Math.min(1, Math.max(0, (at - from) / span));
  const every = Math.max(1, Math.ceil(points.length / CHART.most));
  const drawn = points.filter((_, place) => place % every === 0 || place === points.length - 1);
  const parts = [];
  for (const { title, top, height, lines } of PANELS) {
    const most = niceCeiling(Math.max(...drawn.flatMap((point) => lines.map(([key]) => point[key]))));
    const down = (value) => top + height * (1 - value / most);
    parts.push(svg("text", { x: left, y: top - 5 }, title));
    for (const tick of most > 1 ? [0, most / 2, most] : [0, 1]) {
      parts.push(svg("line", { class: "rule", x1: left, x2: width - right, y1: down(tick), y2: down(tick) }),
        svg("text", { x: left - 4, y: down(tick) + 4, "text-anchor": "end" }, tick.toLocaleString("en")));
    }
    for (const [key, , dash, colour] of lines) {
      const line = drawn.length > 1 ? drawn : [{ ...drawn[0], at: from }, { ...drawn[0], at: to }];
      const drawnLine = svg("polyline", { fill: "none", "stroke-width": 2, "stroke-dasharray": dash,
        points: line.map((point) => `${across(point.at).toFixed(1)},${down(point[key]).toFixed(1)}`).join(" ") });
      drawnLine.style.stroke = `var(${colour})`;
      parts.push(drawnLine);
    }
  }
  const bottom = PANELS[1].top + PANELS[1].height;
  for (const [at, anchor] of [[from, "start"], [from + span / 2, "middle"], [from + span, "end"]]) {
    parts.push(svg("text", { x: across(at), y: bottom + 15, "text-anchor": anchor }, clock(at)));
  }
  parts.push(svg("line", { class: "cursor", x1: across(moment), x2: across(moment), y1: PANELS[0].top, y2: bottom }));
  const values = pointAt(points, moment);
  const told = PANELS.flatMap(({ lines }) => lines.map(([key, name]) => `${name} ${values[key].toLocaleString("en")}`));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${bottom + 20}`, role: "img",
    "aria-label": `At ${clock(moment)}: ${told.join(", ")}` }, ...parts);
  const caption = el("figcaption", {}, el("span", {}, el("b", {}, clock(moment))),
    ...PANELS.flatMap(({ lines }) => lines).map(([key, name, dash, colour]) => {
      const swatch = el("i", { className: dash ? "swatch dashed" : "swatch" });
      swatch.style.borderColor = `var(${colour})`;
      return el("span", {}, swatch, `${name} ${values[key].toLocaleString("en")}`);
    }));
  return [picture, caption];
}

// The moment under the pointer, or undefined beside the axis.
function momentAt(event, picture, from, to) {
  const box = picture.getBoundingClientRect();
  const { width, left, right } = CHART;
  const share = ((event.clientX - box.left) * width / box.width - left) / (width - left - right);
  return share >= 0 && share <= 1 ? from + share * Math.max(1, to - from) : undefined;
}
