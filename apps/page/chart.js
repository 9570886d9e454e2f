"use strict";
// Line charts in SVG, for all pages. A line: {label, colour: 0 to 7, dash, steps, mean, low, high}, of which low and high, where
// they are given, are the extremes of the values that a point stands for, drawn as a band. Texts never become markup.
//
//   const chart = lineChart(figure, {title, lines, marks: [{step, text}], onzoom: range => ...});
//   chart.draw({log: true, smoothing: 0.9, range: [100, 500], hidden: new Set(["train"])});

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "circle", "rect", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children);
  return made;
}

/// Six significant digits, thousands apart: 1,234,567 and 0.00123.
function number(value) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return value.toExponential(5).replace(/\.?0+e/, "e");
  return value.toLocaleString("en", {maximumSignificantDigits: Math.max(6, Math.floor(Math.log10(size || 1)) + 1)});
}

/// Short, for axes: 20k, 1.5M, 3e-5.
function shortNumber(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size !== 0 && size < 1e-3)) return value.toExponential().replace("e+", "e").replace(/(\.\d{2})\d*e/, "$1e");
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit && (unit > 1e3 || size >= 1e4)) return +(value / unit).toPrecision(4) + letter;
  return String(+value.toPrecision(4));
}

/// Round numbers within [low, high], about `count` of them.
function linearTicks(low, high, count) {
  const unit = 10 ** Math.floor(Math.log10((high - low) / count));
  const step = [1, 2, 5, 10].map(factor => factor * unit).find(size => (high - low) / size <= count) ?? 10 * unit;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length <= 2 * count; ++i)
    ticks.push(+(i * step).toPrecision(12));
  return ticks;
}

function logTicks(low, high) {
  const ticks = [], first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), every = Math.ceil((last - first) / 6);
  for (let power = first; power <= last; power += every)
    for (const factor of last - first <= 2 ? [1, 2, 5] : [1]) ticks.push(factor * 10 ** power);
  const inside = ticks.filter(tick => tick >= low && tick <= high);
  return inside.length > 1 ? inside : linearTicks(low, high, 5).filter(tick => tick > 0);
}

/// Exponential moving average, without the first value's weight.
function smoothed(values, weight) {
  let sum = 0, mass = 0;
  return values.map(value => {
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + 1 - weight;
    return sum / mass;
  });
}

/// Index of the value nearest to `step` among ascending ones.
function nearest(steps, step) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle; else high = middle;
  }
  return Math.abs(steps[low] - step) <= Math.abs(steps[high] - step) ? low : high;
}

function lineChart(figure, {title, lines, marks = [], onzoom}) {
  const height = 230, left = 56, right = 12, top = 10, bottom = 24;
  const box = element("div", {class: "chart"}), tip = element("div", {class: "tip", hidden: true}), legend = element("div", {class: "legend"});
  const note = element("div", {class: "soft"});
  figure.append(element("figcaption", {}, title), box, legend, note);
  const off = new Set();  // labels that the legend hides here
  let now = {log: false, smoothing: 0, range: null, hidden: new Set()}, frame = null;

  for (const line of lines) {
    const swatch = element("svg", {width: 22, height: 10, "aria-hidden": "true"},
                           element("path", {d: "M0 5H22", class: `line c${line.colour}`, "stroke-dasharray": line.dash}));
    const button = element("button", {class: "key", type: "button", "aria-pressed": "true"}, swatch, line.label);
    button.onclick = () => {
      off.has(line) ? off.delete(line) : off.add(line);
      button.setAttribute("aria-pressed", String(!off.has(line)));
      draw({});
    };
    line.button = button;
    legend.append(button);
  }

  /// What is shown of a line: its points within the range and one on either side.
  function visible(line) {
    const [from, to] = frame.x;
    let first = line.steps.findIndex(step => step >= from), last = line.steps.findLastIndex(step => step <= to);
    if (first < 0) first = line.steps.length - 1;
    return [Math.max(0, first - 1), Math.min(line.steps.length - 1, last + 1)];
  }

  function extent(shown) {
    let low = Infinity, high = -Infinity, left_out = 0;
    for (const line of shown) {
      const [first, last] = visible(line);
      for (let i = first; i <= last; ++i) {
        if (line.steps[i] < frame.x[0] || line.steps[i] > frame.x[1]) continue;
        for (const value of [line.low?.[i] ?? line.mean[i], line.high?.[i] ?? line.mean[i], line.drawn[i]]) {
          if (now.log && value <= 0) { ++left_out; continue; }
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    note.textContent = left_out ? `${left_out} values of 0 or less are not on the logarithmic axis` : "";
    if (low > high) return now.log ? [1, 10] : [0, 1];
    if (now.log) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
    const size = Math.max(Math.abs(low), Math.abs(high)), span = high - low;  // less is rounding of means
    const margin = span > 1e-9 * size ? span * .05 : size * .1 || 1;
    return [low - margin, high + margin];
  }

  function path(line, values, first, last) {
    let text = "", pen = "M";
    for (let i = first; i <= last; ++i) {
      if (now.log && values[i] <= 0) { pen = "M"; continue; }
      text += `${pen}${frame.px(line.steps[i]).toFixed(1)} ${frame.py(values[i]).toFixed(1)}`;
      pen = "L";
    }
    return text;
  }

  function band(line, first, last) {
    const point = (i, values) => `${frame.px(line.steps[i]).toFixed(1)} ${frame.py(Math.max(values[i], frame.floor)).toFixed(1)}`;
    const there = [], back = [];
    for (let i = first; i <= last; ++i) { there.push(point(i, line.high)); back.unshift(point(i, line.low)); }
    return `M${there.join("L")}L${back.join("L")}Z`;
  }

  function axes(svg, width) {
    const yTicks = now.log ? logTicks(...frame.y) : linearTicks(...frame.y, 6);
    for (const tick of yTicks)
      svg.append(element("line", {class: "grid", x1: left, x2: width - right, y1: frame.py(tick), y2: frame.py(tick)}),
                 element("text", {x: left - 6, y: frame.py(tick) + 4, "text-anchor": "end"}, shortNumber(tick)));
    for (const tick of linearTicks(...frame.x, Math.max(3, Math.floor(width / 75))))
      svg.append(element("text", {x: frame.px(tick), y: height - 8, "text-anchor": "middle"}, shortNumber(tick)));
    for (const mark of marks)
      if (mark.step >= frame.x[0] && mark.step <= frame.x[1])
        svg.append(element("line", {class: "mark", x1: frame.px(mark.step), x2: frame.px(mark.step), y1: top, y2: height - bottom},
                           element("title", {}, mark.text)));
  }

  function drawLine(group, line) {
    const [first, last] = visible(line);
    if (last < first) return;
    const style = `line c${line.colour}`;
    if (line.low) group.append(element("path", {d: band(line, first, last), class: `band c${line.colour}`}));
    if (now.smoothing > 0) group.append(element("path", {d: path(line, line.mean, first, last), class: style + " faint"}));
    group.append(element("path", {d: path(line, line.drawn, first, last), class: style, "stroke-dasharray": line.dash}));
    if (last - first < 40)
      for (let i = first; i <= last; ++i)
        if (!now.log || line.drawn[i] > 0)
          group.append(element("circle", {cx: frame.px(line.steps[i]), cy: frame.py(line.drawn[i]), r: 2.2, class: `dot c${line.colour}`}));
  }

  function draw(options) {
    now = {...now, ...options};
    const width = Math.max(240, box.clientWidth || 480);
    const shown = lines.filter(line => !off.has(line) && !now.hidden.has(line.run));
    for (const line of lines) {
      line.button.hidden = now.hidden.has(line.run);
      line.drawn = now.smoothing > 0 ? smoothed(line.mean, now.smoothing) : line.mean;
    }
    tip.hidden = true;
    let low = Math.min(...lines.map(line => line.steps[0])), high = Math.max(...lines.map(line => line.last?.[0] ?? line.steps.at(-1)));
    if (low === high) { low -= 1; high += 1; }
    frame = {x: now.range ?? [low, high]};
    frame.y = extent(shown);
    frame.floor = now.log ? frame.y[0] : -Infinity;
    const scale = now.log ? Math.log : value => value, [bottomValue, topValue] = frame.y.map(scale);
    frame.px = step => left + (step - frame.x[0]) / (frame.x[1] - frame.x[0]) * (width - left - right);
    frame.py = value => top + (topValue - scale(value)) / (topValue - bottomValue) * (height - top - bottom);
    frame.step = x => frame.x[0] + (x - left) / (width - left - right) * (frame.x[1] - frame.x[0]);
    const svg = element("svg", {viewBox: `0 0 ${width} ${height}`, height, width: "100%", tabindex: 0, role: "img",
                                "aria-label": `${title}: ${shown.map(line => line.label).join(", ")}`});
    const inside = [left - 4, top - 4, width - left - right + 8, height - top - bottom + 8];  // an inner picture cuts off what is outside
    const group = element("svg", {x: inside[0], y: inside[1], width: inside[2], height: inside[3], viewBox: inside.join(" ")});
    axes(svg, width);
    for (const line of shown) drawLine(group, line);
    svg.append(group);
    box.replaceChildren(svg, tip);
    listen(svg, shown, width);
  }

  function showTip(svg, shown, x, width) {
    svg.querySelector(".cross")?.remove();
    const step = frame.step(x), rows = [];
    let at = null;
    for (const line of shown) {
      const i = nearest(line.steps, step);
      if (line.steps[i] < frame.x[0] || line.steps[i] > frame.x[1]) continue;
      if (at === null || Math.abs(line.steps[i] - step) < Math.abs(at - step)) at = line.steps[i];
      const range = line.low && line.low[i] !== line.high[i] ? ` (${number(line.low[i])} to ${number(line.high[i])})` : "";
      const smooth = now.smoothing > 0 ? `, smoothed ${number(+line.drawn[i].toPrecision(6))}` : "";
      rows.push([line, i, `${number(line.mean[i])}${range}${smooth}`]);
    }
    tip.hidden = rows.length === 0;
    if (tip.hidden) return;
    svg.append(element("line", {class: "cross", x1: frame.px(at), x2: frame.px(at), y1: top, y2: height - bottom}));
    tip.replaceChildren(element("b", {}, `step ${number(at)}`),
                        ...rows.slice(0, 10).map(([line, i, text]) =>
                          element("div", {}, element("i", {class: `c${line.colour}`}), line.label +
                                  (line.steps[i] === at ? "" : ` at ${number(line.steps[i])}`) + ": ", element("b", {}, text))),
                        ...rows.length > 10 ? [`and ${rows.length - 10} more`] : []);
    tip.style.left = frame.px(at) < width / 2 ? `${frame.px(at) + 12}px` : "auto";
    tip.style.right = frame.px(at) < width / 2 ? "auto" : `${width - frame.px(at) + 12}px`;
  }

  function listen(svg, shown, width) {
    const place = event => {
      const area = svg.getBoundingClientRect();
      return Math.min(width - right, Math.max(left, (event.clientX - area.left) / area.width * width));
    };
    let start = null, selection = null;
    svg.onpointerdown = event => { if (event.button === 0) { start = place(event); svg.setPointerCapture(event.pointerId); } };
    svg.onpointermove = event => {
      const x = place(event);
      showTip(svg, shown, x, width);
      if (start === null) return;
      selection ??= svg.appendChild(element("rect", {class: "selection", y: top, height: height - top - bottom}));
      selection.setAttribute("x", Math.min(start, x));
      selection.setAttribute("width", Math.abs(x - start));
    };
    svg.onpointerup = event => {
      const from = start, to = place(event);
      start = null;
      selection?.remove();
      selection = null;
      if (from !== null && Math.abs(to - from) > 8) onzoom?.([frame.step(Math.min(from, to)), frame.step(Math.max(from, to))]);
    };
    svg.onpointercancel = () => { start = null; selection?.remove(); selection = null; };
    svg.onpointerleave = () => { tip.hidden = true; svg.querySelector(".cross")?.remove(); };
    svg.ondblclick = () => onzoom?.(null);
    svg.onkeydown = event => {
      const [from, to] = frame.x, part = (to - from) / 4;
      const range = {"+": [from + part, to - part], "-": [from - 2 * part, to + 2 * part], ArrowLeft: [from - part, to - part],
                     ArrowRight: [from + part, to + part], "0": null, Escape: null}[event.key];
      if (range === undefined) return;
      event.preventDefault();
      onzoom?.(range);
    };
  }

  return {draw};
}
